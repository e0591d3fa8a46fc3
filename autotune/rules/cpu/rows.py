"""Chains that share their rows: row reductions, softmax, layer_norm.

for rows (parallel):
  for each stage of the chain:
    partial results in vectors, combined at the end of the row; or the row in vectors

An argmax is computed from the maximum, for which only a piece of the row is searched. Where its
values are expensive, vectors of numbers beside those of values are tried too.

The argmax of long rows: their maximum, and the first place that has it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

from ....schedule import Schedule
from ....schedule.block_queries import feeding, has_reduction
from ....schedule.find import blocks_in, find_block, find_loop
from ....schedule.primitives.locate import is_extremum
from ....schedule.require import certain
from ....target import CpuTarget
from ....tir.ir import Block, IterKind, Label, Var
from ....tir.updates import match_updates
from ..access_patterns import (
    extents,
    inputs_of,
    is_expensive,
    outputs_of,
    reduced,
    reduced_run,
    row_dimensions,
)
from ..common import fused, in_registers, lanes_for, nbytes, unroll_hint, widest
from ..draft import Draft
from ..rule import Group, Variant


def rows_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """The chain computed row by row, and the next row of what it reads prefetched meanwhile."""
    count = row_dimensions(draft.func, group.members[-1]) or 0
    prefetched = _prefetched(draft, group.members) if count else None
    searched = pieces_searched(draft, group.members) if count else {}

    def apply(
        draft: Draft,
        prefetched: tuple[Label, int] | None = None,
        searched: Mapping[Label, int | None] | None = None,
    ) -> None:
        sch = draft.schedule
        labels = search(sch, group.labels, searched or {})
        root = sch.get_block(labels[-1])
        rows = list(sch.get_loops(root)[:count])
        top = fused(sch, rows) if rows else None
        if top is not None:
            for label in reversed(labels[:-1]):
                sch.compute_at(sch.get_block(label), top)
        for label in map(sch.get_block, labels):
            if has_reduction(draft.block(label)):
                moved = schedule_reduction(draft, label, top if label is root else None)
                top = moved if label is root else top
                continue
            step = schedule_spatial(draft, label, skip=1 if rows else 0)
            if prefetched is None or label is not prefetched[0]:
                continue
            if step is not None and top is not None:
                unroll_hint(sch, sch.prefetch(label, prefetched[1], step, top), step)
        if top is not None:
            draft.map_outer(top)

    if searched:
        yield Variant.of("rows_searched", functools.partial(apply, searched=searched), search=True)
        if not any(is_expensive(b) for b in group.members if b.label in searched):
            return
    if prefetched is not None:
        ahead = functools.partial(apply, prefetched=prefetched)
        yield Variant.of("rows_ahead", ahead, prefetch=True)
    # Without the option: that is its name in records, which transfer looks for.
    yield Variant.of("rows", apply)


def _prefetched(draft: Draft, members: Sequence[Block]) -> tuple[Label, int] | None:
    """The spatial member that prefetches the next row, and of which of its inputs.

    It is the one that computes most; the input comes from outside of the cache, and others of the
    chain read it before. `None` where there is none.
    """
    parameters, cached = set(draft.func.params), CpuTarget.of(draft.target).l2_bytes
    candidates: list[tuple[bool, int, int]] = []
    for number, block in enumerate(members):
        earlier = {r.buffer for b in members[:number] for r in b.reads}
        if has_reduction(block):
            continue
        for index, source in enumerate(inputs_of(block)):
            buffer = source.buffer
            far = nbytes(buffer) > cached
            if far and buffer in earlier and buffer in parameters:
                candidates.append((is_expensive(block), -number, index))
    if not candidates:
        return None
    _, number, index = max(candidates)
    return members[-number].label, index


def schedule_reduction(
    draft: Draft, label: Label, top: Var | None = None, least: int = 1
) -> Var | None:
    """Reduce in vectors of partial results, which are combined at the end.

    Vectors run on through reduced dimensions that lie side by side; others are loops around them.
    Where the rows' loop `top` is around this block alone, the two parts are put into one such loop,
    which is returned. What is reduced has `least` elements at least where that is open.
    """
    sch, vector_bits = draft.schedule, draft.target.vector_bits
    block = find_block(sch.func, label)
    sizes = {v: extents(block).get(v, least) for v in reduced(block)}
    around, run = reduced_run(block, sizes)
    lanes = lanes_for(vector_bits, widest(block), math.prod(sizes[v] for v in run))
    if lanes == 1 and around:
        around, run = [], reduced(block)
        lanes = lanes_for(vector_bits, widest(block), math.prod(sizes.values()))
    extent = math.prod(sizes[v] for v in run)
    counts = [u for u in (1, 2, 4, 8) if u * lanes <= extent]
    if match_updates(block) is None or not outputs_of(block) or lanes == 1 or not counts:
        return top
    reduce = feeding(block, IterKind.REDUCE)
    loops = [v for v in sch.get_loops(label) if v in reduce]
    loop = fused(sch, loops[len(around) :])
    count = sch.sample_categorical(counts)
    _, inner = sch.split(loop, factors=[None, count * lanes])
    rank = len(block.writes[0].buffer.shape)
    partial = sch.rfactor(inner, rank)
    place = _own_loop(sch, label)
    if top is not None:
        top = sch.get_loops(label)[0]
        place = top if place is None else place
    if place is not None:
        sch.compute_at(partial, place)
        depth = len(around) + 2
        lane, *steps = sch.get_loops(partial)[-depth:]
        sch.reorder(*steps, lane)
    _partial_results(sch, partial, lanes)
    final = sch.get_loops(label)[-1]
    _, vector = sch.split(final, factors=[None, lanes])
    lanewise = sch.rfactor(vector, rank)
    parts = sch.get_loops(lanewise)[-2]
    _partial_results(sch, lanewise, lanes)
    sch.unroll(parts)
    sch.unroll(sch.get_loops(label)[-1])
    return top


def _own_loop(sch: Schedule, label: Label) -> Var | None:
    """The innermost of the loops that number a block's results, where it is alone in that loop."""
    spatial_loops = feeding(find_block(sch.func, label), IterKind.SPATIAL)
    numbering = [v for v in sch.get_loops(label) if v in spatial_loops]
    around = [s for s in (find_loop(sch.func, v) for v in numbering) if not certain(s.extent == 1)]
    return around[-1].var if around and len(list(blocks_in(around[-1]))) == 1 else None


