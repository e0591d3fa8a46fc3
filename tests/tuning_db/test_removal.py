"""Deleting: atomic, and of nothing that counts; the differences of records and databases."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    Environment,
    Measurement,
    RemovalReason,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
    removal,
)
from tilewright.tuning_db.values import KINDS

from ..long import examples
from .samples import (
    CPU,
    LLVM,
    MATMUL,
    NOON,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    Clock,
    delete,
    fill,
    measurement,
    schedule,
    timed,
    verification,
    verified,
)

LATER = timedelta(hours=1)


def everything(db: TuningDatabase) -> dict[str, set[str]]:
    return {kind: {r.id for r in db.records(record)} for kind, record in KINDS.items()}


def ended(session: Session, status: SessionStatus = SessionStatus.FINISHED) -> Session:
    """The session after it ended: its heartbeat is later, so that this state is kept."""
    moment = session.heartbeat + timedelta(seconds=1)
    return dataclasses.replace(session, status=status, heartbeat=moment, ended=moment)


@pytest.fixture
def two_sessions(db: TuningDatabase, clock: Clock) -> Session:
    """Another session; both have ended."""
    other = dataclasses.replace(SESSION, nonce="other", started=NOON + LATER)
    db.put(other, ended(SESSION), ended(other))
    clock.now = NOON + 2 * LATER
    return other


def of(session: Session, record: Measurement) -> Measurement:
    return dataclasses.replace(record, session=session.id)


def test_superseded_measurements_go(db: TuningDatabase, two_sessions: Session) -> None:
    old, last = measurement(8, 1.0), measurement(16, 3.0, after=10)
    again = of(two_sessions, measurement(8, 2.0, after=60))
    db.put(*verified(8, 1.0), *verified(16, 3.0), last, again)
    assert measurement(16, 3.0) in db.measurements(), "superseded within its session"
    planned = db.prune(dry_run=True)
    assert planned.reasons == {RemovalReason.SUPERSEDED: {"measurement": (old.id,)}}
    assert db.prune().done
    assert set(db.measurements()) == {again, last, measurement(16, 3.0)}
    assert db.prune().counts == {}


def test_what_comparisons_read_is_kept(db: TuningDatabase, two_sessions: Session) -> None:
    """The finals of the second session; the baseline and the trials of the first."""
    trials = [record for n in (8, 16, 32) for record in verified(n, n / 8)]
    finals = [timed(schedule(n), n / 8, after=60)[0] for n in (8, 16, 32)]
    db.put(*trials, *finals)
    again = [of(two_sessions, timed(schedule(n), n / 8, after=120)[0]) for n in (8, 16)]
    db.put(*again)
    before = db.best(MATMUL.id, CPU)
    assert db.prune().counts == {"measurement": 2}, "the trials of what the second session timed"
    assert db.best(MATMUL.id, CPU) == before


def test_what_a_best_was_timed_with_is_kept(db: TuningDatabase, two_sessions: Session) -> None:
    """Gains compare with it, though another session measured it again."""
    best, partner = (timed(schedule(n), n, after=10)[0] for n in (8, 16))
    later = measurement(32, 99.0, after=20)
    again = of(two_sessions, measurement(16, 50.0, after=60))
    db.put(*(schedule(n) for n in (8, 16, 32)), *(verification(n) for n in (8, 16)))
    db.put(best, partner, later, again)
    assert db.prune().counts == {}
    assert partner in db.measurements()


def test_sessions_that_measured_nothing_go_when_they_ended(
    db: TuningDatabase, clock: Clock
) -> None:
    other = dataclasses.replace(SESSION, nonce="other")
    db.put(other, *verified(8, 1.0))
    assert db.prune().counts == {}, "it runs"
    clock.tick(61)
    assert db.prune(dry_run=True).reasons == {RemovalReason.EMPTY: {"session": (other.id,)}}
    assert db.prune().counts == {"session": 1}


def test_what_nothing_refers_to_goes_when_no_session_runs(db: TuningDatabase, clock: Clock) -> None:
    unused = Environment({"host": "b"})
    db.put(*verified(8, 1.0), schedule(16), schedule(32), schedule(64), verification(32), unused)
    db.pin(MATMUL.id, CPU, schedule(64).id, unverified=True)
    assert db.prune().counts == {}, "a session runs"
    clock.tick(61)
    assert db.prune(dry_run=True).reasons == {
        RemovalReason.UNUSED: {"environment": (unused.id,), "schedule": (schedule(16).id,)}
    }
    db.prune()
    assert {s.id for s in db.records(ScheduleRecord)} == {schedule(n).id for n in (8, 32, 64)}


_MEASUREMENTS = st.lists(
    st.tuples(
        st.sampled_from([8, 16, 32]),
        st.sampled_from([None, 1.0, 2.0, 3.0, 4.0]),
        st.integers(0, 5),
        st.sampled_from([CPU, SAME_CPU, SLOW_CPU]),
        st.integers(0, 2),
    ),
    max_size=16,
)


@settings(max_examples=examples(40))
@given(_MEASUREMENTS)
def test_lookups_return_what_they_did(measured: list[tuple[Any, ...]]) -> None:
    sessions = [dataclasses.replace(SESSION, nonce=str(n)) for n in range(3)]
    with TuningDatabase("sqlite://", clock=lambda: NOON + LATER) as db:
        fill(db)
        db.put(*sessions, *(ended(s) for s in sessions[:2]))
        db.put(*(record for n in (8, 16, 32) for record in (schedule(n), verification(n))))
        for tile, seconds, after, target, session in measured:
            db.put(verification(tile, target=target))
            if seconds is None:
                record = measurement(tile, None, target=target)
            else:
                record = dataclasses.replace(timed(schedule(tile), seconds)[0], target=target.id)
            moment = NOON + timedelta(seconds=after)
            db.put(dataclasses.replace(record, created=moment, session=sessions[session].id))

        def found() -> list[Any]:
            bests = [db.best(MATMUL.id, target, LLVM) for target in (CPU, SLOW_CPU)]
            return [(best, best and db.gains(best)) for best in bests]

        before = found()
        planned = db.prune(dry_run=True)
        assert db.prune() == dataclasses.replace(planned, done=True)
        assert found() == before
        assert db.prune().counts == {}


# Differences


def test_the_difference_of_two_records(db: TuningDatabase) -> None:
    other = dataclasses.replace(SESSION, nonce="other", search={"population": 64, "new": 1})
    db.put(other, *verified(8, 1.0))
    found = db.diff(SESSION.id[:8], other.id)
    assert (found.first, found.second) == (SESSION, other)
    assert found.fields == {
        "search.population": (512, 64),
        "search.mutation": (0.5, None),
        "search.new": (None, 1),
        "nonce": ("0123", "other"),
    }
    f"session {SESSION.id[:12]} and schedule {schedule(8).id[:12]} are of different kinds"
    with pytest.raises(DatabaseError):
        db.diff(SESSION.id, schedule(8).id)


def test_the_difference_of_two_databases(db: TuningDatabase, new_place: Callable[[], str]) -> None:
    db.put(*verified(8, 1.0))
    there = new_place()
    with TuningDatabase(there) as other:
        other.merge(db)
        same = db.compare(there)
        assert (same.only_first, same.only_second, same.pins) == ({}, {}, ())
        assert str(same).endswith("have the same records")
        other.put(*verified(16, 1.0))
        delete(other, measurement(8, 1.0).id)
        db.pin(MATMUL.id, CPU, schedule(8).id)
        other.pin(MATMUL.id, CPU, schedule(16).id)
        found = db.compare(other)
    assert found.only_first == {"measurement": (measurement(8, 1.0).id,)}
    assert found.only_second["schedule"] == (schedule(16).id,)
    assert len(found.pins) == 1
    lines = str(found).splitlines()
    assert lines[0] == f"only {db.location} has 1 measurement"
    assert lines[1].endswith("has 1 schedule, 1 verification, 1 measurement")
    assert lines[2] == "both have 1 pin of different schedules"


# Faults


def test_two_prune_at_once(db: TuningDatabase, place: str, clock: Clock) -> None:
    clock.tick(61)
    db.put(*(dataclasses.replace(SESSION, nonce=str(n)) for n in range(40)))
    counts: list[int] = []

    def prune() -> None:
        with TuningDatabase(place, clock=clock) as own:
            counts.append(own.prune().counts.get("session", 0))

    threads = [threading.Thread(target=prune) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == [0, 0, 41]
    assert db.records(Session) == []


def superseded(db: TuningDatabase, other: Session) -> Measurement:
    """A measurement that another session superseded, beside one that counts."""
    again = of(other, measurement(8, 2.0, after=60))
    db.put(*verified(8, 1.0), *verified(16, 3.0), measurement(16, 3.0, after=10), again)
    return measurement(8, 1.0)


def test_what_was_deleted_comes_back_by_a_merge(
    db: TuningDatabase, two_sessions: Session, new_place: Callable[[], str]
) -> None:
    gone = superseded(db, two_sessions)
    with TuningDatabase(new_place()) as copy:
        copy.merge(db)
        assert db.prune().counts == {"measurement": 1}
        assert gone not in db.measurements()
        assert db.merge(copy)["measurement"] == 1
    assert gone in db.measurements()


def test_layers_stay_as_they_are(
    db: TuningDatabase, place: str, two_sessions: Session, new_place: Callable[[], str]
) -> None:
    gone = superseded(db, two_sessions)
    with TuningDatabase(new_place(), layers=[place]) as mine:
        mine.merge(db)
        assert mine.prune().counts == {"measurement": 1}
        assert gone in mine.measurements(), "the layer still has it"


def test_a_read_only_database_says_what_would_be_deleted(
    db: TuningDatabase, place: str, two_sessions: Session
) -> None:
    superseded(db, two_sessions)
    with TuningDatabase(place, read_only=True) as reader:
        assert reader.prune(dry_run=True).counts == {"measurement": 1}
        with pytest.raises(DatabaseError, match="is open read-only"):
            reader.prune()


def test_a_deletion_that_is_interrupted_never_happened(
    db: TuningDatabase, two_sessions: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    superseded(db, two_sessions)
    before = everything(db)
    remove = removal.remove

    def interrupt(*args: Any) -> None:
        remove(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(removal, "remove", interrupt)
    with pytest.raises(KeyboardInterrupt):
        db.prune()
    assert everything(db) == before
    monkeypatch.undo()
    assert db.prune().counts == {"measurement": 1}


def test_records_that_are_not_deleted_are_noticed(
    db: TuningDatabase, two_sessions: Session
) -> None:
    if "://" in db.location:
        pytest.skip("the trigger is of SQLite")
    superseded(db, two_sessions)
    db.put(schedule(32))
    before = everything(db)
    with db._layers[0].writing() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER t BEFORE DELETE ON schedule BEGIN SELECT RAISE(IGNORE); END"
        )
    with pytest.raises(DatabaseError):
        db.prune()
    assert everything(db) == before, "all or nothing"


def test_a_database_that_is_deleted_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    with TuningDatabase(path) as db:
        fill(db)
        db.put(*verified(8, 1.0))
        db.close()
        for file in tmp_path.iterdir():
            file.unlink()
        with pytest.raises(DatabaseError):
            db.prune()
