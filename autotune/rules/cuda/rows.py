"""Chains that share their rows, each by several threads: row reductions, softmax, layer_norm.

    for b in thread("blockIdx.x"), y in thread("threadIdx.y", 8):      # rows
        for x in thread("threadIdx.x", 32):                            # a phase
            for k: partial[x] += A[row, k * 32 + x]
        for x in 32: sum[0] += partial[x]
        for k: for x in thread("threadIdx.x", 32):                     # the next phase
            B[row, k * 32 + x] = A[row, k * 32 + x] / sum[0]

A row has a warp, a part of one, or a block of up to 1024 threads. All stages have an element of it
in the same thread: what is read again is kept there in registers, where it fits. Where rows lie
across memory, threads next to each other take rows next to each other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from ....base import dtypes
from ....schedule.require import require
from ....tir.ir import Block, Buffer, Dim, Label, ceildiv
from ..access_patterns import inputs_of, row_dimensions
from ..common import powers, sampled
from ..draft import Draft
from ..rule import Group, Variant
from .by_thread import schedule_by_thread
from .limits import INDEX_REGISTERS, device_limits, limit_block, registers, registers_of
from .row_parts import can_be_shared, is_long, schedule_split
from .team import Chain, Team, chain_of, memory_lanes, scheduled_chain

KEPT = 64
"""Elements of an array of a row that a thread holds, at most: more where no threads hold fewer."""
MOST_THREADS = 1024
SHORT_THREADS = 256
"""Threads of a block that has many short rows."""


def rows_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Several threads for a row, which keep what they read of it or read it again; or one."""
    count = row_dimensions(draft.func, group.members[-1]) or 0
    labels = group.labels
    if all(map(can_be_shared, group.members)):
        chain = chain_of(group.members, count)
        keeps = bool(chain.arrays(draft.func) or _read_again(chain))
        for across in _ways(chain):
            for kept in (True, False) if keeps else (False,):
                name = f"{'columns' if across else 'rows'}{'_kept' if kept else ''}"
                apply = functools.partial(
                    schedule_rows, labels=labels, count=count, kept=kept, across=across
                )
                yield Variant.of(name, apply, kept=kept, across=across)
            if is_long(draft, chain, across=across):
                name = f"{'columns' if across else 'rows'}_split"
                apply = functools.partial(schedule_split, labels=labels, count=count, across=across)
                yield Variant.of(name, apply, across=across, split=True)
    if count:
        apply = functools.partial(schedule_by_thread, labels=labels, count=count)
        yield Variant.of("by_thread", apply, by_thread=True)
    else:
        yield Variant.of("default", default=True)


def _ways(chain: Chain) -> list[bool]:
    """Whether rows lie across memory: both, where some inputs do and others do not."""
    near: set[bool] = set()
    for block in chain.members:
        rows, along = chain.rows[block.label], chain.along(block)
        for i in inputs_of(block) if along else ():
            if along[-1] in i.used:
                near |= {False} if i.strides[along[-1]] == 1 else set()
                near |= {True} if rows and i.strides.get(rows[-1]) == 1 else set()
    return sorted(near) or [False]


def schedule_rows(
    draft: Draft, labels: Sequence[Label], count: int, *, kept: bool, across: bool
) -> None:
    """Compute a chain row by row, the first `count` variables of the last block being rows.

    With `kept`, what is read again stays in registers; else it is read again, and what is computed
    of elements is computed again.
    """
    chain = scheduled_chain(draft, labels, count, recomputed=not kept)
    arrays = chain.arrays(draft.func)
    held = {buffer for buffer in arrays if chain.held(buffer)}
    live = _live(chain, [*held, *_read_again(chain)]) if kept else _loaded(chain)
    team = _decide(draft, chain, live, kept=kept, across=across)
    copies = _copies(draft, chain) if kept else []
    _limit(draft, chain, team, arrays, live)
    order: list[Label] = []
    for block in chain.members:
        if chain.reduces_rows(block):
            order.append(team.factor(draft, block.label))
        order.append(block.label)
    team.launch(draft, order, count, copies=copies, held=held)


