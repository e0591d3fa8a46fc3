"""All that report a session tell one story of its finals, whatever came of them since."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tilewright import open_run
from tilewright.autotune.session import session_history
from tilewright.autotune.session.events import Ended, Final
from tilewright.autotune.session.session_history import SessionHistory
from tilewright.lab.pictures.programs import Contents
from tilewright.lab.pictures.session import session_trials
from tilewright.lab.report import report
from tilewright.tuning_db import Outcome, Session, Verification

from .databases import CPU, LLVM, NOON, Tuning

SLOWER = "The fastest trial took 100 us; the winner of the finals takes 202 us. The finals count."
CHOICE = 202e-6
"""The median of the samples of 200 us."""


@pytest.fixture
def tuning(tmp_path: Path) -> Tuning:
    return Tuning(tmp_path / "tuning.db")


@pytest.fixture
def session(tuning: Tuning) -> Session:
    """Its trials of 100 and 110 us take twice as long in the finals."""
    session = tuning.start()
    tuning.trial(session, 8, 100e-6)
    tuning.trial(session, 16, 110e-6)
    tuning.finals(session, {8: 200e-6, 16: 220e-6})
    tuning.end(session)
    return session


def told(tuning: Tuning, session: Session) -> tuple[Final, Ended]:
    """What a reader of the session is told of its end."""
    *_, final, ended = open_run(tuning.database, session.id).poll()
    assert isinstance(final, Final)
    assert isinstance(ended, Ended)
    return final, ended


def test_the_finals_count_for_all_who_read_them(tuning: Tuning, session: Session) -> None:
    final, ended = told(tuning, session)
    assert final.trial_seconds == 100e-6
    assert ended.best == final.comparison[0].time
    assert final.comparison[0].seconds == ended.own_seconds == CHOICE
    assert final.gains["untuned"].ratio == pytest.approx(1.1)
    (picture,) = open_run(tuning.database, session.id).pictures.pictures.values()
    assert SLOWER in picture.conclusions
    assert SLOWER in report(tuning.database, session)


def test_finals_are_shown_where_another_session_has_the_best(
    tuning: Tuning, session: Session
) -> None:
    before, _ = told(tuning, session)
    other = tuning.start()
    tuning.trial(other, 4, 50e-6)
    final, ended = told(tuning, session)
    assert final == before
    best = (ended.best and ended.best.seconds, ended.best_session, ended.own_seconds)
    assert best == (50e-6, other.id, CHOICE)
    trials = session_trials(tuning.database, session)
    assert trials.comparison == final.comparison
    assert trials.own_seconds == CHOICE
    page = report(tuning.database, session)
    assert f"The best is of session {other.id:.12}; this session&#39;s: 202 us." in page
    assert "finals: 202 us" in page
    assert "the untuned build" in page


@pytest.mark.parametrize("tile", [16, 4])
def test_finals_are_shown_where_a_schedule_is_pinned(
    tuning: Tuning, session: Session, tile: int
) -> None:
    """One of the finalists, or one that was never measured."""
    before, _ = told(tuning, session)
    pinned = tuning.schedule(tile)
    tuning.database.pin(tuning.workload, CPU, pinned, unverified=True)
    final, ended = told(tuning, session)
    assert final == before
    best = (ended.best and ended.best.seconds, ended.best_session, ended.own_seconds)
    assert best == (CHOICE, session.id, CHOICE)
    assert ended.pinned == f"Builds take schedule {pinned.id:.12} instead: it is pinned."
    page = report(tuning.database, session)
    assert "Finals: timed interleaved" in page
    assert "finals: 202 us" in page
    assert "pinned" in page
    assert "The best is of session" not in page


@pytest.mark.parametrize(("later", "own"), [(150e-6, 150e-6), (250e-6, CHOICE)])
def test_only_a_faster_trial_after_the_finals_replaces_them(
    tuning: Tuning, session: Session, later: float, own: float
) -> None:
    """Of a session that went on; the database chooses by the same rule."""
    tuning.trial(session, 4, later)
    history = SessionHistory(tuning.database, session)
    assert [trial.seconds for trial, *_ in history.read()] == [100e-6, 110e-6, later]
    assert history.own_seconds == own
    assert (history.finals is None) is (own == later)
    assert history.trial_seconds == 100e-6
    best = tuning.database.best(tuning.workload.id, CPU)
    assert best is not None
    assert best.seconds == own


def test_finals_that_no_longer_count_are_taken_from_an_open_picture(
    tuning: Tuning, session: Session
) -> None:
    """Of a session that goes on: whoever has it open sees what whoever opens it now does."""
    watching = open_run(tuning.database, session.id)
    (picture,) = watching.pictures.pictures.values()

    def told() -> list[str]:
        finals = [event for event in watching.poll() if isinstance(event, Final)]
        (now,) = open_run(tuning.database, session.id).pictures.pictures.values()
        assert picture.comparison == now.comparison
        assert picture.conclusions == now.conclusions
        return [str(picture.line(event)) for event in finals]

    assert picture.comparison
    tuning.trial(session, 4, 250e-6)
    assert told() == [], "a slower trial leaves the finals as they are"
    tuning.trial(session, 2, 150e-6)
    assert told() == ["the finals do not count: another time of the session is less"]
    assert (picture.comparison, picture.finalists) == ((), [])
    tuning.trial(session, 32, 140e-6)
    assert told() == []
    key = (session.workload, CPU.id, tuning.schedule(2).id, LLVM.id)
    tuning.database.put(Verification(*key, False, 3.0, 1e-5, tuning.now))
    key = (session.workload, CPU.id, tuning.schedule(32).id, LLVM.id)
    tuning.database.put(Verification(*key, False, 3.0, 1e-5, tuning.now))
    tuning.trial(session, 0, 300e-6)
    (line,) = told()
    assert line.startswith("finals")
    tuning.finals(session, {16: 180e-6, 0: 300e-6})
    (line,) = told()
    assert line.startswith("finals")
    assert [c.schedule for c in picture.comparison] == [tuning.schedule(n).id for n in (16, 0)]


def test_a_finalist_whose_schedule_is_damaged_is_left_out(tuning: Tuning, session: Session) -> None:
    def compared() -> list[str]:
        history = session_trials(tuning.database, session)
        return [c.schedule for c in history.comparison]

    best, other = tuning.schedule(8).id, tuning.schedule(16).id
    tuning.trial(session, 0, 8e-3)
    tuning.finals(session, {0: 8e-3, 8: 200e-6, 16: 220e-6})
    assert compared() == [best, other, tuning.schedule(0).id]
    with tuning.database._layers[0].writing() as connection:
        damage = "UPDATE schedule SET trace = '{}' WHERE id = ?"
        connection.exec_driver_sql(damage, (best,))
    assert compared() == [other, tuning.schedule(0).id]
    with tuning.database._layers[0].writing() as connection:
        connection.exec_driver_sql(damage, (other,))
    assert compared() == [], "one alone is no comparison"


def test_a_session_without_finals_has_the_time_of_its_trials(tuning: Tuning) -> None:
    session = tuning.start()
    history = SessionHistory(tuning.database, session)
    assert (history.finals, history.own_seconds) == (None, None)
    tuning.trial(session, 8, 100e-6)
    assert [trial.seconds for trial, *_ in history.read()] == [100e-6]
    assert (history.finals, history.own_seconds) == (None, 100e-6)


@pytest.mark.parametrize(("max_error", "own"), [(1e-3, 50e-6), (1e-1, 100e-6)])
def test_what_errs_more_than_the_session_permits_is_not_its_time(
    tuning: Tuning, max_error: float, own: float
) -> None:
    session = tuning.database.start_session(
        tuning.workload.id,
        CPU.id,
        trials=64,
        seconds=None,
        seed=0,
        search={"tolerance": 1e-2},
        model={},
    )
    inexact = replace(tuning.schedule(4), inexact="winograd")
    key = (session.workload, CPU.id, inexact.id, LLVM.id)
    tuning.database.put(inexact, Verification(*key, True, max_error, max_error, NOON))
    tuning.trial(session, 8, 100e-6)
    tuning.now += timedelta(seconds=1)
    tuning.database.put(tuning._measurement(session, inexact.id, (50e-6,), "", Outcome.OK, None))
    history = SessionHistory(tuning.database, session)
    assert [trial.seconds for trial, *_ in history.read()] == [100e-6, 50e-6]
    assert history.own_seconds == history.trial_seconds == own
    best = tuning.database.best(tuning.workload.id, CPU, tolerance=1e-2)
    assert best is not None
    assert best.seconds == own
    tuning.end(session)
    headline = Contents(tuning.database).of_session(session).best
    assert headline is not None
    assert headline.seconds == own


def test_a_trial_whose_check_fails_later_is_not_the_fastest(tuning: Tuning) -> None:
    """Slower than the best of another session, it is checked only before the finals."""
    other = tuning.start()
    tuning.trial(other, 32, 50e-6)
    tuning.end(other)
    session = tuning.start()
    tuning.trial(session, 16, 200e-6)
    tuning.trial(session, 8, 100e-6)
    tuning.now += timedelta(seconds=1)
    wrong = tuning.schedule(4)
    measured = tuning._measurement(session, wrong.id, (60e-6,), "", Outcome.OK, None)
    tuning.database.put(wrong, measured)
    history = SessionHistory(tuning.database, session)
    assert [trial.record for trial, *_ in history.read()] == [True] * 3
    assert history.own_seconds == history.trial_seconds == 60e-6, "it may be right"
    key = (session.workload, CPU.id, wrong.id, LLVM.id)
    tuning.database.put(Verification(*key, False, 3.0, 1e-5, tuning.now))
    assert history.own_seconds == history.trial_seconds == 100e-6
    tuning.finals(session, {8: 99e-6, 16: 220e-6})
    tuning.end(session)
    final, ended = told(tuning, session)
    assert (final.trial_seconds, ended.own_seconds) == (100e-6, final.comparison[0].seconds)
    (picture,) = open_run(tuning.database, session.id).pictures.pictures.values()
    assert not any("fastest trial" in text for text in picture.conclusions)


@pytest.mark.parametrize("page", [1, 2, 3])
def test_a_session_is_read_in_pages(
    tuning: Tuning, session: Session, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finals may be longer than a page."""
    tuning.trial(session, 4, 250e-6)
    whole = SessionHistory(tuning.database, session)
    trials = list(whole.read())
    monkeypatch.setattr(session_history, "_PAGE", page)
    paged = SessionHistory(tuning.database, session)
    assert list(paged.read()) == trials
    assert len(trials) == 3
    assert paged.finals == whole.finals is not None
    assert list(paged.read()) == []
