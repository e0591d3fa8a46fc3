"""Pipelines of stencils: stages that read windows of each other.

A stage is computed inside the element that reads it, inside the row that reads it, inside tiles of
the last stage's rows with the rows that neighbouring tiles need computed again, or on its own: the
choices of Halide's schedules (Ragan-Kelley et al., "Halide", PLDI 2013).

Stages whose rows wrap around are computed on their own. The first tile needs the last rows too,
which are no range of rows together with its own: each tile would compute the whole stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ....base.errors import ScheduleError
from ....schedule.block_queries import region_buffers
from ....tir.ir import Binary, Block, Const, Dim, Label, Op, Region, Var
from ....tir.structure import key_of
from ....tir.visit import substitute, walk
from ..access_patterns import consumers, extents, inputs_of
from ..common import lanes_for, powers, unroll_counts, widest
from ..draft import Draft
from ..row_reads import cheap_stages
from ..rule import Group, Variant
from .elementwise import schedule_elementwise

MAX_ROWS = 128
MAX_UNROLL = 4


def pipeline_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Stages in tiles of rows, in rows, on their own, or inside the elements that read them."""
    del draft
    labels = [b.label for b in group.members]
    cheap = cheap_stages(group.members)

    def inlined(draft: Draft, stages: Sequence[Label]) -> None:
        for label in stages:
            draft.schedule.compute_inline(draft.schedule.get_block(label))

    def tiled(draft: Draft) -> None:
        inlined(draft, cheap)
        _tile(draft, [label for label in labels if label not in cheap], by_row=False)

    def rows(draft: Draft) -> None:
        inlined(draft, cheap)
        _tile(draft, [label for label in labels if label not in cheap], by_row=True)

    def apart(draft: Draft) -> None:
        inlined(draft, cheap)
        for label in labels:
            if label not in cheap:
                schedule_elementwise(draft, draft.schedule.get_block(label))

    def inside(draft: Draft) -> None:
        inlined(draft, labels[:-1])
        schedule_elementwise(draft, draft.schedule.get_block(labels[-1]))

    forms = (("tiled", tiled), ("rows", rows), ("apart", apart), ("inside", inside))
    for form, step in forms:
        yield Variant.of(form, step, form=form)


def _tile(draft: Draft, labels: Sequence[Label], *, by_row: bool) -> None:
    """Tile the last stage's outer variables, and compute the others in its tiles.

    With `by_row`, tiles are along the first variable alone. Stages are computed in the rows that
    read them, or the planes, where each is read in one alone.
    """
    sch = draft.schedule
    *stages, last = [sch.get_block(label) for label in labels]
    block = draft.block(last)
    sizes = extents(block)
    loops = dict(zip([i.var for i in block.iters], sch.get_loops(last), strict=True))
    along = block.iters[-1].var
    moved = _moving(draft, block) - {along}
    moving = [v for v in loops if v in moved and sizes[v] > 1]
    if not moving or not stages:
        raise ScheduleError("no stage moves with a variable that is tiled")
    blocks = [draft.block(label) for label in (*stages, last)]
    if any(_wraps_rows(draft, b) for b in blocks):
        raise ScheduleError("the rows of a stage wrap around")
    unit = _unit(blocks)
    outer, inner = [], []
    for v in moving[:1] if by_row else moving:
        counts = [n for n in powers(MAX_ROWS // unit) if n * unit <= sizes[v]]
        rows = sch.sample_categorical(counts or [1]) * unit
        o, i = sch.split(loops[v], factors=[None, rows])
        outer.append(o)
        inner.append(i)
    inner += [loops[v] for v in moving[len(inner) :]]
    rest = [loop for v, loop in loops.items() if v not in {along, *moving}]
    within = [*inner, *rest] if by_row else [*rest, *inner]
    sch.reorder(*outer, *within, loops[along])
    unroll = sch.sample_categorical(unroll_counts(blocks, powers(MAX_UNROLL)))
    if by_row:
        _compute_in_rows(draft, stages, outer[-1], {block.label: tuple(inner)})
    else:
        for label in reversed(stages):
            sch.compute_at(label, outer[-1])
    for label in stages:
        _vectors(draft, label, unroll)
    _vectors(draft, last, unroll)
    draft.map_outer(outer[0])


def _compute_in_rows(
    draft: Draft, stages: Sequence[Label], tile: Var, slabs: dict[Label, tuple[Var, ...]]
) -> None:
    """Compute stages in the planes or rows that read them, or in tiles.

    `slabs` are the loops of blocks along the first dimensions: an iteration of the last of them is
    a row.
    """
    sch = draft.schedule
    together = 0
    for label in reversed(stages):
        shared = _shared_slabs(draft, label, slabs)
        sch.compute_at(label, shared[-1] if shared else tile)
        block = draft.block(label)
        loops = sch.get_loops(label)[-len(block.iters) :]
        slabs[block.label] = (*shared, *loops[len(shared) : -1])
        together += len(shared)
    if not together:
        raise ScheduleError("no stage is read in one row or plane at a time")


def _shared_slabs(
    draft: Draft, label: Label, slabs: Mapping[Label, tuple[Var, ...]]
) -> tuple[Var, ...]:
    """The loops around all readers of a stage whose iterations read the same slab of it."""
    block = draft.block(label)
    (buffer,) = region_buffers(block.writes)
    readers = consumers(draft.func, block)
    common = [Var(f"v{n}") for n in range(max(len(r.iters) for r in readers))]

    def slab(reader: Block, region: Region) -> list[object]:
        names = {i.var: v for i, v in zip(reversed(reader.iters), common, strict=False)}
        return [key_of(substitute(x.min, names)) for x in region.ranges[:-1]]

    read = [slab(r, region) for r in readers for region in r.reads if region.buffer is buffer]
    around = [slabs[r.label] for r in readers]
    shared: list[Var] = []
    for places, loops in zip(zip(*read, strict=True), zip(*around, strict=False), strict=False):
        if len(set(places)) > 1 or len(set(loops)) > 1:
            break
        shared.append(loops[0])
    return tuple(shared)


def _wraps_rows(draft: Draft, block: Block) -> bool:
    """Whether a block reads rows of a stage that follow the last one with the first."""
    return any(
        type(n) is Binary and n.op is Op.MOD and type(n.b) is Const and n.b.value == size
        for region in block.reads
        if region.buffer in draft.func.allocs
        for x, size in zip(region.ranges[:-1], region.buffer.shape[:-1], strict=True)
        for n in walk(x.min)
    )


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
    lanes = lanes_for(draft.target.vector_bits, widest(block), extent)
    _, several, vector = sch.split(sch.get_loops(label)[-1], factors=[None, unroll, lanes])
    sch.vectorize(vector)
    sch.unroll(several)
