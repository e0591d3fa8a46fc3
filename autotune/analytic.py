"""An estimate of a candidate's time from its loops and accesses alone.

For each block: the time its arithmetic takes, the time its loads and stores take in L1, and the
time to bring what it touches from each level of the memory, of which the largest counts (they
overlap). The traffic of a level is what the block touches inside the outermost loops whose data
still fits the cache below, times the iterations around them (the reuse argument of Goto and van de
Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34, 2008).

The same numbers, as logarithms, are the features of the cost model.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..codegen.llvm_load import NEAR
from ..target import Target
from ..tir.ir import ForKind
from .profile import (
    ONE,
    ZERO,
    Access,
    Evaluated,
    Floats,
    Footprint,
    Ints,
    Numbers,
    Profile,
)

FEATURES = (
    "log_seconds", "compute", "l1", "l2", "l3", "memory", "overhead",
    "main_share", "visits", "lanes", "accumulators", "unrolled", "parallel", "balance",
    "inner_trip", "tile_loads", "tile_bytes", "k_trip",
    "l2_bytes", "l3_bytes", "memory_bytes", "middle_bytes", "outer_bytes",
    "gathers", "expensive", "blocks", "stores",
    "other_seconds", "other_memory", "other_lanes",
)  # fmt: skip
Features: TypeAlias = npt.NDArray[np.floating[Any]]
"""Rows of features: single floats as they are computed here, double ones out of a database."""
VERSION = "5"
FEATURE_VERSION = f"{VERSION}/{len(FEATURES)}"
"""Of the features: a model is used only with those it was trained on."""


@dataclass(frozen=True)
class Machine:
    """Rates of one core, in cycles and bytes per cycle, that hold for a class of processors."""

    hertz: float
    fma_per_cycle: float
    loads_per_cycle: float
    stores_per_cycle: float
    fma_latency: float
    l2_bytes_per_cycle: float
    l3_bytes_per_cycle: float
    memory_bytes_per_cycle: float
    fork_seconds: float
    expensive_cycles: float


@dataclass(frozen=True)
class Cache:
    """A cache of `size` bytes and `ways` lines in each set."""

    size: int
    ways: int

    @property
    def sets(self) -> int:
        return max(1, self.size // 64 // self.ways)


DEFAULT = Machine(
    hertz=2.6e9,
    fma_per_cycle=2.0,
    loads_per_cycle=2.0,
    stores_per_cycle=1.0,
    fma_latency=4.0,
    l2_bytes_per_cycle=32.0,
    l3_bytes_per_cycle=8.0,
    memory_bytes_per_cycle=4.0,
    fork_seconds=1.5e-6,
    expensive_cycles=14.0,
)


USABLE = 0.75
"""The share of a cache that a block's data may fill before lines are lost to conflicts."""
OVERLAP_LOSS = 0.15
"""How much of what is not the bottleneck shows nevertheless."""
APART_CYCLES = 2.5
"""What an element takes of a vector that is gathered or scattered: 40 cycles for 16 are measured
where microcode keeps gathers from speculating."""
SHUFFLE_LOADS = 2.0
"""What a shuffle takes, in loads: one can begin in a cycle, and two loads."""
ROWS = 8192
"""Rows that are estimated at a time: a column of them takes 64 KiB."""


class Estimate:
    """Seconds and features of each row. `features` has the columns of `FEATURES`."""

    def __init__(self, seconds: Floats, features: Features) -> None:
        self.seconds = seconds
        self.features = features


def estimate(source: Profile, rows: Ints, target: Target) -> Estimate:
    """Estimate the rows (rows, variables) of a sketch, or the one empty row of a program."""
    seconds = np.empty(len(rows))
    features = np.empty((len(rows), len(FEATURES)), dtype=np.float32)
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        seconds[part], features[part] = _estimate(Evaluated(source, rows[part]), target)
    return Estimate(seconds, features)


