"""Migrations: they make what the tables say, on every backend, from every revision there was."""

from __future__ import annotations

import dataclasses
import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, select, text

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import Machine, Measurement, TuningDatabase, schema
from tilewright.tuning_db.connect import open_engine
from tilewright.tuning_db.schema import MIGRATIONS
from tilewright.tuning_db.tables import HEAD, METADATA, REVISION, TABLES, VERSION_TABLE
from tilewright.tuning_db.values import KINDS

from ..refusals import refused
from .samples import CPU, MATMUL, ONE_OF_EACH, measurement

Place = Callable[[], str]
OLD = Path(__file__).parent / "old"
SINCE = {Machine.kind: "0005"}
"""The first revisions with kinds of records that were not there from the beginning."""


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return ScriptDirectory.from_config(config)


def test_the_head_is_the_last_migration() -> None:
    assert scripts().get_heads() == [HEAD]


def parts(connection: Connection) -> dict[str, dict[str, list[str]]]:
    """What each table has.

    Columns that a migration added are the last, and have a default for the rows that were there.
    """
    inspector = inspect(connection)
    made: dict[str, dict[str, list[str]]] = {}
    for table in inspector.get_table_names():
        columns = [
            {**column, "type": str(column["type"]), "default": None}
            for column in inspector.get_columns(table)
        ]
        made[table] = {
            "columns": sorted(map(str, columns)),
            "primary key": [str(inspector.get_pk_constraint(table))],
            "foreign keys": sorted(map(str, inspector.get_foreign_keys(table))),
            "indices": sorted(map(str, inspector.get_indexes(table))),
            "unique": sorted(map(str, inspector.get_unique_constraints(table))),
            "checks": sorted(map(str, inspector.get_check_constraints(table))),
        }
    return made


def test_migrations_make_what_the_tables_say_and_what_a_new_database_is_made_of(
    new_place: Place,
) -> None:
    opened = open_engine(new_place(), create=True, read_only=False)
    with opened.writing(migrating=True) as connection:
        schema._upgrade(connection, HEAD)
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []
        migrated = parts(connection)
        revisions = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).all()
    opened.release()
    with TuningDatabase(new_place()) as db, db._layers[0].reading() as connection:
        assert parts(connection) == migrated
        assert connection.execute(select(REVISION)).all() == revisions == [(HEAD,)]


def test_indices_are_made_in_the_order_in_which_migrations_make_them(tmp_path: Path) -> None:
    """SQLite chooses by it between two that serve alike; lookups took 10 times as long."""
    query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? ORDER BY rowid"

    def made(path: Path) -> dict[str, list[str]]:
        with sqlite3.connect(path) as connection:
            found = {
                name: [row[0] for row in connection.execute(query, (name,))] for name in TABLES
            }
        connection.close()
        return found

    opened = open_engine(tmp_path / "old.db", create=True, read_only=False)
    with opened.writing(migrating=True) as connection:
        schema._upgrade(connection, HEAD)
    opened.release()
    TuningDatabase(tmp_path / "new.db").close()
    assert made(tmp_path / "new.db") == made(tmp_path / "old.db")


def test_every_kind_has_a_table_with_its_fields() -> None:
    derived = {
        "target": {"comparable"},
        "measurement": {"comparable", "verified"},
    }
    assert set(TABLES) == set(KINDS)
    for kind, record in KINDS.items():
        columns = {column.name for column in TABLES[kind].columns}
        fields = {field.name for field in dataclasses.fields(record)} | {"id"}
        assert columns == fields | derived.get(kind, set())