def schedule_spatial(draft: Draft, label: Label, skip: int, least: int = 1) -> Var | None:
    """Cut the last loop into vectors; returns the loop over them, if there is one.

    It has `least` iterations at least where their number is open.
    """
    sch = draft.schedule
    block = find_block(sch.func, label)
    loops = sch.get_loops(label)
    if len(loops) <= skip:
        return None
    extent = extents(block).get(block.iters[-1].var, least)
    lanes = lanes_for(draft.target.vector_bits, widest(block), extent)
    counts = [u for u in (1, 2, 4) if u * lanes <= extent]
    if lanes == 1 or not counts:
        return None
    count = sch.sample_categorical(counts)
    steps, *registers = sch.split(loops[-1], factors=[None, count, lanes])
    in_registers(sch, registers)
    return steps


def _partial_results(sch: Schedule, label: Label, lanes: int) -> None:
    """Hold the partial results of a block in vector registers while it reduces."""
    block = find_block(sch.func, label)
    reduce = feeding(block, IterKind.REDUCE)
    *around, last = sch.get_loops(label)
    reducing = [v for v in around if v in reduce]
    for n in range(len(outputs_of(block))):
        sch.set_scope(label, n, "register")
    in_registers(sch, sch.split(last, factors=[None, lanes]))
    if reducing:
        sch.decompose_reduction(label, reducing[0])


LEAST = 256
"""Rows of fewer elements are searched as they are."""
UNROLLED = 2
"""The vectors of a step, which a piece is a multiple of."""


def pieces_searched(draft: Draft, members: Sequence[Block]) -> dict[Label, int | None]:
    """The blocks that are an argmax or argmin along memory, each with the size of its pieces.

    That is `None` where a row is one piece. There are none where no vector fits into a row.
    """
    found: dict[Label, int | None] = {}
    for block in members:
        matched = match_updates(block)
        if matched is None or [is_extremum(u) for u in matched.updates] != [True]:
            continue
        last = reduced(block)[-1]
        if any(i.strides.get(last, 1) != 1 for i in inputs_of(block)):
            continue
        length = extents(block)[last]
        lanes = lanes_for(draft.target.vector_bits, outputs_of(block)[1].buffer.dtype, length)
        if lanes > 1:
            found[block.label] = _piece(length, lanes) if length >= LEAST else None
    return found


def _piece(length: int, lanes: int) -> int:
    """A size of pieces: about eight times as many elements as there would be pieces of that size.

    The maximum of a piece takes about as long as to look at so many elements. Of sizes near that,
    the one with which the fewest elements are read twice.
    """
    wanted = 8 * math.sqrt(length)
    step = UNROLLED * lanes
    sizes = [n for n in range(step, length, step) if 2 / 3 <= n / wanted <= 3 / 2] or [step]
    return min(sizes, key=lambda n: (-(-length // n) * n, abs(math.log(n / wanted))))


def search(
    sch: Schedule, labels: Sequence[Label], searched: Mapping[Label, int | None]
) -> list[Label]:
    """Compute the blocks `searched` from their extreme values. Returns all blocks in order."""
    found: list[Label] = []
    for label in labels:
        if label in searched:
            found += sch.locate_extremum(sch.get_block(label), searched[label])
        found.append(label)
    return found
