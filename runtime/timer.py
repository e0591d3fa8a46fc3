"""The timer that autotuning, benchmarks and `Module.time` share.

A sample is the mean time of one call, over enough consecutive calls to make the clock's resolution
negligible. Samples are kept raw. Noise of the host only adds time, so report the median and reject
by the minimum.

The time of a call can change a thousandfold from one moment to the next: threads at a barrier wait
for a time slice each as soon as something else wants their processors. A sample therefore reads the
clock on its way and ends early when it takes far too long. The number of its calls follows from the
shortest time seen, and no short call is judged by fewer than 5 samples.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from numbers import Integral, Real
from typing import TypedDict, Unpack

import numpy as np

from ..base.durations import format_seconds
from ..base.errors import ArgumentError
from ..base.text import count
from ..target import Target
from .memory import memory_for

Clock = Callable[[], float]
Sampler = Callable[[int, float], float]
"""Seconds per call: of so many calls, or of those that were made within so many seconds."""

DISTURBED_FINALS = 3.0
"""From this `slowdown` on, finals choose nothing, and are not recorded: they would replace the
trials. What trials hold in caches and the warmth of the processor explain less."""
CALM_PAUSES = 3
"""Pauses before disturbed finals are repeated, once."""
_MAX_REPEATS = 1 << 20
_HOPELESS_WARM = 2.0
_COLD = 5e-3
_FAR = 16.0
_SURE = 5
"""So many samples tell a slow call from one that waited for a processor,"""
_SURE_SECONDS = 5e-2
"""or as many as are made within so many seconds, where these are fewer."""
_DISTURBED = 2.0
_GROWTH = 4
_LOOKS = 8
_LOOK = 2e-2
_IDLE = 0.2


@dataclass(frozen=True)
class Timing:
    """Seconds per call.

    `samples` are seconds per call in the order taken, each the mean of `repeats` consecutive calls,
    or of fewer if these took far longer than planned. `seconds` is the total time of measuring.
    `stopped`: measuring was cut short because the candidate could not win.
    """

    samples: tuple[float, ...]
    repeats: int
    seconds: float
    stopped: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float | None:
        """Median distance from the median, as a fraction of it: the noise of the samples.

        `None` for one sample, which does not show how noisy it is.
        """
        if len(self.samples) == 1:
            return None
        median = self.median
        if median == 0:
            return 0.0
        return statistics.median(abs(s - median) for s in self.samples) / median

    def __str__(self) -> str:
        note = ", stopped early" if self.stopped else ""
        if self.spread is None:
            return f"{format_seconds(self.median)} (1 sample{note})"
        told = f"{len(self.samples)} samples of {count(self.repeats, 'call')}"
        return f"{format_seconds(self.median)} +- {self.spread:.1%} ({told}{note})"

    def __repr__(self) -> str:
        return f"<Timing {self}>"


class TimingOptions(TypedDict, total=False):
    """The options of `time_calls`."""

    min_samples: int
    max_samples: int
    budget_seconds: float
    min_sample_seconds: float
    stop_above: float | None
    before_sample: Callable[[], object] | None
    clock: Clock


class Timer:
    """The way to time calls of bound kernels, here by the clock and the caches of processors.

    A kind of target whose kernels are timed in another way has a subclass.
    """

    def time_calls(self, run: Callable[[], object], **options: Unpack[TimingOptions]) -> Timing:
        """Time calls of one kernel; see the function `time_calls`."""
        return time_calls(run, **options)

    def time_once(self, run: Callable[[], object]) -> float:
        """The seconds of one call, without those in which other processes had its processors."""
        began, busy = time.perf_counter(), time.process_time()
        run()
        return min(time.perf_counter() - began, time.process_time() - busy)

    def time_interleaved(
        self, runs: Sequence[Callable[[], object]], *, rounds: int, min_sample_seconds: float
    ) -> tuple[Timing, ...]:
        """Time calls of several kernels; see the function `time_interleaved`."""
        return time_interleaved(runs, rounds=rounds, min_sample_seconds=min_sample_seconds)

    def settle(self) -> None:
        """Wait until nothing of this process disturbs a timing; see `wait_for_threads`."""
        wait_for_threads()

    def flusher(self, target: Target) -> Callable[[], object]:
        """Returns a function that evicts the caller's data from the caches of `target`.

        Raises `OutOfMemoryError`.
        """
        with memory_for("no memory to flush the caches of {0}", target):
            return np.zeros(2 * target.cache_bytes, np.uint8).sum


def time_calls(
    fn: Callable[[], object],
    *,
    min_samples: int = 3,
    max_samples: int = 20,
    budget_seconds: float = 0.5,
    min_sample_seconds: float = 1e-3,
    stop_above: float | None = None,
    before_sample: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time `fn` by the clock; see `time_samples`."""
    return time_samples(
        partial(_sample, fn, clock=clock),
        min_samples=min_samples,
        max_samples=max_samples,
        budget_seconds=budget_seconds,
        min_sample_seconds=min_sample_seconds,
        stop_above=stop_above,
        before_sample=before_sample,
        clock=clock,
    )


