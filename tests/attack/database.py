"""Damaged tuning databases: what is read is true or refused, and what `put` returned is there."""

from __future__ import annotations

import io
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tilewright import TuningDatabase, build
from tilewright.autotune.records import workload_record
from tilewright.base.errors import TilewrightError
from tilewright.tuning_db.values import KINDS, AnyRecord, Digested, Session, to_plain

from .attempt import Attack, Attempt, refusal, require
from .damage import NUMBERS, TEXTS, damaged
from .facts import HOST, NOON, TUNED, here, history, measured, session_of, traces
from .subjects import TARGET, check_module, subjects


def prepare(folder: Path) -> Attack:
    whole = folder / "whole.db"
    with TuningDatabase(whole) as db:
        db.put(*history())
        true = {r.id: r for kind in KINDS.values() for r in db.records(kind)}
    stored = len(true)
    true |= {r.id: r for r in _new_records()}

    def attack(attempt: Attempt) -> str:
        path = attempt.folder / "tuning.db"
        shutil.copy(whole, path)
        if attempt.chance(0.5):
            path.write_bytes(damaged(path.read_bytes(), attempt))
        else:
            damage_by_sql(path, attempt)
        good = attempt.folder / "good.db"
        shutil.copy(whole, good)
        return use(path, good, true, stored, attempt)

    return attack


def use(path: Path, good: Path, true: dict[str, AnyRecord], stored: int, attempt: Attempt) -> str:
    """Do all that is done with databases; each step may be refused."""
    steps: list[Callable[[TuningDatabase], object]] = [
        lambda db: read_all(db, true),
        lambda db: require_sane_best(db, true),
        lambda db: require_known_machine(db, true),
        explain,
        put_back,
        lambda db: db.export_lines(io.StringIO()),
        lambda db: merge_into(good, db, true, stored),
    ]
    refused = 0
    attempt.rng.shuffle(steps)
    read_only = attempt.chance(0.3)
    attempt.note(f"open read_only={read_only}")
    try:
        db = TuningDatabase(path, create=False, read_only=read_only)
    except TilewrightError as error:
        require(bool(str(error)), "an error without a text")
        return "refused at once"
    with db:
        for step in steps:
            refused += refusal(lambda step=step: step(db)) is not None  # type: ignore[misc]
        name = attempt.choice(TUNED)
        refused += refusal(lambda: build_from(db, name, attempt)) is not None
    return "used" if not refused else "partly refused" if refused <= len(steps) else "all refused"


def read_all(db: TuningDatabase, true: dict[str, AnyRecord]) -> None:
    """Read every record in both ways. A kind that is refused does not hide the next one."""
    errors = [refusal(lambda kind=kind: _read(db, kind, true)) for kind in KINDS.values()]  # type: ignore[misc]
    for pair in db.history():
        for record in pair:
            require_true(record, true)
    first = next((e for e in errors if e is not None), None)
    if first is not None:
        raise first


def _read(db: TuningDatabase, kind: type[AnyRecord], true: dict[str, AnyRecord]) -> None:
    for record in db.records(kind):
        require_true(record, true)


def require_true(record: AnyRecord, true: dict[str, AnyRecord]) -> None:
    """A record that is read is one that was written: digests cannot be made by accident."""
    if not isinstance(record, Digested):
        return  # the id of a workload is the caller's word, and the rest of it is for display
    written = true.get(record.id)
    require(written is not None, f"a {record.kind} that was never put: {record!r:.500}")
    assert written is not None
    outside = type(record).outside_id
    found, want = to_plain(record), to_plain(written)
    differ = [f for f in want if f not in outside and found[f] != want[f]]
    if record.kind == "schedule" and differ == ["trace"]:
        return  # of one content, spaced otherwise
    require(not differ, f"a {record.kind} whose {differ} is not what was put: {record!r:.500}")


def require_sane_best(db: TuningDatabase, true: dict[str, AnyRecord]) -> None:
    target, toolchain = here()
    for name in TUNED:
        found = db.best(workload_record(subjects()[name].func).id, target, toolchain)
        if found is None:
            continue
        require_true(found.schedule, true)
        if found.measurement is not None:
            require_true(found.measurement, true)


def require_known_machine(db: TuningDatabase, true: dict[str, AnyRecord]) -> None:
    machine = db.machine(here()[0].id)
    if machine is not None:
        require_true(machine, true)


def explain(db: TuningDatabase) -> None:
    target, toolchain = here()
    for name in TUNED:
        str(db.explain(workload_record(subjects()[name].func), target, toolchain))


def put_back(db: TuningDatabase) -> None:
    """Put a measurement: if that returns, it is there."""
    new = _new_records()
    session = new[-4]
    db.put(*new)
    with TuningDatabase(db.location, create=False) as again:
        for record in new:
            require(again.get(type(record), record.id).id == record.id, "what was put is gone")
        require(again.trials(session.id) == 1, "a trial was not counted")


