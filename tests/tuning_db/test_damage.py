"""Databases that somebody else may have written: what is damaged never wins, and is named.

One bad record does not make the others unusable: it is set aside with a warning where many are
read, and refused by name where it is asked for, merged or exported.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.base.text import short_id
from tilewright.tuning_db import (
    Machine,
    Measurement,
    Pin,
    Reason,
    ScheduleRecord,
    TargetRecord,
    TuningDatabase,
    Verification,
    Workload,
)
from tilewright.tuning_db.codec import LONGEST_ROW
from tilewright.tuning_db.values import KINDS

from ..refusals import refused
from .samples import (
    BASE,
    CPU,
    HOST,
    LLVM,
    MACHINE,
    MATMUL,
    NOON,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    WIDER,
    Clock,
    measurement,
    schedule,
    verification,
    verified,
)
from .test_faults import child, said

Place = Callable[[], str]
GOOD, BAD = measurement(8, 2.0), measurement(16, 1.0)


def execute(db: TuningDatabase, statement: str, *values: object) -> None:
    """Change a database as somebody would who has other tools."""
    with db._layers[0].writing(migrating=True) as connection:
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        connection.exec_driver_sql(statement.replace("?", mark), values)


@pytest.fixture
def two(db: TuningDatabase) -> TuningDatabase:
    """A database with `GOOD`, and `BAD`, which is faster and is going to be damaged."""
    db.put(*verified(8, 2.0), *verified(16, 1.0))
    return db


DAMAGE = {
    "a negative time": ("measurement", "seconds = -1", ""),
    "no time at all": ("measurement", "seconds = 0", ""),
    "a time that no call takes": ("measurement", "seconds = 1e-15", ""),
    "another time": ("measurement", "seconds = 0.5", "seconds=0.5, and the median of its samples"),
    "no number": ("measurement", "seconds = 1e-9, samples = '[\"a\"]'", "measurement.samples[0]: "),
    "other samples": ("measurement", "samples = '[1.0]'", "its content has the id"),
    "no samples": ("measurement", "samples = '{}'", "measurement.samples: "),
    "samples that are no JSON": ("measurement", "samples = '[NaN]'", "not valid JSON"),
    "another host": ("measurement", "environment = '{other}'", "its content has the id"),
    "a text for an outcome": ("measurement", "outcome = 'fine'", "'fine'"),
    "another moment": ("measurement", "created = '2026-03-01 12:30:00.000000'", "has the id"),
}
SQLITE_DAMAGE = {
    "an endless time": ("measurement", "seconds = 9e999", ""),
    "an endless negative time": ("measurement", "seconds = -9e999", ""),
    "no time": ("measurement", "seconds = NULL", ""),
    "a text for a time": ("measurement", "seconds = 'soon'", ""),
    "a blob for a time": ("measurement", "seconds = x'00'", ""),
    "a text for a date": ("measurement", "created = 'today'", "expected a time, found 'today'"),
    "a date that there is not": ("measurement", "created = '2026-99-99 00:00:00.000000'", "a time"),
    "a date of another form": ("measurement", "created = '2026-03-01T12:00:00+14:00'", "a time"),
    "a number for a date": ("measurement", "created = 1e300", "expected a time"),
    "a blob for a text": ("measurement", "samples = x'5b315d'", "measurement.samples: "),
    "bytes that are no UTF-8": ("measurement", "samples = CAST(x'ff' AS TEXT)", "not valid JSON"),
    "a NUL": ("measurement", "feature_version = 'a' || char(0)", "has a NUL character"),
}


def damage(db: TuningDatabase, how: str) -> str:
    """Change `BAD`, and say what is told about it."""
    table, change, told = {**DAMAGE, **SQLITE_DAMAGE}[how]
    other = dataclasses.replace(HOST, facts={"host": "other"})
    db.put(other)
    change = change.replace("{other}", other.id).replace("%", "%%")
    execute(db, f"UPDATE {table} SET {change} WHERE id = ?", BAD.id)
    return told


@pytest.fixture(params=[*DAMAGE, *SQLITE_DAMAGE])
def how(request: pytest.FixtureRequest, place: str) -> str:
    """A way to damage a measurement, of those that the backend lets happen."""
    if request.param in SQLITE_DAMAGE and not place.startswith("sqlite"):
        pytest.skip("columns of PostgreSQL hold nothing but their type")
    return str(request.param)


def test_of_a_damaged_record_the_next_best_is_the_choice(
    two: TuningDatabase, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = damage(two, how)
    best = two.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert (best.schedule, best.measurement) == (schedule(8), GOOD)
    # What SQL leaves out already is not looked at.
    assert len(caplog.messages) <= 1
    assert all(BAD.id[:12] in text and told in text for text in caplog.messages)
    story = two.explain(MATMUL, CPU, LLVM)
    assert story.best == best
    (refused,) = story.refused
    assert (refused.reason, refused.examples) == (Reason.DAMAGED, (BAD.id,))
    assert told in refused.detail
    assert "it is damaged" in str(story)


@pytest.mark.part(6)
def test_damaged_records_are_left_out_of_many_and_named_alone(
    two: TuningDatabase, how: str, new_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    told = damage(two, how)
    everything: list[Callable[[], list[Measurement]]] = [
        two.measurements,
        lambda: two.records(Measurement),
    ]
    for read in everything:
        caplog.clear()
        assert read() == [GOOD]
        (warning,) = caplog.messages
        assert warning.startswith(f"damaged records are set aside: measurement {BAD.id[:12]} in")
    assert [m for m, _ in two.history()] == [GOOD]
    with TuningDatabase(new_place()) as other:
        each: list[Callable[[], object]] = [
            lambda: two.get(Measurement, BAD.id),
            lambda: two.find(BAD.id),
            lambda: two.export_lines(io.StringIO()),
            lambda: other.merge(two),
        ]
        for refuse in each:
            with pytest.raises(DatabaseError) as refused:
                refuse()
            text = str(refused.value)
            assert f"{two.location}: measurement {BAD.id[:12]} is damaged: " in text
            assert told in text
        assert all(other.records(kind) == [] for kind in KINDS.values())


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE schedule SET trace = '[]' WHERE id = '{16}'", "schedule {16} is damaged: its co"),
        (
            "UPDATE schedule SET trace = '[' WHERE id = '{16}'",
            "schedule {16} is damaged: schedule.trace: not val",
        ),
        ("UPDATE schedule SET trace_version = -1 WHERE id = '{16}'", "schedule {16} is damaged"),
        ("DELETE FROM verification WHERE schedule = '{16}'", "no intact check says so"),
        ("UPDATE verification SET passed = NOT passed WHERE schedule = '{16}'", "no intact check"),
        ("UPDATE verification SET max_error = 1 WHERE schedule = '{16}'", "no intact check"),
        ("UPDATE measurement SET comparable = '{slow}'", None),
    ],
)
def test_what_is_derived_is_derived_again(
    two: TuningDatabase, statement: str, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that says it is verified, or comparable, is believed no more than its other records."""
    target = SLOW_CPU if told is None else CPU
    sixteen = schedule(16).id
    text = statement.replace("{16}", sixteen).replace("{slow}", SLOW_CPU.comparable)
    execute(two, text)
    best = two.best(MATMUL.id, target, LLVM)
    assert (best and best.measurement) == (None if told is None else GOOD)
    if told is not None:
        assert told.replace("{16}", sixteen[:12]) in caplog.text
        (refused,) = two.explain(MATMUL, target, LLVM).refused
        assert (refused.reason, refused.examples) == (Reason.DAMAGED, (BAD.id,))


