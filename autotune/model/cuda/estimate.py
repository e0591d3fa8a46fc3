"""An estimate of a candidate's time on a GPU from counts of what it asks of the hardware.

For each launch: the cycles of the busiest SM for arithmetic, special functions, issuing, shared
memory and L1; the seconds of the second level and of memory for all SMs; and the latency of one
block, times the waves of blocks that follow each other. The largest of them counts (they overlap),
and a share of the others: a roofline of each resource (Williams, Waterman and Patterson, CACM
52(4), 2009), with occupancy and latency as in Hong and Kim, "An Analytical Model for a GPU
Architecture", ISCA 2009. To this comes the time of a launch.

The same numbers, as logarithms, are the features of the cost model. All but the seconds are
relative to the device or to the whole.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from ....base import dtypes
from ....target import CudaTarget, Target
from ....target.cuda import BANK_BYTES, SECTOR_BYTES, WARP
from ....target.occupancy import blocks_per_sm
from ....tir.ir import Binary, Buffer, Op, Stmt
from ....tir.visit import walk
from ..profile import Ints, Profile
from ..target_model import Estimate
from .counts import AccessCounts, LaunchCounter, LaunchCounts, PhaseCounts, statement_of
from .launches import launches_of
from .registers import Registers
from .spans import Dims, Floats

TIMES = (
    "arithmetic", "special", "issue", "shared", "l1", "l2", "memory", "starts", "latency",
    "barriers",
)  # fmt: skip
"""Features that are seconds at first, and then shares of those of the program."""
FEATURES = (
    "log_seconds", *TIMES, "main_share", "launches",
    "occupancy", "blocks_per_sm", "warps", "waves", "balance", "registers", "spilled",
    "shared_bytes", "sector_use", "conflicts", "access_bytes", "independent", "loads", "reuse",
    "steps", "other_seconds", "other_memory",
)  # fmt: skip
VERSION = "5"
"""Of the features and of the estimate."""

OVERLAP_LOSS = 0.15
"""How much of what is not the bottleneck shows nevertheless."""
LEAST = 2.0**-20
"""Of a share that is none, for logarithms."""
REACHED = 0.92
"""The share of the rate of memory that a copy reaches."""
USABLE = 0.8
"""The share of the second level that holds what is read again."""
FUNCTION_OPERATIONS = 8.0
"""Multiply-adds around a special function."""
L2_PORT = 64.0
"""Bytes that an SM takes from the second level in a cycle, at most: few SMs do not take all of its
rate. NVIDIA A100 Tensor Core GPU Architecture, and the same later."""
STEP_INSTRUCTIONS = 4.0
"""Instructions of an iteration of a loop that is not unrolled: a counter, a test, addresses."""
UNROLLED_BY_NVCC = 4.0
"""Iterations of a loop without barriers whose loads nvcc brings together."""
SLICE = 8192
"""Rows that are estimated together: columns of them stay in a cache."""
IMPOSSIBLE = 1.0
"""Seconds that are added where no SM runs a block."""


class Estimator:
    """The estimate of a profile's rows on a GPU, worked out once for all of them."""

    def __init__(self, source: Profile, target: Target) -> None:
        self.target = CudaTarget.of(target)
        bounds = dict(source.bounds)
        self._dims = Dims(bounds)
        self._launches = []
        for launch in launches_of(source):
            counter = LaunchCounter(launch, bounds, self._dims)
            self._launches.append((counter, Registers(launch, counter.shapes, self._dims)))

    def __call__(self, rows: Ints) -> Estimate:
        """Estimate the rows (rows, variables) of a sketch, or the one empty row of a program."""
        seconds = np.zeros(len(rows))
        features = np.zeros((len(rows), len(FEATURES)), dtype=np.float32)
        for start in range(0, len(rows), SLICE):
            part = slice(start, start + SLICE)
            seconds[part], features[part] = self._slice(rows[part])
        return Estimate(seconds, features)

    def _slice(self, rows: Ints) -> Estimate:
        with np.errstate(all="ignore"):
            self._dims.evaluate(rows)
            parts = [
                launch_times(counter(rows), registers(), self.target)
                for counter, registers in self._launches
            ]
            return _together(parts, len(rows))


