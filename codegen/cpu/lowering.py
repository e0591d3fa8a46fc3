"""Lowering for processors: the flat list of passes, each a file of `codegen/passes/`."""

from __future__ import annotations

from ...target import CpuTarget
from ..generator import Pass
from ..passes.blocks import blocks
from ..passes.compact import compact
from ..passes.drop_masks import drop_masks
from ..passes.flatten import flatten
from ..passes.hoist import hoist
from ..passes.instructions import instructions
from ..passes.peel import peel
from ..passes.registers import registers
from ..passes.tails import tails
from ..passes.tree_reduce import tree_reduce
from ..passes.trim import trim
from ..passes.unroll import unroll
from ..passes.vectorize import vectorize


def passes(target: CpuTarget) -> tuple[Pass, ...]:
    """From a scheduled program to one that compiles line by line: without blocks, with one index
    per access, explicit vectors and unrolled loops."""
    bits, mask_bits = target.vector_bits, target.mask_bits
    return (
        Pass("blocks", blocks),
        Pass("trim", trim),
        Pass("compact", compact),
        Pass("peel", lambda func: peel(func, bits, mask_bits is not None)),
        Pass("tails", lambda func: tails(func, bits)),
        Pass("flatten", flatten),
        Pass("instructions", instructions),
        Pass("hoist", hoist),
        Pass("vectorize", lambda func: vectorize(func, bits, mask_bits)),
        Pass("tree_reduce", tree_reduce, reorders=True),
        Pass("unroll", unroll),
        Pass("registers", registers),
        Pass("drop_masks", drop_masks),
    )
