"""Long rows: parts of each by several blocks, which a second launch combines.

    for b in thread("blockIdx.x", 64), x in thread("threadIdx.x", 256):
        for k: parts[b, x] += A[(k * 64 + b) * 256 + x]      # then over x: partial[b]
    for x in thread("threadIdx.x", 32): ..                   # sum[0] += partial[..]

Few rows leave most of the device idle where a block takes a whole one. Where a sum needs another
statistic of its row, as in softmax and layer_norm, the threads of a part hold it and compute both:

    for b in thread("blockIdx.x"):                           # a piece of a row
        for x in thread("threadIdx.x", 256): held[..] = X[..]
        largest_of_piece[b] = max(held[..])
        sum_of_piece[b] = sum(exp(held[..] - largest_of_piece[b]))
    for row: largest[row] = max(largest_of_piece[..])        # by a warp
    for row: sum[row] = sum(sum_of_piece[..] * exp(largest_of_piece[..] - largest[row]))
    for b, x: Y[..] = exp(X[..] - largest[row]) / sum[row]

A row that no registers hold comes from memory twice then, not three times.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ....schedule.require import require
from ....target.cuda import WARP, CudaTarget
from ....tir.ir import Block, Label, Var
from ....tir.updates import match_updates
from ..access_patterns import extents, inputs_of, outputs_of, reduced, row_dimensions, spatial
from ..common import block_loops, powers, sampled, succeeds
from ..draft import Draft
from ..rule import Group, Variant
from .elementwise import schedule_by_row, schedule_flat
from .limits import limit_block, registers
from .team import Chain, Team, memory_lanes, row_run, scheduled_chain

ROW_THREADS = 256
"""Threads of a block along a row that several blocks share."""
COLUMN_THREADS = 512
COLUMNS = (16, 32, 64)
"""Threads of a block for columns that several blocks share, and how many columns it may have."""
MOST_PARTS = 1024
"""Parts of a row, at most."""
PIECE = 1 << 13
"""Elements of a piece of a row, at most, of which a thread holds 32."""
LEAST_PIECES = 4

PieceSteps = Callable[[Schedule, Var], tuple[Label, ...]]
"""Computes two reductions for each iteration of a loop of the second; the blocks of the pieces."""
PAIRS: tuple[PieceSteps, ...] = (Schedule.online_softmax, Schedule.online_variance)


def can_be_shared(block: Block) -> bool:
    """Whether threads can take parts of a block, each a part of a row."""
    return not has_reduction(block) or (
        match_updates(block) is not None and bool(outputs_of(block))
    )


def is_long(draft: Draft, chain: Chain, *, across: bool) -> bool:
    """Whether the rows of a chain are too few for the device, and long enough for two launches."""
    sms = CudaTarget.of(draft.target).sms
    columns = _columns(chain)
    blocks = -(-_rows(chain) // columns) if across else _rows(chain)
    reductions = [b for b in chain.members if chain.reduces_rows(b)]
    return blocks < 2 * sms and all(
        _most_parts(draft, chain, b, across=across) >= WARP for b in reductions
    )


def _rows(chain: Chain) -> int:
    sizes = extents(chain.root)
    return math.prod(sizes[v] for v in chain.rows[chain.root.label])


def _columns(chain: Chain) -> int:
    """The columns of a block: few where there are few, so that its threads have work."""
    return next((n for n in COLUMNS if n >= _rows(chain)), COLUMNS[-1])


def _most_parts(draft: Draft, chain: Chain, block: Block, *, across: bool) -> int:
    if across:
        return chain.length(block) // (COLUMN_THREADS // _columns(chain))
    return chain.length(block) // (ROW_THREADS * memory_lanes(draft, chain))


def schedule_split(draft: Draft, labels: Sequence[Label], count: int, *, across: bool) -> None:
    """Compute each reduction of a chain in two launches; what is computed of elements is computed
    again."""
    # From the end: whether inputs are complete is plain to see where they are not scheduled yet.
    chain = scheduled_chain(draft, labels, count, recomputed=True)
    for block in reversed(chain.members):
        if chain.reduces_rows(block):
            _split(draft, chain, block, across=across)
        elif chain.beside(block):
            schedule_flat(draft, block.label)


def _split(draft: Draft, chain: Chain, block: Block, *, across: bool) -> None:
    """Reduce parts of rows in a launch, and the parts of each in another."""
    sch, label = draft.schedule, block.label
    run = row_run(block)
    most = _most_parts(draft, chain, block, across=across)
    parts = WARP * sampled(sch, powers(min(MOST_PARTS, most) // WARP))
    if across:
        columns = _columns(chain)
        team = Team(COLUMN_THREADS // columns, columns, across=True)
    else:
        team = Team(ROW_THREADS, 1, memory_lanes(draft, chain))
    limit_block(draft, team.threads * team.rows, registers([]))
    near = team.near(block, run)
    rows = list(block_loops(sch, label).values())[: chain.count]
    step, part, *inside = team.cut(sch, label, run, parts)
    partial = sch.rfactor(part, 0 if across else len(outputs_of(block)[0].buffer.shape))
    rows = [part, *rows] if across else [*rows, part]
    sch.reorder(*rows, step, *inside)
    held = team.part(draft, partial, inside[1], near)
    last = team if across else Team(WARP, 1)
    last.launch(draft, [last.factor(draft, label), label], chain.count)
    team.launch(draft, [held, partial], len(rows))


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
    chain, lanes, pieces = _take_pieces(draft, labels, count, pair)
    # From the end: whether inputs are complete is plain to see where they are not scheduled yet.
    root = chain.root.label
    (schedule_by_row if len(chain.beside(chain.root)) == 1 else schedule_flat)(draft, root)
    following: list[Label] = []
    for block in reversed(chain.members[:-1]):
        following.insert(0, block.label)
        if has_reduction(block):
            _combine_pieces(draft, following, count)
            following = []
    _reduce_pieces(draft, pieces, count + 1, lanes)


def _take_pieces(
    draft: Draft, labels: Sequence[Label], count: int, pair: PieceSteps
) -> tuple[Chain, int, tuple[Label, ...]]:
    """Compute both reductions of a chain by pieces, the last of which may be shorter.

    What is computed of elements is computed again. Returns the chain, the lanes of what pieces are
    read in, and their blocks.
    """
    sch = draft.schedule
    chain = scheduled_chain(draft, labels, count, recomputed=True)
    inner = [b for b in chain.members[:-1] if has_reduction(b)]
    require(
        len(inner) == 2 and all(map(chain.reduces_rows, inner)) and bool(chain.beside(chain.root)),
        "the chain of {0} has no two reductions of whole rows",
        chain.root.label,
    )
    total = inner[-1]
    require(
        len(reduced(total)) == 1 and chain.length(total) >= LEAST_PIECES * PIECE,
        "rows of {0} elements are not several pieces",
        chain.length(total),
    )
    size, lanes = piece_size(chain.length(total), memory_lanes(draft, Chain((total,), chain.rows)))
    piece, _ = sch.split(sch.get_loops(total.label)[-1], factors=[None, size])
    return chain, lanes, pair(sch, piece)


def piece_size(length: int, lanes: int) -> tuple[int, int]:
    """The elements of a piece of a row, and of a vector of a thread, which has `lanes` at most.

    The last piece of the row has elements for each thread: what one has of it is not empty.
    """
    return next(
        (size, n)
        for n in reversed(powers(lanes))
        for size in range(PIECE, PIECE // 2, -ROW_THREADS * n)
        if length % size == 0 or length % size >= ROW_THREADS * n
    )


def _combine_pieces(draft: Draft, labels: Sequence[Label], count: int) -> None:
    """Reduce the pieces of each row by a part of a warp, and compute what follows of it."""
    label, *following = labels
    block = draft.block(label)
    threads = min(WARP, powers(extents(block)[reduced(block)[-1]])[-1])
    team = Team(threads, WARP // threads)
    place = team.launch(draft, [team.factor(draft, label), label], count)
    for each in following:
        draft.schedule.reverse_compute_at(each, place)


def _reduce_pieces(draft: Draft, labels: Sequence[Label], count: int, lanes: int) -> None:
    """Reduce pieces, a block for each, whose threads hold what both reductions read."""
    first, second = labels
    team = Team(ROW_THREADS, 1, lanes, kept=True)
    sch, number = draft.schedule, _shared_input(draft, first, second)
    copy = sch.cache_read(first, number, "local", [second])
    parts = [team.factor(draft, label) for label in labels]
    statistic = outputs_of(draft.block(first))[0].buffer
    inputs = [i.buffer for i in inputs_of(draft.block(parts[1]))]
    loaded = sch.cache_read(parts[1], inputs.index(statistic), "local")
    following = [loaded, parts[1], second]
    held = [outputs_of(draft.block(loaded))[0].buffer]
    team.launch(draft, [parts[0], first], count, following=following, copies=[copy], held=held)
    # By each thread once: steps that are guarded do not share a load.
    block = draft.block(parts[1])
    sch.compute_at(loaded, block_loops(sch, parts[1])[spatial(block)[-1]])


def _shared_input(draft: Draft, first: Label, second: Label) -> int:
    """The number of the input of a block that another one reads, too. Raises `ScheduleError`."""
    others = {i.buffer for i in inputs_of(draft.block(second))}
    shared = [n for n, i in enumerate(inputs_of(draft.block(first))) if i.buffer in others]
    require(len(shared) == 1, "{0} and {1} read no input, or several", first, second)
    return shared[0]
