"""The timer, run on a clock that only the timed functions move."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest

from tilewright.base.errors import ArgumentError, OutOfMemoryError
from tilewright.runtime.timer import (
    Timer,
    Timing,
    time_calls,
    time_interleaved,
    turn_seconds,
    wait_for_threads,
)
from tilewright.target import CpuTarget

from ..refusals import refused


class Fake:
    """A clock, and functions whose calls take given seconds, the last one for ever."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def clock(self) -> float:
        return self.now

    def function(self, *seconds: float) -> Fake.Call:
        return Fake.Call(self, chain(seconds, repeat(seconds[-1])))

    class Call:
        def __init__(self, fake: Fake, seconds: Iterable[float]) -> None:
            self.fake, self.seconds, self.count = fake, iter(seconds), 0

        def __call__(self) -> None:
            self.count += 1
            self.fake.now += next(self.seconds)


def test_a_slow_call_is_a_sample_of_its_own() -> None:
    fake = Fake()
    fn = fake.function(0.020, 0.011, 0.010, 0.012, 0.010)
    timing = time_calls(fn, max_samples=4, clock=fake.clock)
    assert timing.samples == pytest.approx((0.011, 0.010, 0.012, 0.010))
    assert timing.repeats == 1
    assert timing.median == pytest.approx(0.0105)
    assert timing.minimum == pytest.approx(0.010)
    assert timing.seconds == pytest.approx(0.063)
    assert not timing.stopped


def test_a_fast_call_is_repeated_until_a_sample_lasts() -> None:
    fake = Fake()
    fn = fake.function(1e-6)
    timing = time_calls(fn, max_samples=5, min_sample_seconds=1e-3, clock=fake.clock)
    assert timing.repeats >= 1000
    assert timing.repeats < 5000
    assert timing.samples == pytest.approx([1e-6] * 5)


@pytest.mark.parametrize("fast", [1500, 2000, 2500])  # within the calibration, and samples
def test_a_sample_ends_early_once_calls_take_far_longer_than_planned(fast: int) -> None:
    fake = Fake()
    fn = fake.function(*[1e-6] * fast, 4e-3)
    timing = time_calls(fn, min_samples=5, max_samples=5, min_sample_seconds=1e-3, clock=fake.clock)
    assert timing.repeats >= 1000
    assert timing.samples[3:] == pytest.approx([4e-3] * 2)
    assert fn.count - fast < 200
    assert timing.seconds == pytest.approx(fake.now - 100)


def test_samples_in_turns_end_early_too() -> None:
    fake = Fake()
    fn, even = fake.function(*[1e-6] * 1500, 4e-3), fake.function(2e-3)
    first, second = time_interleaved([fn, even], rounds=3, clock=fake.clock)
    assert first.samples[2] == pytest.approx(4e-3)
    assert second.samples == pytest.approx([2e-3] * 3)
    assert fn.count - 1500 < 200
    assert first.seconds + second.seconds == pytest.approx(fake.now - 100)


@pytest.mark.parametrize(("warm", "timed"), [(1e-3, 1e-3), (12e-3, 12e-3), (17e-3, 20e-3)])
def test_what_others_left_in_the_caches_is_not_timed(warm: float, timed: float) -> None:
    fake, last = Fake(), list[str]()

    def function(name: str) -> Callable[[], None]:
        def run() -> None:
            fake.now += warm if last[-1:] == [name] else warm + 3e-3
            last.append(name)

        return run

    found = time_interleaved([function("a"), function("b")], rounds=5, clock=fake.clock)
    assert [t.samples for t in found] == [pytest.approx([timed] * 5)] * 2
    turn = turn_seconds(warm, 1e-3)
    assert turn == pytest.approx(2 * warm if warm < 16e-3 else warm)


