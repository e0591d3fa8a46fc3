"""The contract of sessions: budgets, heartbeats, and who may go on with what a kill left."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import Session, SessionStatus, TuningDatabase, Workload

from ..refusals import refused
from .samples import ARM, CPU, MATMUL, NOON, SESSION, SLOW_CPU, SOFTMAX, WIDER, Clock


def start(db: TuningDatabase, trials: int | None = 64, seconds: float | None = None) -> Session:
    return db.start_session(
        MATMUL.id,
        CPU.id,
        trials=trials,
        seconds=seconds,
        seed=0,
        search={"population": 8},
        model={"trees": 10},
    )


def unfinished(
    db: TuningDatabase, trials: int | None = 64, seconds: float | None = None
) -> Session | None:
    found = db.unfinished_sessions(MATMUL.id, CPU.id)
    return next((s for s in found if (s.trials, s.seconds) == (trials, seconds)), None)


@pytest.fixture
def ended_pid() -> int:
    """The id of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def of_process(db: TuningDatabase, pid: int, host: str | None = None) -> Session:
    """A session as another process left it running."""
    session = dataclasses.replace(
        SESSION, nonce=f"of {pid}", pid=pid, host=host or socket.gethostname()
    )
    db.put(session)
    return session


@pytest.fixture(autouse=True)
def _finish_sample(db: TuningDatabase, clock: Clock) -> None:
    clock.tick()
    db.finish_session(SESSION.id)


def test_a_session_is_started_by_this_process_now(db: TuningDatabase, clock: Clock) -> None:
    session = start(db, seconds=60)
    assert db.get(Session, session.id) == session
    assert session.status is SessionStatus.RUNNING
    assert (session.host, session.pid) == (socket.gethostname(), os.getpid())
    assert session.started == session.heartbeat == clock.now
    assert (session.trials, session.seconds, session.ended) == (64, 60.0, None)


def test_two_sessions_of_one_moment_are_two(db: TuningDatabase) -> None:
    assert start(db).id != start(db).id


def test_a_heartbeat_moves_and_an_end_ends(db: TuningDatabase, clock: Clock) -> None:
    session = start(db)
    clock.tick(5)
    db.heartbeat(session.id)
    assert db.get(Session, session.id).heartbeat == NOON + timedelta(seconds=6)
    clock.tick(5)
    ended = db.finish_session(session.id)
    assert ended == db.get(Session, session.id)
    assert ended.status is SessionStatus.FINISHED
    assert ended.ended == ended.heartbeat == clock.now
    assert ended.id == session.id


@pytest.mark.parametrize("drift", [0.0, 5e-324, 1e300])
def test_a_heartbeat_without_a_ratio_leaves_the_session_as_it_was(
    db: TuningDatabase, drift: float
) -> None:
    session = start(db)
    with pytest.raises(DatabaseError):
        db.heartbeat(session.id, drift=drift)
    db.heartbeat(session.id, drift=1.5)
    assert db.get(Session, session.id).drift == 1.5


def test_sessions_at_work_on_this_machine_since_a_moment(db: TuningDatabase, clock: Clock) -> None:
    """Those of other machines, those that ended before, and those of the future disturb nothing."""
    ended, one = start(db), start(db)
    db.finish_session(ended.id)
    clock.tick(5)
    since = clock.now
    clock.tick(5)
    db.put(dataclasses.replace(SESSION, nonce="elsewhere", heartbeat=clock.now))
    future = clock.now + timedelta(days=1)
    db.put(dataclasses.replace(one, nonce="of a wrong clock", heartbeat=future))
    db.heartbeat(one.id)
    two = start(db)
    assert [s.id for s in db.sessions_beside(since)] == [one.id, two.id]


def test_an_interrupted_session_is_found_and_resumed(db: TuningDatabase, clock: Clock) -> None:
    session = start(db)
    assert unfinished(db) is None, "it still runs"
    db.finish_session(session.id, SessionStatus.INTERRUPTED)
    found = unfinished(db)
    assert found is not None
    assert found.id == session.id
    clock.tick(100)
    resumed = db.resume_session(found.id)
    assert resumed.status is SessionStatus.RUNNING
    assert (resumed.ended, resumed.heartbeat) == (None, clock.now)
    assert unfinished(db) is None


def test_only_one_process_resumes(db: TuningDatabase) -> None:
    session = start(db)
    with pytest.raises(DatabaseError):
        db.resume_session(session.id)
    db.finish_session(session.id, SessionStatus.INTERRUPTED)
    db.resume_session(session.id)
    with pytest.raises(DatabaseError):
        db.resume_session(session.id)


def test_of_many_that_resume_at_once_one_does(db: TuningDatabase) -> None:
    session = start(db)
    db.finish_session(session.id, SessionStatus.INTERRUPTED)
    resumed: list[Session] = []
    refused: list[DatabaseError] = []

    def work() -> None:
        try:
            resumed.append(db.resume_session(session.id))
        except DatabaseError as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(resumed), len(refused)) == (1, 5)


def test_a_finished_session_is_done(db: TuningDatabase) -> None:
    session = start(db)
    db.finish_session(session.id)
    assert unfinished(db) is None
    with pytest.raises(DatabaseError):
        db.resume_session(session.id)


def test_a_killed_session_of_this_host_is_found_at_once(db: TuningDatabase, ended_pid: int) -> None:
    session = of_process(db, ended_pid)
    assert unfinished(db) == session
    assert db.resume_session(session.id).pid == os.getpid()