def time_samples(
    sample: Sampler,
    *,
    min_samples: int = 3,
    max_samples: int = 20,
    budget_seconds: float = 0.5,
    min_sample_seconds: float = 1e-3,
    stop_above: float | None = None,
    before_sample: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time what `sample` takes samples of. The clock is for the budget.

    One call warms up. Samples are of as many calls as take at least `min_sample_seconds` by the
    shortest time seen; one that takes 16 times as long ends early. At least `min_samples` are
    taken, and up to `max_samples` while `budget_seconds` (warm-up included) last. Of calls that
    take less than 10 ms, at least 5 are taken, and of longer ones as many as 50 ms allow; all
    `max_samples` while the median of short calls is twice the shortest or more. A warm-up of 50 ms
    or more that spends the whole budget is the only sample.

    A candidate that cannot win is dropped earlier. `stop_above` is the time to beat, in seconds,
    including the caller's allowance for noise. Measuring stops once the fastest of two samples is
    above it, after one sample if that is far above, and after the warm-up alone (then the only
    sample) if even a cold start, of 5 ms at most, does not explain it. Short calls are dropped
    after the 5 samples, or as many as 50 ms allow: the first ones may have waited for a processor.

    With `before_sample`, for instance to flush caches, each sample is a single call after it.

    Raises `ArgumentError` for counts below 1 and times that are none.
    """
    _check_counts(min_samples=min_samples, max_samples=max_samples)
    _check_seconds(min_sample_seconds=min_sample_seconds)
    _check_seconds(allowed=math.inf, budget_seconds=budget_seconds)
    began = clock()
    calls = _Calls(sample, min_sample_seconds)
    cold = calls.single()
    if cold >= _SURE_SECONDS or max_samples == 1:
        if stop_above is not None and cold > _HOPELESS_WARM * stop_above + _COLD:
            return Timing((cold,), 1, clock() - began, stopped=True)
        if cold >= budget_seconds:
            return Timing((cold,), 1, clock() - began)
    samples = list[float]()
    while len(samples) < max_samples:
        needed = min(calls.affordable, max_samples)
        shortest = min(samples, default=math.inf) if before_sample else calls.shortest
        if len(samples) >= needed and _hopeless(len(samples), shortest, stop_above):
            return Timing(tuple(samples), calls.repeats, clock() - began, stopped=True)
        if needed > 1 and samples and disturbed(samples):
            needed = max_samples
        if len(samples) >= max(needed, min_samples) and clock() - began >= budget_seconds:
            break
        if before_sample is None:
            samples.append(calls.sample())
        else:
            before_sample()
            samples.append(calls.single())
    return Timing(tuple(samples), calls.repeats, clock() - began)


def time_interleaved(
    fns: Sequence[Callable[[], object]],
    *,
    rounds: int = 10,
    min_sample_seconds: float = 1e-3,
    before_turn: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[Timing, ...]:
    """Time functions interleaved by the clock; see `interleave_samples`."""
    return interleave_samples(
        [partial(_sample, fn, clock=clock) for fn in fns],
        rounds=rounds,
        min_sample_seconds=min_sample_seconds,
        before_turn=before_turn,
        clock=clock,
    )


def interleave_samples(
    samplers: Sequence[Sampler],
    *,
    rounds: int = 10,
    min_sample_seconds: float = 1e-3,
    before_turn: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[Timing, ...]:
    """Time what samplers take samples of, interleaved: one of each per round.

    Drift then affects all alike. A turn begins with an untimed call, so that the caches hold the
    function's own data and not that of the others. Functions that have always taken 16 times
    `min_sample_seconds` or longer skip that call. `before_turn` is called first of all, for
    instance to wait until another function's threads are idle. Only ratios of medians within one
    such run are comparable.

    Raises `ArgumentError` for counts below 1 and times that are none.
    """
    _check_counts(rounds=rounds)
    _check_seconds(min_sample_seconds=min_sample_seconds)
    most = _FAR * min_sample_seconds
    plans, spent = [_Calls(sample, min_sample_seconds) for sample in samplers], list[float]()
    for calls in plans:
        began = clock()
        if calls.single() < 2 * min_sample_seconds:
            calls.sample()
        spent.append(clock() - began)
    rows = []
    for _ in range(rounds):
        row = []
        for number, calls in enumerate(plans):
            began = clock()
            if before_turn is not None:
                before_turn()
            if calls.shortest < most:
                calls.single()
            row.append(calls.sample())
            spent[number] += clock() - began
        rows.append(row)
    columns = zip(*rows, strict=True)
    return tuple(
        Timing(samples, calls.repeats, seconds)
        for samples, calls, seconds in zip(columns, plans, spent, strict=True)
    )


def wait_for_threads(
    seconds: float = 0.25,
    *,
    clock: Clock = time.perf_counter,
    busy: Clock = time.process_time,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Wait at most `seconds` until no thread of this process computes; returns whether none does.

    Threads of other libraries, such as numpy's BLAS, spin for a while after a call. They occupy
    processors that a kernel's threads need, and calls then take a thousand times as long. Idle
    means five ticks (4 ms each) of the system's accounting without progress.
    """
    end = clock() + seconds
    while clock() < end:
        began, spent = clock(), busy()
        sleep(_LOOK)
        if busy() - spent < _IDLE * (clock() - began):
            return True
    return False


def turn_seconds(seconds: float, min_sample_seconds: float) -> float:
    """The approximate time of a turn of `time_interleaved` whose calls take `seconds`."""
    warm = seconds if seconds < _FAR * min_sample_seconds else 0.0
    return warm + max(seconds, min_sample_seconds)


def slowdown(rows: Sequence[Sequence[float]], trials: Sequence[float]) -> float:
    """How many times as long the rows of interleaved timings took as the `trials` before them.

    The median of their factors, or that of the fastest time where it is larger: trials may have
    been disturbed too. Empty rows do not count. From `DISTURBED_FINALS` on, finals choose nothing.
    """
    timed = [
        (statistics.median(row), seconds) for row, seconds in zip(rows, trials, strict=True) if row
    ]
    if not timed:
        return 1.0
    fastest = min(now for now, _ in timed) / min(before for _, before in timed)
    return max(fastest, statistics.median(now / before for now, before in timed))


def _check_counts(**counts: object) -> None:
    for name, number in counts.items():
        if not isinstance(number, Integral) or number < 1:
            raise ArgumentError("{0}: expected a whole number from 1 on, found {1!r}", name, number)


def _check_seconds(allowed: float | None = None, **times: object) -> None:
    for name, seconds in times.items():
        if not isinstance(seconds, Real) or not (math.isfinite(seconds) or seconds == allowed):
            raise ArgumentError("{0}: expected a number of seconds, found {1!r}", name, seconds)


def _sample(fn: Callable[[], object], repeats: int, most: float, clock: Clock) -> float:
    """Seconds per call, over `repeats` calls or those made within `most` seconds.

    The clock is read after an eighth of the calls at most, and more often at the start, so that few
    slow calls run before the sample ends early.
    """
    many = repeats // _LOOKS + 1
    began = clock()
    fn()
    seconds, done = clock() - began, 1
    while done < repeats and seconds < most:
        more = min(_GROWTH * done, many, repeats - done)
        for _ in repeat(None, more):
            fn()
        seconds, done = clock() - began, done + more
    return seconds / done


def disturbed(samples: Sequence[float]) -> bool:
    """Whether half of them took twice as long as the shortest, as on a machine that is busy."""
    return statistics.median(samples) >= _DISTURBED * min(samples)


class _Calls:
    """Takes samples of `repeats` calls, which become more when these turn out to be too few.

    `shortest` is the shortest time of a call so far.
    """

    def __init__(self, sample: Sampler, min_seconds: float) -> None:
        self.repeats, self.shortest = 1, math.inf
        self._sample = sample
        self._min_seconds = min_seconds

    @property
    def affordable(self) -> int:
        """How many samples of single calls 50 ms allow: 5 at most, 1 at least."""
        if _SURE * self.shortest <= _SURE_SECONDS:
            return _SURE
        return max(1, int(_SURE_SECONDS / self.shortest))

    def single(self) -> float:
        """The seconds of a single call, however long it takes."""
        return self._timed(1, 0.0)

    def sample(self) -> float:
        """Seconds per call, over calls that take the least time of a sample."""
        while True:
            seconds = self._timed(self.repeats, _FAR * self._min_seconds)
            if seconds * self.repeats >= self._min_seconds or self.repeats >= _MAX_REPEATS:
                return seconds
            more = 16 * self.repeats
            wanted = int(1.2 * self._min_seconds / seconds) + 1 if seconds > 0 else more
            self.repeats = min(max(2 * self.repeats, wanted), more, _MAX_REPEATS)

    def _timed(self, repeats: int, most: float) -> float:
        seconds = self._sample(repeats, most)
        self.shortest = min(self.shortest, seconds)
        return seconds


def _hopeless(count: int, shortest: float, stop_above: float | None) -> bool:
    """Whether a call is too slow by the shortest time of `count` samples and the warm-up."""
    if stop_above is None or count == 0:
        return False
    return shortest > (stop_above if count > 1 else _HOPELESS_WARM * stop_above)