def _estimate(data: Evaluated, target: Target) -> tuple[Floats, Features]:
    """The seconds and features of rows that are few enough for their columns to stay in a cache."""
    parts = [_Block(data, n, target, DEFAULT) for n in data.visits]
    if not parts:
        nothing = np.zeros((data.rows, len(FEATURES)), dtype=np.float32)
        return np.full(data.rows, DEFAULT.fork_seconds), nothing
    stacked = np.stack([np.broadcast_to(p.seconds, data.rows) for p in parts])
    seconds = stacked.sum(axis=0)
    # The block that takes longest stands for the program; of the others there are only sums.
    slowest = stacked.argmax(axis=0)
    main = [(p, where) for n, p in enumerate(parts) if (where := slowest == n).any()]
    longest = stacked.max(axis=0)
    of_all = {
        "log_seconds": seconds,
        "main_share": longest / seconds,
        "blocks": np.asarray(float(len(parts))),
        "other_seconds": seconds - longest,
        "other_memory": functools.reduce(np.add, [p.memory for p in parts]),
        "other_lanes": functools.reduce(np.minimum, [p.lanes for p in parts]),
    }
    table = np.empty((len(FEATURES), data.rows))
    for column, name in zip(table, FEATURES, strict=True):
        if name in of_all:
            column[:] = of_all[name]
        else:
            for block, where in main:
                np.copyto(column, getattr(block, name), where=where)
    others = table[FEATURES.index("other_memory")]
    np.subtract(others, table[FEATURES.index("memory")], out=others)
    table += 1e-9
    return seconds, np.log2(table, out=table).T.astype(np.float32)


