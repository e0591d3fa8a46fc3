"""An estimate of a candidate's time from its loops and accesses alone.

For each block: the time its arithmetic takes, the time its loads and stores take in L1, and the
time to bring what it touches from each level of the memory, of which the largest counts (they
overlap). The traffic of a level is what the block touches inside the outermost loops whose data
still fits the cache below, times the iterations around them (the reuse argument of Goto and van de
Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34, 2008).

The same numbers, as logarithms, are the features of the cost model. All but the seconds are
relative to the machine: times are shares of the whole, and counts and bytes are of its vectors,
registers and caches. So what was learned on one machine is told in the terms of another.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from operator import add, mul
from typing import TypeAlias

import numpy as np

from ....base import dtypes
from ....target import CpuTarget, Target
from ....tir.columns import (
    Column,
    Floats,
    Number,
    Program,
    Tape,
    absolute,
    ceil,
    equal,
    maximum,
    minimum,
    square_root,
    where,
)
from ....tir.cpu_instructions import MAX_SHUFFLE_STRIDE
from ....tir.instruction import Cost
from ....tir.ir import ForKind
from ..profile import Ints, Profile, Visit, straight_code
from ..target_model import Estimate, Features
from .footprints import Evaluated, Numbers
from .instructions import instructions_of
from .traffic import Cache, at_capacity, staying, traffic

FEATURES = (
    "log_seconds", "compute", "l1", "l2", "l3", "memory", "overhead",
    "main_share", "vectors", "accumulators", "unrolled", "parallel", "balance",
    "inner_trip", "tile_loads", "tile_bytes", "k_trip",
    "l2_bytes", "l3_bytes", "memory_bytes", "middle_bytes", "outer_bytes",
    "gathers", "expensive", "blocks", "stores",
    "other_seconds", "other_memory", "other_vectors",
)  # fmt: skip
VERSION = "10"
"""Of the features and of the estimate."""


USABLE = 0.75
"""The share of a cache that a block's data may fill before lines are lost to conflicts."""
OVERLAP_LOSS = 0.15
"""How much of what is not the bottleneck shows nevertheless."""
CALL = 1.0e-6
"""Seconds of a call that does nothing."""
LEAST = 2.0**-20
"""Of a share that is none, for logarithms."""
FUNCTION_INSTRUCTIONS = 28.0
"""Vector instructions of an expensive function: a polynomial, and what is around it."""

BlockNumbers: TypeAlias = "Mapping[str, Floats | float]"
"""The numbers of a block, `_OF_BLOCK`: of each row, or the same for all."""


class Estimator:
    """The estimate of a profile's rows on a processor, worked out once for all of them."""

    def __init__(self, source: Profile, target: Target) -> None:
        tape = Tape()
        data = Evaluated(source, tape)
        cpu = CpuTarget.of(target)
        machine = _Machine(cpu, data)
        self._program: Program | None = None
        self._blocks: list[BlockNumbers] = []
        if source.bounds:
            results = [x for n in data.visits for x in _numbers(data, n, machine)]
            self._program = Program(tape, results)
        else:
            kept = source.memo.kept
            # For short: it is quick to hash.
            key = kept((Estimator, cpu.key, machine.stays), object)
            self._blocks = [
                kept((key, n.visit, n.shuffles), functools.partial(_plain, data, n, machine))
                for n in data.visits
            ]
        tape.forget()

    def __call__(self, rows: Ints) -> Estimate:
        """Estimate the rows (rows, variables) of a sketch, or the one empty row of a program."""
        seconds = np.full(len(rows), CALL)
        features = np.zeros((len(rows), len(FEATURES)), dtype=np.float32)
        for part, blocks in self._of_slices(rows):
            if blocks:
                seconds[part], features[part] = _together(blocks, part.stop - part.start)
        return Estimate(seconds, features)

    def _of_slices(self, rows: Ints) -> Iterator[tuple[slice, Sequence[BlockNumbers]]]:
        """For slices of the rows, the numbers of each block."""
        if self._program is None:
            yield slice(0, len(rows)), self._blocks
            return
        count = len(_OF_BLOCK)
        for part, numbers in self._program.run(np.ascontiguousarray(rows.T), len(rows)):
            blocks = (numbers[start : start + count] for start in range(0, len(numbers), count))
            yield part, [dict(zip(_OF_BLOCK, block, strict=True)) for block in blocks]


