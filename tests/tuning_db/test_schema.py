"""Migrations: they make what the tables say, on every backend, from every revision there was."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tilewright.tuning_db import Measurement, TuningDatabase
from tilewright.tuning_db.schema import MIGRATIONS
from tilewright.tuning_db.tables import HEAD, METADATA, TABLES, VERSION_TABLE
from tilewright.tuning_db.values import KINDS

from .samples import CPU, MATMUL, ONE_OF_EACH, measurement

OLD = Path(__file__).parent / "old"


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return ScriptDirectory.from_config(config)


def test_the_head_is_the_last_migration() -> None:
    assert scripts().get_heads() == [HEAD]


def test_migrations_make_what_the_tables_say(db: TuningDatabase) -> None:
    with db._layers[0].reading() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []


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
            assert db.get(type(record), record.id) == record
        best = db.best(MATMUL.id, CPU)
        assert best is not None
        assert best.measurement == db.get(Measurement, measurement(8, 0.125).id)


def test_a_database_of_every_revision_is_kept() -> None:
    kept = {path.stem for path in OLD.glob("*.sql")}
    assert kept == {script.revision for script in scripts().walk_revisions()}


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
