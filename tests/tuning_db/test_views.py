"""The views for people: they agree with the database's own queries, and only ours are accepted."""

from __future__ import annotations

import dataclasses
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from tilewright import open_run
from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    Measurement,
    Pin,
    TargetRecord,
    Toolchain,
    TuningDatabase,
    Workload,
    schema,
)
from tilewright.tuning_db.confirm import Wanted
from tilewright.tuning_db.connect import BUSY_TIMEOUT
from tilewright.tuning_db.lookup import choices
from tilewright.tuning_db.schema import _migrate
from tilewright.tuning_db.tables import HEAD
from tilewright.tuning_db.usable import fastest
from tilewright.tuning_db.views import VIEWS

from ..long import examples
from ..refusals import refused
from .samples import (
    CPU,
    LLVM,
    MATMUL,
    NOON,
    OLD_LLVM,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    WIDER,
    fill,
    measurement,
    schedule,
    timed,
    verification,
    verified,
    winograd,
)

KEPT = Path(__file__).parent / "kept" / "tuned.sqlite"
Rows = list[dict[str, Any]]


def rows(db: TuningDatabase, view: str) -> Rows:
    """What the view in the database has."""
    with db._layers[0].reading() as connection:
        found = connection.exec_driver_sql(f"SELECT * FROM {view} ORDER BY id")
        return [dict(row) for row in found.mappings()]


def check_best(db: TuningDatabase) -> Rows:
    """Compare the view with the fastest usable measurement of everything that there is."""
    found = rows(db, "best")
    by_key = {(r["workload_id"], r["target_id"], r["compiler"]): r for r in found}
    assert len(by_key) == len(found)
    targets = {t.comparable: t for t in db.records(TargetRecord)}
    compilers = {t.generation: t for t in db.records(Toolchain)}
    expected = []
    for workload in db.records(Workload):
        for target in targets.values():
            for compiler in compilers.values():
                best = db.best(workload.id, target, compiler)
                if best is None or best.measurement is None:
                    continue
                wanted = Wanted(workload.id, target.comparable, compiler)
                with db._layers[0].reading() as connection:
                    if best.pinned:
                        only = dataclasses.replace(wanted, schedule=best.schedule.id)
                        entry = fastest(connection, only)
                        lasting = [] if entry is None else [entry[0]]
                    else:
                        lasting = _lasting(connection, wanted)
                assert lasting
                expected.append((lasting[0].id, lasting[0].seconds, best.pinned))
                if not best.comparison:
                    assert lasting[0] == best.measurement
    assert [(r["id"], r["seconds"], bool(r["pinned"])) for r in found] == sorted(expected)
    return found


def _lasting(connection: Connection, wanted: Wanted) -> list[Measurement]:
    """What competes, the fastest first; of finals all that took part in the most rounds."""
    lasting = []
    for choice in choices([connection], wanted):
        finalists = [m for m, _ in choice.finalists]
        most = max(len(m.samples) for m in finalists)
        lasting += [m for m in finalists if len(m.samples) == most]
    return sorted(lasting, key=lambda m: (m.seconds, m.id))


def test_of_a_database_that_older_versions_tuned_into(tmp_path: Path) -> None:
    with TuningDatabase(shutil.copy(KEPT, tmp_path / "kept.db")) as db:
        assert len(check_best(db)) == 10
        assert {r["id"] for r in rows(db, "trials")} == {m.id for m in db.measurements()}
        assert sum(r["measurements"] for r in rows(db, "sessions")) == 21


def test_what_was_measured_again_later_is_superseded(db: TuningDatabase) -> None:
    first, again, other = measurement(8, 1.0), measurement(8, 3.0, after=60), measurement(16, 2.0)
    db.put(schedule(8), schedule(16), first, again, other)
    seen = {r["id"] for r in rows(db, "trials") if r["superseded"]}
    assert seen == db.superseded([m.id for m in db.measurements()]) == {first.id}
    assert db.superseded([again.id, other.id]) == set()