_OF_ALL = ("log_seconds", "main_share", "blocks", "other_seconds", "other_memory", "other_vectors")
_TIMES = ("compute", "l1", "l2", "l3", "memory", "overhead", "other_seconds", "other_memory")
"""Features that are seconds at first, and then shares of those of the program."""
_OF_BLOCK = ("seconds", *(name for name in FEATURES if name not in _OF_ALL))


def _together(blocks: Sequence[BlockNumbers], rows: int) -> tuple[Floats, Features]:
    """The seconds and features of rows from the numbers of each block."""
    stacked = np.stack([np.broadcast_to(block["seconds"], rows) for block in blocks])
    seconds = stacked.sum(axis=0)
    # The block that takes longest stands for the program; of the others there are only sums.
    slowest = stacked.argmax(axis=0)
    main = [(blocks[n], slowest == n) for n in np.flatnonzero(np.bincount(slowest)).tolist()]
    longest = stacked.max(axis=0)
    of_all = {
        "log_seconds": seconds,
        "main_share": longest / seconds,
        "blocks": np.asarray(float(len(blocks))),
        "other_seconds": seconds - longest,
        "other_memory": functools.reduce(np.add, [block["memory"] for block in blocks]),
        "other_vectors": functools.reduce(np.minimum, [block["vectors"] for block in blocks]),
    }
    table = np.empty((len(FEATURES), rows))
    for column, name in zip(table, FEATURES, strict=True):
        if name in of_all:
            column[:] = of_all[name]
        else:
            for block, where in main:
                np.copyto(column, block[name], where=where)
    others = table[FEATURES.index("other_memory")]
    np.subtract(others, table[FEATURES.index("memory")], out=others)
    for name in _TIMES:
        table[FEATURES.index(name)] /= seconds
    table[1:] += LEAST
    return seconds, np.log2(table, out=table).T.astype(np.float32)


def _numbers(data: Evaluated, n: Numbers, machine: _Machine) -> list[Number]:
    """The numbers of a block, in the order of `_OF_BLOCK`."""
    block = _Block(data, n, machine)
    return [getattr(block, name) for name in _OF_BLOCK]


def _plain(data: Evaluated, n: Numbers, machine: _Machine) -> dict[str, float]:
    """The numbers of a block of a concrete program, which are on no tape."""
    plain: dict[str, float] = {}
    for name, number in zip(_OF_BLOCK, _numbers(data, n, machine), strict=True):
        assert not isinstance(number, Column), "a concrete program has plain numbers"
        plain[name] = number
    return plain


class _Machine:
    """The caches of a processor, and the share that `stays` in each of all bytes of a program."""

    def __init__(self, target: CpuTarget, data: Evaluated) -> None:
        sizes = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
        self.target = target
        self.caches = tuple(map(Cache, sizes, target.ways, (target.line_bytes,) * len(sizes)))
        self.stays = tuple(staying(data.bytes, USABLE * cache.size) for cache in self.caches)


