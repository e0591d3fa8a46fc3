"""The program that results are checked against: as it was written, but along memory.

A reduction over the rows of an operand jumps from row to row, and a large one takes seconds where
its loops stand the other way round milliseconds. Each element is summed up in the same order.

What a target asks of all programs is done as well: on GPUs it is bound to axes by default.
"""

from __future__ import annotations

from ...schedule import Schedule
from ...schedule.find import blocks_in
from ...target import Target
from ...tir.ir import Block, Func, Var
from ..rules.access_patterns import inputs_of, output_of, reduced, spatial
from ..rules.common import result_or_none
from ..rules.rule_sets import rules_for
from ..search.sketch import written


def reference_program(func: Func, target: Target) -> Func:
    """`func`, ready to be compiled for a target."""
    if rules_for(target).complete is None:
        return interchanged(func)
    return written(func, target).trace.with_row(()).apply(func).func


def interchanged(func: Func) -> Func:
    """`func` with the loop along rows inside of its reductions, where they read rows."""
    schedule = Schedule(func)
    for block in list(blocks_in(func.body)):
        along = _along(block)
        if along is not None:
            # What is refused stays as it is, which is right as well.
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
    """The loop of `along` inside of the other ones, in whatever order these are.

    Nothing changes where it is there already, or the loops are not one for each variable.
    """
    turned = schedule.copy()
    label = turned.get_block(block.label)
    loops = turned.get_loops(label)
    values = {i.value: i.var for i in block.iters}
    if len(loops) != len(block.iters) or not values.keys() >= set(loops):
        return schedule
    if values[loops[-1]] is along:
        return schedule
    turned.decompose_reduction(label, loops[0])
    turned.reorder(*sorted(loops, key=lambda loop: values[loop] is along))
    return turned
