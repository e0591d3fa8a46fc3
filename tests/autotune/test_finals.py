"""The finals of a session, on made-up samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, repeat

import pytest

from tilewright import Trace
from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.session.finals import Finalist, InterleavedTiming, short_heat
from tilewright.tuning_db import ScheduleRecord
from tilewright.tuning_db.interleaved_comparison import compare_schedules

from ..tuning_db.samples import timed

NOISE = (1.0, 1.01, 0.99, 1.04, 0.97, 1.0, 0.98, 1.02, 1.05)
RECORD = ScheduleRecord('{"version":1,"steps":[]}', 1)


class Turns:
    """Hands out samples of each kernel by its code, with alternating noise, and counts them."""

    def __init__(self, fails_at: int = 99, **times: float) -> None:
        self.heats: list[tuple[str, int]] = []
        self._fails_at = fails_at
        self._times = times
        self._turn = 0

    def __call__(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]] | None:
        names = [k.image.decode() for k in kernels]
        if len(self.heats) == self._fails_at:
            return None
        self.heats.append(("".join(names), rounds))
        rows = []
        for name in names:
            self._turn += 1
            noise = [NOISE[(n * self._turn) % 9] for n in range(rounds)]
            rows.append(tuple(self._times[name] * factor for factor in noise))
        return rows


def finalists_of(names: str, **trials: float) -> list[Finalist]:
    return [
        Finalist(trials.get(name, 1e-4), RECORD, Trace(()), Kernel(name.encode()), True)
        for name in names
    ]


def race(turns: Turns, names: str = "abc", **options: float) -> InterleavedTiming:
    finalists = finalists_of(names, b=options.pop("trial_of_b", 1e-4))
    settings = {"rounds": 9, "seconds": 1.0, "sample_seconds": 1e-3, **options}
    rounds, first = int(settings["rounds"]), settings.get("first")
    made = InterleavedTiming(
        finalists,
        rounds,
        settings["seconds"],
        settings["sample_seconds"],
        None if first is None else int(first),
    )
    made.run(turns)
    return made


def test_a_clear_winner_takes_one_heat() -> None:
    turns = Turns(a=1.0, b=1.5, c=2.0)
    assert [len(row) for row in race(turns).samples] == [9, 9, 9]
    assert turns.heats == [("abc", 9)]


def test_what_is_slower_is_out_and_the_rounds_go_to_the_others() -> None:
    turns = Turns(a=1.0, b=1.5, c=1.005)
    samples = race(turns).samples
    assert turns.heats[:3] == [("abc", 9), ("ac", 9), ("ac", 18)]
    assert len(samples[1]) == 9
    assert len(samples[0]) == len(samples[2]) == sum(rounds for _, rounds in turns.heats)


def test_the_rounds_end_with_the_time() -> None:
    turns = Turns(a=1.0, b=1.5, c=1.005)
    race(turns, seconds=0.055)
    assert turns.heats == [("abc", 9), ("ac", 9), ("ac", 2)]


def test_twins_are_settled_once_the_interval_is_within_the_margin() -> None:
    class Same(Turns):
        def __call__(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
            self.heats.append(("".join(k.image.decode() for k in kernels), rounds))
            return [tuple(islice(repeat(1.0), rounds)) for _ in kernels]

    turns = Same()
    race(turns)
    assert turns.heats == [("abc", 9)]


@pytest.mark.parametrize("fails_at", [0, 1])
def test_what_was_timed_before_one_fails_is_kept(fails_at: int) -> None:
    turns = Turns(fails_at, a=1.0, b=1.0, c=1.005)
    assert [len(row) for row in race(turns).samples] == [9 * fails_at] * 3


def test_what_was_timed_before_an_interrupt_is_kept() -> None:
    class Stopped(Turns):
        def __call__(
            self, kernels: Sequence[Kernel], rounds: int
        ) -> list[tuple[float, ...]] | None:
            if self.heats:
                raise KeyboardInterrupt
            return super().__call__(kernels, rounds)

    made = InterleavedTiming(finalists_of("ab"), 9, 1.0, 1e-3)
    with pytest.raises(KeyboardInterrupt):
        made.run(Stopped(a=1.0, b=1.001))
    assert [len(row) for row in made.samples] == [9, 9]


def test_those_without_memory_beside_the_faster_ones_take_no_part() -> None:
    class Narrow(Turns):
        def __call__(
            self, kernels: Sequence[Kernel], rounds: int
        ) -> list[tuple[float, ...]] | None:
            rows = super().__call__(kernels, rounds)
            return rows and [*rows[:2], *(() for _ in rows[2:])]

    turns = Narrow(a=1.0, b=1.001, c=0.5, d=0.5)
    samples = race(turns, "abcd").samples
    assert [heat for heat, _ in turns.heats[:2]] == ["abcd", "ab"]
    assert samples[0]
    assert samples[2:] == [(), ()]


def test_one_that_is_far_slower_is_out_after_a_short_first_heat() -> None:
    turns = Turns(a=1.0, b=60.0, c=1.005)
    samples = race(turns, first=2, trial_of_b=6e-3).samples
    assert turns.heats[:3] == [("abc", 2), ("ac", 9), ("ac", 11)]
    assert len(samples[1]) == 2


def test_a_round_or_two_that_are_disturbed_put_nothing_out_that_was_near() -> None:
    turns = Turns(a=1.0, b=3.0, c=1.005)
    race(turns, first=2)
    assert turns.heats[:2] == [("abc", 2), ("abc", 9)]


class Scripted:
    """Hands out the samples of each kernel in the order in which they are written."""

    def __init__(self, **samples: list[float]) -> None:
        self.heats: list[tuple[str, int]] = []
        self._left = samples

    def __call__(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
        names = [k.image.decode() for k in kernels]
        self.heats.append(("".join(names), rounds))
        rows = [tuple(self._left[name][:rounds]) for name in names]
        for name in names:
            del self._left[name][:rounds]
        return rows


def test_timing_goes_on_for_as_long_again_where_noise_hides_the_ratios() -> None:
    busy: list[float] = [80, 900, 85, 700, 80, 800, 600, 80, 750]
    turns = Scripted(a=[480.0] * 18, b=busy + [80.0] * 9)
    made = InterleavedTiming(finalists_of("ab"), 9, 0.021, 1e-3)
    made.run(turns)
    assert turns.heats == [("ab", 9), ("ab", 9)]
    calm = Scripted(a=[480.0] * 18, b=[480.0, 490.0, 470.0] * 6)
    InterleavedTiming(finalists_of("ab"), 9, 0.021, 1e-3).run(calm)
    assert calm.heats == [("ab", 9)]


def test_one_that_was_out_is_not_chosen_when_another_becomes_the_fastest() -> None:
    slow_later = [100.0] * 9 + [300.0] * 500
    fast_later = [160.0] * 5 + [90.0] * 4 + [30.0] * 500
    turns = Scripted(a=slow_later, b=fast_later, c=[105.0] * 509)
    made = InterleavedTiming(finalists_of("abc"), 9, 1.0, 1e-3)
    made.run(turns)
    assert [len(row) for row in made.samples] == [36, 36, 9]
    records = [
        ScheduleRecord(f'{{"version":1,"steps":[{steps}]}}', 1) for steps in ("1,2", "1,2,3", "")
    ]
    entries = [timed(r, 1.0, row) for r, row in zip(records, made.samples, strict=True)]
    assert compare_schedules(entries, dict)[0].schedule == records[1].id


def test_slow_ones_are_timed_as_often_as_there_is_time_for() -> None:
    def slow(*seconds: float) -> list[Finalist]:
        return [Finalist(t, RECORD, Trace(()), Kernel(b""), True) for t in seconds]

    def heat(*seconds: float) -> tuple[list[float], int, float]:
        timed, rounds, takes = short_heat(slow(*seconds), 9, 0.5, 1e-3)
        return [f.seconds for f in timed], rounds, round(takes, 9)

    assert heat() == ([], 9, 0.0)
    assert heat(1e-3) == ([1e-3], 9, 0.018)
    assert heat(0.09) == ([0.09], 3, 0.27)
    assert heat(0.2, 0.02) == ([0.02], 9, 0.18)
    assert heat(0.2) == ([], 9, 0.0)


def test_one_alone_or_no_time_is_no_race() -> None:
    turns = Turns(a=1.0, b=1.0, c=1.0)
    assert race(turns, "a").samples == [()]
    assert race(turns, seconds=5e-3).samples == [()] * 3
    assert turns.heats == []