def _together(parts: list[dict[str, Floats]], rows: int) -> Estimate:
    """The seconds and features of rows from the numbers of each launch."""
    if not parts:
        parts = [{name: np.zeros(()) for name in ("seconds", *FEATURES)}]
        parts[0]["seconds"] = np.asarray(1e-6)
    stacked = np.stack([np.broadcast_to(p["seconds"], rows) for p in parts])
    seconds = stacked.sum(axis=0)
    slowest = stacked.argmax(axis=0)
    longest = stacked.max(axis=0)
    memory = np.stack([np.broadcast_to(p["memory"], rows) for p in parts]).sum(axis=0)
    table = np.zeros((len(FEATURES), rows))
    for column, name in zip(table, FEATURES, strict=True):
        for n, part in enumerate(parts):
            if name in part:
                np.copyto(column, part[name], where=slowest == n)
    at = {name: n for n, name in enumerate(FEATURES)}
    table[at["other_memory"]] = memory - table[at["memory"]]
    table[at["other_seconds"]] = seconds - longest
    for name in (*TIMES, "other_memory", "other_seconds"):
        table[at[name]] /= seconds
    table[at["main_share"]] = longest / seconds
    table[at["launches"]] = float(len(parts))
    table[at["log_seconds"]] = seconds
    table[1:] += LEAST
    return Estimate(seconds, np.log2(table).T.astype(np.float32))


def launch_times(launch: LaunchCounts, registers: Floats, target: CudaTarget) -> dict[str, Floats]:
    """The seconds of each resource of a launch, of all of it, and the numbers behind them."""
    rates, limits = target.rates, target.limits
    sms = float(target.sms or limits.sms)
    blocks, threads = launch.blocks, launch.threads
    warps = np.ceil(threads / WARP)
    room = np.floor(limits.block_registers / np.maximum(warps * WARP, 1) / 8) * 8
    allowed = np.minimum(room, limits.thread_registers)
    spilled = np.maximum(registers - allowed, 0.0)
    allocated = np.minimum(registers, np.maximum(allowed, 8.0))
    per_sm = blocks_per_sm(limits, threads, allocated, launch.shared_bytes)
    impossible = per_sm < 1
    per_sm = np.maximum(per_sm, 1.0)
    busiest = np.ceil(blocks / sms)
    resident = np.minimum(per_sm, busiest)
    waves = np.ceil(blocks / (sms * per_sm))

    work = _Work(launch, target, resident, spilled, warps)
    cycles = busiest / rates.hertz
    times: dict[str, Floats] = {
        "arithmetic": work.arithmetic * cycles,
        "special": work.special / rates.special * cycles,
        "issue": work.instructions / rates.issue * cycles,
        "shared": work.wavefronts * cycles,
        "l1": work.sectors / rates.l1_sectors * cycles,
        "starts": rates.block_start * cycles,
        "l2": np.maximum(work.l2_bytes * blocks / rates.l2, work.l2_bytes / L2_PORT * cycles),
        "memory": work.memory_bytes(blocks, sms * per_sm) / (rates.memory * REACHED),
    }
    waiting = launch.counts.barriers / blocks + launch.counts.warp_barriers / blocks / warps / 4
    times["barriers"] = waiting * rates.barrier_latency * waves / rates.hertz
    ratio = times["memory"] * rates.memory / np.maximum(times["l2"] * rates.l2, 1.0)
    alone = work.latency(np.minimum(ratio, 1.0)) + rates.block_start
    times["latency"] = alone * waves / rates.hertz
    times["latency"] = times["latency"] + times["barriers"]
    parts = [n for name, n in times.items() if name != "barriers"]
    longest = np.maximum.reduce(np.broadcast_arrays(*parts))
    total = sum(parts, np.zeros(()))
    seconds = longest + OVERLAP_LOSS * (total - longest) + rates.launch
    times["seconds"] = seconds + np.where(impossible, IMPOSSIBLE, 0.0)
    ideal = np.maximum(work.ideal_sectors, 1.0)
    times |= {
        "occupancy": resident * warps / limits.sm_warps,
        "blocks_per_sm": per_sm,
        "warps": warps,
        "waves": waves,
        "balance": blocks / sms / busiest,
        "registers": registers / limits.thread_registers,
        "spilled": spilled,
        "shared_bytes": launch.shared_bytes / limits.block_bytes,
        "sector_use": work.sectors / ideal,
        "conflicts": work.wavefronts / np.maximum(work.ideal_wavefronts, 1.0),
        "access_bytes": work.access_bytes,
        "independent": work.independent,
        "loads": work.loads,
        "reuse": work.l2_bytes / np.maximum(work.sectors * SECTOR_BYTES, 1.0),
        "steps": work.steps,
    }
    return times