class _Block:
    """The estimate of one block: seconds of each kind, and the numbers behind them."""

    compute: Number
    l1: Number
    overhead: Number
    expensive: Number
    vectors: Number
    accumulators: Number
    visits: Number
    lanes: Number
    used: Number
    l2_bytes: Number
    l3_bytes: Number
    memory_bytes: Number
    middle_bytes: Number
    outer_bytes: Number
    tile_loads: Number
    stores: Number
    gathers: Number
    tile_bytes: Number
    converting: Number
    multiplying: Number

    def __init__(self, data: Evaluated, n: Numbers, machine: _Machine) -> None:
        target = machine.target
        self._data = data
        self._n = n
        self._machine = machine
        self._rates = target.rates
        self._target = target
        places = [k for k, a in enumerate(n.visit.accesses) if a.buffer.scope != "register"]
        self._accesses = [n.visit.accesses[k] for k in places]
        self._instructions = instructions_of(n.visit)
        self._converted = [self._instructions.converting.get(k) for k in places]
        self._footprints = [data.footprints(a, len(n.extents)) for a in self._accesses]
        self.native = max(1, target.vector_bits // dtypes.info(n.visit.dtype).bits)
        self.tile = straight_code(n.visit.kinds)
        self.cost = _cost(n.visit, target)
        self._count_loops()
        self._time_ports()
        self._time_arithmetic()
        self._time_memory()
        kinds = (self.compute, self.l1, self.l2, self.l3, self.memory)
        busiest = functools.reduce(maximum, kinds)
        total = functools.reduce(add, kinds)
        busy = busiest + OVERLAP_LOSS * (total - busiest) + self.overhead
        self.seconds = busy / maximum(self.used, 1e-9)
        if target.threads > 1 and ForKind.PARALLEL in n.visit.kinds:
            self.seconds = self.seconds + target.rates.fork
        self._relate()

    def _relate(self) -> None:
        """Turn what features tell of counts and bytes into shares of what the machine has."""
        target, registers = self._target, float(self._target.vector_registers)
        self.vectors = self.lanes / self.native
        self.accumulators = self.accumulators / registers
        self.tile_bytes = self.tile_bytes / (registers * target.vector_bits / 8)
        self.l2_bytes = self.l2_bytes / self.visits
        self.l3_bytes = self.l3_bytes / self.visits
        self.memory_bytes = self.memory_bytes / self.visits
        self.middle_bytes = self.middle_bytes / target.l1_bytes
        self.outer_bytes = self.outer_bytes / target.l2_bytes
        self.expensive = self.expensive / self.visits

    def _of_kind(self, kind: ForKind) -> Number:
        return self._n.product(lambda i: self._n.visit.kinds[i] is kind)

    def _count_loops(self) -> None:
        """Iterations, vectors, the register tile, and how evenly the threads are used.

        The straight code of a tile that is partly outside is shorter, but it is one more of them.
        """
        n, visit = self._n, self._n.visit
        self.covered = self._data.covered(n, {ForKind.VECTOR})
        started = self._data.covered(n, {ForKind.VECTOR, ForKind.UNROLL})
        self.visits = n.product(lambda _: True) * self.covered
        self.lanes = self._of_kind(ForKind.VECTOR)
        self.vectors = ceil(self.lanes / self.native)
        self.unrolled = self._of_kind(ForKind.UNROLL)
        spatial_tile = n.product(
            lambda i: visit.kinds[i] is ForKind.UNROLL and not visit.reduces[i]
        )
        self.accumulators = spatial_tile * (self.vectors if self.cost is None else 1.0)
        self.k_trip = n.product(lambda i: visit.reduces[i])
        self.inner_trip = n.extents[self.tile - 1] if self.tile > 0 else 1.0
        self.bodies = n.product(lambda i: i < self.tile) * started
        self.parallel = self._of_kind(ForKind.PARALLEL)
        threads = max(1, self._target.threads)
        rounds = maximum(ceil(self.parallel / threads), 1)
        self.used = where(self.parallel > 1, self.parallel / rounds, 1.0)
        self.balance = self.used / threads

    def _time_arithmetic(self) -> None:
        """Instructions over their rate, or the latency of the chains of accumulators."""
        visit, rates = self._n.visit, self._rates
        steps = self.visits / self.lanes * self.vectors
        # At least one: whether what pads a copy chooses depends on the decisions.
        instructions = steps * max(1.0, self._instructions.other - visit.accumulates)
        chains = rates.fma_latency * rates.fma
        if self.cost is not None:
            chains = self.cost.latency / self.cost.cycles
        waiting = self._waiting(chains) if visit.accumulates else 1.0
        # What widens may run beside multiply-adds, where more vector units than those shuffle.
        units = max(rates.fma, rates.shuffles)
        multiplying = instructions + self.bodies * self.multiplying
        every = instructions + self.bodies * self.converting
        cycles = maximum(multiplying / rates.fma * waiting, every / units)
        if self.cost is not None:
            cycles = self.visits / self.lanes * self.cost.cycles * waiting
        cycles = cycles + self.visits / self.lanes * self._n.shuffles / rates.shuffles
        self.expensive = steps * float(visit.expensive)
        cycles = cycles + self.expensive * FUNCTION_INSTRUCTIONS / rates.fma
        self.compute = cycles / rates.hertz
        self.overhead = self.bodies / rates.hertz

    def _waiting(self, chains: float) -> Number:
        """How many times as long sums take as without latency: norm(sums, chains) / sums.

        So many `chains` hide the latency. Fewer sums wait for it, and as many take turns unevenly:
        the norm of order 4 lies above the maximum there. With 8 chains, tiles of 2 by 4, 5 and 6
        vectors took 1.16, 1.07 and 1.00 times as long as the best for a product in vectors of 8
        lanes, and 1.21, 1.08 and 1.01 in those of 16 (Zen 5); 2 by 3 took 1.44 times in those of 8.
        """
        total: Number = 0.0
        used: Number = 0.0
        for number, share in self._data.register_tiles(self._n):
            sums = maximum(self.accumulators * share, 2.0**-20)
            total = total + number * _norm(sums, chains)
            used = used + number * sums
        return total / used

    def _time_ports(self) -> None:
        """Loads and stores of the straight body, at the rate of L1."""
        rates, kinds = self._rates, self._n.visit.kinds
        self.tile_loads = self.stores = self.gathers = self.tile_bytes = 0.0
        self.converting = self.multiplying = 0.0
        vectors = [n for n, kind in enumerate(kinds) if kind is ForKind.VECTOR]
        for a, converted, footprints in zip(
            self._accesses, self._converted, self._footprints, strict=True
        ):
            elements = cost = vectors_read = footprints[self.tile].elements
            moving = [n for n in vectors if any(t.loop == n for terms in a.terms for t in terms)]
            if moving:
                stride = self._data.stride(a, moving[0])
                step = absolute(stride.step)
                picked = (step > 1) * (step <= MAX_SHUFFLE_STRIDE) * (not a.stores)
                near = maximum(equal(step, 1.0), picked) * stride.even
                lanes = functools.reduce(mul, (self._n.extents[n] for n in moving))
                loads = elements / minimum(lanes, self.native)
                picking = step + rates.loads / rates.shuffles * (step - 1)
                apart = where(maximum(step > 1, 1.0 - stride.even) * (1.0 - near), elements, 0.0)
                self.gathers = self.gathers + apart
                each = rates.gather * (rates.stores if a.stores else rates.loads)
                cost = where(near, loads * picking, elements) + (each - 1.0) * apart
                vectors_read = where(near, loads, elements)
            if converted is not None:
                every, shared = float(converted.each), float(converted.shared)
                casts = where(equal(vectors_read, elements), shared, every)
                self.converting = self.converting + casts * vectors_read
                self.multiplying = self.multiplying + converted.multiplying * vectors_read
            if self.cost is not None and self.cost.run_loads:
                cost = cost + self.cost.run_loads * footprints[self.tile].runs
            self.tile_bytes = self.tile_bytes + elements * dtypes.nbytes(a.buffer.dtype)
            if a.stores:
                self.stores = self.stores + cost
            else:
                self.tile_loads = self.tile_loads + cost
        cycles = maximum(self.tile_loads / rates.loads, self.stores / rates.stores)
        self.l1 = self.bodies * cycles / rates.hertz

    def _time_memory(self) -> None:
        """Bytes moved into each cache over its bandwidth."""
        rates, machine = self._rates, self._machine
        caches = machine.caches
        levels = traffic(self._data, self._n, self._accesses, self._footprints, caches)
        self.l2_bytes, self.l3_bytes, self.memory_bytes = (
            at_capacity(levels, k, USABLE * cache.size, stays)
            for k, (cache, stays) in enumerate(zip(caches, machine.stays, strict=True))
        )
        self.l2_bytes = self.l2_bytes * self.covered
        self.l2 = self.l2_bytes / rates.l2 / rates.hertz
        self.l3 = self.l3_bytes / _bandwidth(rates.l3, rates.all_l3, self.used) / rates.hertz
        self.memory = (
            self.memory_bytes / _bandwidth(rates.memory, rates.all_memory, self.used) / rates.hertz
        )
        self.middle_bytes = levels[max(0, self.tile - 1)].needed[0]
        outer = sum(k is ForKind.PARALLEL for k in self._n.visit.kinds)
        self.outer_bytes = levels[outer].needed[0]


def _norm(a: Number, b: Number) -> Number:
    """The norm of order 4 of two numbers, of operations that round the same on every machine."""
    return square_root(square_root(a * a * a * a + b * b * b * b))


def _bandwidth(one: float, all_cores: float, used: Number) -> Number:
    """Bytes that each of so many cores reads in a cycle, where they share what is beyond."""
    return minimum(one, all_cores / used) if all_cores else one


def _cost(visit: Visit, target: Target) -> Cost | None:
    """The cost of the instruction that a block runs as, where the target has it."""
    instruction = visit.instruction
    return instruction.cost if instruction is not None and instruction.runs_on(target) else None
