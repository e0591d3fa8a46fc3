"""The times of two schedules side by side: a ratio is told only of what was timed interleaved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.tuning_db import Measurement, Outcome, ScheduleRecord, TuningDatabase, to_plain
from tilewright.tuning_db.compare import TimeDiff

from .samples import ARM, DRIFT, fill, timed

ONE, TWO = (ScheduleRecord(f'{{"version": 1, "steps": [{n}]}}', 1) for n in (1, 2))


@pytest.fixture
def filled(db: TuningDatabase) -> TuningDatabase:
    fill(db)
    db.put(ONE, TWO, ARM)
    return db


def times_of(db: TuningDatabase, *measured: Measurement) -> TimeDiff:
    db.put(*measured)
    times = db.diff(ONE.id, TWO.id).times
    assert times is not None
    return times


def test_schedules_of_the_same_finals_have_a_ratio(filled: TuningDatabase) -> None:
    (one, _), (two, _) = timed(ONE, 1.0), timed(TWO, 2.0)
    times = times_of(filled, one, two)
    assert str(times) == (
        "1 s (0.98 to 1.02) and 2 s (1.96 to 2.04): "
        "2.00x slower than the first, interleaved in 9 rounds"
    )
    assert to_plain(filled.diff(ONE.id, TWO.id))["times"]["ratio"] == pytest.approx(2.0)
    assert filled.diff(one.id, two.id).times == times
    assert filled.diff(ONE.id, ONE.id).times is None
    back = filled.diff(TWO.id, ONE.id).times
    assert back is not None
    assert back.ratio == pytest.approx(0.5)


def test_times_of_different_moments_have_none(filled: TuningDatabase) -> None:
    (one, _), (two, _) = timed(ONE, 1.0), timed(TWO, 2.0, after=5)
    times = times_of(filled, one, two)
    assert times.ratio is None
    assert str(times).endswith("2 s (1.96 to 2.04): not from the same comparison")
    assert filled.diff(one.id, two.id).times == times


def test_a_schedule_that_was_timed_again_has_its_last_time(filled: TuningDatabase) -> None:
    (one, _), (two, _), (again, _) = timed(ONE, 1.0), timed(TWO, 2.0), timed(TWO, 1.5, after=5)
    times = times_of(filled, one, two, again)
    assert times.second == again.time
    assert times.ratio == pytest.approx(2.0)
    assert str(times).endswith(
        "interleaved in 9 rounds in which they took 1 s (0.98 to 1.02) and 2 s (1.96 to 2.04)"
    )


def test_times_are_of_one_target(filled: TuningDatabase) -> None:
    """The last time of one is of another machine, on which the other one never ran."""
    (one, _), (two, _) = timed(ONE, 1.0), timed(TWO, 2.0, after=1)
    there, _ = timed(ONE, 0.1, after=9)
    assert times_of(filled, one, two, replace(there, target=ARM.id)).first == one.time


def test_what_did_not_run_has_no_time(filled: TuningDatabase) -> None:
    one, _ = timed(ONE, 1.0)
    crashed, _ = timed(TWO, 1.0, DRIFT, after=1)
    crashed = replace(crashed, outcome=Outcome.CRASH, seconds=None, samples=(), error="signal 11")
    times = times_of(filled, one, crashed)
    assert (times.first, times.second, times.ratio) == (one.time, None, None)
    assert str(times) == "1 s (0.98 to 1.02) and not measured"
