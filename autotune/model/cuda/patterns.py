"""The requests of a phase, counted by the addresses of the threads of a block.

Which addresses these are depends on few decisions, and on these by a few numbers: what is known of
addresses without the thread is worked out for rows, and each combination of such numbers is counted
once, whatever the number of rows. Loops that a thread runs, and the blocks, are taken to be at 0.
Where they move an access by no multiple of a sector, the count is the mean over the places in a
sector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ....base import dtypes
from ....codegen.passes.vectors import MAX_BYTES, MIN_BYTES
from ....target.cuda import SECTOR_BYTES
from ....tir.bounds import variables
from ....tir.evaluate import Columns
from ....tir.ir import Dim, Expr, For, ForKind, Load, Store, Var
from ..profile import Ints
from .addresses import LETTERS, Addresses, DecidedParts, Threads, distinct_rows
from .launches import ROW, THREAD, Access, Phase, is_one
from .spans import Floats, Shapes

_EACH = 4
"""Numbers of a pattern."""
MOST_THREADS = 1024
MOST_KEYS = 1 << 62
"""Combinations of decisions that have a number each, at most."""
SAMPLED = 4
"""Warps of a block that stand for all of them, where all threads run."""


@dataclass(frozen=True)
class Pattern:
    """What a block asks for an access, each time its threads get to it once; for each row.

    `transactions` are sectors or wavefronts. `lanes` are the elements of a move, of which a vector
    is `moves`.
    """

    access: Access
    requests: Floats
    transactions: Floats
    lanes: Floats
    moves: Floats

    @property
    def numbers(self) -> tuple[Floats, ...]:
        return self.requests, self.transactions, self.lanes, self.moves


@dataclass(frozen=True)
class Patterns:
    """The accesses of a phase, and the `threads` of a block that run it."""

    threads: Floats
    accesses: tuple[Pattern, ...]


class PhasePatterns:
    """The patterns of a phase as functions of rows of decisions."""

    def __init__(self, phase: Phase, shapes: Shapes, bounds: dict[Var, tuple[int, int]]) -> None:
        self.accesses = _executed(phase)
        # The lanes of a copy are those that both of its accesses have.
        groups = [self.accesses] if phase.vector else [[a] for a in self.accesses] or [[]]
        predicate = phase.visit.block.predicate
        addresses = Addresses(phase, shapes, bounds)
        self._whole = [_Group(g, addresses, bounds, None) for g in groups]
        self._partial = self._whole
        if predicate is not None:
            self._partial = [_Group(g, addresses, bounds, predicate) for g in groups]

    def __call__(self, rows: Ints, whole: npt.NDArray[np.bool_]) -> Patterns:
        """The patterns for each of the rows.

        Those of `whole` ones have no guard that fails for a thread of the first block.
        """
        if whole.all() or self._partial is self._whole:
            return _together([group(rows) for group in self._whole])
        if not whole.any():
            return _together([group(rows) for group in self._partial])
        inside = _together([group(rows[whole]) for group in self._whole])
        across = _together([group(rows[~whole]) for group in self._partial])

        def merged(a: Floats, b: Floats) -> Floats:
            result = np.empty(len(rows))
            result[whole], result[~whole] = a, b
            return result

        accesses = tuple(
            Pattern(a.access, *(merged(*pair) for pair in zip(a.numbers, b.numbers, strict=True)))
            for a, b in zip(inside.accesses, across.accesses, strict=True)
        )
        return Patterns(merged(inside.threads, across.threads), accesses)


def _together(parts: Sequence[Patterns]) -> Patterns:
    return Patterns(parts[0].threads, tuple(a for p in parts for a in p.accesses))


class _Group:
    """Accesses of a phase whose patterns are counted for the same combinations of decisions."""

    def __init__(
        self,
        accesses: list[Access],
        addresses: Addresses,
        bounds: dict[Var, tuple[int, int]],
        predicate: Expr | None,
    ) -> None:
        phase, shapes = addresses.phase, addresses.shapes
        self.accesses, self.phase = accesses, phase
        self._vector = phase.vector
        self._idle = [
            c
            for c, axis in zip(LETTERS, addresses.places, strict=True)
            if axis not in phase.axes
            and not (axis == ROW and phase.replicated)
            and not is_one(shapes.launch.extents[axis])
        ]
        by_thread: list[Dim] = []
        by_block: list[Dim] = [*shapes.launch.threads]
        by_block.append(1 if self._vector is None else self._vector.extent)
        self._steps: list[range] = []
        for a in self.accesses:
            by_thread += addresses.of_threads(a)
            start = len(by_block)
            if self._vector is not None or a.scope != "shared":
                by_block += addresses.moved(a)
            self._steps.append(range(start, len(by_block)))
        self._guarded = predicate is not None
        if predicate is not None:
            by_thread.append(addresses.at(predicate))
        names = variables(*by_thread, *by_block) & bounds.keys()
        self._columns = [n for n, v in enumerate(bounds) if v in names]
        used = {v: bounds[v] for v in bounds if v in names}
        self._sizes = [high - low + 1 for low, high in used.values()]
        self._lows = [low for low, _ in used.values()]
        # Combinations that were counted, by their numbers in order.
        self._keys = np.full(1, -1, dtype=np.int64)
        self._numbers = np.zeros((1 + _EACH * len(accesses), 1))
        self._ends = len(addresses.ends)
        threads = dict.fromkeys(addresses.places.values(), (0, MOST_THREADS - 1))
        parts = DecidedParts(threads.keys())
        by_thread = [parts(e) for e in by_thread]
        self._by_row = Columns([*by_block, *parts.exprs], used)
        self._by_block = len(by_block)
        known = zip(parts.names, self._by_row.intervals[len(by_block) :], strict=True)
        ranges = {v: (int(low), int(high)) for v, (low, high) in known}
        self._by_thread = Columns(by_thread, {**ranges, **threads})

    def __call__(self, rows: Ints) -> Patterns:
        """The patterns for each of the rows."""
        chosen = rows[:, self._columns]
        if math.prod(self._sizes) > MOST_KEYS:
            combinations, place = np.unique(chosen, axis=0, return_inverse=True)
            return self._patterns(self._counted(combinations).T[:, place.ravel()])
        key = np.zeros(len(rows), dtype=np.int64)
        for n, (size, low) in enumerate(zip(self._sizes, self._lows, strict=True)):
            key = key * size + (chosen[:, n] - low)
        places = np.searchsorted(self._keys, key)
        new = self._keys[np.minimum(places, len(self._keys) - 1)] != key
        if new.any():
            keys, index = np.unique(key[new], return_index=True)
            known = np.concatenate([self._keys, keys])
            numbers = np.concatenate([self._numbers, self._counted(chosen[new][index]).T], axis=1)
            order = np.argsort(known, kind="stable")
            self._keys, self._numbers = known[order], numbers[:, order]
            places = np.searchsorted(self._keys, key)
        return self._patterns(self._numbers[:, places])

    def _patterns(self, numbers: Floats) -> Patterns:
        threads, *columns = numbers
        return Patterns(
            threads,
            tuple(
                Pattern(a, *columns[_EACH * n : _EACH * (n + 1)])
                for n, a in enumerate(self.accesses)
            ),
        )

    def _counted(self, combinations: Ints) -> Floats:
        """The threads of a block that run, and the numbers of each `Pattern`, of combinations."""
        numbers = self._by_row(combinations).astype(np.int64)
        for a, steps in zip(self.accesses, self._steps, strict=True):
            # Where all are multiples of a sector, no place in one depends on them.
            moved = [n for k, n in enumerate(steps) if k % 4]
            if moved:
                together = np.bitwise_or.reduce(numbers[:, moved], axis=1)
                aligned = together % (SECTOR_BYTES // dtypes.nbytes(a.buffer.dtype)) == 0
                numbers[aligned, steps.start : steps.stop] = 0
                numbers[aligned, steps.start : steps.stop : 4] = 1
        first, place = distinct_rows(numbers)
        return self._of_numbers(numbers[first])[place]

    def _of_numbers(self, numbers: Ints) -> Floats:
        """The same of different `numbers` of rows."""
        blocks, decided = numbers[:, : self._by_block], numbers[:, self._by_block :]
        x, y, z, extent = (blocks[:, n] for n in range(4))
        every = not self._guarded and not self._idle
        threads = Threads.of(x, y, z, SAMPLED if every else None)
        inputs = [column[threads.block] for column in np.ascontiguousarray(decided.T)]
        inputs += [threads.x, threads.y, threads.z]
        columns = self._by_thread.of_columns(inputs, len(threads.x)).T
        running = columns[-1] != 0 if self._guarded else np.ones(len(threads.x), dtype=np.bool_)
        for letter in self._idle:
            running &= getattr(threads, letter) == 0
        if not running.all():
            threads, columns = threads.where(running), columns[:, running]
        ends = self._ends
        addresses = [columns[n : n + ends] for n in range(0, ends * len(self.accesses), ends)]
        steps = [blocks[:, list(n)].reshape(len(blocks), -1, 4) for n in self._steps]
        lanes = self._lanes(threads, addresses, steps, extent)
        counts: list[npt.NDArray[Any]] = [x * y * z if every else threads.count()]
        for a, at, by, wide in zip(self.accesses, addresses, steps, lanes, strict=True):
            requests, transactions = _counted(a, threads, at[0], by, wide)
            moves = extent // wide
            times = moves / threads.share_of_warps
            counts += [requests * times, transactions * times, wide, moves]
        return np.stack(counts, axis=1).astype(np.float64)

    def _lanes(
        self, threads: Threads, addresses: list[Ints], steps: list[Ints], extent: Ints
    ) -> list[Ints]:
        """The elements that each access moves at once, by blocks: as `passes/vectors.py` does."""
        if self._vector is None:
            return [np.ones(threads.blocks, dtype=np.int64) for _ in self.accesses]
        widths = []
        for a, (first, second, last), by in zip(self.accesses, addresses, steps, strict=True):
            size = dtypes.nbytes(a.buffer.dtype)
            length = extent[threads.block]
            apart = ((length > 1) & (second - first != 1)) | (last - first != length - 1)
            adjacent = np.bincount(threads.block, weights=apart, minlength=threads.blocks) == 0
            start = np.zeros(threads.blocks, dtype=np.int64)
            # The lowest bit of all addresses together is that of their greatest divisor.
            np.bitwise_or.at(start, threads.block, first)
            moved_by = by[:, :, 1:].reshape(len(by), -1).T
            together = reduce(np.bitwise_or, moved_by, start | extent | (MAX_BYTES // size))
            lanes = together & -together
            moved = adjacent & (lanes > 1) & (lanes * size >= MIN_BYTES)
            widths.append(np.where(moved, lanes, 1))
        body = self.phase.visit.block.body
        if type(body) is Store and type(body.value) is Load and len(widths) == 2:
            both = (widths[0] > 1) & (widths[1] > 1)
            least = np.where(both, np.minimum(*widths), 0)
            widths = [np.where(both, least, n) for n in widths]
        return widths


def _executed(phase: Phase) -> list[Access]:
    """The accesses of memory of a phase; of a collective its result alone."""
    accesses = phase.in_memory()
    if phase.collective:
        accesses = [a for a in accesses if a.stores and not a.first]
    return accesses


def _counted(
    access: Access, threads: Threads, elements: Ints, steps: Ints, lanes: Ints
) -> tuple[Ints, Floats]:
    """The requests and transactions of a block for an access by these threads."""
    size = dtypes.nbytes(access.buffer.dtype)
    requests = threads.requests()
    if access.scope == "shared":
        width = lanes[threads.block] * size
        return requests, threads.wavefronts(elements, size, width).astype(np.float64)
    sector = SECTOR_BYTES // size
    total = threads.sectors(elements, size).astype(np.float64)
    if not (steps[:, :, 1:] % sector).any():
        return requests, total
    shares = _places(steps, sector)
    total = total * shares[:, 0]
    for residue in range(1, sector):
        share = shares[:, residue]
        moved = share > 0
        if moved.any():
            chosen = moved[threads.block]
            there = threads.where(chosen)
            total = total + there.sectors(elements[chosen] + residue, size) * share
    return requests, total


def _places(steps: Ints, sector: int) -> Floats:
    """How often loops move an access to each place in a sector, as shares of all iterations."""
    count = len(steps)
    shares = np.zeros((count, sector))
    shares[:, 0] = 1.0
    rows = np.arange(count)[:, None]
    for extent, first, middle, last in steps.transpose(1, 2, 0):
        linear = ((first * (extent // 2) - middle) % sector == 0) & (
            (first * (extent - 1) - last) % sector == 0
        )
        step = np.where(linear, first % sector, np.gcd(np.gcd(first, middle), last) % sector)
        if not step.any():
            continue
        period = sector // np.gcd(step, sector)
        whole, rest = np.divmod(np.where(linear, extent, period), period)
        moved = np.zeros_like(shares)
        for n in range(int(period.max())):
            times = np.where(n < period, whole + (n < rest), 0)
            source = (np.arange(sector) - (n * step)[:, None]) % sector
            moved += shares[rows, source] * times[:, None]
        shares = moved / moved.sum(axis=1, keepdims=True)
    return shares


def straight_loops(phase: Phase, shapes: Shapes) -> list[For]:
    """The loops whose iterations become straight code: what is unrolled, and what indexes
    registers, up to a loop that is neither."""
    indexing: set[Var] = set()
    for a in phase.accesses:
        if a.scope == THREAD:
            indexing |= a.moving - {f.var for f in shapes.common(a.buffer)}
    loops: list[For] = []
    for f in reversed(phase.loops):
        if f.kind is ForKind.THREAD:
            continue
        if f.kind not in (ForKind.UNROLL, ForKind.VECTOR) and f.var not in indexing:
            break
        loops.append(f)
    return loops