def test_a_target_that_is_not_what_its_id_says(two: TuningDatabase) -> None:
    """Its measurements are nobody's: of which target they were is not known."""
    execute(two, "UPDATE target SET perf = 'mine' WHERE id = ?", CPU.id)
    assert two.best(MATMUL.id, CPU) is None
    with refused(DatabaseError, "target", CPU.id[:12]):
        two.get(TargetRecord, CPU.id)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("rates = '{\"clock\":5.2e9}'", "its content has the id"),
        (
            "rates = '{\"clock\":1e999}'",
            r"machine.rates\['clock'\]: ",
        ),
        ("rates = '{\"\":1.0}'", "machine.rates has the name '', expected an identifier"),
        ("rates = '[1]'", "machine.rates: "),
        ("odd = '[]'", "its content has the id"),
        ("odd = '[1]'", r"machine.odd\[0\]: "),
        ("target = '{slow}'", "its content has the id"),
        ("created = '2026-03-01 12:30:00.000000'", "its content has the id"),
    ],
)
def test_a_damaged_description_is_left_out(
    db: TuningDatabase, change: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = SLOW_CPU if "{slow}" in change else CPU
    bad = dataclasses.replace(MACHINE, rates={"clock": 3e9}, created=NOON + timedelta(1))
    good = dataclasses.replace(MACHINE, target=target.id)
    db.put(good, bad)
    change = change.replace("{slow}", SLOW_CPU.id)
    execute(db, f"UPDATE machine SET {change} WHERE id = ?", bad.id)
    assert db.machine(target.id) == good
    (warning,) = caplog.messages
    assert warning.startswith(f"damaged records are set aside: machine {bad.id[:12]} in")
    with pytest.raises(DatabaseError, match=f"machine {bad.id[:12]} is damaged: .*{told}"):
        db.get(Machine, bad.id)
    assert db.records(Machine) == [good]
    execute(db, "DELETE FROM machine WHERE id = ?", good.id)
    assert db.machine(target.id) is None


def test_many_damaged_records_do_not_hide_the_others(
    db: TuningDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """However many, one call says so once, and names a few."""
    db.put(*verified(8, 2.0))
    for tile in range(100, 200):
        db.put(*verified(tile, 1.0))
    execute(db, "UPDATE measurement SET samples = '[0.5]' WHERE seconds < 2")
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert best.measurement == GOOD
    assert [len(re.findall(r"measurement \w{12} in", t)) for t in caplog.messages] == [3]
    assert "; and 97 more" in caplog.text
    relatives = db.relatives(dataclasses.replace(WIDER, family="f" * 64), CPU)
    assert relatives == []
    story = db.explain(MATMUL, CPU)
    assert sum(g.count for g in story.refused if g.reason is Reason.DAMAGED) == 100


def test_damaged_ones_take_no_part_in_a_comparison(db: TuningDatabase) -> None:
    """Nor do they decide it: the others of it are compared."""
    db.put(*verified(8, 2.0), *verified(16, 1.0), *verified(32, 1.5))
    moment = NOON.replace(minute=30)
    turns = [
        dataclasses.replace(measurement(tile, seconds), created=moment)
        for tile, seconds in ((8, 2.0), (16, 1.0), (32, 1.5))
    ]
    db.put(*turns)
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert [s.schedule for s in best.comparison] == [schedule(t).id for t in (16, 32, 8)]
    execute(db, "UPDATE measurement SET samples = '[1.0]' WHERE id = ?", turns[1].id)
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert [s.schedule for s in best.comparison] == [schedule(t).id for t in (32, 8)]
    execute(db, "DELETE FROM verification WHERE schedule = ?", schedule(32).id)
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert best.measurement == turns[0]


def test_a_damaged_pin_is_an_error_until_it_is_removed(two: TuningDatabase) -> None:
    """A pin is somebody's decision, and not passed over."""
    pin = two.pin(MATMUL.id, CPU, schedule(8).id).pin
    execute(two, "UPDATE pin SET workload = ? WHERE id = ?", WIDER.id, pin.id)
    with refused(DatabaseError, "pin", pin.id[:12]):
        two.best(WIDER.id, CPU)
    assert two.unpin(WIDER.id, CPU)
    assert two.best(WIDER.id, CPU) is None
    two.pin(MATMUL.id, CPU, schedule(8).id)
    execute(two, "UPDATE schedule SET trace = '[]' WHERE id = ?", schedule(8).id)
    with refused(DatabaseError, "schedule", schedule(8).id[:12]):
        two.best(MATMUL.id, CPU)
    two.unpin(MATMUL.id, CPU)
    best = two.best(MATMUL.id, CPU)
    assert best is not None
    assert best.measurement == BAD
    assert two.records(Pin) == []


@pytest.mark.parametrize(
    "damage",
    [
        ("UPDATE pin SET workload = ?", WIDER.id),
        ("UPDATE pin SET target = ?", SAME_CPU.id),
        ("UPDATE pin SET id = ?", "f" * 64),
    ],
    ids=["workload", "target", "id"],
)
def test_pinning_again_repairs_a_damaged_pin(
    two: TuningDatabase, damage: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    pin = two.pin(MATMUL.id, CPU, schedule(8).id).pin
    execute(two, *damage)
    again = two.pin(MATMUL.id, CPU, schedule(8).id)
    if damage[1] != WIDER.id:  # as that of another program it is not read
        assert "damaged records are set aside: pin" in caplog.text
    assert again.replaced is None
    best = two.best(MATMUL.id, CPU)
    assert best is not None
    assert (best.pinned, best.schedule.id) == (True, schedule(8).id)
    assert two.records(Pin) == [again.pin]
    assert two.pinned(WIDER.id, CPU) is None
    assert pin.id == again.pin.id


def test_of_relatives_and_others_damaged_ones_are_left_out(db: TuningDatabase) -> None:
    known = dataclasses.replace(MATMUL, family="f" * 64)
    timed = dataclasses.replace(measurement(64, 3.0), features=(1.0, 2.0), feature_version="1")
    db.put(known, *verified(8, 2.0), *verified(16, 1.0), schedule(64), timed)
    wanted = dataclasses.replace(WIDER, family="f" * 64)
    assert [r.measurement for r in db.relatives(wanted, CPU)] == [BAD, GOOD]
    stranger = dataclasses.replace(WIDER, family="e" * 64)
    assert db.others(stranger, CPU, LLVM, "1") == [timed]
    execute(db, "UPDATE measurement SET samples = '[1.5, 1.5]' WHERE id <> ?", GOOD.id)
    assert [r.measurement for r in db.relatives(wanted, CPU)] == [GOOD]
    assert db.others(stranger, CPU, LLVM, "1") == []


def test_a_damaged_session_is_not_resumed(db: TuningDatabase, clock: Clock) -> None:
    clock.tick(3600)
    assert len(db.unfinished_sessions(MATMUL.id, CPU.id)) == 1
    execute(db, "UPDATE session SET seed = 8")
    assert db.unfinished_sessions(MATMUL.id, CPU.id) == []
    with refused(DatabaseError, "session", SESSION.id[:12]):
        db.resume_session(SESSION.id)


@pytest.mark.parametrize(
    "applies", [{8: None, 16: "no"}, {8: "no", 16: None}, {8: "no", 16: "never"}]
)
def test_what_does_not_apply_is_set_aside(
    two: TuningDatabase, applies: dict[int, str | None]
) -> None:
    reasons = {schedule(tile).id: reason for tile, reason in applies.items()}
    asked: list[str] = []

    def ask(record: ScheduleRecord) -> str | None:
        asked.append(record.id)
        return reasons[record.id]

    best = two.best(MATMUL.id, CPU, LLVM, applies=ask)
    expected = next((s for s in (1.0, 2.0) if not applies[{1.0: 16, 2.0: 8}[s]]), None)
    assert (best and best.seconds) == expected
    # A server is asked again in a transaction, where it takes more than one statement.
    asked = list(dict.fromkeys(asked))
    assert asked == [schedule(t).id for t in (16, 8)][: len(asked)], "in their order, on demand"
    story = two.explain(MATMUL, CPU, LLVM, applies=ask)
    told = {g.detail for g in story.refused if g.reason is Reason.NOT_APPLICABLE}
    assert story.best == best
    assert told == {r for t, r in applies.items() if r and (t == 16 or applies[16])}
    two.pin(MATMUL.id, CPU, schedule(8).id)
    asked.clear()
    best = two.best(MATMUL.id, CPU, LLVM, applies=ask)
    assert best is not None
    assert best.pinned
    assert asked == [], "it is the user's choice"


@pytest.mark.parametrize("error", [KeyError("tile"), ValueError("no"), ZeroDivisionError("by 0")])
def test_errors_of_who_is_asked_are_none_of_the_database(
    two: TuningDatabase, error: Exception
) -> None:
    def ask(record: ScheduleRecord) -> str | None:
        raise error

    for look_up in (partial(two.best, MATMUL.id), partial(two.explain, MATMUL)):
        with pytest.raises(type(error)) as raised:
            look_up(CPU, LLVM, applies=ask)
        assert raised.value is error
    assert two.best(MATMUL.id, CPU, LLVM) is not None


def test_the_size_of_what_is_read_is_bounded(two: TuningDatabase, tmp_path: Path) -> None:
    """Of a row that no record has SQLite reads nothing; other programs are found all the same."""
    if "://" in two.location:
        pytest.skip("PostgreSQL's rows are of its own limits")
    two.put(*verified(8, 3.0, workload=WIDER))
    with closing(sqlite3.connect(two.location)) as raw, raw:
        raw.execute(
            "UPDATE measurement SET samples = CAST(zeroblob(?) AS TEXT) WHERE id = ?",
            (LONGEST_ROW + 1, BAD.id),
        )
    with pytest.raises(DatabaseError):
        two.best(MATMUL.id, CPU)
    best = two.best(WIDER.id, CPU)
    assert best is not None
    assert best.seconds == 3.0


# What runs in a database


SWALLOW = {
    "sqlite": (
        "CREATE TRIGGER swallow BEFORE INSERT ON measurement BEGIN SELECT RAISE(IGNORE); END",
    ),
    "postgresql": (
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER swallow BEFORE INSERT ON measurement FOR EACH ROW "
        "EXECUTE FUNCTION nothing()",
    ),
}


def dialect(db: TuningDatabase) -> str:
    return db._layers[0].engine.dialect.name


def refusal(place: str) -> str:
    """The error that opens of a database raise, in whichever way."""
    said = set()
    for options in ({}, {"read_only": True}, {"create": False}):
        with pytest.raises(DatabaseError) as refused:
            TuningDatabase(place, **options)  # type: ignore[arg-type]
        said.add(str(refused.value))
    with pytest.raises(DatabaseError) as refused:
        TuningDatabase("sqlite://", layers=[place])
    said.add(str(refused.value))
    (text,) = said
    return text


def test_a_trigger_that_swallows_is_refused_and_noticed(db: TuningDatabase, place: str) -> None:
    db.put(schedule(8))
    for statement in SWALLOW[dialect(db)]:
        execute(db, statement)
    with pytest.raises(DatabaseError) as refused:
        db.put(verification(8), measurement(8, 1.0))
    assert "did not keep what was written: of 1 records of kind measurement it has 0" in str(
        refused.value
    )
    assert db.records(Verification) == [], "all or nothing"
    text = refusal(place)
    assert "has a trigger 'swallow' on table measurement; Tilewright makes none" in text
    assert "DROP TRIGGER swallow" in text


def test_a_rule_is_refused(db: TuningDatabase, place: str) -> None:
    if dialect(db) == "sqlite":
        pytest.skip("SQLite has no rules")
    execute(db, "CREATE RULE nothing AS ON INSERT TO measurement DO INSTEAD NOTHING")
    assert "has a rule 'nothing' on table measurement" in refusal(place)


@pytest.mark.parametrize("table", ["measurement", "tuning_db_revision"])
def test_an_endless_view_in_the_place_of_a_table_is_refused(
    db: TuningDatabase, place: str, table: str
) -> None:
    """It is not read: that would not end."""
    execute(db, f"ALTER TABLE {table} RENAME TO hidden")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    if table == "measurement":
        execute(db, f"CREATE VIEW measurement AS {endless} SELECT hidden.* FROM hidden, n")
    else:
        execute(db, f"CREATE VIEW {table} AS {endless} SELECT '0003' AS version_num FROM n")
    assert f"has a view '{table}' in the place of table {table}" in refusal(place)


def test_a_virtual_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    TuningDatabase(path).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        try:
            raw.execute("CREATE VIRTUAL TABLE probe USING rtree(a, b, c)")
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no module for virtual tables")
        raw.execute("DROP TABLE probe")
        raw.execute("DROP TABLE pin")
        raw.execute("CREATE VIRTUAL TABLE pin USING rtree(id, workload, target)")
    assert "has a virtual table 'pin' in the place of table pin" in refusal(str(path))


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "ALTER TABLE pin ADD COLUMN more TEXT",
            "table pin has the further columns more text, and lacks none",
        ),
        (
            "ALTER TABLE environment DROP COLUMN facts",
            "table environment has the further columns none, and lacks facts text",
        ),
        (
            "ALTER TABLE pin RENAME TO pins",
            "table pin has the further columns none, and lacks created",
        ),
    ],
)
def test_other_columns_are_refused(
    db: TuningDatabase, place: str, statement: str, told: str
) -> None:
    execute(db, statement)
    with pytest.raises(DatabaseError, match=told):
        TuningDatabase(place)


