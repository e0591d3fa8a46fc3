"""Races: accesses to one element by different threads, one of which writes, that nothing orders.

A `Log` has the accesses to one space of elements: a global buffer, or the shared memory of the
blocks of a batch. It is flushed at barriers of all blocks, which order what is before and after
them within a block. What other barriers order is told by a `Clock`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np

from .emulate_batch import Active, Array, Batch

MAX_LOGGED = 1 << 22
"""Accesses in a log from which on repeated ones are dropped."""
_SITE_BITS = 20


class Clock(NamedTuple):
    """How many barriers each block and each warp has been at since the last of all blocks.

    Those of blocks count for their warps too.
    """

    blocks: Array
    warps: Array

    @staticmethod
    def zero(batch: Batch) -> Clock:
        return Clock(np.zeros(batch.blocks, np.int64), np.zeros(batch.warps, np.int64))

    def after_blocks(self, numbers: Array, block_warps: int) -> Clock:
        """The clock after barriers of blocks with these numbers, which have so many warps."""
        blocks = self.blocks.copy()
        blocks[numbers] += 1
        return Clock(blocks, self.after_warps(_warps(numbers, block_warps)).warps)

    def after_warps(self, numbers: Array) -> Clock:
        """The clock after barriers of warps with these numbers."""
        warps = self.warps.copy()
        warps[numbers] += 1
        return Clock(self.blocks, warps)


class Conflict(NamedTuple):
    """Two accesses to an element: the numbers of their sites, and of their threads in the launch.

    It is at the first of so many `elements` at which these sites are in conflict. `between_blocks`
    tells whether the threads are of different blocks.
    """

    sites: tuple[int, int]
    threads: tuple[int, int]
    element: int
    elements: int
    between_blocks: bool


class _Entry(NamedTuple):
    """An access by a site: arrays of elements, and of the lanes of the threads."""

    site: int
    clock: Clock
    elements: Array
    lanes: Array


class Log:
    """Accesses to `size` elements, by sites with numbers; those in `writes` write.

    `blocks` says that more than one block of the launch may use an element.
    """

    def __init__(
        self,
        size: int,
        writes: Collection[int],
        report: Callable[[Conflict], None],
        *,
        blocks: bool,
    ) -> None:
        self._writes = writes
        self._report = report
        self._entries: list[_Entry] = []
        self._count = 0
        self._limit = MAX_LOGGED
        self._writer = np.full(size, -1, np.int64)
        self._blocks = _Blocks(size) if blocks else None

    def add(self, site: int, clock: Clock, elements: Array, active: Active, each: int = 1) -> None:
        """Add accesses of a site: of each active thread in order, `each` elements.

        Elements that are as many as one thread has are those of all threads.
        """
        lanes = active.lanes if each == 1 else np.repeat(active.lanes, each)
        if elements.shape[0] != lanes.shape[0]:
            elements = np.tile(elements, active.count)
        self._entries.append(_Entry(site, clock, elements, lanes))
        self._count += lanes.shape[0]
        if self._count > self._limit:
            self._drop_repeated()

    def _drop_repeated(self) -> None:
        """Keep one of equal accesses."""
        groups: dict[tuple[int, int], list[_Entry]] = {}
        for entry in self._entries:
            groups.setdefault((entry.site, id(entry.clock)), []).append(entry)
        self._entries = []
        for entries in groups.values():
            lanes = np.concatenate([e.lanes for e in entries])
            base = int(lanes.max()) + 1
            packed = np.unique(np.concatenate([e.elements for e in entries]) * base + lanes)
            site, clock = entries[0][:2]
            self._entries.append(_Entry(site, clock, packed // base, packed % base))
        self._count = sum(len(e.lanes) for e in self._entries)
        self._limit = max(MAX_LOGGED, 2 * self._count)

    def flush(self, batch: Batch) -> None:
        """Report the conflicts of the accesses so far; nothing later in a block is in conflict
        with them."""
        entries, self._entries, self._count = self._entries, [], 0
        written = [e for e in entries if e.site in self._writes]
        if written:
            suspects = self._suspects(entries, written)
            if suspects is not None:
                self._within_blocks(entries, suspects, batch)
        if self._blocks is not None:
            reads = [e for e in entries if e.site not in self._writes]
            for conflict in self._blocks.conflicts(written, reads, batch):
                self._report(conflict)

    def _suspects(self, entries: list[_Entry], written: list[_Entry]) -> Array | None:
        """Which elements are written, and used by more than one thread; `None` for none."""
        for e in written:
            self._writer[e.elements] = e.lanes
        suspects = np.zeros(len(self._writer), bool)
        for e in entries:
            writer = self._writer[e.elements]
            suspects[e.elements[(writer >= 0) & (writer != e.lanes)]] = True
        for e in written:
            self._writer[e.elements] = -1
        return suspects if suspects.any() else None

    def _within_blocks(self, entries: list[_Entry], suspects: Array, batch: Batch) -> None:
        """Report the conflicts at some elements between threads of a block."""
        chosen = [e._replace(elements=e.elements[k], lanes=e.lanes[k])
                  for e in entries for k in [suspects[e.elements]] if k.any()]  # fmt: skip
        accesses = _Accesses(chosen, batch)
        sites = np.unique(accesses.sites).tolist()
        for one in sites:
            for other in sites:
                if one in self._writes and not (other in self._writes and other < one):
                    found = accesses.conflict(one, other)
                    if found is not None:
                        self._report(found)


class _Accesses:
    """Accesses in an order in which those that may be in conflict are together."""

    def __init__(self, entries: list[_Entry], batch: Batch) -> None:
        elements, lanes, sites, block_times, warp_times = (
            np.concatenate(parts)
            for parts in zip(
                *(
                    (
                        e.elements,
                        e.lanes,
                        np.full(len(e.lanes), e.site),
                        e.clock.blocks[batch.block[e.lanes]],
                        e.clock.warps[batch.warp[e.lanes]],
                    )
                    for e in entries
                ),
                strict=True,
            )
        )
        blocks, warps = batch.block[lanes], batch.warp[lanes]
        order = np.lexsort((warp_times, warps, block_times, blocks, elements))
        self.first_thread = batch.first_thread
        self.elements, self.lanes, self.sites = elements[order], lanes[order], sites[order]
        self.warps = warps[order]
        keys = elements[order], blocks[order], block_times[order]
        self.unordered_warps = _numbered(*keys)
        """Equal for accesses to an element by a block with no barrier of the block between."""
        self.unordered_lanes = _numbered(*keys, self.warps, warp_times[order])
        """Equal for accesses to an element by a warp with no barrier between."""

    def conflict(self, one: int, other: int) -> Conflict | None:
        """The conflict of two sites, or of one with itself; `None` if there is none."""
        chosen = np.flatnonzero((self.sites == one) | (self.sites == other))
        is_one, is_other = self.sites[chosen] == one, self.sites[chosen] == other
        found = np.zeros(len(chosen), bool)
        for numbers, threads in (
            (self.unordered_warps, self.warps),
            (self.unordered_lanes, self.lanes),
        ):
            found |= _mixed(numbers[chosen], threads[chosen], is_one, is_other)
        if not found.any():
            return None
        groups = self.unordered_warps[chosen[found]]
        group = chosen[self.unordered_warps[chosen] == groups[0]]
        a, b = next(
            (int(a), int(b))
            for a in group[self.sites[group] == one]
            for b in group[self.sites[group] == other]
            if self._unordered(a, b)
        )
        threads = (int(self.lanes[k]) + self.first_thread for k in (a, b))
        count = len(np.unique(groups))
        return Conflict(
            (one, other), (next(threads), next(threads)), int(self.elements[a]), count, False
        )

    def _unordered(self, a: int, b: int) -> bool:
        if self.warps[a] != self.warps[b]:
            return True
        return bool(
            self.lanes[a] != self.lanes[b] and self.unordered_lanes[a] == self.unordered_lanes[b]
        )


def _warps(blocks: Array, block_warps: int) -> Array:
    """The numbers of the warps of blocks."""
    return (blocks[:, None] * block_warps + np.arange(block_warps)).ravel()


def _numbered(*keys: Array) -> Array:
    """Numbers of runs of equal keys."""
    new = np.zeros(len(keys[0]), bool)
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.cumsum(new)


def _mixed(numbers: Array, threads: Array, is_one: Array, is_other: Array) -> Array:
    """Which are in a run of equal numbers with both sites and more than one thread."""
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    both = np.logical_or.reduceat(is_one, starts) & np.logical_or.reduceat(is_other, starts)
    several = np.minimum.reduceat(threads, starts) != np.maximum.reduceat(threads, starts)
    lengths = np.diff([*starts.tolist(), len(numbers)])
    return np.repeat(both & several, lengths)


class _Blocks:
    """Who used the elements of a buffer in a launch: threads of at most two blocks for each.

    A thread and its site are packed into an integer; -1 is nobody.
    """

    def __init__(self, size: int) -> None:
        self._writer, self._reader, self._other_reader = (
            np.full(size, -1, np.int64) for _ in "wro"
        )

    def conflicts(
        self, writes: list[_Entry], reads: list[_Entry], batch: Batch
    ) -> Iterator[Conflict]:
        """The conflicts of accesses with each other and with former ones."""
        threads = batch.grid.block_threads
        for e in writes:
            packed = _packed(e, batch)
            for known in (self._writer, self._reader, self._other_reader):
                yield from _met(known, e, packed, threads)
            self._writer[e.elements] = packed
            yield from _met(self._writer, e, packed, threads)
        for e in reads:
            packed = _packed(e, batch)
            yield from _met(self._writer, e, packed, threads)
            fresh = self._reader[e.elements] < 0
            self._reader[e.elements[fresh]] = packed[fresh]
            foreign = _block(self._reader[e.elements], threads) != _block(packed, threads)
            self._other_reader[e.elements[foreign]] = packed[foreign]


def _packed(entry: _Entry, batch: Batch) -> Array:
    return (batch.first_thread + entry.lanes) << _SITE_BITS | entry.site


def _block(packed: Array, threads: int) -> Array:
    """The blocks of packed threads; a negative number of nobody."""
    return (packed >> _SITE_BITS) // threads


def _met(known: Array, entry: _Entry, packed: Array, threads: int) -> Iterator[Conflict]:
    """The conflicts of accesses with those that are known of their elements."""
    before = known[entry.elements]
    foreign = (before >= 0) & (_block(before, threads) != _block(packed, threads))
    if not foreign.any():
        return
    before, packed, elements = before[foreign], packed[foreign], entry.elements[foreign]
    sites = before & ((1 << _SITE_BITS) - 1)
    for site in np.unique(sites).tolist():
        of_site = sites == site
        k = int(np.argmax(of_site))
        yield Conflict(
            (site, entry.site),
            (int(before[k] >> _SITE_BITS), int(packed[k] >> _SITE_BITS)),
            int(elements[k]),
            len(np.unique(elements[of_site])),
            True,
        )
