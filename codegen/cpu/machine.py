"""Measure what the cores of this machine do in a cycle: `target.Rates`.

Every rate is from the fast samples of its loop, since interference slows samples down. The fastest
tenth is left out: a clock that is set back makes a sample faster. Loops are sampled in turns until
that stays what it is, or the time is up.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...base.durations import format_seconds
from ...base.text import format_bytes
from ...target import CpuTarget, Rates
from ..detect import processor_quota, usable_processors
from ..generator import Measured
from . import bare_loops as bare
from .bare_loops import BLOCK, GATHERS, STEPS, TABLE, THREADS, Array

SECONDS = 1.5
"""The most that measuring takes, of rounds that agree; see `measure`."""
_SAMPLE = 3e-4
"""Short, so that some samples fall between the turns of other processes."""
_FORKS = 5e-5
_TOGETHER = 1e-3
"""Seconds of each loop in a round."""
_WINDOW = 4 << 20
"""Bytes that a sample reads of what is in no cache; the next sample reads others."""
_BEST = 0.1
_SETTLED = 1.01
_ROUNDS = 4
_NOISY = 1.25
_BELIEVED = 8.0
"""How far a rate may be from that of the table."""
_DIGITS = 3
_MOST = 256 << 20
"""The most bytes that are read to find the rate of memory: touching more takes too long."""
_CHAIN = 128 << 20
"""Bytes of the longest chain of addresses, likewise."""
_MEANING = {
    "hertz": "the clock in Hz",
    "fma": "multiply-adds in a cycle",
    "fma_latency": "cycles to the result of a multiply-add",
    "loads": "loads in a cycle",
    "stores": "stores in a cycle",
    "shuffles": "shuffles in a cycle",
    "gather": "cycles for a gathered element",
    "l2": "bytes in a cycle from the second cache",
    "l3": "bytes in a cycle from the third cache",
    "memory": "bytes in a cycle from memory",
    "all_l3": "bytes in a cycle from the third cache to all cores",
    "all_memory": "bytes in a cycle from memory to all cores",
    "fork": "the start and end of a parallel loop",
    "l1_latency": "nanoseconds of a load from the first cache",
    "l2_latency": "nanoseconds of a load from the second cache",
    "l3_latency": "nanoseconds of a load from the third cache",
    "memory_latency": "nanoseconds of a load from memory",
}
"""The rates in words."""
_STARTS = 64
_SHUFFLES = 8
_GROWTH = 64.0


@dataclass
class _Loop:
    """A loop with its context, of which the first integer says how often it repeats.

    `work` is what a thread does in one repetition, in the unit of its rate.
    """

    call: Callable[[Array], object]
    context: Array
    work: float
    owned: object = None
    seconds: float = _SAMPLE
    """The seconds that a sample is to take."""
    places: Sequence[int] = ()
    """Where samples begin to read, in turns: what one has read is in a cache."""
    once: bool = False
    """Whether a sample is one repetition: the next one would find in a cache what this one read."""
    place: int = 2
    """Which integer of the context says so."""
    before: float = math.inf
    samples: list[float] = field(default_factory=list)

    def calibrate(self) -> None:
        """Have a sample take as long as it should."""
        while not self.once and (took := self._timed()) < self.seconds / 2:
            longer = min(self.seconds / max(took, 1e-6), _GROWTH)
            self.context[0] = max(self.context[0] + 1, int(self.context[0] * longer))

    def sample(self) -> None:
        for _ in range(max(1, round(_TOGETHER / self.seconds))):
            if self.places:
                self.context[self.place] = self.places[len(self.samples) % len(self.places)]
            self.samples.append(self._timed() / (int(self.context[0]) * self.threads))

    @property
    def threads(self) -> int:
        """How many threads ran it last: the system may refuse some."""
        return int(self.context[THREADS])

    @property
    def best(self) -> float:
        """Seconds of a repetition of a thread, undisturbed."""
        return sorted(self.samples)[int(_BEST * len(self.samples))]

    def settled(self) -> bool:
        """Whether the last rounds have found nothing faster."""
        best = self.best
        settled = self.before <= _SETTLED * best
        self.before = best
        return settled

    def _timed(self) -> float:
        began = time.perf_counter()
        self.call(self.context)
        return time.perf_counter() - began

    @property
    def rate(self) -> float:
        """Work in a second."""
        return self.work / self.best


def measure(target: CpuTarget) -> Measured:
    """The rates of this machine for code of a resolved target.

    Takes about a second, at most three. Raises `BuildError` where the code does not load.
    """
    began = time.perf_counter()
    loops = _loops(target)
    for loop in loops.values():
        loop.calibrate()
    rounds = 0
    while True:
        for loop in loops.values():
            loop.sample()
        rounds += 1
        if rounds % _ROUNDS:
            continue
        settled = [loop.settled() for loop in loops.values()]
        if all(settled) or time.perf_counter() - began > SECONDS:
            break
    found = _rates(loops, target)
    strange = dict(_strange(found, target.rates))
    believed = found._replace(**{name: getattr(target.rates, name) for name in strange})
    disturbed = (*_disturbed(loops, target), *strange.values())
    odd = (*disturbed, *_limited(target), *_refused(loops, target))
    return Measured(believed.to_json(), odd, bool(disturbed))


def _loops(target: CpuTarget) -> dict[str, _Loop]:
    """The loops to time, by name."""
    count = bare.chains(target)
    functions = {
        "clock": bare.clock(),
        "latency": bare.sums("latency", target, 1),
        "sums": bare.sums("sums", target, count),
        "shuffles": bare.shuffles(target, _SHUFFLES),
        "gathers": bare.gathers(target),
        "chase": bare.chase(),
        "reads": bare.reads(target, parallel=False),
        "writes": bare.writes(target, parallel=False),
    }
    call = bare.loaded(functions, target)
    vector = target.vector_bits // 8
    lanes = target.vector_bits // 32
    loops = {
        "clock": _Loop(call["clock"], _context(), STEPS),
        "latency": _Loop(call["latency"], _context(), 1),
        "sums": _Loop(call["sums"], _context(), count if target.fma else count / 2),
        "shuffles": _Loop(call["shuffles"], _context(), _SHUFFLES),
    }
    table = bare.aligned(4 * TABLE)
    context = _context(table.ctypes.data)
    rng = np.random.default_rng(0)
    places = rng.permutation(TABLE)[: GATHERS * lanes].astype(np.int32)
    context.view(np.int32)[16 : 16 + len(places)] = places
    loops["gathers"] = _Loop(call["gathers"], context, GATHERS * lanes, table)
    sizes = _sizes(target)
    memory = bare.aligned(max(sizes.values()))
    for level, size in sizes.items():
        part = min(size, _WINDOW) if level == "memory" else size
        blocks = part // BLOCK
        loops[level] = _Loop(
            call["reads"],
            _context(blocks, memory.ctypes.data),
            blocks * BLOCK,
            memory,
            places=[memory.ctypes.data + start for start in range(0, size - part + 1, part)],
            once=level == "memory",
        )
        if level == "memory" and not _misses(target, _CHAIN):
            continue
        chain, starts = _chain(size)
        loops[f"{level} latency"] = _Loop(
            call["chase"], _context(starts[0]), STEPS, chain, places=starts, place=1
        )
    blocks = sizes["l1"] // BLOCK
    loops["writes"] = _Loop(
        call["writes"], _context(blocks, memory.ctypes.data), blocks * BLOCK / vector, memory
    )
    if target.threads > 1:
        region = {"forks": bare.forks(target), "reads": bare.reads(target, parallel=True)}
        together = bare.loaded(region, target, ["reads"])
        loops["fork"] = _Loop(together["forks"], _context(), 1, seconds=_FORKS)
        for level in ("l3", "memory"):
            if level not in sizes:
                continue
            # From memory, each thread reads a window of its own, one after the other.
            size = sizes[level]
            part = min(size, _WINDOW * target.threads) if level == "memory" else size
            blocks = max(1, part // BLOCK // target.threads)
            loops[f"all {level}"] = _Loop(
                together["reads"],
                _context(blocks, memory.ctypes.data),
                blocks * BLOCK,
                memory,
                places=[memory.ctypes.data + at for at in range(0, size - part + 1, part)],
                once=level == "memory",
            )
    return loops


def _sizes(target: CpuTarget) -> dict[str, int]:
    """Bytes that stay in a cache and in none before it, and some that stay in none."""
    l2 = min(4 * target.l1_bytes, target.l2_bytes // 2)
    l3 = max(min(4 * target.l2_bytes, target.l3_bytes // 2), 2 * target.l2_bytes)
    found = {"l1": target.l1_bytes // 2, "l2": l2, "l3": l3}
    if _misses(target, _MOST):
        found["memory"] = min(4 * max(target.l3_bytes, 8 * target.l2_bytes), _MOST)
    return {level: max(1, size // BLOCK) * BLOCK for level, size in found.items()}


def _misses(target: CpuTarget, size: int) -> bool:
    """Whether data of so many bytes stay in no cache."""
    return 2 * max(target.l2_bytes, target.l3_bytes) <= size


def _context(*numbers: int) -> Array:
    """One repetition, then numbers; on one thread; vectors of ones from byte 64 on."""
    context = np.zeros(256, np.int64)
    context[THREADS] = 1
    context[: 1 + len(numbers)] = [1, *numbers]
    context[8:].view(np.float32)[:] = 1.0
    return context


def _chain(size: int) -> tuple[Array, list[int]]:
    """Addresses in so many bytes, a line apart, each of which holds that of another one.

    Some of them, far apart in the chain, are returned too.
    """
    memory = bare.aligned(min(size, _CHAIN))
    lines = memory.view(np.int64).reshape(-1, 8)
    order = np.random.default_rng(1).permutation(len(lines))
    addresses = memory.ctypes.data + 64 * order
    lines[order, 0] = np.roll(addresses, -1)
    return memory, addresses[:: max(1, len(order) // _STARTS)].tolist()


def _rates(loops: dict[str, _Loop], target: CpuTarget) -> Rates:
    """What was measured; the rest is of the table."""
    hertz = loops["clock"].rate
    vector = target.vector_bits // 8

    def cycle(name: str) -> float:
        return loops[name].rate / hertz

    found = {
        "hertz": hertz,
        "fma": cycle("sums"),
        "fma_latency": 1 / cycle("latency"),
        "loads": cycle("l1") / vector,
        "stores": cycle("writes"),
        "shuffles": cycle("shuffles"),
        "gather": 1 / cycle("gathers"),
    }
    for level in ("l2", "l3", "memory"):
        if level in loops:
            found[level] = cycle(level)
        if f"all {level}" in loops:
            found[f"all_{level}"] = max(cycle(f"all {level}"), cycle(level))
    for level in ("l1", "l2", "l3", "memory"):
        if f"{level} latency" in loops:
            found[f"{level}_latency"] = 1e9 / loops[f"{level} latency"].rate
    if "fork" in loops:
        found["fork"] = loops["fork"].best
    serial = {} if "fork" in loops else {"all_l3": 0.0, "all_memory": 0.0, "fork": Rates().fork}
    return target.rates._replace(**serial, **{name: _short(rate) for name, rate in found.items()})


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _strange(found: Rates, expected: Rates) -> Iterator[tuple[str, str]]:
    """Rates that no processor like this one has, by name, and what is said of them."""
    for name, value in found._asdict().items():
        usual = getattr(expected, name)
        if usual and not usual / _BELIEVED < value < usual * _BELIEVED:
            text = format_seconds if name == "fork" else "{:.3g}".format
            told = f"measured {text(value)}; the model uses the usual {text(usual)}"
            yield name, f"{_MEANING[name]}: {told}"


def _disturbed(loops: dict[str, _Loop], target: CpuTarget) -> Iterator[str]:
    """In words, what else ran meanwhile."""
    spread = statistics.median(
        statistics.median(loop.samples) / loop.best for loop in loops.values()
    )
    if spread > _NOISY:
        yield f"a noisy host: half of the samples take {spread:.2f} times the fastest"
    load = os.getloadavg()[0]
    if load > target.cores:
        yield f"a load of {load:.1f} on {target.cores} processors"


def _refused(loops: Mapping[str, _Loop], target: CpuTarget) -> Iterator[str]:
    """In words, that the system has made fewer threads than the target has."""
    ran = [loop.threads for name, loop in loops.items() if name.startswith("all ")]
    if ran and min(ran) < target.threads:
        yield f"{min(ran)} of {target.threads} threads: the system refuses more"


def _limited(target: CpuTarget) -> Iterator[str]:
    """In words, what keeps this process from the threads of the target."""
    quota, processors = processor_quota(), usable_processors()
    if quota < target.threads:
        yield f"a quota of {quota:.2g} processors for {target.threads} threads"
    elif processors < target.threads:
        yield f"{processors} processors for {target.threads} threads"
    size = f"a cache of {format_bytes(target.l3_bytes)}"
    if not _misses(target, _MOST):
        yield f"{size}: the rate and the latency of memory were not measured"
    elif not _misses(target, _CHAIN):
        yield f"{size}: the latency of memory was not measured"
