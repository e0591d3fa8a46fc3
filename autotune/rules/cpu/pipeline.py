"""Pipelines of stencils: stages that read windows of each other.

A stage is computed inside the element that reads it, inside tiles of the last stage's rows with the
rows that neighbouring tiles need computed again, or on its own: the choices of Halide's schedules
(Ragan-Kelley et al., "Halide", PLDI 2013).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ....errors import ScheduleError
from ....tir.ir import INDEX, Binary, Block, Const, Dim, Label, Op, Var
from ....tir.visit import walk
from ..access_patterns import extents, inputs_of, loads
from ..common import powers, widest
from ..draft import Draft
from ..rule import Group, Variant
from .elementwise import schedule_elementwise
from .vectors import lanes_for

MAX_ROWS = 128
MAX_UNROLL = 4


def pipeline_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Stages in tiles of rows, on their own, or inside the elements that read them."""
    del draft
    labels = [b.label for b in group.members]
    cheap = _cheap(group.members)

    def inlined(draft: Draft, stages: Sequence[Label]) -> None:
        for label in stages:
            draft.schedule.compute_inline(draft.schedule.get_block(label))

    def tiled(draft: Draft) -> None:
        inlined(draft, cheap)
        _tile(draft, [label for label in labels if label not in cheap])

    def apart(draft: Draft) -> None:
        inlined(draft, cheap)
        for label in labels:
            if label not in cheap:
                schedule_elementwise(draft, draft.schedule.get_block(label))

    def inside(draft: Draft) -> None:
        inlined(draft, labels[:-1])
        schedule_elementwise(draft, draft.schedule.get_block(labels[-1]))

    for form, step in (("tiled", tiled), ("apart", apart), ("inside", inside)):
        yield Variant.of(form, step, form=form)


def _cheap(members: Sequence[Block]) -> list[Label]:
    """The stages that take no more than a load and an operation or two."""
    return [
        b.label
        for b in members[:-1]
        if sum(loads(b, i.buffer) for i in inputs_of(b)) <= 1 and _operations(b) <= 2
    ]


def _operations(block: Block) -> int:
    return sum(type(n) is Binary and n.dtype != INDEX for n in walk(block.body))


def _tile(draft: Draft, labels: Sequence[Label]) -> None:
    """Tile the last stage's outer variables, and compute the others in its tiles."""
    sch = draft.schedule
    *stages, last = [draft.schedule.get_block(label) for label in labels]
    block = draft.block(last)
    sizes = extents(block)
    loops = dict(zip([i.var for i in block.iters], sch.get_loops(last), strict=True))
    along = block.iters[-1].var
    moved = _moving(draft, block) - {along}
    tiled = [v for v in loops if v in moved and sizes[v] > 1]
    if not tiled or not stages:
        raise ScheduleError("no stage moves with a variable that is tiled")
    unit = _unit([draft.block(label) for label in (*stages, last)])
    outer, inner = [], []
    for v in tiled:
        counts = [n for n in powers(MAX_ROWS // unit) if n * unit <= sizes[v]]
        rows = sch.sample_categorical(counts or [1]) * unit
        o, i = sch.split(loops[v], factors=[None, rows])
        outer.append(o)
        inner.append(i)
    rest = [loop for v, loop in loops.items() if v not in {along, *tiled}]
    sch.reorder(*outer, *rest, *inner, loops[along])
    unroll = sch.sample_categorical(powers(MAX_UNROLL))
    for label in reversed(stages):
        sch.compute_at(label, outer[-1])
    for label in stages:
        _vectors(draft, label, unroll)
    _vectors(draft, last, unroll)
    draft.map_outer(outer[0])


def _unit(blocks: Sequence[Block]) -> int:
    """The rows that tiles are multiples of: of those read at `i // 2` half as many are needed."""
    quotients = (n for b in blocks for r in b.reads for x in r.ranges for n in walk(x.min))
    divisors = {
        int(n.b.value)
        for n in quotients
        if type(n) is Binary and n.op is Op.FLOORDIV and type(n.b) is Const
    }
    return min(math.lcm(*divisors), MAX_ROWS)


def _moving(draft: Draft, block: Block) -> set[Var]:
    """The variables along which internal inputs of `block` move."""
    internal = [i for i in inputs_of(block) if i.buffer in draft.func.allocs]
    return {v for i in internal for v in i.used}


def _vectors(draft: Draft, label: Label, unroll: Dim) -> None:
    sch = draft.schedule
    block = draft.block(label)
    extent = extents(block)[block.iters[-1].var]
    lanes = lanes_for(draft.cpu, widest(block), extent)
    _, several, vector = sch.split(sch.get_loops(label)[-1], factors=[None, unroll, lanes])
    sch.vectorize(vector)
    sch.unroll(several)