def test_best(db: TuningDatabase) -> None:
    fast, slow = measurement(8, 1.0), measurement(16, 2.0)
    db.put(schedule(8), schedule(16), fast, slow, verification(16))
    assert [r["id"] for r in check_best(db)] == [slow.id], "the other is not verified"
    db.put(verification(8), *winograd(2, 0.5, 1e-3))
    assert [r["id"] for r in check_best(db)] == [fast.id], "the fastest exact one"
    db.put(*verified(8, 0.25, toolchain=OLD_LLVM), *verified(8, 0.125, target=SLOW_CPU))
    db.put(*verified(8, 1.5, workload=WIDER), measurement(32, None), schedule(32))
    assert len(check_best(db)) == 4
    again = measurement(8, 3.0, after=60)
    db.put(again)
    assert slow.id in {r["id"] for r in check_best(db)}, "the fastest was superseded"
    db.put(dataclasses.replace(verification(16), passed=False, max_error=1.0))
    assert again.id in {r["id"] for r in check_best(db)}, "a check failed"
    inexact, *_ = winograd(2, 0.5, 1e-3)
    db.pin(MATMUL.id, SAME_CPU, inexact.id)
    (pinned,) = [r for r in check_best(db) if r["pinned"]]
    assert (pinned["seconds"], pinned["inexact"]) == (0.5, "winograd")
    db.pin(MATMUL.id, SAME_CPU, schedule(32).id, unverified=True)
    assert not any(r["pinned"] for r in check_best(db)), "nothing usable was measured of it"


def test_finals_replace_earlier_times(db: TuningDatabase) -> None:
    db.put(*(record for n in (8, 16, 32) for record in verified(n, n / 8)))
    finals = [timed(schedule(n), n, after=60)[0] for n in (16, 32)]
    db.put(*finals)
    (row,) = check_best(db)
    assert (row["id"], row["seconds"]) == (finals[0].id, finals[0].seconds)


def test_of_finalists_those_that_stayed_count(db: TuningDatabase) -> None:
    """The machine was slower in the rounds after one of them dropped out."""
    early, _ = timed(schedule(8), 1.02, (1.0,) * 6, after=60)
    best, _ = timed(schedule(16), 1.0, (1.0,) * 6 + (1.5,) * 30, after=60)
    other, _ = timed(schedule(32), 1.01, (1.0,) * 6 + (1.5,) * 30, after=60)
    db.put(*(record for n in (8, 16, 32) for record in verified(n, n / 8)), early, best, other)
    assert median(early.samples) < median(best.samples)
    found = db.best(MATMUL.id, CPU)
    assert found is not None
    (row,) = check_best(db)
    assert [row["id"], row["seconds"]] == [best.id, best.seconds]
    assert found.measurement == best