def test_columns_of_other_types_are_refused(db: TuningDatabase, place: str) -> None:
    """Of texts the smallest is another than of numbers."""
    if dialect(db) == "sqlite":
        execute(db, "PRAGMA writable_schema = ON")
        typed = "replace(sql, 'seconds DOUBLE', 'seconds TEXT')"
        execute(db, f"UPDATE sqlite_master SET sql = {typed} WHERE name = 'measurement'")
        db.close()
    else:
        execute(db, "DROP VIEW best, sessions, trials")
        execute(db, "ALTER TABLE measurement ALTER COLUMN seconds TYPE text")
    with pytest.raises(DatabaseError):
        TuningDatabase(place)


def test_computed_columns_are_refused(db: TuningDatabase, place: str) -> None:
    stored = "" if dialect(db) == "sqlite" else "STORED"
    execute(db, "ALTER TABLE environment DROP COLUMN facts")
    clause = f"GENERATED ALWAYS AS (id || id) {stored}"
    execute(db, f"ALTER TABLE environment ADD COLUMN facts TEXT {clause}")
    with pytest.raises(DatabaseError):
        TuningDatabase(place)


def test_tables_and_views_of_ones_own_are_left_alone(db: TuningDatabase, place: str) -> None:
    execute(db, "CREATE TABLE notes (id TEXT)")
    execute(db, "CREATE VIEW slow AS SELECT id FROM measurement WHERE seconds > 1")
    with TuningDatabase(place) as again:
        assert again.put(*verified(8, 1.0)) == 3


