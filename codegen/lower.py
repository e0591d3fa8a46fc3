"""Lowering: run the passes of a kind of target on a scheduled `Func`.

`BLOCKS`, `TRIM` and `FLATTEN` are the passes that each kind of target lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..base.errors import BuildError
from ..target import Target
from ..tir.ir import Buffer, Func
from .generator import Pass, generator_for
from .passes.blocks import blocks
from .passes.flatten import flatten
from .passes.rewrite import loops
from .passes.trim import trim

Watcher: TypeAlias = Callable[[str, Func], object]
"""Is called with the name of each pass and its result, and with `""` and the program before."""


def lower(
    func: Func, target: Target, *, strict_fp: bool = False, watcher: Watcher | None = None
) -> Func:
    """Lower `func` by the passes for a resolved target.

    `strict_fp` leaves out the passes that change the order of floating-point arithmetic. Raises
    `BuildError` for a program with unknown extents or shapes, or too large to be unrolled.
    """
    check_concrete(func)
    if watcher is not None:
        watcher("", func)
    for step in generator_for(target).passes(target):
        if strict_fp and step.reorders:
            continue
        func = step.run(func)
        if watcher is not None:
            watcher(step.name, func)
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


BLOCKS = Pass(
    "blocks",
    blocks,
    "Replaces blocks by plain stores in loops, as only schedules need to know which iterations "
    "belong to which computation.",
)
TRIM = Pass(
    "trim",
    trim,
    "Ends loops where every guard in them has become false, as the iterations after that do "
    "nothing.",
)
FLATTEN = Pass(
    "flatten",
    flatten,
    "Turns the indices of each access into one offset, as memory has one dimension.",
)