@pytest.mark.parametrize("revision", sorted(path.stem for path in OLD.glob("*.sql")))
def test_a_database_of_every_revision_opens_and_is_migrated(revision: str, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        connection.executescript((OLD / f"{revision}.sql").read_text(encoding="utf-8"))
    connection.close()
    with TuningDatabase(path) as db:
        for record in ONE_OF_EACH:
            if revision < SINCE.get(record.kind, ""):
                assert db.records(type(record)) == []
                db.put(record)
            assert db.get(type(record), record.id) == record
        best = db.best(MATMUL.id, CPU)
        assert best is not None
        assert best.measurement == db.get(Measurement, measurement(8, 0.125).id)


def old_database(path: Path, revision: str, *changes: tuple[str, str], more: str = "") -> None:
    """A database of an old revision, whose text is changed, and what is executed in it."""
    text = (OLD / f"{revision}.sql").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with sqlite3.connect(path) as connection:
        connection.executescript(text + more)
    connection.close()


def contents(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        found = list(connection.iterdump())
    connection.close()
    return found


def test_a_reference_that_a_migration_would_follow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    reference = "CONSTRAINT fk_measurement_target FOREIGN KEY(target) REFERENCES "
    change = (
        f"{reference}target (id)",
        f"{reference}cost_model (target) ON DELETE CASCADE",
    )
    old_database(path, "0003", change, more="CREATE UNIQUE INDEX u ON cost_model(target);")
    before = contents(path)
    with pytest.raises(DatabaseError) as caught:
        TuningDatabase(path)
    assert "table measurement has a reference from target to cost_model (target), " in str(
        caught.value
    )
    assert "ON DELETE CASCADE; expected a reference from target to target (id)" in str(caught.value)
    assert contents(path) == before


@pytest.mark.parametrize(
    "added",
    [
        "CREATE INDEX mine ON schedule(algebra)",
        "CREATE VIEW mine AS SELECT algebra FROM schedule",
        "CREATE TABLE machine (name TEXT)",
    ],
)
def test_what_is_in_the_way_of_a_migration_is_named(tmp_path: Path, added: str) -> None:
    path = tmp_path / "old.db"
    old_database(path, "0003", more=f"{added};")
    before = contents(path)
    with pytest.raises(DatabaseError) as caught:
        TuningDatabase(path)
    assert "remove it first" in str(caught.value)
    assert contents(path) == before


@pytest.mark.parametrize(
    ("constraint", "found"),
    [
        (
            ", UNIQUE (session) ON CONFLICT REPLACE",
            "a key of session BINARY; an ON CONFLICT clause",
        ),
        (", UNIQUE (session)", "a key of session BINARY"),
        (
            ", FOREIGN KEY (toolchain) REFERENCES workload (id) ON DELETE CASCADE",
            "a reference from toolchain to workload (id), ON UPDATE NO ACTION ON DELETE CASCADE",
        ),
    ],
)
def test_keys_and_references_that_lose_rows_are_refused(
    tmp_path: Path, constraint: str, found: str
) -> None:
    path = tmp_path / "keyed.db"
    TuningDatabase(path).close()
    with sqlite3.connect(path) as connection:
        query = "SELECT sql FROM sqlite_master WHERE name = 'measurement'"
        (sql,) = connection.execute(query).fetchone()
        text = f"{sql.rstrip().removesuffix(')')}{constraint})"
        connection.executescript(f"DROP TABLE measurement; {text}")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(DatabaseError) as caught:
            TuningDatabase(path, read_only=read_only)
        assert f"table measurement has {found}; expected none" in str(caught.value)


def test_an_index_of_somebodys_own_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "indexed.db"
    TuningDatabase(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE INDEX mine ON measurement (seconds)")
    connection.close()
    TuningDatabase(path).close()


def test_migrations_are_named_after_their_revisions() -> None:
    """A database of another version is told by the names, without alembic."""
    for script in scripts().walk_revisions():
        assert Path(script.path).name.partition("_")[0] == script.revision


def test_a_database_of_every_revision_is_kept() -> None:
    kept = {path.stem for path in OLD.glob("*.sql")}
    assert kept == {script.revision for script in scripts().walk_revisions()}


def test_a_side_file_that_comes_and_goes_is_no_damage(tmp_path: Path) -> None:
    """SQLite makes and removes its journal while another opens the database."""
    journal = tmp_path / "x.db-journal"
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            journal.touch()
            journal.unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(2000):
            open_engine(tmp_path / "x.db", create=True, read_only=False)
    finally:
        done.set()
        other.join()


def test_threads_create_databases_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def create(name: str) -> None:
        try:
            with TuningDatabase(tmp_path / name) as db:
                db.put(MATMUL)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    names = [f"{n % 3}.db" for n in range(9)]
    threads = [threading.Thread(target=create, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused(postgres: Engine, encoding: str) -> None:
    name = f"tuning_{os.getpid()}_{encoding.lower()}"
    make = f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
    with postgres.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(make))
        try:
            with refused(DatabaseError, encoding):
                TuningDatabase(postgres.url.set(database=name))
        finally:
            connection.execute(text(f"DROP DATABASE {name}"))


def test_modules_that_cannot_be_imported_are_an_error_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What migrates a database is imported when it is needed, and files may be lacking then."""
    old_database(tmp_path / "tuning.db", "0003")

    def upgrade(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(schema, "_upgrade", upgrade)
    with pytest.raises(DatabaseError) as error:
        TuningDatabase(tmp_path / "tuning.db")
    assert "ulimit -n" in str(error.value)
