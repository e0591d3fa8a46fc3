"""Blocks with iterations in an order of their own (scans): their spatial loops in parallel.

    for i: for t: Y[i, t + 1] = Y[i, t] + X[i, t]    ->    parallel for i: for t: ..

Spatial loops outside those run in parallel, the last one inside them in vectors. What the
primitives refuse stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile

from ....errors import ScheduleError
from ....schedule.find import find_block
from ....tir.ir import IterKind, Label, Var
from ..access_patterns import extents
from ..common import widest
from ..draft import Draft
from ..rule import Group, Variant
from ..vectors import lanes_for


def ordered_variants(_draft: Draft, group: Group) -> Iterator[Variant]:
    """One schedule without decisions."""
    apply = functools.partial(schedule_ordered, label=group.labels[-1])
    yield Variant.of("ordered", apply)


def schedule_ordered(draft: Draft, label: Label) -> None:
    """Run the outer spatial loops of a block in parallel, and its innermost one in vectors."""
    sch = draft.schedule
    label = sch.get_block(label)
    block = find_block(sch.func, label)
    spatial = {i.value: i.var for i in block.iters if i.kind is IterKind.SPATIAL}
    loops = sch.get_loops(label)
    around: list[Var] = list(takewhile(lambda loop: loop in spatial, loops))
    if len(around) < len(loops) and loops[-1] in spatial:
        extent = extents(block)[spatial[loops[-1]]]
        lanes = lanes_for(draft.target.vector_bits, widest(block), extent)
        trial = sch.copy()
        try:
            _, vector = trial.split(loops[-1], factors=[None, lanes])
            trial.vectorize(vector)
        except ScheduleError:
            pass
        else:
            draft.schedule = sch = trial
    if around:
        with suppress(ScheduleError):
            draft.map_outer(*around)
