"""The duration of a session: one number, whoever says it, also if it was resumed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tilewright import TuningDatabase, open_run, tune
from tilewright.autotune.measure import machine
from tilewright.autotune.result import TuneResult
from tilewright.autotune.session import tuning_job
from tilewright.autotune.session.budget import Meter
from tilewright.autotune.session.events import Ended, Event, Trial
from tilewright.autotune.show.picture import Pictures
from tilewright.lab.pictures.views import html_of
from tilewright.lab.report import report
from tilewright.tuning_db import Session, SessionStatus

from .children import QUICK
from .kernels import matmul
from .recorded import Play, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "made_once")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MACHINE, CALLBACK = 7.0, 100.0
"""Seconds of measuring the machine, and of waiting after each trial."""


class Clock:
    """The time of the process and of its database, which stands still between events."""

    now = 0.0

    def __call__(self) -> datetime:
        return NOON + timedelta(seconds=self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def described(*arguments: Any) -> Any:
        clock.now += MACHINE
        return machine.described(*arguments)

    def meter(budget: Any) -> Meter:
        return Meter(budget, clock=lambda: clock.now)

    monkeypatch.setattr(tuning_job, "described", described)
    monkeypatch.setattr(tuning_job, "Meter", meter)
    return clock


@pytest.fixture
def db(tmp_path: Path, clock: Clock) -> Iterator[TuningDatabase]:
    with TuningDatabase(tmp_path / "tuning.db", clock=clock) as opened:
        yield opened


def run(db: TuningDatabase, clock: Clock, interrupted_at: int | None = None) -> TuneResult:
    def wait(event: Event) -> None:
        if isinstance(event, Trial):
            clock.now += CALLBACK
            if event.number == interrupted_at:
                raise KeyboardInterrupt
        if isinstance(event, Ended):
            told.append(event.elapsed)

    told: list[float] = []
    result = tune(
        matmul(),
        "cpu -threads=1",
        database=db,
        trials=4,
        callback=wait,
        config=QUICK,
        resume=interrupted_at is None,
    )
    assert told == [result.seconds]
    return result


def said(db: TuningDatabase, result: TuneResult) -> set[float]:
    """What all who say it call the duration of the session of a result."""
    (row,) = db.to_pandas("sessions").to_dict("records")
    (picture,) = open_run(db).pictures.pictures.values()
    session = db.get(Session, result.session)
    assert f"{result.seconds:.0f} s used" in html_of_report(db, session)
    assert f">{result.seconds:.0f} s<" in html_of(db), "the table of sessions"
    assert f" in {result.seconds:.1f} s: " in str(result)
    spent = sum(vars(result.spent).values())
    return {
        result.seconds,
        row["elapsed"],
        picture.elapsed,
        session.duration,
        sum(session.duration for session in db.records(Session)),
        spent,
    }


def html_of_report(db: TuningDatabase, session: Session) -> str:
    return "".join(report(db, session))


def test_all_say_the_same_of_a_session_that_was_interrupted_and_resumed(
    db: TuningDatabase, clock: Clock, play: Play
) -> None:
    pytest.importorskip("pandas")
    play(ok(2e-3), ok(1e-3), ok(3e-3), ok(4e-3))
    first = run(db, clock, interrupted_at=2)
    assert said(db, first) == {MACHINE + 2 * CALLBACK}, "waits of more than a minute count"
    clock.now += 86_400
    play(ok(3e-3), ok(4e-3))
    second = run(db, clock)
    assert second.session == first.session
    assert said(db, second) == {2 * MACHINE + 4 * CALLBACK}, "and not what was between the runs"
    assert second.spent.earlier == first.seconds
    (picture,) = open_run(db).pictures.pictures.values()
    assert [t.elapsed for t in picture.trials] == [7.0, 107.0, 214.0, 314.0]
    assert [t.elapsed for t in second.history] == [214.0, 314.0]


def test_programs_that_share_a_budget_have_a_part_of_the_time_each(
    db: TuningDatabase, clock: Clock, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ok(2e-3))
    monkeypatch.setattr("tilewright.autotune.session.recorder.BEAT", -1.0)

    shown, budget = Pictures(), list[float | None]()

    def wait(event: Event) -> None:
        shown.add(event)
        if isinstance(event, Trial):
            budget.append(event.budget_elapsed)
            beats = {session.heartbeat for session in db.records(Session)}
            assert beats == {clock()}, "all are alive, whichever is at work"
            clock.now += CALLBACK

    results = tune(
        [matmul(), matmul(8)], "cpu -threads=1", database=db, trials=4, callback=wait, config=QUICK
    )
    assert sum(result.seconds for result in results) == MACHINE + 4 * CALLBACK
    for result in results:
        assert db.get(Session, result.session).duration == result.seconds
        assert result.status is SessionStatus.FINISHED
        (read,) = open_run(db, result.session).pictures.pictures.values()
        recorded = [m.elapsed for m in reversed(db.measurements(session=result.session))]
        trials = [trial.elapsed for trial in result.history]
        assert trials == [trial.elapsed for trial in read.trials] == recorded
    assert sum(session.duration for session in db.records(Session)) == MACHINE + 4 * CALLBACK
    assert budget == [MACHINE + n * CALLBACK for n in range(4)]
    for picture in shown.pictures.values():
        assert picture.elapsed < picture.budget_elapsed == MACHINE + 4 * CALLBACK


def test_a_budget_of_seconds_goes_on_where_it_was(
    db: TuningDatabase, clock: Clock, play: Play
) -> None:
    play(ok(2e-3))
    seen: list[float] = []

    def wait(event: Event) -> None:
        if isinstance(event, Trial):
            clock.now += CALLBACK
            seen.append(event.elapsed)
            if len(seen) == 2:
                raise KeyboardInterrupt

    options: dict[str, Any] = {"database": db, "trials": None, "seconds": 450.0, "config": QUICK}
    assert tune(matmul(), "cpu -threads=1", callback=wait, **options).interrupted
    clock.now += 86_400
    result = tune(matmul(), "cpu -threads=1", callback=wait, resume=True, **options)
    assert result.reason == "the 450 seconds are over"
    assert seen[2] == MACHINE + 2 * CALLBACK + MACHINE


def test_of_what_older_versions_left_neither_pauses_nor_the_time_of_others_count(
    db: TuningDatabase, clock: Clock, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They recorded no durations; programs that share a budget work in turns."""
    play(ok(2e-3))
    monkeypatch.setattr("tilewright.autotune.session.recorder.utc_now", clock)
    seen: list[Trial] = []

    def wait(event: Event) -> None:
        if isinstance(event, Trial):
            seen.append(event)
            clock.now += 5.0
            if len(seen) == 4:
                clock.now += 86_400
                raise KeyboardInterrupt

    options: dict[str, Any] = {"database": db, "trials": 6, "seconds": 1000.0, "config": QUICK}
    programs = [matmul(), matmul(8)]
    tune(programs, "cpu -threads=1", callback=wait, **options)
    assert {trial.program for trial in seen} == {0, 1}
    with db._layers[0].writing() as connection:
        connection.exec_driver_sql("UPDATE session SET elapsed = NULL")
    results = tune(programs, "cpu -threads=1", callback=wait, resume=True, **options)
    before = MACHINE + 3 * 5.0 + 60.0
    assert seen[4].budget_elapsed == before + MACHINE
    assert sum(result.spent.earlier for result in results) == before
    assert all(0.0 < result.spent.earlier < before for result in results)
    assert [result.reason for result in results] == ["all 6 trials are done"] * 2
