"""Measure what the cores of this machine do in a cycle: `target.Rates`.

Every rate is of the fastest sample of its loop: what disturbs a sample makes it slower. Loops are
timed in turns until the fastest samples stay what they are, or the time is up.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ...runtime import openmp
from ...target import CpuTarget, Rates
from ..detect import processor_quota, usable_processors
from ..generator import Measured
from . import bare_loops as bare
from .bare_loops import BLOCK, GATHERS, STEPS, TABLE, Array

SECONDS = 1.5
"""The most that measuring takes, of rounds that agree; see `measure`."""
_SAMPLE = 1.5e-3
_FORKS = 1e-4
"""Many short samples: other processes on any of the processors disturb a fork."""
_SETTLED = 1.01
_ROUNDS = 4
_NOISY = 1.25
_DIGITS = 3
_MOST = 256 << 20
_SHUFFLES = 8
_GROWTH = 64.0


@dataclass
class _Loop:
    """A loop with its context, of which the first integer says how often it repeats.

    `work` is what one repetition does, in the unit of its rate.
    """

    call: Callable[[Array], object]
    context: Array
    work: float
    owned: object = None
    seconds: float = _SAMPLE
    """The seconds that a sample is to take."""
    best: float = float("inf")
    before: float = float("inf")
    samples: list[float] = field(default_factory=list)

    def calibrate(self) -> None:
        """Have a sample take as long as it should."""
        while (took := self._timed()) < self.seconds / 2:
            longer = min(self.seconds / max(took, 1e-6), _GROWTH)
            self.context[0] = max(self.context[0] + 1, int(self.context[0] * longer))

    def sample(self) -> None:
        for _ in range(max(1, round(_SAMPLE / self.seconds))):
            each = self._timed() / int(self.context[0])
            self.samples.append(each)
            self.best = min(self.best, each)

    def settled(self) -> bool:
        """Whether the last rounds have found nothing faster."""
        settled = self.before <= _SETTLED * self.best
        self.before = self.best
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
    parallel = target.threads > 1 and openmp.load() is not None
    loops = _loops(target, parallel=parallel)
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
    disturbed = tuple(_disturbed(loops, target))
    odd = (*disturbed, *_limited(target, parallel=parallel))
    return Measured(_rates(loops, target).to_json(), odd, bool(disturbed))


def _loops(target: CpuTarget, *, parallel: bool) -> dict[str, _Loop]:
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
        blocks = size // BLOCK
        loops[level] = _Loop(
            call["reads"], _context(blocks, memory.ctypes.data), blocks * BLOCK, memory
        )
        chain = _chain(min(size, _MOST))
        loops[f"{level} latency"] = _Loop(call["chase"], _context(chain.ctypes.data), STEPS, chain)
    blocks = sizes["l1"] // BLOCK
    loops["writes"] = _Loop(
        call["writes"], _context(blocks, memory.ctypes.data), blocks * BLOCK / vector, memory
    )
    if parallel:
        region = {"forks": bare.forks(target), "reads": bare.reads(target, parallel=True)}
        together = bare.loaded(region, target, ["reads"])
        loops["fork"] = _Loop(together["forks"], _context(), 1, seconds=_FORKS)
        for level in ("l3", "memory"):
            blocks = sizes[level] // BLOCK // target.threads
            all_bytes = blocks * BLOCK * target.threads
            context = _context(blocks, memory.ctypes.data)
            loops[f"all {level}"] = _Loop(together["reads"], context, all_bytes, memory)
    return loops


def _sizes(target: CpuTarget) -> dict[str, int]:
    """Bytes that stay in a cache and in none before it, and some that stay in none."""
    l2 = min(4 * target.l1_bytes, target.l2_bytes // 2)
    l3 = max(min(4 * target.l2_bytes, target.l3_bytes // 2), 2 * target.l2_bytes)
    memory = min(2 * max(target.l3_bytes, 8 * target.l2_bytes), _MOST)
    found = {"l1": target.l1_bytes // 2, "l2": l2, "l3": l3, "memory": memory}
    whole = BLOCK * target.threads
    return {level: max(1, size // whole) * whole for level, size in found.items()}


def _context(*numbers: int) -> Array:
    """One repetition, then numbers; vectors of ones from byte 64 on."""
    context = np.zeros(256, np.int64)
    context[: 1 + len(numbers)] = [1, *numbers]
    context[8:].view(np.float32)[:] = 1.0
    return context


def _chain(size: int) -> Array:
    """Addresses in so many bytes, a line apart, each of which holds that of another one."""
    memory = bare.aligned(size)
    lines = memory.view(np.int64).reshape(-1, 8)
    order = np.random.default_rng(1).permutation(len(lines))
    lines[order, 0] = memory.ctypes.data + 64 * np.roll(order, -1)
    return lines[order[0] :]


def _rates(loops: dict[str, _Loop], target: CpuTarget) -> Rates:
    hertz = loops["clock"].rate
    vector = target.vector_bits // 8

    def cycle(name: str) -> float:
        return loops[name].rate / hertz

    several = "fork" in loops
    return Rates(
        hertz=_short(hertz),
        fma=_short(cycle("sums")),
        fma_latency=_short(1 / cycle("latency")),
        loads=_short(cycle("l1") / vector),
        stores=_short(cycle("writes")),
        shuffles=_short(cycle("shuffles")),
        gather=_short(1 / cycle("gathers")),
        l2=_short(cycle("l2")),
        l3=_short(cycle("l3")),
        memory=_short(cycle("memory")),
        all_l3=_short(max(cycle("all l3"), cycle("l3"))) if several else 0.0,
        all_memory=_short(max(cycle("all memory"), cycle("memory"))) if several else 0.0,
        fork=_short(loops["fork"].best) if several else Rates().fork,
        **{
            f"{level}_latency": _short(1e9 / loops[f"{level} latency"].rate)
            for level in ("l1", "l2", "l3", "memory")
        },
    )


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


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


def _limited(target: CpuTarget, *, parallel: bool) -> Iterator[str]:
    """In words, what keeps this process from the threads of the target."""
    quota, processors = processor_quota(), usable_processors()
    if quota < target.threads:
        yield f"a quota of {quota:.2g} processors for {target.threads} threads"
    elif processors < target.threads:
        yield f"{processors} processors for {target.threads} threads"
    if target.threads > 1 and not parallel:
        yield "no OpenMP runtime: parallel loops were not measured"