_CREATED = st.integers(0, 3)
_MEASUREMENTS = st.lists(
    st.tuples(
        st.sampled_from([8, 16, 32]),
        st.sampled_from([None, 1.0, 2.0, 3.0, 4.0]),
        st.integers(0, 3),
        st.sampled_from([CPU, SAME_CPU, SLOW_CPU]),
        st.sampled_from([LLVM, OLD_LLVM]),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=examples(40))
@given(_MEASUREMENTS, st.sets(st.sampled_from([8, 16, 32])), st.sampled_from([None, 8, 16]))
def test_best_of_any_database(
    measured: list[tuple[Any, ...]], inexact: set[int], pinned: int | None
) -> None:
    other = dataclasses.replace(SESSION, nonce="other")
    with TuningDatabase("sqlite://") as db:
        fill(db)
        db.put(other)
        for tile in (8, 16, 32):
            names = "winograd" if tile in inexact else ""
            db.put(dataclasses.replace(schedule(tile), inexact=names))
        for tile, seconds, after, target, toolchain, in_other in measured:
            record = measurement(tile, seconds, target=target, toolchain=toolchain)
            db.put(
                dataclasses.replace(
                    record,
                    created=NOON + timedelta(seconds=after),
                    session=other.id if in_other else SESSION.id,
                ),
                verification(tile, after < 3, target=target, toolchain=toolchain),
            )
        if pinned is not None:
            db.put(Pin(MATMUL.id, CPU.id, schedule(pinned).id, NOON))  # verified or not
        check_best(db)


def test_trials_and_sessions(db: TuningDatabase) -> None:
    fast, again = measurement(8, 1.0), measurement(8, 2.0, after=1)
    failed = measurement(16, None, after=2)
    db.put(schedule(8), schedule(16), verification(8), fast, again, failed)
    trials = {r["id"]: r for r in rows(db, "trials")}
    assert {id: (bool(r["verified"]), bool(r["superseded"])) for id, r in trials.items()} == {
        fast.id: (True, True),
        again.id: (True, False),
        failed.id: (False, False),
    }
    row = trials[fast.id]
    assert (row["workload"], row["shape"], row["target"]) == (MATMUL.name, MATMUL.shape, CPU.text)
    assert (row["compiler"], row["rules"], row["outcome"]) == ("llvm 22", "tiling/random", "ok")
    assert row["gflops"] == pytest.approx(MATMUL.flops / 1e9)
    assert (trials[failed.id]["error"], trials[failed.id]["gflops"]) == ("signal 11", None)
    moment = NOON + timedelta(seconds=1.5)
    execute(db, f"UPDATE session SET heartbeat = '{moment:%Y-%m-%d %H:%M:%S.%f}'")
    (session,) = rows(db, "sessions")
    assert session["id"] == SESSION.id
    counts = ("budget_trials", "trials", "measurements", "failures", "fastest")
    assert [session[name] for name in counts] == [64, 2, 3, 1, 1.0]
    assert session["elapsed"] == pytest.approx(1.5, abs=0.01)


def test_trials_are_what_the_budget_paid_for(db: TuningDatabase) -> None:
    """Older versions did not record what that was."""

    def counted() -> list[int]:
        (session,) = rows(db, "sessions")
        (read,) = open_run(db).pictures.pictures.values()
        return [session["trials"], db.trials(SESSION.id), len(read.trials)]

    tiles = {n: schedule(n) for n in (2, 4, 8, 16, 32)}
    old = [measurement(2, 1.0), measurement(4, None), measurement(2, 1.0, after=1)]
    compared = [
        dataclasses.replace(measurement(n, 1.0), created=NOON + timedelta(seconds=2))
        for n in (4, 8)
    ]
    db.put(*tiles.values(), *old, *compared)
    assert counted() == [2] * 3, "neither what was measured again nor finals"
    db.put(dataclasses.replace(measurement(16, 1.0, after=3), trial=True))
    db.put(dataclasses.replace(measurement(32, 1.0, after=4), trial=False))
    assert counted() == [3] * 3
    db.put(dataclasses.replace(measurement(8, 1.0, after=5), trial=True))
    assert counted() == [4] * 3


def dialect(db: TuningDatabase) -> str:
    return db._layers[0].engine.dialect.name


def execute(db: TuningDatabase, statement: str) -> None:
    with db._layers[0].writing(migrating=True) as connection:
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_another_text_is_refused(db: TuningDatabase, place: str, name: str) -> None:
    execute(db, f"DROP VIEW {name}")
    call = "hex(randomblob(9))" if dialect(db) == "sqlite" else "foreign_function()"
    if dialect(db) != "sqlite":
        body = "LANGUAGE sql AS 'SELECT 1'"
        execute(db, f"CREATE FUNCTION foreign_function() RETURNS integer {body}")
    execute(db, f"CREATE VIEW {name} AS SELECT id, {call} AS seconds FROM measurement")
    for options in ({}, {"read_only": True}):
        told = f"has a view '{name}' in the place of view {name}; Tilewright makes another"
        with pytest.raises(DatabaseError, match=told) as refused:
            TuningDatabase(place, **options)  # type: ignore[arg-type]
        assert f"DROP VIEW {name}" in str(refused.value)


def test_a_view_of_other_tables_is_refused(db: TuningDatabase, place: str) -> None:
    execute(db, "DROP VIEW best")
    execute(db, "CREATE TABLE hidden (id TEXT)")
    execute(db, "CREATE VIEW best AS SELECT m.id FROM measurement AS m, hidden")
    with refused(DatabaseError, "view", "best", "in the place of"):
        TuningDatabase(place)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("TABLE best (id TEXT)", "table"),
        ("INDEX best ON measurement (seconds)", "index"),
        ("SEQUENCE best", "sequence"),
        ("TYPE best AS (id TEXT)", "type"),
    ],
)
def test_what_has_the_name_of_a_view_is_refused(
    db: TuningDatabase, place: str, made: str, kind: str
) -> None:
    if dialect(db) == "sqlite" and kind != "table":
        pytest.skip("SQLite has none, or names the index itself when the view is made")
    execute(db, "DROP VIEW best")
    execute(db, f"CREATE {made}")
    with refused(DatabaseError, "best", "in the place of", "view", kind) as told:
        TuningDatabase(place)
    assert f"DROP {kind.upper()} best" in str(told.value)