def test_a_slow_first_call_is_no_reason_to_time_others_in_the_caches() -> None:
    """Memory is new to the first call."""
    fake = Fake()
    fn = fake.function(50e-3, 8e-3, *[8e-3, 5e-3] * 4)
    (timing,) = time_interleaved([fn], rounds=5, clock=fake.clock)
    assert timing.samples == pytest.approx([8e-3, *[5e-3] * 4])


def test_a_call_below_the_clocks_grain_ends() -> None:
    fake = Fake()
    timing = time_calls(fake.function(0.0), max_samples=2, clock=fake.clock)
    assert timing.samples == (0.0, 0.0)
    assert timing.spread == 0.0


def test_the_budget_ends_measuring_after_the_least_samples() -> None:
    fake = Fake()
    timing = time_calls(
        fake.function(0.1), min_samples=3, max_samples=99, budget_seconds=0.65, clock=fake.clock
    )
    assert len(timing.samples) == 6
    fake = Fake()
    timing = time_calls(
        fake.function(0.1), min_samples=3, max_samples=99, budget_seconds=0.2, clock=fake.clock
    )
    assert len(timing.samples) == 3


def test_a_call_that_spends_the_budget_runs_once() -> None:
    fake = Fake()
    fn = fake.function(4.6)
    timing = time_calls(fn, budget_seconds=0.5, clock=fake.clock)
    assert timing.samples == pytest.approx((4.6,))
    assert (fn.count, timing.stopped) == (1, False)


@pytest.mark.parametrize(
    ("seconds", "count", "stopped"),
    [
        ((0.026,), 2, True),  # 5 ms of it may be the cold start
        ((0.060,), 1, True),  # even a cold start does not explain it
        ((0.024, 0.023), 3, True),  # as many as 50 ms allow
        ((0.024, 0.015, 0.014), 4, True),
        ((0.011,), 5, True),
        ((0.024, 0.009, 0.020), 11, False),  # one sample below: goes on
        ((0.024, 0.009), 11, False),
    ],
)
def test_a_candidate_that_cannot_win_is_dropped(
    seconds: tuple[float, ...], count: int, stopped: bool
) -> None:
    fake = Fake()
    fn = fake.function(*seconds)
    timing = time_calls(fn, max_samples=10, stop_above=0.010, budget_seconds=9, clock=fake.clock)
    assert (fn.count, timing.stopped) == (count, stopped)
    assert timing.samples


@pytest.mark.parametrize("first", [11.6e-3, 45e-3])
def test_a_wait_for_a_processor_is_not_the_time_of_a_call(first: float) -> None:
    """With several threads the first calls of a busy machine wait for a time slice each."""
    fake = Fake()
    fn = fake.function(first, 9e-3, 4e-3, *[8e-6] * 9, 0.5e-3, 8e-6)
    timing = time_calls(fn, max_samples=12, budget_seconds=0.07, stop_above=10e-6, clock=fake.clock)
    assert not timing.stopped
    assert len(timing.samples) >= 5
    assert timing.median == pytest.approx(8e-6)
    assert timing.repeats > 100, "by the shortest call, not by the first"


def test_a_short_call_that_cannot_win_is_dropped_after_five_samples() -> None:
    fake = Fake()
    fn = fake.function(40e-6)
    timing = time_calls(fn, max_samples=12, stop_above=10e-6, clock=fake.clock)
    assert (timing.stopped, len(timing.samples)) == (True, 5)
    assert timing.seconds < 8e-3, "it costs little"


def test_samples_that_contradict_each_other_are_not_the_last() -> None:
    fake = Fake()
    fn = fake.function(12e-3, *[20e-3] * 3, 8e-6)
    timing = time_calls(fn, max_samples=12, budget_seconds=0.07, clock=fake.clock)
    assert timing.median == pytest.approx(8e-6)
    assert len(timing.samples) == 7, "until most agree"


def test_turns_are_of_as_many_calls_as_the_shortest_needs() -> None:
    fake = Fake()
    fn = fake.function(11e-3, 9e-3, 8e-6)
    (timing,) = time_interleaved([fn], rounds=5, clock=fake.clock)
    assert timing.repeats > 100
    assert timing.samples == pytest.approx([8e-6] * 5)