class _Block:
    """The estimate of one block: seconds of each kind, and the numbers behind them."""

    def __init__(self, data: Evaluated, n: Numbers, target: Target, machine: Machine) -> None:
        self._data = data
        self._n = n
        self._machine = machine
        self._target = target
        self._accesses = [a for a in n.visit.accesses if a.buffer.scope != "register"]
        self._footprints = [data.footprints(a, len(n.extents)) for a in self._accesses]
        self.native = max(1, target.vector_bits // dtypes.info(n.visit.dtype).bits)
        self.tile = _tile_level(n.visit.kinds)
        self._count_loops()
        self._time_arithmetic()
        self._time_ports()
        self._time_memory()
        kinds = (self.compute, self.l1, self.l2, self.l3, self.memory)
        busiest = functools.reduce(np.maximum, kinds)
        total = functools.reduce(np.add, kinds)
        busy = busiest + OVERLAP_LOSS * (total - busiest) + self.overhead
        self.seconds = busy / np.maximum(self.used, 1e-9)
        if target.threads > 1 and ForKind.PARALLEL in n.visit.kinds:
            self.seconds = self.seconds + machine.fork_seconds

    def _of_kind(self, kind: ForKind) -> Floats:
        return self._n.product(lambda i: self._n.visit.kinds[i] is kind)

    def _count_loops(self) -> None:
        """Iterations, vectors, the register tile, and how evenly the threads are used."""
        n, visit = self._n, self._n.visit
        self.covered = self._data.covered(n)
        self.visits = n.product(lambda _: True) * self.covered
        self.lanes = self._of_kind(ForKind.VECTOR)
        self.vectors = np.ceil(self.lanes / self.native)
        self.unrolled = self._of_kind(ForKind.UNROLL)
        spatial_tile = n.product(
            lambda i: visit.kinds[i] is ForKind.UNROLL and not visit.reduces[i]
        )
        self.accumulators = spatial_tile * self.vectors
        self.k_trip = n.product(lambda i: visit.reduces[i])
        self.inner_trip = n.extents[self.tile - 1] if self.tile > 0 else ONE
        self.bodies = self.visits / n.product(lambda i: i >= self.tile)
        self.parallel = self._of_kind(ForKind.PARALLEL)
        threads = max(1, self._target.threads)
        rounds = np.maximum(np.ceil(self.parallel / threads), 1)
        self.used = np.where(self.parallel > 1, self.parallel / rounds, 1.0)
        self.balance = self.used / threads

    def _time_arithmetic(self) -> None:
        """Instructions over their rate, or the latency of the chains of accumulators."""
        visit, machine = self._n.visit, self._machine
        steps = self.visits / self.lanes * self.vectors
        operations = max(1, visit.operations - visit.accumulates)
        cycles = steps * operations / machine.fma_per_cycle
        if visit.accumulates:
            chains = machine.fma_latency * machine.fma_per_cycle
            cycles = cycles * np.maximum(1.0, chains / np.maximum(self.accumulators, 1.0))
        self.expensive = steps * float(visit.expensive)
        cycles = cycles + self.expensive * machine.expensive_cycles
        self.compute = cycles / machine.hertz
        self.overhead = self.bodies / machine.hertz

    def _time_ports(self) -> None:
        """Loads and stores of the straight body, at the rate of L1."""
        machine, kinds = self._machine, self._n.visit.kinds
        self.tile_loads = self.stores = self.gathers = self.tile_bytes = ZERO
        vector = kinds.index(ForKind.VECTOR) if ForKind.VECTOR in kinds else None
        for a, footprints in zip(self._accesses, self._footprints, strict=True):
            elements = cost = footprints[self.tile].elements
            if vector is not None:
                step = np.abs(self._data.stride(a, vector))
                near = (step == 1) | ((step > 1) & (step <= NEAR) & (not a.stores))
                vectors = elements / np.minimum(self.lanes, self.native)
                picking = step + SHUFFLE_LOADS * (step - 1)
                apart = np.where((step > 1) & ~near, elements, 0.0)
                self.gathers = self.gathers + apart
                cost = np.where(near, vectors * picking, elements) + (APART_CYCLES - 1.0) * apart
            self.tile_bytes = self.tile_bytes + elements * dtypes.nbytes(a.buffer.dtype)
            if a.stores:
                self.stores = self.stores + cost
            else:
                self.tile_loads = self.tile_loads + cost
        cycles = np.maximum(
            self.tile_loads / machine.loads_per_cycle, self.stores / machine.stores_per_cycle
        )
        self.l1 = self.bodies * cycles / machine.hertz

    def _time_memory(self) -> None:
        """Bytes moved into each cache over its bandwidth."""
        machine, target = self._machine, self._target
        caches = (
            Cache(target.l1_bytes, 8),
            Cache(target.l2_bytes, 16),
            Cache(target.l3_bytes, 16),
        )
        levels = _traffic(self._data, self._n, self._accesses, self._footprints, caches)
        self.l2_bytes, self.l3_bytes, self.memory_bytes = (
            _at_capacity(levels, k, USABLE * cache.size, self._data.bytes)
            for k, cache in enumerate(caches)
        )
        self.l2_bytes = self.l2_bytes * self.covered
        self.l2 = self.l2_bytes / machine.l2_bytes_per_cycle / machine.hertz
        self.l3 = self.l3_bytes / machine.l3_bytes_per_cycle / machine.hertz
        self.memory = self.memory_bytes / machine.memory_bytes_per_cycle / machine.hertz
        self.middle_bytes = levels[max(0, self.tile - 1)].needed[0]
        outer = sum(k is ForKind.PARALLEL for k in self._n.visit.kinds)
        self.outer_bytes = levels[outer].needed[0]


def _tile_level(kinds: tuple[ForKind, ...]) -> int:
    """The loop from which on all are unrolled or vectors: the body that becomes straight code."""
    level = len(kinds)
    while level > 0 and kinds[level - 1] in (ForKind.UNROLL, ForKind.VECTOR):
        level -= 1
    return level


LINE = 64.0
"""Bytes of a cache line."""


@dataclass
class Traffic:
    """At one loop level: the bytes moved if what is below it fits a cache, and what must fit.

    `needed` begins with the bytes that are touched, and has then for each cache those that must
    fit: more where the stride between rows lets them compete for a few sets of the cache.
    """

    moved: Floats
    needed: list[Floats]


def _traffic(
    data: Evaluated,
    n: Numbers,
    accesses: list[Access],
    footprints: list[list[Footprint]],
    caches: tuple[Cache, ...],
) -> list[Traffic]:
    """For each loop level, outermost first, what the accesses move and occupy."""
    levels = [Traffic(ZERO, [ZERO] * (1 + len(caches))) for _ in range(len(n.extents) + 1)]
    outside = [ONE, *accumulate(n.extents, np.multiply)]
    repeats = [extent > 1 for extent in n.extents]
    for a, swept in zip(accesses, footprints, strict=True):
        size = dtypes.nbytes(a.buffer.dtype)
        sharing = _sharing(data.column(a.sizes[-1]) * size if a.sizes else ONE, caches)
        fitting = _needed(swept, size, sharing, caches)
        times, step = ONE, np.asarray(LINE)
        for level, (here, needed, traffic) in enumerate(zip(swept, fitting, levels, strict=True)):
            # Loops right around that do not move the access reuse what is there: it is all moved as
            # often as the innermost one moves it that does, and that by all loops around that one.
            if level > 0:
                around = level - 1
                moves = data.moves(n, a, around)
                if moves is n.extents[around]:
                    times = np.where(repeats[around], outside[level], times)
                    step = np.where(repeats[around], _step(data, a, around) * size, step)
                elif moves is not None:
                    times = np.where(moves > 1, moves * outside[around], times)
                    step = np.where(moves > 1, _step(data, a, around) * size, step)
            # Steps that are shorter than a line find most of it there.
            fresh = np.where(step < LINE, np.minimum(here.runs * step, needed[0]), needed[0])
            moved = fresh * times  # twice for a store, which reads the line first
            traffic.moved = traffic.moved + (2.0 * moved if a.stores else moved)
            traffic.needed = _sums(traffic.needed, needed)
    return levels


def _step(data: Evaluated, access: Access, loop: int) -> Floats:
    """Elements by which an iteration of a loop moves an access along a line; many where across."""
    along = ZERO
    for d, terms in enumerate(access.terms):
        for t in terms:
            if t.loop == loop:
                moves = data.column(t.values) > 1
                last = d == len(access.terms) - 1
                along = along + moves * (np.abs(data.column(t.step)) if last else LINE)
    return along


def _needed(
    swept: list[Footprint], size: int, sharing: list[Floats] | None, caches: tuple[Cache, ...]
) -> list[list[Floats]]:
    """For each loop level, what `Traffic.needed` has of one access; see `Evaluated.footprints`."""
    found: list[list[Floats]] = []
    for level, here in enumerate(swept):
        if level > 0 and here is swept[level - 1]:
            found.append(found[-1])
            continue
        # Whole lines are moved.
        touched = np.maximum(here.elements * size, here.runs * LINE)
        found.append([touched, *_crowded(touched, here.runs, sharing, caches)])
    return found


def _sums(xs: list[Floats], ys: list[Floats]) -> list[Floats]:
    """The sums of pairs. Most lists hold one column several times, which is added once."""
    done: dict[tuple[int, int], Floats] = {}
    for x, y in zip(xs, ys, strict=True):
        if (id(x), id(y)) not in done:
            done[id(x), id(y)] = x + y
    return [done[id(x), id(y)] for x, y in zip(xs, ys, strict=True)]


def _sharing(row: Floats, caches: tuple[Cache, ...]) -> list[Floats] | None:
    """For each cache, how many rows of `row` bytes share a set; `None` if that is all it has.

    Only rows of whole lines do: others come to lie on different sets.
    """
    lines = np.floor(row / LINE).astype(np.int64)
    aligned = (row % LINE == 0) & (lines > 0)
    if not aligned.any():
        return None
    lines = np.maximum(lines, 1)
    return [np.where(aligned, np.gcd(lines, cache.sets), 1.0) for cache in caches]


def _crowded(
    touched: Floats, runs: Floats, sharing: list[Floats] | None, caches: tuple[Cache, ...]
) -> list[Floats]:
    """For each cache, the bytes `touched` in so many `runs`, as if it had all its sets."""
    if sharing is None or runs.max() < min(cache.ways for cache in caches):
        return [touched] * len(caches)
    lines = np.maximum(np.ceil(touched / runs / LINE), 1.0)
    return [
        np.where(runs >= cache.ways, touched * np.maximum(shared / lines, 1.0), touched)
        for shared, cache in zip(sharing, caches, strict=True)
    ]


def _at_capacity(levels: list[Traffic], cache: int, capacity: float, kept: Floats) -> Floats:
    """The bytes moved into a cache: those of the outermost level whose data fits it.

    Data of up to twice the capacity stays in part. Where the `kept` bytes of the program do, what
    is touched for the first time is there from the call before, or from who made it.
    """
    result = levels[-1].moved
    for level in reversed(levels[:-1]):
        stays = _staying(level.needed[1 + cache], capacity)
        result = result - stays * np.maximum(result - level.moved, 0.0)
    return np.maximum(result - _staying(kept, capacity) * levels[0].moved, 0.0)


def _staying(needed: Floats, capacity: float) -> Floats:
    return np.minimum(np.maximum(2.0 - needed / capacity, 0.0), 1.0)