@pytest.mark.parametrize("rows", ["", "('0003'), ('0002')", "(x'00')"])
def test_a_revision_that_is_none(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "tuning.db"
    TuningDatabase(path).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DELETE FROM tuning_db_revision")
        if rows:
            raw.execute(f"INSERT INTO tuning_db_revision VALUES {rows}")
    assert "does not say what revision its schema is of" in refusal(str(path))


# What is no file


@pytest.mark.grid
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device", "a directory"])
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, root: Path, kind: str, suffix: str
) -> None:
    """In a process of its own: to open a pipe is to wait for its other end."""
    path = tmp_path / "t.db"
    if suffix:
        with TuningDatabase(path) as db:
            db.put(*BASE)
    file = tmp_path / f"t.db{suffix}"
    file.unlink(missing_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        match kind:
            case "a pipe":
                os.mkfifo(file)
            case "a socket":
                bound.bind(os.path.relpath(file))
            case "a device":
                file.symlink_to("/dev/zero")
            case _:
                file.mkdir()
        with child(root, "open", str(path)) as opening:
            (line, *others) = said(opening, 3)
    assert kind in line
    assert "regular file" in line or "expected a file" in line
    assert others == [line, line]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a\0b", "cannot be looked at"),
        ("x" * 1000, "cannot be looked at"),
        ("x" * 5000, "expected 4096 at most"),
    ],
)
def test_a_path_that_is_none(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(DatabaseError, match=reason):
        TuningDatabase(tmp_path / name)


def test_a_workload_of_sizes_that_nobody_has(db: TuningDatabase) -> None:
    """Python refuses to read numbers of thousands of digits."""
    shape = f"A[{'9' * 10_000}]"
    huge = dataclasses.replace(WIDER, shape=shape, family="f" * 64)
    near = Workload("d" * 64, "matmul", "", "A[64]", 1, 1, "f" * 64)
    db.put(huge, near, *verified(8, 1.0))
    assert db.explain(huge, CPU).best is None
    assert db.relatives(near, CPU) == []
    execute(db, "UPDATE workload SET shape = ? WHERE id = ?", "x" * 2_000_000, huge.id)
    (other,) = db.explain(MATMUL, CPU).near
    assert other.workload == near.id, "of what is longer than a record's nothing is compared"


def test_summaries_leave_damaged_measurements_out(
    two: TuningDatabase, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(two, how)
    assert [m for m, _ in two.each()] == [GOOD]
    assert f"measurement {short_id(BAD.id)}" in caplog.text
    assert sum(t.measurements for t in two.tally()) in (1, 2)


@pytest.mark.parametrize("revision", ["0007", "0008"])
def test_a_revision_that_is_not_that_of_the_tables_is_told(
    db: TuningDatabase, place: str, revision: str
) -> None:
    """What a migration would add is there: the hint names columns too, and the revision."""
    execute(db, f"UPDATE tuning_db_revision SET version_num = '{revision}'")
    with pytest.raises(DatabaseError, match=f"cannot be migrated from revision {revision}") as told:
        TuningDatabase(place)
    assert "a table, column, index, view or trigger" in str(told.value)
    assert "the revision is wrong" in str(told.value)


def test_a_revision_that_never_was_is_no_newer_version(db: TuningDatabase, place: str) -> None:
    for revision in ("0000", "newest"):
        execute(db, f"UPDATE tuning_db_revision SET version_num = '{revision}'")
        with pytest.raises(DatabaseError, match="does not say what revision its schema is of"):
            TuningDatabase(place)