def _new_records() -> list[AnyRecord]:
    """A new session with one measurement, and what they refer to."""
    workload, session, *_ = session_of("affine", 7)
    assert isinstance(session, Session)
    new = measured(session, traces("affine")[0], 3e-6, NOON + timedelta(days=1))
    return [*here(), HOST, workload, session, *new]


def merge_into(good: Path, db: TuningDatabase, true: dict[str, AnyRecord], stored: int) -> None:
    with TuningDatabase(good) as into:
        error = refusal(lambda: into.merge(db))
        for kind in KINDS.values():
            for record in into.records(kind):
                require_true(record, true)
        if error is not None:
            count = sum(len(into.records(kind)) for kind in KINDS.values())
            require(count == stored, "a merge that was refused wrote something")


def build_from(db: TuningDatabase, name: str, attempt: Attempt) -> None:
    subject = subjects()[name]
    check_module(build(subject.func, TARGET, database=db), subject, attempt.rng)


def damage_by_sql(path: Path, attempt: Attempt) -> None:
    """Statements that somebody with an SQL shell might run."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys=off")
        connection.execute("PRAGMA writable_schema=on")
        for _ in range(attempt.choice((1, 1, 2, 4))):
            statement, values = _statement(connection, attempt)
            attempt.note(f"{statement} {values!r:.300}")
            try:
                connection.execute(statement, values).fetchmany(1)
            except (sqlite3.Error, OverflowError, UnicodeError) as error:
                attempt.note(f"  {error}")
    finally:
        connection.close()


def _statement(connection: sqlite3.Connection, attempt: Attempt) -> tuple[str, tuple[Any, ...]]:
    """One statement about a random table and column."""
    names = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
    tables = [row[0] for row in connection.execute(names + " ORDER BY name")]
    if not tables:
        return "SELECT 1", ()
    table = attempt.choice(tables)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    column = attempt.choice(columns) if columns else "id"
    row = f"rowid=(SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET {attempt.pick(4)})"
    value = attempt.choice((*NUMBERS, *TEXTS, None, b"\0\xff", attempt.rng.bytes(9)))
    other = attempt.choice(columns) if columns else "id"
    marks = ", ".join("?" * len(columns))
    simple: list[tuple[str, tuple[Any, ...]]] = [
        (f"UPDATE {table} SET {column}=? WHERE {row}", (value,)),
        (f"UPDATE {table} SET {column}=?", (value,)),
        (f"UPDATE {table} SET {column}={other}", ()),
        (f"UPDATE {table} SET {column}=-{column}", ()),
        (f"UPDATE {table} SET {column}={column} || ' '", ()),
        (f"DELETE FROM {table} WHERE {row}", ()),
        (f"DELETE FROM {table}", ()),
        (f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (value,) * len(columns)),
    ]
    if attempt.chance(0.6):
        return attempt.choice(simple)
    swap = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n)"
    some = ", ".join(f"i AS {c}" for c in columns)
    when = attempt.choice(("INSERT", "UPDATE", "DELETE"))
    act = attempt.choice(
        ("SELECT RAISE(IGNORE)", f"DELETE FROM {table}", f"UPDATE {table} SET {column}={column}+1")
    )
    time = "BEFORE" if "RAISE" in act else attempt.choice(("BEFORE", "AFTER"))
    schema: list[tuple[str, tuple[Any, ...]]] = [
        (f"CREATE TRIGGER t_{table} {time} {when} ON {table} BEGIN {act}; END", ()),
        (f"ALTER TABLE {table} DROP COLUMN {column}", ()),
        (f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}_", ()),
        (f"ALTER TABLE {table} RENAME TO {table}_", ()),
        (f"ALTER TABLE {table} ADD COLUMN more TEXT NOT NULL DEFAULT 'x'", ()),
        (f"DROP TABLE {table}", ()),
        (f"CREATE VIEW v_{table} AS SELECT * FROM {table}", ()),
        ("UPDATE sqlite_master SET type='view', sql=? WHERE name=?",
         (f"CREATE VIEW {table} AS {swap} SELECT {some} FROM n", table)),
        ("UPDATE sqlite_master SET sql=replace(sql, ?, ?) WHERE name=?", (column, "oops", table)),
        ("UPDATE sqlite_master SET rootpage=?", (attempt.pick(30),)),
        (f"CREATE UNIQUE INDEX u_{table} ON {table} (({column} IS NULL))", ()),
        ("PRAGMA user_version=99999", ()),
        ("PRAGMA application_id=4711", ()),
        ("PRAGMA journal_mode=delete", ()),
    ]  # fmt: skip
    return attempt.choice(schema)
