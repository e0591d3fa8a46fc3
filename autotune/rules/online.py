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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ... import dtypes
from ...errors import ScheduleError
from ...schedule import Schedule
from ...schedule.blocks import has_reduction
from ...schedule.find import find_block
from ...target import Target
from ...tir.ir import Block, Func, Label
from ..sketch import Draft, Rule
from ..structure import consumers, extents, in_order, is_expensive, output_of, reduced
from .common import fused, lanes_for
from .rows import row_dimensions, schedule_reduction, schedule_spatial

_PRIMITIVES = ("online_softmax", "online_variance")
_UNROLLED = 8
"""The most vectors that a step of a row takes, which the pieces of a row are multiples of."""


class _Statistics(NamedTuple):
    """The member, by number, that is to be inlined, the sum that needs a statistic, and a piece.

    `name` is the primitive that makes pieces of the sum, `piece` the length of one.
    """

    inlined: int | None
    total: int
    name: str
    piece: int


def online_variants(
    func: Func, members: list[Block], positions: list[int], target: Target
) -> Iterator[tuple[str, Rule]]:
    """The chain with the statistics of its rows found in one pass, where a row is too long."""
    count = row_dimensions(func, members[-1])
    found = _statistics(func, members, target)
    if count and found is not None:
        rule = functools.partial(_apply, count=count, found=found, positions=positions)
        yield "online", rule


def _statistics(func: Func, members: list[Block], target: Target) -> _Statistics | None:
    """What is to be computed in one pass; `None` where that is nothing, or of short rows."""
    places = {b.label: n for n, b in enumerate(in_order(func))}
    for inlined, total in _sums(func, members):
        piece = _piece(members[total], target)
        if piece is None:
            continue
        for name in _PRIMITIVES:
            found = _Statistics(inlined, total, name, piece)
            trial = Schedule(func)
            try:
                _in_pieces(trial, [trial.get_block(places[m.label]) for m in members], found)
            except ScheduleError:
                continue
            return found
    return None


def _sums(func: Func, members: list[Block]) -> Iterator[tuple[int | None, int]]:
    """Members that are reductions, also with what is costly and would be inlined into them."""
    numbers = {m.label: n for n, m in enumerate(members[:-1])}
    for number, block in enumerate(members[:-1]):
        if has_reduction(block):
            yield None, number
        elif is_expensive(block):
            yield from (
                (number, numbers[b.label])
                for b in consumers(func, block)
                if b.label in numbers and has_reduction(b)
            )


def _piece(total: Block, target: Target) -> int | None:
    """How much of a row half of the first cache holds; `None` where the second holds it twice.

    The last piece, too, has enough elements for the vectors of a step.
    """
    out = output_of(total)
    if out is None or len(reduced(total)) != 1:
        return None
    extent = extents(total)[reduced(total)[0]]
    size = dtypes.nbytes(out.buffer.dtype)
    if 2 * extent * size < target.l2_bytes:
        return None
    step = _UNROLLED * lanes_for(target, out.buffer.dtype, extent)
    most = max(1, target.l1_bytes // (2 * size * step))
    pieces = [n * step for n in range(most, most // 4, -1)]
    even = [p for p in pieces if extent % p == 0]
    return next(iter(even or [p for p in pieces if extent % p >= step]), None)


def _in_pieces(sch: Schedule, labels: Sequence[Label], found: _Statistics) -> tuple[Label, Label]:
    """The blocks of the statistic and of the sum of pieces."""
    if found.inlined is not None:
        sch.compute_inline(labels[found.inlined])
    pieces, _ = sch.split(sch.get_loops(labels[found.total])[-1], factors=[None, found.piece])
    first, part = getattr(sch, found.name)(pieces)
    return first, part


def _apply(draft: Draft, count: int, found: _Statistics, positions: list[int]) -> None:
    sch, target = draft.schedule, draft.target
    labels = [draft.block(p) for p in positions]
    root, total = labels[-1], labels[found.total]
    first, part = _in_pieces(sch, labels, found)
    top = fused(sch, sch.get_loops(root)[:count])
    inner = [v for n, v in enumerate(labels[:-1]) if n != found.inlined]
    place = next(n for n, v in enumerate(inner) if v is total)
    inner = [first, *inner[:place], part, *inner[place:]]
    for label in reversed(inner):
        sch.compute_at(label, top)
    sch.reverse_compute_at(part, sch.get_loops(first)[-2])
    for label in (*inner, root):
        if has_reduction(find_block(sch.func, label)):
            schedule_reduction(draft, label, target, None)
        else:
            schedule_spatial(draft, label, target, skip=1)
    sch.parallel(top)