def _decide(draft: Draft, chain: Chain, live: int, *, kept: bool, across: bool) -> Team:
    """How many threads a row has, and how many rows a block; `live` as in `_live`."""
    sch = draft.schedule
    length = max(map(chain.length, chain.members))
    lanes = 1 if across else memory_lanes(draft, chain)
    most = min(32 if across else MOST_THREADS, length // lanes)
    require(most > 1, "rows of {0} elements are short for several threads", length)
    counts = [n for n in powers(most) if n >= 4] or [2]
    if kept:
        fitting = [n for n in counts if _fits(draft, live, length, n, lanes)]
        most_threads = [] if across else fitting[-1:]
        counts = [n for n in fitting if _each(length, n, lanes) <= KEPT] or most_threads
        require(
            bool(counts), "rows of {0} elements fit the registers of no {1} threads", length, most
        )
    threads = sampled(sch, counts)
    rows: Dim = 1
    if chain.count:
        few = powers(max(16, SHORT_THREADS // most))
        rows = sampled(sch, [16, 32, 64, 128] if across else few)
    unrolled = 1 if kept else sampled(sch, powers(min(8, length // lanes)))
    return Team(threads, rows, lanes, unrolled, kept, across)


def _read_again(chain: Chain) -> dict[Buffer, list[Block]]:
    """What several blocks read of rows element by element, with these blocks."""
    written = {r.buffer for b in chain.members for r in b.writes}
    read = dict.fromkeys(i.buffer for b in chain.members for i in inputs_of(b))
    readers_of = {buffer: chain.readers(buffer) for buffer in read if buffer not in written}
    return {
        buffer: readers
        for buffer, readers in readers_of.items()
        if len(readers) > 1 and all(chain.along(b) and chain.follows(b, buffer) for b in readers)
    }


def _copies(draft: Draft, chain: Chain) -> list[Label]:
    """Copies of what is read again, which its readers read."""
    copies = []
    for buffer, (first, *others) in _read_again(chain).items():
        block = draft.block(first.label)
        index = next(n for n, i in enumerate(inputs_of(block)) if i.buffer is buffer)
        labels = [b.label for b in others]
        copies.append(draft.schedule.cache_read(first.label, index, "local", labels))
    return copies


def _fits(draft: Draft, live: int, length: int, threads: int, lanes: int) -> bool:
    """Whether so many threads hold `live` registers of each element of a row."""
    limits = device_limits(draft)
    most = min(limits.thread_registers, limits.block_registers // threads)
    return INDEX_REGISTERS + live * _each(length, threads, lanes) <= most


def _each(length: int, threads: int, lanes: int) -> int:
    """The elements of a row that a thread has."""
    return -(-length // (threads * lanes)) * lanes


def _limit(draft: Draft, chain: Chain, team: Team, arrays: Sequence[Buffer], live: int) -> None:
    """The limits of a block: what threads hold of a row, and what they share."""
    length = max(map(chain.length, chain.members))
    elements: Dim = team.unrolled * team.lanes
    if team.kept:
        elements = ceildiv(length, team.threads * team.lanes) * team.lanes
    held = [b for b in arrays if chain.held(b)]
    shared = sum(
        chain.length(b) * dtypes.nbytes(r.buffer.dtype)
        for b in chain.members
        for r in b.writes
        if r.buffer in arrays and r.buffer not in held
    )
    parts = sum(
        dtypes.nbytes(r.buffer.dtype)
        for b in chain.members
        if chain.reduces_rows(b)
        for r in b.writes
    )
    held_bytes = team.rows * (shared + parts * (team.threads + 1))
    limit_block(
        draft, team.threads * team.rows, registers([("float32", live * elements)]), held_bytes
    )


def _loaded(chain: Chain) -> int:
    """The registers of an element of all arrays that a block reads along rows, at most; one at
    least."""
    words = [1]
    for b in chain.members:
        along = set(chain.along(b))
        words.append(sum(registers_of(i.buffer.dtype) for i in inputs_of(b) if along & set(i.used)))
    return max(words)


def _live(chain: Chain, arrays: Sequence[Buffer]) -> int:
    """The registers of an element of all arrays that a thread holds at once, at most; one at
    least."""
    most = 1
    for n in range(1, len(chain.members)):
        later = {r.buffer for b in chain.members[n:] for r in b.reads}
        yet = {r.buffer for b in chain.members[n:] for r in b.writes}
        most = max(most, sum(registers_of(b.dtype) for b in arrays if b in later - yet))
    return most
