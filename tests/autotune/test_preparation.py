"""Sessions that are being prepared: they are alive, and an interrupt ends them soon."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tilewright import TuningDatabase, tune
from tilewright.autotune.measure import machine
from tilewright.autotune.result import TuneResult
from tilewright.autotune.search.search import Search
from tilewright.autotune.session import tuning_job
from tilewright.autotune.session.budget import Meter
from tilewright.autotune.session.events import Batch, Event, Trial
from tilewright.codegen.detect import resolve
from tilewright.tuning_db import Session, SessionStatus
from tilewright.tuning_db.sessions import STALE_AFTER

from .children import QUICK
from .kernels import matmul
from .recorded import Play, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def tuned(db: TuningDatabase, sizes: list[int], **options: Any) -> list[TuneResult]:
    programs = [matmul(size) for size in sizes]
    results: list[TuneResult] = tune(
        programs, "cpu -threads=1", database=db, trials=6, config=QUICK, **options
    )
    return results


def test_a_session_is_alive_while_it_is_prepared(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is measured for longer than a session without heartbeats counts as alive."""
    now = [0.0]
    db = TuningDatabase("sqlite://", clock=lambda: NOON + timedelta(seconds=now[0]))
    durations: list[float] = []

    def described(*arguments: Any) -> Any:
        now[0] += 2 * STALE_AFTER.total_seconds()
        deadline = time.monotonic() + 20
        while any(s.heartbeat == NOON for s in db.records(Session)) and time.monotonic() < deadline:
            time.sleep(0.01)
        durations.extend(s.duration for s in db.records(Session))
        now[0] += 1.0
        assert all(db.unfinished_sessions(s.workload, s.target) == [] for s in db.records(Session))
        return machine.described(*arguments)

    monkeypatch.setattr("tilewright.autotune.session.preparation.BEAT", 0.01)
    monkeypatch.setattr(tuning_job, "Meter", lambda budget: Meter(budget, clock=lambda: now[0]))
    monkeypatch.setattr(tuning_job, "described", described)
    play(ok(2e-3))
    results = tuned(db, [16, 8])
    assert [r.status for r in results] == [SessionStatus.FINISHED] * 2
    assert sorted(durations) == [0.0, 120.0], "the time that they share counts once"
    assert [t.name for t in threading.enumerate() if "heartbeat" in t.name] == []


@pytest.mark.parametrize("step", ["described", "_recorder"])
def test_an_interrupt_ends_the_preparation(
    db: TuningDatabase,
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
) -> None:
    """After the step in which it came, and it is answered at once."""
    play(ok(2e-3))
    (before,) = tuned(db, [16])
    searches: list[Search] = []
    answers: list[str] = []

    def search(*arguments: Any, **options: Any) -> Search:
        searches.append(Search(*arguments, **options))
        return searches[-1]

    place: Any = tuning_job if step == "described" else tuning_job.TuningJob
    real = getattr(place, step)

    def interrupted(*arguments: Any) -> Any:
        if not answers:
            signal.raise_signal(signal.SIGINT)
        answers.extend(r.getMessage() for r in caplog.records)
        return real(*arguments)

    monkeypatch.setattr(tuning_job, "Search", search)
    monkeypatch.setattr(place, step, interrupted)
    caplog.clear()
    events: list[Event] = []
    results = tuned(db, [16, 8, 32], callback=events.append)
    assert answers[:1] == ["interrupted: stopping once this step of the preparation has ended"]
    assert len(searches) == (0 if step == "described" else 1), "the others are not prepared"
    assert events == []
    assert [(r.status, r.reason, r.trials) for r in results] == [
        (SessionStatus.INTERRUPTED, "interrupted", 0)
    ] * 3
    assert before.best is not None
    best = results[0].best
    assert best is not None
    assert best.measurement_id == before.best.measurement_id, "what is known of it"
    assert results[1].best is None
    assert "0 trials are kept in" in str(results[0])
    ended = [db.get(Session, result.session) for result in results]
    assert [s.status for s in ended] == [SessionStatus.INTERRUPTED] * 3
    assert [s.duration for s in ended] == [r.seconds for r in results]

    monkeypatch.setattr(place, step, real)
    again = tuned(db, [16, 8, 32], resume=True)
    assert [r.session for r in again] == [r.session for r in results]
    assert [r.status for r in again] == [SessionStatus.FINISHED] * 3


@pytest.mark.parametrize(
    ("slow", "calls", "trials"), [("Search", 3, [5, 5, 1, 1]), ("rivals_of", 3, [1, 1, 0, 0])]
)
def test_programs_that_share_seconds_have_a_trial_each_first(
    db: TuningDatabase,
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    slow: str,
    calls: int,
    trials: list[int],
) -> None:
    """Before searches are made, each of which takes 4 of 10 seconds here; if the choice of the
    first candidate takes so long, what has no time for it is left out."""
    now = [0.0]
    called: list[str] = []
    real = getattr(tuning_job, slow)

    def slowly(*arguments: Any, **options: Any) -> Any:
        now[0] += 4.0
        called.append(slow)
        return real(*arguments, **options)

    monkeypatch.setattr(tuning_job, slow, slowly)
    monkeypatch.setattr(tuning_job, "Meter", lambda budget: Meter(budget, clock=lambda: now[0]))
    play(ok(2e-3))
    events: list[Event] = []
    programs = [matmul(size) for size in (16, 8, 32, 64)]
    results: list[TuneResult] = tune(
        programs, "cpu -threads=1", database=db, seconds=10, config=QUICK, callback=events.append
    )
    assert [r.trials for r in results] == trials
    assert [r.best is None for r in results] == [not count for count in trials]
    assert [r.reason for r in results] == ["the 10 seconds are over"] * 4
    assert len(called) == calls
    shown = [(type(e).__name__, e.program) for e in events if not isinstance(e, Batch)]
    assert shown[:4] == [("Started", 0), ("Trial", 0), ("Started", 1), ("Trial", 1)]
    first = [db.history(session=r.session)[-1] for r in results if r.trials]
    assert [m.features is not None for m, _ in first] == [True] * len(first), "models learn of it"
    assert [db.get(Session, r.session).status for r in results] == [SessionStatus.FINISHED] * 4


def test_the_first_turns_are_interrupted(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had its turn has a result of its own, and the others have none."""
    play(ok(2e-3))

    def stop(event: Event) -> None:
        if isinstance(event, Trial):
            signal.raise_signal(signal.SIGINT)

    programs = [matmul(size) for size in (16, 8)]
    options: dict[str, Any] = {"database": db, "seconds": 900, "config": QUICK}
    results: list[TuneResult] = tune(programs, "cpu -threads=1", callback=stop, **options)
    assert [r.trials for r in results] == [1, 0]
    assert [r.status for r in results] == [SessionStatus.INTERRUPTED] * 2
    assert [db.get(Session, r.session).status for r in results] == [SessionStatus.INTERRUPTED] * 2


def test_the_measurement_of_a_machine_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up() -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv(machine.VARIABLE, "")
    monkeypatch.setattr(machine, "_KNOWN", {})
    with pytest.raises(KeyboardInterrupt):
        machine.described(resolve("cpu -threads=1"), machine.Again.ALWAYS, give_up)
    assert machine._KNOWN == {}
