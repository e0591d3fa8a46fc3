"""Lowering: the flat list of passes between a scheduled `Func` and the LLVM emitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..errors import BuildError
from ..target import Target
from ..tir.ir import Buffer, Func
from .passes.blocks import blocks
from .passes.compact import compact
from .passes.drop_masks import drop_masks
from .passes.flatten import flatten
from .passes.hoist import hoist
from .passes.instructions import instructions
from .passes.registers import registers
from .passes.rewrite import loops
from .passes.tails import tails
from .passes.tree_reduce import tree_reduce
from .passes.trim import trim
from .passes.unroll import unroll
from .passes.vectorize import vectorize

Pass: TypeAlias = Callable[[Func, Target], Func]
Trace: TypeAlias = Callable[[str, Func], object]
"""Is called with the name of each pass and its result, and with `""` and the program before."""

PASSES: tuple[Pass, ...] = (
    blocks,
    trim,
    compact,
    tails,
    flatten,
    instructions,
    hoist,
    vectorize,
    tree_reduce,
    unroll,
    registers,
    drop_masks,
)
REORDERING: frozenset[Pass] = frozenset({tree_reduce})
"""Passes that change the order of floating-point arithmetic."""


def lower(
    func: Func, target: Target, *, strict_fp: bool = False, trace: Trace | None = None
) -> Func:
    """`func` without blocks, with one index per access, explicit vectors and unrolled loops.

    `strict_fp` leaves out the passes that change the order of floating-point arithmetic. Raises
    `BuildError` for a program with unknown extents or shapes, or too large to be unrolled.
    """
    check_concrete(func)
    if trace is not None:
        trace("", func)
    for run in PASSES:
        if strict_fp and run in REORDERING:
            continue
        func = run(func, target)
        if trace is not None:
            trace(run.__name__, func)
    return func


def check_concrete(func: Func) -> None:
    """Raise `BuildError` unless all extents of loops and shapes of buffers are integers."""
    for loop in loops(func.body):
        if not isinstance(loop.extent, int):
            raise BuildError("the extent of the loop {0} is not known", loop.var.name, hint=_HINT)
    buffers = [p for p in (*func.params, *func.allocs) if type(p) is Buffer]
    for b in buffers:
        if not all(isinstance(n, int) for n in b.shape):
            raise BuildError("the shape of {0} is not known: {1}", b.name, b.shape, hint=_HINT)


_HINT = "give the decisions of the schedule their values before building it"
