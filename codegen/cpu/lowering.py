"""Lowering for processors: the flat list of passes, each a file of `codegen/passes/`."""

from __future__ import annotations

from ...target import CpuTarget
from ..generator import Pass
from ..lower import BLOCKS, FLATTEN, TRIM
from ..passes.carry import carry
from ..passes.compact import compact
from ..passes.drop_masks import drop_masks
from ..passes.hoist import hoist
from ..passes.instructions import instructions
from ..passes.partial_sums import partial_sums
from ..passes.peel import peel
from ..passes.registers import registers
from ..passes.tails import tails
from ..passes.tree_reduce import tree_reduce
from ..passes.unroll import unroll
from ..passes.vectorize import vectorize


def passes(target: CpuTarget) -> tuple[Pass, ...]:
    """From a scheduled program to one that compiles line by line: without blocks, with one index
    per access, explicit vectors and unrolled loops."""
    bits, mask_bits = target.vector_bits, target.mask_bits
    return (
        BLOCKS,
        TRIM,
        Pass(
            "compact",
            compact,
            "Shrinks internal buffers to what is live at once, so that they take less memory and "
            "stay in a nearer cache.",
        ),
        Pass(
            "peel",
            lambda func: peel(func, bits, mask_bits is not None),
            "Splits off the ends of loops where indices are clamped, reflected or wrapped, so that "
            "the vectors between them are read from contiguous memory.",
        ),
        Pass(
            "tails",
            lambda func: tails(func, bits),
            "Decides guards of loops once for a tile: what is guarded is split into whole tiles "
            "and a tail, and a guard that others imply is dropped, so that most iterations have "
            "no comparisons.",
        ),
        FLATTEN,
        Pass(
            "instructions",
            instructions,
            "Replaces tensorized loops by their instruction, as one instruction computes what "
            "all their iterations do.",
        ),
        Pass(
            "hoist",
            hoist,
            "Moves values that are equal in all iterations of a loop in front of it, so that they "
            "are computed once.",
        ),
        Pass(
            "vectorize",
            lambda func: vectorize(func, bits, mask_bits),
            "Replaces vectorized loops by operations on vectors of the register's width, so that "
            "one instruction computes several iterations.",
        ),
        Pass(
            "tree_reduce",
            tree_reduce,
            "Combines the lanes of a vector by halves, as one lane after the other would wait for "
            "the result before it each time.",
            reorders=True,
        ),
        Pass(
            "unroll",
            unroll,
            "Copies the bodies of unrolled loops, so that nothing is counted and independent "
            "iterations run at once.",
        ),
        Pass(
            "carry",
            carry,
            "Keeps elements in registers that a serial loop stores and soon loads again, as each "
            "iteration would wait for memory.",
        ),
        Pass(
            "registers",
            registers,
            "Splits buffers in registers into single values, as registers have no addresses that "
            "an index could select.",
        ),
        Pass(
            "drop_masks",
            drop_masks,
            "Removes masks from registers whose disabled lanes nothing reads, as operations "
            "without masks are cheaper.",
        ),
        Pass(
            "partial_sums",
            lambda func: partial_sums(func, target.vector_registers),
            "Sums many terms by parts, each in registers of its own, as the rounding errors of one "
            "long sum add up.",
            reorders=True,
        ),
    )
