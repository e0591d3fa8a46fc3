"""Rows that no cache holds, with a maximum and a sum of exponentials: softmax in one pass.

for rows (parallel):
  for each piece of the row, which the first cache holds:
    its maximum, then its sum of exponentials relative to that
  the maximum and the sum of the row from those of the pieces
  what is computed with them, exponentials again

The rows are read twice and written once; exponentials that are kept are written and read more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
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

_UNROLLED = 8
"""The most vectors that a step of a row takes, which the pieces of a row are multiples of."""


class _Statistics(NamedTuple):
    """The members, by number, that are exponentials and their sum, and the length of a piece."""

    exps: int
    total: int
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
    numbers = {m.label: n for n, m in enumerate(members[:-1])}
    places = {b.label: n for n, b in enumerate(in_order(func))}
    for number, exps in enumerate(members[:-1]):
        if has_reduction(exps) or not is_expensive(exps):
            continue
        for total in consumers(func, exps):
            piece = _piece(total, target) if total.label in numbers else None
            if piece is None:
                continue
            trial = Schedule(func)
            at, of = (trial.get_block(places[b.label]) for b in (exps, total))
            try:
                _in_pieces(trial, at, of, piece)
            except ScheduleError:
                continue
            return _Statistics(number, numbers[total.label], piece)
    return None


def _piece(total: Block, target: Target) -> int | None:
    """How much of a row half of the first cache holds; `None` where the second holds it twice."""
    out = output_of(total)
    if out is None or len(reduced(total)) != 1:
        return None
    extent = extents(total)[reduced(total)[0]]
    size = dtypes.nbytes(out.buffer.dtype)
    if 2 * extent * size < target.l2_bytes:
        return None
    step = _UNROLLED * lanes_for(target, out.buffer.dtype, extent)
    most = max(1, target.l1_bytes // (2 * size * step))
    even = [n for n in range(most, most // 4, -1) if extent % (n * step) == 0]
    return (even or [most])[0] * step


def _in_pieces(sch: Schedule, exps: Label, total: Label, piece: int) -> tuple[Label, Label]:
    """The blocks of the maximum and of the sum of pieces."""
    sch.compute_inline(exps)
    pieces, _ = sch.split(sch.get_loops(total)[-1], factors=[None, piece])
    highest, part = sch.online_softmax(pieces)
    return highest, part


def _apply(draft: Draft, count: int, found: _Statistics, positions: list[int]) -> None:
    sch, target = draft.schedule, draft.target
    labels = [draft.block(p) for p in positions]
    root, total = labels[-1], labels[found.total]
    highest, part = _in_pieces(sch, labels[found.exps], total, found.piece)
    top = fused(sch, sch.get_loops(root)[:count])
    inner = [v for n, v in enumerate(labels[:-1]) if n != found.exps]
    place = next(n for n, v in enumerate(inner) if v is total)
    inner = [highest, *inner[:place], part, *inner[place:]]
    for label in reversed(inner):
        sch.compute_at(label, top)
    sch.reverse_compute_at(part, sch.get_loops(highest)[-2])
    for label in (*inner, root):
        if has_reduction(find_block(sch.func, label)):
            schedule_reduction(draft, label, target, None)
        else:
            schedule_spatial(draft, label, target, skip=1)
    sch.parallel(top)