def test_before_sample_runs_untimed_before_each_single_call() -> None:
    fake = Fake()
    flush = fake.function(0.005)
    fn = fake.function(1e-5)
    timing = time_calls(fn, max_samples=4, before_sample=flush, clock=fake.clock)
    assert (timing.repeats, flush.count, fn.count) == (1, 4, 5)
    assert timing.samples == pytest.approx([1e-5] * 4)


def test_interleaved_functions_take_turns() -> None:
    fake = Fake()
    order: list[str] = []

    def named(name: str, seconds: float) -> object:
        order.append(name)
        fake.now += seconds
        return None

    first, second = time_interleaved(
        [lambda: named("a", 0.010), lambda: named("b", 0.020)],
        rounds=3,
        before_turn=lambda: order.append("rest"),
        clock=fake.clock,
    )
    assert order[2:] == ["rest", "a", "a", "rest", "b"] * 3
    assert first.samples == pytest.approx([0.010] * 3)
    assert second.samples == pytest.approx([0.020] * 3)
    assert first.seconds == pytest.approx(0.070)


@pytest.mark.parametrize(
    ("busy", "idle", "waited"), [(0.0, True, 0.02), (0.03, True, 0.06), (9.0, False, 0.12)]
)
def test_threads_that_compute_are_waited_for(busy: float, idle: bool, waited: float) -> None:
    fake = Fake()
    began = fake.now

    def sleep(seconds: float) -> None:
        fake.now += seconds

    def spent() -> float:
        return min(fake.now - began, busy)

    assert wait_for_threads(0.11, clock=fake.clock, busy=spent, sleep=sleep) is idle
    assert fake.now - began == pytest.approx(waited)


def test_a_timing_says_what_it_is() -> None:
    timing = Timing((0.010, 0.012, 0.011), 1, 0.05, stopped=True)
    assert str(timing) == "11 ms +- 9.1% (3 samples of 1 call, stopped early)"


def test_one_sample_has_no_spread() -> None:
    """It does not show how noisy it is, and is no time without noise."""
    fake = Fake()
    timing = time_calls(fake.function(0.748), budget_seconds=0.5, clock=fake.clock)
    assert timing.samples == pytest.approx((0.748,))
    assert timing.spread is None
    assert str(timing) == "748 ms (1 sample)"
    stopped = Timing((0.748,), 1, 0.8, stopped=True)
    assert str(stopped) == "748 ms (1 sample, stopped early)"


@pytest.mark.parametrize(
    "options",
    [
        {"max_samples": 0},
        {"max_samples": "3"},
        {"min_samples": -1},
        {"budget_seconds": None},
        {"budget_seconds": float("nan")},
        {"min_sample_seconds": "1"},
        {"rounds": 0},
        {"rounds": 1.5},
    ],
)
def test_counts_and_times_are_some(options: dict[str, Any]) -> None:
    fake = Fake()
    call = fake.function(1e-6)
    time: Any = (lambda fn, **o: time_interleaved([fn], **o)) if "rounds" in options else time_calls
    with refused(ArgumentError, next(iter(options))):
        time(call, clock=fake.clock, **options)
    assert fake.calls == 0


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_a_sample_lasts_for_a_finite_time(seconds: float) -> None:
    fake = Fake()
    call = fake.function(1e-6)
    for time in (time_calls, lambda fn, **options: time_interleaved([fn], **options)):
        with pytest.raises(ArgumentError):
            time(call, min_sample_seconds=seconds, clock=fake.clock)
    assert fake.calls == 0


def test_memory_that_caches_are_flushed_by_may_be_missing() -> None:
    target = replace(CpuTarget.named("x86-64", threads=1), l3_bytes=1 << 60)
    with pytest.raises(OutOfMemoryError):
        Timer().flusher(target)