def test_what_runs_when_a_view_is_written_is_refused(db: TuningDatabase, place: str) -> None:
    if dialect(db) == "sqlite":
        execute(db, "CREATE TRIGGER t INSTEAD OF INSERT ON best BEGIN SELECT 1; END")
    else:
        execute(db, "CREATE RULE t AS ON INSERT TO best DO INSTEAD NOTHING")
    kind = "trigger" if dialect(db) == "sqlite" else "rule"
    with refused(DatabaseError, "t", "on", "view", "best", "none", kind):
        TuningDatabase(place)


def test_a_view_that_was_dropped_is_made_again(db: TuningDatabase, place: str) -> None:
    """When the database is opened for writing; readers do without."""
    execute(db, "DROP VIEW best")
    execute(db, "DROP VIEW sessions")
    with TuningDatabase(place, read_only=True) as reading:
        assert reading.records(Workload) != []
        with pytest.raises(DatabaseError, match="best"):
            rows(reading, "best")
    with TuningDatabase(place) as again:
        assert again.put(*verified(8, 1.0)) == 3
        assert [r["seconds"] for r in check_best(again)] == [1.0]
        assert len(rows(again, "sessions")) == 1


def test_what_hinders_the_views_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of ours reads them."""
    place = f"sqlite:///{tmp_path}/tuning.db"
    with TuningDatabase(place) as db:
        fill(db)
        execute(db, "DROP VIEW best")
        with db._layers[0].writing(), TuningDatabase(f"{place}?timeout=0.1") as waiting:
            assert "has no view best any more" in caplog.text
            assert "is locked" in caplog.text
            assert waiting.records(Workload) != []
        TuningDatabase(place).close()
        assert rows(db, "best") == []


def test_nobody_waits_long_to_make_views_again(
    db: TuningDatabase, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another writer keeps the database; the writes that follow wait for it as ever."""
    execute(db, "DROP VIEW best")
    with db._layers[0].writing():
        begun = time.monotonic()
        again = TuningDatabase(place)
        assert time.monotonic() - begun < BUSY_TIMEOUT / 2
    assert "has no view best any more" in caplog.text
    with again, ThreadPoolExecutor(1) as other:
        with db._layers[0].writing():
            later = other.submit(again.put, *verified(8, 1.0))
            time.sleep(4 * schema._CONVENIENCE_TIMEOUT)
            assert not later.done()
        assert later.result() == 3


@pytest.mark.parametrize("relation", ["TABLE best (id TEXT)", "VIEW best AS SELECT 1 AS id"])
def test_what_was_there_before_the_views_is_kept(
    db: TuningDatabase, place: str, relation: str
) -> None:
    """A relation of somebody's own that has the name of a view is in the way of the migration."""
    for name in VIEWS:
        execute(db, f"DROP VIEW {name}")
    execute(db, f"CREATE {relation}")
    added = {"session": ("elapsed", "drift", "untuned"), "measurement": ("elapsed", "trial")}
    for table, columns in added.items():
        for column in columns:
            execute(db, f"ALTER TABLE {table} DROP COLUMN {column}")
    execute(db, "DROP INDEX ix_measurement_session_created")
    execute(db, "CREATE INDEX ix_measurement_session ON measurement (session)")
    execute(db, "UPDATE tuning_db_revision SET version_num = '0007'")
    with pytest.raises(DatabaseError, match=f"migrated from revision 0007 to {HEAD}") as refused:
        TuningDatabase(place)
    assert "remove it first" in str(refused.value)
    execute(db, f"DROP {relation.split(maxsplit=1)[0]} best")
    with TuningDatabase(place) as again:
        assert rows(again, "best") == []


def test_a_later_migration_makes_the_views_anew(db: TuningDatabase) -> None:
    execute(db, "DROP VIEW best")
    execute(db, "CREATE VIEW best AS SELECT id FROM measurement")  # as an older version had it
    with db._layers[0].writing() as connection:
        _migrate(connection, HEAD)
    db.put(*verified(8, 1.0))
    assert [r["seconds"] for r in check_best(db)] == [1.0]
