"""An estimate of a candidate's time from its loops and accesses alone.

For each block: the time its arithmetic takes, the time its loads and stores take in L1, and the
time to bring what it touches from each level of the memory, of which the largest counts (they
overlap). The traffic of a level is what the block touches inside the outermost loops whose data
still fits the cache below, times the iterations around them (the reuse argument of Goto and van de
Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34, 2008).

The same numbers, as logarithms, are the features of the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import dtypes
from ..target import Target
from ..tir.ir import ForKind
from .profile import Access, Evaluated, Floats, Ints, Numbers, Profile

FEATURES = (
    "log_seconds", "compute", "l1", "l2", "l3", "memory", "overhead",
    "main_share", "visits", "lanes", "accumulators", "unrolled", "parallel", "balance",
    "inner_trip", "tile_loads", "tile_bytes", "k_trip",
    "l2_bytes", "l3_bytes", "memory_bytes", "middle_bytes", "outer_bytes",
    "gathers", "expensive", "blocks", "stores",
    "other_seconds", "other_memory", "other_lanes",
)  # fmt: skip
VERSION = "1"
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


class Estimate:
    """Seconds and features of each row. `features` has the columns of `FEATURES`."""

    def __init__(self, seconds: Floats, features: Floats) -> None:
        self.seconds = seconds
        self.features = features


def estimate(source: Profile, rows: Ints, target: Target) -> Estimate:
    """Estimate the rows (rows, variables) of a sketch, or the one empty row of a program."""
    data = Evaluated(source, rows)
    parts = [_Block(data, n, target, DEFAULT) for n in data.visits]
    if not parts:
        zero = np.zeros((data.rows, len(FEATURES)))
        return Estimate(np.full(data.rows, DEFAULT.fork_seconds), zero)
    stacked = np.stack([p.seconds for p in parts])
    seconds = stacked.sum(axis=0)
    # The block that takes longest stands for the program; of the others there are only sums.
    slowest = stacked.argmax(axis=0)
    everyone = np.arange(data.rows)

    def of_main(name: str) -> Floats:
        values: Floats = np.stack([getattr(p, name) for p in parts])
        picked: Floats = values[slowest, everyone]
        return picked

    memory = np.stack([p.memory for p in parts])
    lanes = np.stack([p.lanes for p in parts])
    columns = {
        "log_seconds": seconds,
        "main_share": of_main("seconds") / seconds,
        "blocks": np.full(data.rows, float(len(parts))),
        "other_seconds": seconds - of_main("seconds"),
        "other_memory": memory.sum(axis=0) - of_main("memory"),
        "other_lanes": lanes.min(axis=0),
    }
    matrix = np.stack([columns[f] if f in columns else of_main(f) for f in FEATURES], axis=1)
    return Estimate(seconds, np.log2(matrix + 1e-9).astype(np.float32).astype(np.float64))


class _Block:
    """The estimate of one block: seconds of each kind, and the numbers behind them."""

    def __init__(self, data: Evaluated, n: Numbers, target: Target, machine: Machine) -> None:
        self._data = data
        self._n = n
        self._machine = machine
        self._target = target
        self.native = max(1, target.vector_bits // dtypes.info(n.visit.dtype).bits)
        self.tile = _tile_level(n.visit.kinds)
        self._count_loops()
        self._time_arithmetic()
        self._time_ports()
        self._time_memory()
        busiest = np.max([self.compute, self.l1, self.l2, self.l3, self.memory], axis=0)
        total = self.compute + self.l1 + self.l2 + self.l3 + self.memory
        busy = busiest + OVERLAP_LOSS * (total - busiest) + self.overhead
        self.seconds = busy / np.maximum(self.used, 1e-9)
        if target.threads > 1 and ForKind.PARALLEL in n.visit.kinds:
            self.seconds = self.seconds + machine.fork_seconds

    def _of_kind(self, kind: ForKind) -> Floats:
        return self._n.product(lambda i: self._n.visit.kinds[i] is kind)

    def _count_loops(self) -> None:
        """Iterations, vectors, the register tile, and how evenly the threads are used."""
        n, visit = self._n, self._n.visit
        self.visits = n.product(lambda _: True)
        self.lanes = self._of_kind(ForKind.VECTOR)
        self.vectors = np.ceil(self.lanes / self.native)
        self.unrolled = self._of_kind(ForKind.UNROLL)
        spatial_tile = n.product(
            lambda i: visit.kinds[i] is ForKind.UNROLL and not visit.reduces[i]
        )
        self.accumulators = spatial_tile * self.vectors
        self.k_trip = n.product(lambda i: visit.reduces[i])
        self.inner_trip = n.extents[self.tile - 1] if self.tile > 0 else np.ones(n.rows)
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
        self.expensive = steps * visit.expensive
        cycles = cycles + self.expensive * machine.expensive_cycles
        self.compute = cycles / machine.hertz
        self.overhead = self.bodies / machine.hertz

    def _time_ports(self) -> None:
        """Loads and stores of the straight body, at the rate of L1."""
        n, machine = self._n, self._machine
        zero = np.zeros(n.rows)
        self.tile_loads, self.stores, self.gathers, self.tile_bytes = zero, zero, zero, zero
        kinds = n.visit.kinds
        vector = kinds.index(ForKind.VECTOR) if ForKind.VECTOR in kinds else None
        for a in self._accesses():
            elements, _ = self._data.footprint(a, self.tile)
            cost = elements
            if vector is not None:
                step = np.abs(self._data.stride(a, vector))
                cost = np.where(step == 1, elements / np.minimum(self.lanes, self.native), elements)
                self.gathers = self.gathers + np.where(step > 1, elements, 0.0)
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
        levels = _traffic(self._data, self._n, self._accesses(), caches)
        self.l2_bytes, self.l3_bytes, self.memory_bytes = (
            _at_capacity(levels, k, USABLE * cache.size) for k, cache in enumerate(caches)
        )
        self.l2 = self.l2_bytes / machine.l2_bytes_per_cycle / machine.hertz
        self.l3 = self.l3_bytes / machine.l3_bytes_per_cycle / machine.hertz
        self.memory = self.memory_bytes / machine.memory_bytes_per_cycle / machine.hertz
        self.middle_bytes = levels[max(0, self.tile - 1)].span
        outer = sum(k is ForKind.PARALLEL for k in self._n.visit.kinds)
        self.outer_bytes = levels[outer].span

    def _accesses(self) -> list[Access]:
        return [a for a in self._n.visit.accesses if a.buffer.scope != "register"]


def _tile_level(kinds: tuple[ForKind, ...]) -> int:
    """The loop from which on all are unrolled or vectors: the body that becomes straight code."""
    level = len(kinds)
    while level > 0 and kinds[level - 1] in (ForKind.UNROLL, ForKind.VECTOR):
        level -= 1
    return level


LINE = 64.0
"""Bytes of a cache line."""


@dataclass(frozen=True)
class Traffic:
    """At one loop level: the bytes moved if what is below it fits a cache, and what must fit.

    `crowded` has for each cache the bytes that must fit, more where the stride between rows lets
    them compete for a few sets of the cache.
    """

    moved: Floats
    span: Floats
    crowded: tuple[Floats, ...]


def _traffic(
    data: Evaluated, n: Numbers, accesses: list[Access], caches: tuple[Cache, ...]
) -> list[Traffic]:
    """For each loop level, outermost first, what the accesses move and occupy."""
    depth = len(n.extents)
    moved = np.zeros((depth + 1, data.rows))
    span = np.zeros((depth + 1, data.rows))
    crowded = np.zeros((len(caches), depth + 1, data.rows))
    for a in accesses:
        size = dtypes.nbytes(a.buffer.dtype)
        row = data.column(a.sizes[-1]) * size if a.sizes else np.ones(data.rows)
        moves = [data.moves(n, a, i) for i in range(depth)]
        for level in range(depth + 1):
            elements, runs = data.footprint(a, level)
            # Whole lines are moved, and a store reads the line first.
            touched = np.maximum(elements * size, runs * LINE)
            # Loops right around that do not move the access reuse what is there.
            times = np.ones(data.rows)
            for i in range(level - 1, -1, -1):
                times = np.where(times > 1, times * n.extents[i], moves[i])
            moved[level] += touched * times * (2.0 if a.stores else 1.0)
            span[level] += touched
            for k, cache in enumerate(caches):
                crowded[k, level] += touched * _crowding(row, touched / runs, runs, cache)
    return [
        Traffic(moved[level], span[level], tuple(crowded[:, level])) for level in range(depth + 1)
    ]


def _crowding(row: Floats, run: Floats, runs: Floats, cache: Cache) -> Floats:
    """By how much a stride of `row` bytes between `runs` of `run` bytes shrinks a cache."""
    lines = np.floor(row / LINE).astype(np.int64)
    aligned = (row % LINE == 0) & (lines > 0)
    shared = np.gcd(np.maximum(lines, 1), cache.sets) / np.maximum(np.ceil(run / LINE), 1.0)
    return np.where(aligned & (runs > cache.ways), np.maximum(shared, 1.0), 1.0)


def _at_capacity(levels: list[Traffic], cache: int, capacity: float) -> Floats:
    """The bytes moved into a cache: those of the outermost level whose data fits it."""
    result = levels[-1].moved
    for level in reversed(levels):
        fits = level.crowded[cache] <= capacity
        result = np.where(fits, np.minimum(level.moved, result), result)
    return result
