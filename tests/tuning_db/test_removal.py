"""Deleting: atomic, of what was asked for and what depends on it, and of nothing that counts."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    Environment,
    Measurement,
    RemovalReason,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
    Verification,
    Workload,
    removal,
)
from tilewright.tuning_db.tables import TABLES
from tilewright.tuning_db.values import KINDS

from .samples import (
    CPU,
    HOST,
    LLVM,
    MACHINE,
    MATMUL,
    NOON,
    OLD_LLVM,
    ONE_OF_EACH,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    WIDER,
    Clock,
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


# Delete


def test_a_record_goes_with_what_refers_to_it(db: TuningDatabase, clock: Clock) -> None:
    clock.now = NOON + LATER
    db.put(*verified(8, 1.0), *verified(16, 2.0), MACHINE)
    db.pin(MATMUL.id, CPU, schedule(8).id)
    before = everything(db)
    planned = db.delete(schedule(8).id[:6], dry_run=True)
    assert not planned.done
    assert everything(db) == before
    assert planned.counts == {"schedule": 1, "verification": 1, "measurement": 1, "pin": 1}
    assert planned.reasons[RemovalReason.ASKED] == {"schedule": (schedule(8).id,)}
    removed = db.delete(schedule(8).id)
    assert removed == dataclasses.replace(planned, done=True)
    assert str(removed).splitlines() == [
        f"deleted from {db.location}: 1 schedule, 1 verification, 1 measurement, 1 pin",
        "  1 schedule: asked for",
        "  1 verification, 1 measurement, 1 pin: refers to another one of them",
    ]
    after = everything(db)
    assert {
        kind: len(before[kind] - after[kind]) for kind in KINDS if before[kind] != after[kind]
    } == (removed.counts)
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert best.seconds == 2.0
    with pytest.raises(DatabaseError, match=f"there is no record {schedule(8).id[:12]} in"):
        db.delete(schedule(8).id)


@pytest.mark.parametrize(
    ("id", "gone"),
    [
        (MATMUL.id, {"workload", "session", "measurement", "verification", "pin"}),
        (CPU.id, {"target", "machine", "session", "measurement", "verification", "pin"}),
        (LLVM.id, {"toolchain", "measurement", "verification"}),
        (HOST.id, {"environment", "measurement"}),
        (SESSION.id, {"session", "measurement"}),
        (MACHINE.id, {"machine"}),
        (measurement(8, 1.0).id, {"measurement"}),
    ],
)
def test_what_goes_with_each_kind(
    db: TuningDatabase, clock: Clock, id: str, gone: set[str]
) -> None:
    clock.now = NOON + LATER
    db.put(*verified(8, 1.0), MACHINE)
    db.pin(MATMUL.id, CPU, schedule(8).id)
    assert set(db.delete(id).counts) == gone


def test_several_at_once_or_none(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 2.0))
    before = everything(db)
    with pytest.raises(DatabaseError, match="there is no record 00000000"):
        db.delete(measurement(8, 1.0).id, "00000000")
    assert everything(db) == before
    removed = db.delete(measurement(8, 1.0).id, measurement(16, 2.0).id, measurement(8, 1.0).id)
    assert removed.counts == {"measurement": 2}
    assert db.measurements() == []
    assert db.delete().counts == {}
    assert str(db.delete()) == f"there is nothing to delete in {db.location}"


def test_a_check_that_is_deleted_no_longer_counts(db: TuningDatabase) -> None:
    failed = dataclasses.replace(verification(8), passed=False, max_error=2.0)
    db.put(*verified(8, 1.0), failed)
    assert db.best(MATMUL.id, CPU) is None
    db.delete(failed.id)
    assert db.best(MATMUL.id, CPU) is not None
    db.delete(verification(8).id)
    assert db.best(MATMUL.id, CPU) is None


def test_what_a_running_session_uses_is_kept(db: TuningDatabase, clock: Clock) -> None:
    db.put(*verified(8, 1.0))
    for id in (SESSION.id, MATMUL.id, CPU.id):
        for dry_run in (True, False):
            told = f"session {SESSION.id[:12]} runs, in process 4711 on elsewhere: it is not"
            with pytest.raises(DatabaseError, match=told):
                db.delete(id, dry_run=dry_run)
    assert len(db.measurements()) == 1
    clock.tick(61)
    assert db.delete(SESSION.id).counts == {"session": 1, "measurement": 1}


def test_what_was_deleted_comes_back_by_a_merge(
    db: TuningDatabase, new_place: Callable[[], str]
) -> None:
    db.put(*verified(8, 1.0))
    with TuningDatabase(new_place()) as copy:
        copy.merge(db)
        db.delete(measurement(8, 1.0).id)
        assert db.measurements() == []
        assert db.merge(copy)["measurement"] == 1
    assert db.measurements() == [measurement(8, 1.0)]
    assert db.best(MATMUL.id, CPU) is not None


def test_layers_stay_as_they_are(new_place: Callable[[], str], clock: Clock) -> None:
    team_place = new_place()
    with TuningDatabase(team_place, clock=clock) as team:
        fill(team)
        team.put(*verified(8, 1.0), *verified(16, 2.0))
    with TuningDatabase(new_place(), layers=[team_place], clock=clock) as mine:
        fill(mine)
        mine.put(*verified(8, 1.0))
        with pytest.raises(DatabaseError, match="is of the layer .*, which is read-only: it is"):
            mine.delete(measurement(16, 2.0).id[:10])
        removed = mine.delete(measurement(8, 1.0).id)
        assert removed.counts == {"measurement": 1}
        assert len(removed.layers) == 1
        assert str(removed).splitlines()[-1].endswith("has some of them too, and is read-only")
        assert len(mine.measurements()) == 2, "the layer still has it"


def test_a_read_only_database_says_what_would_be_deleted(place: str, db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0))
    with TuningDatabase(place, read_only=True) as reader:
        assert reader.delete(measurement(8, 1.0).id, dry_run=True).counts == {"measurement": 1}
        with pytest.raises(DatabaseError, match="is open read-only"):
            reader.delete(measurement(8, 1.0).id)
        with pytest.raises(DatabaseError, match="is open read-only"):
            reader.prune()


# Prune


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


def test_compilers_that_measure_nothing_any_more(db: TuningDatabase, clock: Clock) -> None:
    db.put(*verified(8, 1.0, toolchain=OLD_LLVM), *verified(16, 2.0))
    newer = measurement(16, 2.0, after=100)
    db.put(newer)
    since = NOON + timedelta(seconds=50)
    with pytest.raises(DatabaseError, match="runs, and may use any compiler"):
        db.prune(unused_since=since)
    clock.tick(61)
    assert db.prune(unused_since=NOON - LATER).counts == {}, "it was used since"
    planned = db.prune(unused_since=since, dry_run=True)
    assert planned.reasons[RemovalReason.OLD_COMPILER] == {"toolchain": (OLD_LLVM.id,)}
    assert planned.reasons[RemovalReason.UNUSED] == {"schedule": (schedule(8).id,)}
    clock.tick(1e6)
    assert db.prune(unused_since=clock.now) == dataclasses.replace(planned, done=True)
    assert newer in db.measurements(), "of the compiler that was used last"


def test_damaged_records_go_if_asked_to(db: TuningDatabase, clock: Clock) -> None:
    clock.tick(61)
    db.put(*verified(8, 1.0), *verified(16, 2.0))
    with db._layers[0].writing() as connection:
        connection.exec_driver_sql(
            f"UPDATE schedule SET trace = '[]' WHERE id = '{schedule(8).id}'"
        )
    assert db.prune(dry_run=True).counts == {}
    removed = db.prune(damaged=True)
    assert removed.reasons == {
        RemovalReason.DAMAGED: {"schedule": (schedule(8).id,)},
        RemovalReason.DEPENDENT: {
            "verification": (verification(8).id,),
            "measurement": (measurement(8, 1.0).id,),
        },
    }
    assert [s.id for s in db.records(ScheduleRecord)] == [schedule(16).id]


@pytest.mark.parametrize("column", ["id", "reference"])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_that_are_no_text_go_with_the_damaged(kind: str, column: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    with TuningDatabase(path) as db:
        db.put(*ONE_OF_EACH)
    broken = "CAST(x'6162ff6364' AS TEXT)"
    name = "id" if column == "id" else next(iter(_references(kind)), "id")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {kind} SET {name} = {broken}")
    with TuningDatabase(path) as db:
        planned = db.prune(damaged=True, dry_run=True)
        assert kind in planned.reasons[RemovalReason.DAMAGED]
        db.prune(dry_run=True)
        assert db.prune(damaged=True).counts == planned.counts
        assert RemovalReason.DAMAGED not in db.prune(damaged=True).reasons
    with closing(sqlite3.connect(path)) as connection:
        left = connection.execute(f"SELECT 1 FROM {kind} WHERE {name} = {broken}").fetchall()
    assert left == []


def _references(kind: str) -> list[str]:
    return [c.name for c in TABLES[kind].columns if c.foreign_keys]


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


@settings(max_examples=40)
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


# Numbers and differences


def test_stats(db: TuningDatabase, clock: Clock) -> None:
    empty = db.stats()
    assert (empty.first, empty.last, empty.outcomes) == (None, None, {})
    db.put(*verified(8, 1.0), measurement(8, None, after=60, target=SLOW_CPU))
    clock.tick(30)
    db.finish_session(SESSION.id)
    stats = db.stats()
    assert (stats.records["measurement"], stats.records["workload"]) == (2, 3)
    assert stats.outcomes == {"ok": 1, "crash": 1}
    assert stats.targets == {CPU.text: 1, SLOW_CPU.text: 1}
    assert stats.compilers == {"llvm 22": 2}
    assert (stats.first, stats.last) == (NOON, NOON + timedelta(seconds=60))
    assert stats.seconds == 30.0
    assert stats.size > 4096
    assert 0 <= stats.free < stats.size
    assert stats.location == db.location


def test_compact(db: TuningDatabase, place: str) -> None:
    if not place.startswith("sqlite"):
        with pytest.raises(DatabaseError, match="is no SQLite file: it gives space back by itself"):
            db.compact()
        return
    db.put(
        schedule(8),
        *(
            dataclasses.replace(measurement(8, 1.0, after=n), samples=(1.0,) * 999)
            for n in range(200)
        ),
    )
    kept = measurement(8, 1.0, after=500)
    db.put(kept)
    db.delete(*(m.id for m in db.measurements() if m != kept))
    assert db.stats().free > 0
    before, after = db.compact()
    assert after < before / 4
    assert db.stats().size == after
    assert db.stats().free == 0
    assert db.measurements() == [kept]


def test_compact_in_memory() -> None:
    with TuningDatabase("sqlite://") as db:
        db.put(MATMUL)
        db.compact()
        assert db.records(Workload) == [MATMUL]


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
    told = f"session {SESSION.id[:12]} and schedule {schedule(8).id[:12]} are of different kinds"
    with pytest.raises(DatabaseError, match=told):
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
        other.delete(measurement(8, 1.0).id)
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


def test_a_pin_of_nothing_is_gone_with_its_schedule(db: TuningDatabase) -> None:
    db.put(schedule(8))
    db.pin(WIDER.id, CPU, schedule(8).id, unverified=True)
    db.delete(schedule(8).id)
    assert db.best(WIDER.id, CPU) is None
    assert db.records(Verification) == []


# Faults


def test_two_delete_at_once(db: TuningDatabase, place: str) -> None:
    """One of them deletes a record, the other finds none; each is whole."""
    db.put(schedule(8), verification(8), *(measurement(8, 1.0, after=n) for n in range(20)))
    ids = [m.id for m in db.measurements()]
    outcomes: list[str] = []

    def delete() -> None:
        with TuningDatabase(place) as own:
            for id in ids:
                try:
                    own.delete(id)
                except DatabaseError as error:
                    outcomes.append(str(error).partition(" in ")[0])
                else:
                    outcomes.append("deleted")

    threads = [threading.Thread(target=delete) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [
        *["deleted"] * 20,
        *sorted(f"there is no record {i[:12]}" for i in ids),
    ]
    assert db.measurements() == []


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


def test_a_deletion_that_is_interrupted_never_happened(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.put(*verified(8, 1.0))
    before = everything(db)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(removal, "verify", interrupt)
    with pytest.raises(KeyboardInterrupt):
        db.delete(schedule(8).id)
    assert everything(db) == before
    monkeypatch.undo()
    assert db.delete(schedule(8).id).done


def test_records_that_are_not_deleted_are_noticed(db: TuningDatabase) -> None:
    if "://" in db.location:
        pytest.skip("the trigger is of SQLite")
    db.put(*verified(8, 1.0))
    with db._layers[0].writing() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER t BEFORE DELETE ON verification BEGIN SELECT RAISE(IGNORE); END"
        )
    with pytest.raises(DatabaseError, match="did not delete all: 0 of 1 records of kind verif"):
        db.delete(schedule(8).id)
    assert len(db.measurements()) == 1, "all or nothing"


def test_a_database_that_is_deleted_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    with TuningDatabase(path) as db:
        fill(db)
        db.put(*verified(8, 1.0))
        db.close()
        for file in tmp_path.iterdir():
            file.unlink()
        for call in (db.stats, db.prune, db.compact, partial(db.delete, "aaaa")):
            with pytest.raises(DatabaseError):
                call()


def test_a_deletion_that_fails_half_way_deletes_nothing(tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "small.db") as db:
        fill(db)
        db.put(schedule(8), *(measurement(8, 1.0, after=n) for n in range(50)))
        before = everything(db)
        db.close()

        @event.listens_for(db._layers[0].engine, "connect")
        def limit(connection: sqlite3.Connection, _: object) -> None:
            connection.set_authorizer(refuse)

        def refuse(action: int, table: str | None, *_: object) -> int:
            deleting = action == sqlite3.SQLITE_DELETE and table == "schedule"
            return sqlite3.SQLITE_DENY if deleting else sqlite3.SQLITE_OK

        with pytest.raises(DatabaseError):
            db.delete(schedule(8).id)
    with TuningDatabase(tmp_path / "small.db") as db:
        assert everything(db) == before
