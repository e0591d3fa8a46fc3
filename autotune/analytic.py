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
from .profile import Evaluated, Floats, Numbers, Profile

FEATURES = (
    "log_seconds", "compute", "l1", "l2", "l3", "memory", "overhead", "waste",
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


class Estimate:
    """Seconds and features of each row. `features` has the columns of `FEATURES`."""

    def __init__(self, seconds: Floats, features: Floats) -> None:
        self.seconds = seconds
        self.features = features


def estimate(source: Profile, rows: np.ndarray, target: Target) -> Estimate:  # type: ignore[type-arg]
    """Estimate the rows (rows, variables) of a sketch, or the one empty row of a program."""
    data = Evaluated(source, rows)
    parts = [_Block(data, n, target, DEFAULT) for n in data.visits]
    if not parts:
        zero = np.zeros((data.rows, len(FEATURES)))
        return Estimate(np.full(data.rows, DEFAULT.fork_seconds), zero)
    seconds = np.sum([p.seconds for p in parts], axis=0)
    stacked = np.stack([p.seconds for p in parts])
    # The block that takes longest by median stands for the program in the features.
    main = parts[int(np.argmax(np.median(stacked, axis=1)))]
    others = [p for p in parts if p is not main]
    zero_column = np.zeros(data.rows)
    other_seconds = sum((p.seconds for p in others), start=zero_column)
    other_memory = sum((p.memory for p in others), start=zero_column)
    other_lanes = np.min([p.lanes for p in others], axis=0) if others else np.ones(data.rows)
    columns = [
        seconds, main.compute, main.l1, main.l2, main.l3, main.memory, main.overhead, main.waste,
        main.seconds / seconds, main.visits, main.lanes, main.accumulators, main.unrolled,
        main.parallel, main.balance, main.inner_trip, main.tile_loads, main.tile_bytes, main.k_trip,
        main.l2_bytes, main.l3_bytes, main.memory_bytes, main.middle_bytes, main.outer_bytes,
        main.gathers, main.expensive, np.full(data.rows, float(len(parts))), main.stores,
        other_seconds, other_memory, other_lanes,
    ]  # fmt: skip
    matrix = np.stack(columns, axis=1)
    return Estimate(seconds, np.log2(matrix + 1e-9).astype(np.float32).astype(np.float64))


class _Block:
    """The estimate of one block."""

    def __init__(self, data: Evaluated, n: Numbers, target: Target, machine: Machine) -> None:
        visit = n.visit
        loops = range(len(n.extents))
        kinds = visit.kinds
        vectors = [i for i in loops if kinds[i] is ForKind.VECTOR]
        parallels = [i for i in loops if kinds[i] is ForKind.PARALLEL]
        unrolls = [i for i in loops if kinds[i] is ForKind.UNROLL]
        one = np.ones(data.rows)
        native = max(1, target.vector_bits // dtypes.info(visit.dtype).bits)

        self.visits = n.product(lambda _: True)
        self.lanes = n.product(lambda i: i in vectors)
        self.unrolled = n.product(lambda i: i in unrolls)
        self.accumulators = n.product(lambda i: i in unrolls and not visit.reduces[i]) * np.ceil(
            self.lanes / native
        )
        self.parallel = n.product(lambda i: i in parallels)
        self.waste = one
        threads = max(1, target.threads)
        chunks = np.ceil(self.parallel / threads)
        used = np.where(self.parallel > 1, self.parallel / np.maximum(chunks, 1), 1.0)
        self.balance = used / threads
        self.k_trip = n.product(lambda i: visit.reduces[i])

        steps = self.visits / self.lanes * np.ceil(self.lanes / native)
        tile = _tile_level(kinds)
        self.inner_trip = n.extents[tile - 1] if tile > 0 else one
        arithmetic = max(1, visit.operations - (1 if visit.accumulates else 0))
        cycles = steps * arithmetic / machine.fma_per_cycle
        if visit.accumulates:
            chain = machine.fma_latency * machine.fma_per_cycle
            cycles = cycles * np.maximum(1.0, chain / np.maximum(self.accumulators, 1.0))
        cycles = cycles + steps * visit.expensive * machine.expensive_cycles
        self.expensive = steps * visit.expensive + 1

        bodies = self.visits / n.product(lambda i: i >= tile)
        loads = np.zeros(data.rows)
        self.stores = np.zeros(data.rows)
        self.gathers = np.zeros(data.rows)
        self.tile_bytes = np.zeros(data.rows)
        memory_accesses = [a for a in visit.accesses if a.buffer.scope != "register"]
        for a in memory_accesses:
            elements, _ = data.footprint(n, a, tile)
            cost = elements
            if vectors:
                step = np.abs(data.stride(a, vectors[0]))
                contiguous = elements / np.minimum(self.lanes, native)
                cost = np.where(
                    step == 1, contiguous, np.where(step == 0, elements, elements * 1.0)
                )
                self.gathers += np.where(step > 1, elements, 0.0)
            self.tile_bytes += elements * dtypes.nbytes(a.buffer.dtype)
            if a.stores:
                self.stores += cost
            else:
                loads += cost
        self.tile_loads = loads
        bodies_cycles = np.maximum(
            loads / machine.loads_per_cycle, self.stores / machine.stores_per_cycle
        )
        self.l1 = bodies * bodies_cycles / machine.hertz
        self.compute = cycles / machine.hertz
        self.overhead = bodies * 1.0 / machine.hertz

        per_thread = one
        total, spans = _traffic(data, n, memory_accesses)
        caches = [0.75 * target.l1_bytes, 0.75 * target.l2_bytes, 0.75 * target.l3_bytes]
        moved = [_at_capacity(total, spans, c) for c in caches]
        self.l2_bytes, self.l3_bytes, self.memory_bytes = moved
        self.l2 = self.l2_bytes / machine.l2_bytes_per_cycle / machine.hertz
        self.l3 = self.l3_bytes / machine.l3_bytes_per_cycle / machine.hertz
        self.memory = self.memory_bytes / machine.memory_bytes_per_cycle / machine.hertz
        middle = min(len(total) - 1, max(0, tile - 1))
        self.middle_bytes = spans[middle]
        self.outer_bytes = spans[min(len(spans) - 1, len(parallels))]
        busy = np.max([self.compute, self.l1, self.l2, self.l3, self.memory], axis=0)
        busy = busy + 0.15 * (self.compute + self.l1 + self.l2 + self.l3 + self.memory - busy)
        self.seconds = (busy + self.overhead) / np.maximum(used, 1e-9) * per_thread
        if parallels and threads > 1:
            self.seconds = self.seconds + machine.fork_seconds


def _tile_level(kinds: tuple[ForKind, ...]) -> int:
    """The loop from which on all are unrolled or vectors: the body that becomes straight code."""
    level = len(kinds)
    while level > 0 and kinds[level - 1] in (ForKind.UNROLL, ForKind.VECTOR):
        level -= 1
    return level


def _traffic(
    data: Evaluated, n: Numbers, accesses: list[Access]
) -> tuple[list[Floats], list[Floats]]:
    """For each loop level: bytes moved if what is below fits, and the bytes that must fit."""
    depth = len(n.extents)
    total: list[Floats] = []
    spans: list[Floats] = []
    for level in range(depth + 1):
        moved = np.zeros(data.rows)
        span = np.zeros(data.rows)
        for a in accesses:
            elements, runs = data.footprint(n, a, level)
            size = dtypes.nbytes(a.buffer.dtype)
            # Whole lines are moved, and a store reads the line first.
            bytes_ = np.maximum(elements * size, runs * 64.0)
            times = np.ones(data.rows)
            involved = False
            for i in range(level - 1, -1, -1):
                involved = involved or data.depends(a, i)
                if involved:
                    times = times * n.extents[i]
            moved += bytes_ * times * (2.0 if a.stores else 1.0)
            span += bytes_
        total.append(moved)
        spans.append(span)
    return total, spans


def _at_capacity(total: list[Floats], spans: list[Floats], capacity: float) -> Floats:
    """The bytes moved into a cache: those of the outermost level whose data fits it."""
    result = total[-1]
    for moved, span in zip(reversed(total), reversed(spans), strict=True):
        result = np.where(span <= capacity, np.minimum(moved, result), result)
    return result