class _Work:
    """What a block asks of an SM: threads' operations, warps' requests, and their latency."""

    def __init__(
        self,
        launch: LaunchCounts,
        target: CudaTarget,
        resident: Floats,
        spilled: Floats,
        warps: Floats,
    ) -> None:
        self.rates, self.launch = target.rates, launch
        self.arithmetic = self.special = self.instructions = self.wavefronts = np.zeros(())
        self.sectors = self.l2_bytes = self.ideal_wavefronts = self.ideal_sectors = np.zeros(())
        self.loads = self.steps = self._fixed = self._from_memory = self._copied = np.zeros(())
        self._ahead: Floats = np.zeros(())
        self.independent: Floats = np.ones(())
        self.access_bytes: Floats = np.zeros(())
        # Of each array what a block asks for in each of its statements.
        self._moved: dict[Buffer, dict[object, Floats]] = {}
        l1 = np.maximum(self.rates.l1_bytes - launch.shared_bytes * resident, 8192.0) / 2
        for phase in launch.phases:
            self._phase(phase, resident, l1)
        requests = launch.counts.shuffles / launch.blocks
        self.instructions = self.instructions + 2 * requests
        self._fixed = self._fixed + requests / warps * self.rates.shared_latency
        # What is spilled is stored and loaded once in each step.
        stored = 2 * spilled * np.maximum(self.steps, 1.0)
        self.sectors = self.sectors + stored * warps * 4
        self._spilled = spilled * warps * WARP * 4
        outside = stored * warps * WARP * 4
        self._beyond = np.where(self._spilled * resident > l1, outside, 0.0)
        self.l2_bytes = self.l2_bytes + self._beyond

    def _phase(self, phase: PhaseCounts, resident: Floats, l1: Floats) -> None:
        rates, visit = self.rates, phase.phase.visit
        share, visits = phase.share, phase.visits * phase.share
        running = np.ceil(phase.threads / WARP)
        operations, functions = phase.operations
        double = visit.dtype == "float64"
        fused = float(visit.accumulates and multiplies(visit.block.body))
        each = np.maximum(operations - fused, 0.0) + FUNCTION_OPERATIONS * functions
        self.arithmetic = self.arithmetic + visits * running * WARP * each / (
            rates.float64 if double else rates.float32
        )
        self.special = self.special + visits * running * WARP * functions
        steps = visits / np.maximum(phase.straight, 1.0)
        requests: Floats = np.zeros(())
        for a in phase.accesses:
            requests = requests + self._access(a, statement_of(phase.phase), share, resident, l1)
        issued = (visits * each + steps * STEP_INSTRUCTIONS) * running
        self.instructions = self.instructions + issued + 1.5 * requests
        self.steps = np.maximum(self.steps, steps)
        self._wait(phase, steps, each, functions, requests / np.maximum(running, 1.0))

    def _access(
        self, a: AccessCounts, statement: object, share: Floats, resident: Floats, l1: Floats
    ) -> Floats:
        """Add an access in a statement. Returns the requests of its warps."""
        access = a.pattern.access
        size = dtypes.nbytes(access.buffer.dtype)
        times = a.loads * share
        requests, transactions = a.pattern.requests * times, a.pattern.transactions * times
        if access.scope == "shared":
            self.wavefronts = self.wavefronts + transactions
            words = np.maximum(a.pattern.lanes * size / BANK_BYTES, 1.0)
            self.ideal_wavefronts = self.ideal_wavefronts + requests * words
            return requests
        self.sectors = self.sectors + np.maximum(transactions, requests)
        self.ideal_sectors = self.ideal_sectors + requests * a.pattern.lanes * size
        self.access_bytes = np.maximum(self.access_bytes, a.pattern.lanes * size)
        live = a.pattern.transactions * SECTOR_BYTES * resident
        touched = np.minimum(transactions, a.footprint / SECTOR_BYTES)
        moved = np.where(live <= l1, touched, transactions) * SECTOR_BYTES
        self.l2_bytes = self.l2_bytes + moved
        by_statement = self._moved.setdefault(access.buffer, {})
        by_statement[statement] = by_statement.get(statement, np.zeros(())) + moved
        return requests

    def _wait(
        self,
        phase: PhaseCounts,
        steps: Floats,
        each: Floats,
        functions: Floats,
        requests: Floats,
    ) -> None:
        """Add the latency of a phase for one warp: loads of a step are on their way at once."""
        rates = self.rates
        reads = [a for a in phase.accesses if not a.pattern.access.stores and not a.held]
        independent = np.maximum(phase.independent, 1.0)
        stall = np.maximum(rates.arithmetic_latency / independent, 1.0)
        chained = stall if phase.phase.visit.accumulates else 1.0
        iterations = steps / phase.around
        together = np.where(iterations >= UNROLLED_BY_NVCC, UNROLLED_BY_NVCC, 1.0)
        rounds = phase.around * np.ceil(iterations / together)
        self._fixed = self._fixed + phase.visits * phase.share * each * chained + requests * 2
        self._fixed = self._fixed + rounds * (
            20.0 * np.minimum(functions, 1.0) + rates.arithmetic_latency
        )
        if any(a.pattern.access.scope == "shared" for a in reads):
            self._fixed = self._fixed + rounds * rates.shared_latency
        if any(a.pattern.access.scope == "global" for a in reads):
            if phase.phase.ahead:
                self._ahead = np.maximum(self._ahead, rounds)
            else:
                self._from_memory = self._from_memory + rounds
            if any(a.pattern.access.scope == "shared" for a in phase.accesses):
                self._copied = self._copied + rounds
            self.loads = np.maximum(self.loads, phase.straight * together * len(reads))
        self.independent = np.maximum(self.independent, independent)

    def latency(self, from_memory: Floats) -> Floats:
        """Cycles of a block alone, where a share of loads comes from memory, others from L2.

        No thread computes while all of them wait for a copy to shared memory, whatever time it
        takes them to do so otherwise. What is loaded ahead comes meanwhile.
        """
        rates = self.rates
        load = rates.l2_latency + (rates.memory_latency - rates.l2_latency) * from_memory
        busy = reduce(
            np.maximum, (self.arithmetic, self.instructions / rates.issue, self.wavefronts)
        )
        waiting = busy + self._copied * load
        issuing = np.maximum(self._fixed, self._ahead * load)
        return np.maximum(issuing + self._from_memory * load, waiting)

    def memory_bytes(self, blocks: Floats, at_once: Floats) -> Floats:
        """The bytes moved from and to memory by all blocks, of which so many run at once.

        What a block reads again in its next statement is found in the second level if that holds
        what all of them have read meanwhile. What blocks read that others have read is found there
        if all arrays fit it, or if they run at once: in a square of them each part is read by as
        many as it has in a row. Of what is spilled, the second level holds what fits.
        """
        capacity = USABLE * self.rates.l2_bytes
        running = np.minimum(at_once, blocks)
        sharing = np.maximum(np.sqrt(running), 1.0)
        arrays = self.launch.array_bytes
        zero: Floats = np.zeros(())
        every = {b: sum(parts.values(), zero) for b, parts in self._moved.items()}
        once = {b: reduce(np.maximum, parts.values()) for b, parts in self._moved.items()}
        distinct = {b: np.minimum(n * blocks, arrays[b]) for b, n in every.items()}
        total = sum(distinct.values(), zero)
        meanwhile = sum((np.minimum(n * running, arrays[b]) for b, n in once.items()), zero)
        result = np.where(self._spilled * running > capacity, self._beyond * blocks, 0.0)
        for b, n in once.items():
            again = np.where(meanwhile <= capacity, 1.0, every[b] / np.maximum(n, 1.0))
            moved = again * np.maximum(distinct[b], n * blocks / sharing)
            result = result + np.where(total <= capacity, distinct[b], moved)
        return result


def multiplies(body: Stmt) -> bool:
    """Whether a sum is of products, each of which is one operation with its addition."""
    return any(
        type(n) is Binary and n.op is Op.MUL and dtypes.is_float(n.dtype) for n in walk(body)
    )
