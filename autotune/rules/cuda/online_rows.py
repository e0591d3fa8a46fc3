"""Rows that no registers hold, with a sum that needs another statistic: softmax, layer_norm.

    for b in thread("blockIdx.x"):                           # a piece of a row
        for x in thread("threadIdx.x", 256): held[..] = X[..]
        largest_of_piece[b] = max(held[..])
        sum_of_piece[b] = sum(exp(held[..] - largest_of_piece[b]))
    for row: largest[row] = max(largest_of_piece[..])        # by a warp
    for row: sum[row] = sum(sum_of_piece[..] * exp(largest_of_piece[..] - largest[row]))
    for b, x: Y[..] = exp(X[..] - largest[row]) / sum[row]

A row comes from memory twice, not three times. Few rows have blocks enough, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ....schedule.require import require
from ....target.cuda import WARP
from ....tir.ir import Label, Var
from ..access_patterns import extents, inputs_of, reduced, row_dimensions
from ..common import powers, succeeds
from ..draft import Draft
from ..rule import Group, Variant
from .chains import Chain, chain_of
from .elementwise import schedule_by_row, schedule_flat
from .rows import can_be_shared
from .team import Team, memory_lanes

PIECE = 1 << 13
"""Elements of a piece of a row."""
LEAST_PIECES = 4
THREADS = 256
"""Threads of a piece, which hold 32 elements of it each."""

PieceSteps = Callable[[Schedule, Var], tuple[Label, ...]]
"""Computes two reductions for each iteration of a loop of the second; the blocks of the pieces."""
PAIRS: tuple[PieceSteps, ...] = (Schedule.online_softmax, Schedule.online_variance)


def online_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Both reductions of long rows by pieces, where one is computed from the other."""
    count, labels = row_dimensions(draft.func, group.members[-1]) or 0, group.labels
    if not count or not all(map(can_be_shared, group.members)):
        return
    for pair in PAIRS:
        if succeeds(_take_pieces, draft.copy(), labels, count, pair):
            apply = functools.partial(schedule_online, labels=labels, count=count, pair=pair)
            yield Variant.of("online", apply)
            return


def schedule_online(draft: Draft, labels: Sequence[Label], count: int, pair: PieceSteps) -> None:
    """Compute both reductions of pieces in a launch, each of rows in one, and the elements in one.

    The first `count` variables of the last block are rows.
    """
    chain, pieces = _take_pieces(draft, labels, count, pair)
    *inner, root = (b.label for b in chain.members)
    # From the end: whether inputs are complete is plain to see where they are not scheduled yet.
    (schedule_by_row if len(chain.beside(chain.root)) == 1 else schedule_flat)(draft, root)
    _combine(draft, inner, count)
    _reduce_pieces(draft, pieces, count + 1)


def _take_pieces(
    draft: Draft, labels: Sequence[Label], count: int, pair: PieceSteps
) -> tuple[Chain, tuple[Label, ...]]:
    """Compute both reductions of a chain by pieces. Returns the rest of it, and their blocks.

    What is computed of elements is computed again.
    """
    sch = draft.schedule
    labels = [sch.get_block(label) for label in labels]
    chain = chain_of([draft.block(label) for label in labels], count)
    for block in chain.members[:-1]:
        if chain.beside(block) and not has_reduction(block):
            sch.compute_inline(block.label)
            labels.remove(block.label)
    chain = chain_of([draft.block(label) for label in labels], count)
    inner = [b for b in chain.members[:-1] if has_reduction(b)]
    require(
        len(inner) == 2 and all(map(chain.reduces_rows, inner)) and bool(chain.beside(chain.root)),
        "the chain of {0} has no two reductions of whole rows",
        chain.root.label,
    )
    total = inner[-1]
    require(
        len(reduced(total)) == 1
        and chain.length(total) in range(LEAST_PIECES * PIECE, 1 << 62, PIECE),
        "rows of {0} elements are not several whole pieces",
        chain.length(total),
    )
    piece, _ = sch.split(sch.get_loops(total.label)[-1], factors=[None, PIECE])
    pieces = pair(sch, piece)
    return chain_of([draft.block(label) for label in labels], count), pieces


def _reduce_pieces(draft: Draft, labels: Sequence[Label], count: int) -> None:
    """Reduce pieces, a block for each, whose threads hold what both reductions read."""
    sch = draft.schedule
    first, second = labels
    lanes = memory_lanes(draft, chain_of([draft.block(label) for label in labels], count))
    team = Team(THREADS, 1, lanes, kept=True)
    copy = sch.cache_read(first, _shared_input(draft, first, second), "local", [second])
    parts = [team.factor(draft, label) for label in labels]
    place = team.gather(draft, [parts[0], first], count)
    for label in (parts[1], second):  # what it is relative to is used elsewhere, too
        sch.reverse_compute_at(label, place)
    sch.compute_at(copy, place)
    for label in (copy, parts[0], first, parts[1], second):
        team.spread(draft, label, place)
    for label in parts:
        sch.set_scope(label, 0, "shared")


def _shared_input(draft: Draft, first: Label, second: Label) -> int:
    """The number of the input of a block that another one reads, too. Raises `ScheduleError`."""
    others = {i.buffer for i in inputs_of(draft.block(second))}
    found = [n for n, i in enumerate(inputs_of(draft.block(first))) if i.buffer in others]
    require(len(found) == 1, "{0} and {1} read no input, or several", first, second)
    return found[0]


def _combine(draft: Draft, labels: Sequence[Label], count: int) -> None:
    """Reduce the pieces of each row by a warp, a launch for each reduction and what follows it."""
    sch = draft.schedule
    following: list[Label] = []
    for label in reversed(labels):
        if not has_reduction(draft.block(label)):
            following.append(label)
            continue
        loop = sch.get_loops(label)[-1]
        pieces = extents(draft.block(label))[reduced(draft.block(label))[-1]]
        threads = min(WARP, powers(pieces)[-1])
        team = Team(threads, WARP // threads)
        _, _, thread, _ = sch.split(loop, factors=[None, 1, threads, 1])
        part = team.part(draft, label, thread, [])
        place = team.gather(draft, [part, label], count)
        for each in (part, label):
            team.spread(draft, each, place)
        sch.set_scope(part, 0, "shared")
        for each in reversed(following):
            sch.reverse_compute_at(each, place)
        following = []