def test_a_process_of_this_host_that_is_silent_for_long_is_dead(
    db: TuningDatabase, clock: Clock
) -> None:
    """Its id may be another process's by now."""
    session = of_process(db, os.getpid())
    clock.tick(58)
    assert unfinished(db) is None
    clock.tick(1)
    assert unfinished(db) == session


def test_a_session_of_another_host_is_dead_when_silent(
    db: TuningDatabase, clock: Clock, ended_pid: int
) -> None:
    session = of_process(db, ended_pid, host="elsewhere")
    assert unfinished(db) is None
    clock.tick(59)
    assert unfinished(db) == session


def test_the_unfinished_sessions_are_found_the_last_first(db: TuningDatabase, clock: Clock) -> None:
    sessions = {}
    for trials, seconds in [(64, None), (64, None), (64, 60.0), (None, 60.0), (None, None)]:
        clock.tick()
        sessions[trials, seconds] = start(db, trials, seconds)
        db.finish_session(sessions[trials, seconds].id, SessionStatus.INTERRUPTED)
    for (trials, seconds), session in sessions.items():
        found = unfinished(db, trials, seconds)
        assert found is not None
        assert found.id == session.id
    assert unfinished(db, 65) is None
    started = [s.started for s in db.unfinished_sessions(MATMUL.id, CPU.id)]
    assert started == sorted(started, reverse=True)
    assert len(started) == 5
    assert db.unfinished_sessions(MATMUL.id, SLOW_CPU.id) == []
    assert db.unfinished_sessions(WIDER.id, CPU.id) == []


def test_sessions_that_are_not_there(db: TuningDatabase) -> None:
    for use in (db.heartbeat, db.finish_session, db.resume_session):
        with pytest.raises(DatabaseError):
            use("0" * 64)


def test_a_session_does_not_end_running(db: TuningDatabase) -> None:
    with pytest.raises(DatabaseError):
        db.finish_session(start(db).id, SessionStatus.RUNNING)


def test_a_session_of_what_was_never_put(db: TuningDatabase) -> None:
    with refused(DatabaseError, "workload", "000000000000"):
        db.start_session("0" * 64, CPU.id, trials=1, seconds=None, seed=0, search={}, model={})


def test_a_session_is_marked_where_the_machine_was_not_calm(db: TuningDatabase) -> None:
    session = start(db)
    assert db.finish_session(session.id).noise is None
    db.finish_session(session.id, SessionStatus.INTERRUPTED, noise="something else was running")
    db.resume_session(session.id)
    assert db.finish_session(session.id).noise == "something else was running", "marks stay"


def test_a_session_is_prepared_before_it_runs(db: TuningDatabase, clock: Clock) -> None:
    new, where = dataclasses.replace(SOFTMAX, id="d" * 64), ARM
    options: dict[str, Any] = {"trials": 1, "seconds": None, "seed": 0, "search": {}, "model": {}}
    session = db.start_session(new.id, where.id, records=(new, where), preparing=True, **options)
    assert session.status is SessionStatus.PREPARING
    assert db.get(type(new), new.id) == new, "it is put with the session"
    assert db.unfinished_sessions(new.id, where.id) == [], "it is alive"
    with pytest.raises(DatabaseError):
        db.finish_session(session.id, SessionStatus.PREPARING)
    clock.tick(61)
    (dead,) = db.unfinished_sessions(new.id, where.id)
    assert dead.status is SessionStatus.PREPARING, "and says so"
    db.resume_session(session.id, preparing=True)
    ready = db.prepared_session(session.id, "f" * 64)
    assert (ready.status, ready.untuned) == (SessionStatus.RUNNING, "f" * 64)
    db.finish_session(session.id, SessionStatus.INTERRUPTED)
    db.resume_session(session.id, preparing=True)
    assert db.prepared_session(session.id, "e" * 64).untuned == "f" * 64, "what it began with"


def test_a_session_that_cannot_start_puts_nothing(db: TuningDatabase) -> None:
    new = dataclasses.replace(SOFTMAX, id="d" * 64)
    options: dict[str, Any] = {"trials": 1, "seconds": None, "seed": 0, "search": {}, "model": {}}
    with refused(DatabaseError, "target"):
        db.start_session(new.id, "0" * 64, records=(new,), **options)
    assert new not in db.records(Workload)


def test_the_duration_is_that_of_work(db: TuningDatabase, clock: Clock) -> None:
    session = start(db)
    assert session.duration == 0.0
    clock.tick(5)
    db.heartbeat(session.id)
    clock.tick(3)
    assert db.finish_session(session.id, SessionStatus.INTERRUPTED).duration == 8.0
    clock.tick(1000)
    assert db.resume_session(session.id).duration == 8.0
    clock.tick(2)
    db.heartbeat(session.id)
    assert db.get(Session, session.id).duration == 10.0
    assert db.finish_session(session.id, elapsed=9.5).duration == 9.5, "whoever ran it knows"
    db.finish_session(session.id)
    clock.tick(7)
    assert db.finish_session(session.id).duration == 9.5, "nothing ran"


def test_of_an_older_version_the_time_from_start_to_end_is_known(db: TuningDatabase) -> None:
    later = NOON + timedelta(seconds=40)
    old = dataclasses.replace(
        SESSION, nonce="old", heartbeat=later, status=SessionStatus.INTERRUPTED
    )
    db.put(old)
    assert (old.elapsed, old.duration) == (None, 40.0)
    assert db.resume_session(old.id).duration == 40.0
