"""Rows that no cache holds, with a sum that needs another statistic: softmax, layer_norm.

for rows (parallel):
  for each piece of the row, which the first cache holds:
    its maximum, then its sum of exponentials relative to that; or its mean, then its squared
    distances from that
  the statistics of the row from those of the pieces
  what is computed with them, exponentials again

The rows are read twice and written once; exponentials that are kept are written and read more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ....base import dtypes
from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ....schedule.find import find_block
from ....target import CpuTarget
from ....tir.ir import Block, Func, Label, Var
from ..access_patterns import consumers, extents, is_expensive, output_of, reduced, row_dimensions
from ..common import fused, lanes_for, result_or_none, succeeds
from ..draft import Draft
from ..rule import Group, Variant
from .rows import schedule_reduction, schedule_spatial

_UNROLLED = 8
"""The most vectors that a step of a row takes, which the pieces of a row are multiples of."""

PieceSteps = Callable[[Schedule, Var], tuple[Label, ...]]
"""Computes two reductions for each iteration of a loop of the second; the blocks of the pieces."""


@dataclass(frozen=True)
class _Statistics:
    """A reduction of a row that is computed by pieces together with another one, `length` long.

    Before that, the block `inlined` is inlined into it, and factors of the terms of `hoisted` are
    applied to the sums. `pair` makes the pieces.
    """

    total: Label
    pair: PieceSteps
    length: int
    inlined: Label | None = None
    hoisted: tuple[Label, ...] = ()


def online_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """The chain with the statistics of its rows found in one pass, where a row is too long."""
    count = row_dimensions(draft.func, group.members[-1])
    statistics = _statistics(draft, group.members) if count else None
    if count and statistics is not None:
        apply = functools.partial(_apply, count=count, statistics=statistics, labels=group.labels)
        yield Variant.of("online", apply)


def _statistics(draft: Draft, members: Sequence[Block]) -> _Statistics | None:
    """The reductions to compute in one pass; `None` where there are none, or rows are short."""
    for statistics in _candidates(draft, members):
        trial = draft.copy()
        for block in members:
            trial.schedule.get_block(block.label)
        if succeeds(_take_pieces, trial.schedule, statistics):
            return statistics
    return None


def _candidates(draft: Draft, members: Sequence[Block]) -> Iterator[_Statistics]:
    """Pairs of reductions that may be computed together, for primitives to judge."""
    sums = [b.label for b in members[:-1] if has_reduction(b)]
    for hoisted in ((), tuple(sums)):
        for inlined, total in _sums(draft.func, members):
            length = _piece(draft.block(total), CpuTarget.of(draft.target))
            if length is None:
                continue
            for pair in (Schedule.online_softmax, Schedule.online_variance):
                yield _Statistics(total, pair, length, inlined, hoisted)


def _sums(func: Func, members: Sequence[Block]) -> Iterator[tuple[Label | None, Label]]:
    """Members that are reductions, also with what is costly and would be inlined into them."""
    inner = {m.label for m in members[:-1]}
    for block in members[:-1]:
        if has_reduction(block):
            yield None, block.label
        elif is_expensive(block):
            yield from (
                (block.label, b.label)
                for b in consumers(func, block)
                if b.label in inner and has_reduction(b)
            )


def _piece(total: Block, cpu: CpuTarget) -> int | None:
    """How much of a row half of the first cache holds; `None` where the second holds it twice.

    The last piece, too, has enough elements for the vectors of a step.
    """
    out = output_of(total)
    if out is None or len(reduced(total)) != 1:
        return None
    extent = extents(total)[reduced(total)[0]]
    size = dtypes.nbytes(out.buffer.dtype)
    if 2 * extent * size < cpu.l2_bytes:
        return None
    step = _UNROLLED * lanes_for(cpu.vector_bits, out.buffer.dtype, extent)
    most = max(1, cpu.l1_bytes // (2 * size * step))
    pieces = [n * step for n in range(most, most // 4, -1)]
    even = [p for p in pieces if extent % p == 0]
    return next(iter(even or [p for p in pieces if extent % p >= step]), None)


def _take_pieces(sch: Schedule, statistics: _Statistics) -> tuple[Label, Label]:
    """The blocks of both reductions of pieces."""
    if statistics.inlined is not None:
        sch.compute_inline(statistics.inlined)
    for label in statistics.hoisted:
        if (scaled := result_or_none(sch.hoist_factor, label)) is not None:
            sch.compute_inline(scaled)
    row = sch.get_loops(statistics.total)[-1]
    pieces, _ = sch.split(row, factors=[None, statistics.length])
    first, part = statistics.pair(sch, pieces)
    return first, part


def _apply(draft: Draft, count: int, statistics: _Statistics, labels: Sequence[Label]) -> None:
    sch = draft.schedule
    labels = [sch.get_block(label) for label in labels]
    root = labels[-1]
    first, part = _take_pieces(sch, statistics)
    top = fused(sch, sch.get_loops(root)[:count])
    inner = [v for v in labels[:-1] if v is not statistics.inlined]
    place = next(n for n, v in enumerate(inner) if v is statistics.total)
    inner = [first, *inner[:place], part, *inner[place:]]
    for label in reversed(inner):
        sch.compute_at(label, top)
    sch.reverse_compute_at(part, sch.get_loops(first)[-2])
    for label in (*inner, root):
        if has_reduction(find_block(sch.func, label)):
            schedule_reduction(draft, label)
        else:
            schedule_spatial(draft, label, skip=1)
    draft.map_outer(top)
