"""The program that results are checked against: as it was written, but along memory.

A reduction over the rows of an operand jumps from row to row, and a large one takes seconds where
its loops stand the other way round milliseconds. Each element is summed up in the same order.
"""

from __future__ import annotations

from ...schedule import Schedule
from ...schedule.find import blocks_in
from ...tir.ir import Block, Func, Var
from ..rules.access_patterns import inputs_of, output_of, reduced, spatial
from ..rules.common import result_or_none


def interchanged(func: Func) -> Func:
    """`func` with the loop along rows inside of its reductions, where they read rows."""
    schedule = Schedule(func)
    for block in list(blocks_in(func.body)):
        along = _along(block)
        if along is not None:
            # Where the loops are not those of the block, it stays as it is, which is right as well.
            schedule = result_or_none(_turned, schedule, block, along) or schedule
    return schedule.func


def _along(block: Block) -> Var | None:
    """The variable along which a reduction writes rows and reads some."""
    out = output_of(block)
    if out is None or not reduced(block):
        return None
    return next(
        (
            v
            for v in spatial(block)
            if out.strides.get(v) == 1 and any(i.strides.get(v) == 1 for i in inputs_of(block))
        ),
        None,
    )


def _turned(schedule: Schedule, block: Block, along: Var) -> Schedule:
    turned = schedule.copy()
    label = turned.get_block(block.label.name)
    loops = dict(zip([i.var for i in block.iters], turned.get_loops(label), strict=False))
    turned.decompose_reduction(label, loops[block.iters[0].var])
    turned.reorder(*(loop for v, loop in loops.items() if v is not along), loops[along])
    return turned
