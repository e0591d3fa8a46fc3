"""The schema's revision: checked when a database is opened, brought up to date where allowed.

To change the schema: change the records (or `tables.py`, `views.py`), add
`migrations/versions/NNNN_what.py` that brings an older database there, set `HEAD`, and keep a
database of the older revision among the tests.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, Text, column, create_engine, inspect, select
from sqlalchemy import table as named_table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from ..base.errors import DatabaseError
from ..base.text import excerpt
from . import views
from .connect import Opened, use_wal
from .guard import check_columns, check_constraints, check_objects, check_views, constraints
from .read import location
from .tables import HEAD, INDICES, METADATA, REVISION, VERSION_TABLE

_log = logging.getLogger(__name__)

_EMPTY = (
    "check the path; of a database that is in use, the log (FILE-wal) is to be copied as well, or "
    "the file when the session has ended"
)
MIGRATIONS = Path(__file__).with_name("migrations")


_FIRST_WITH_VIEWS = "0008"
_REVISION = re.compile(r"[0-9]{4}")
_TABLE_NAME = 60
"""Characters of the name of a table of somebody else's."""
_POSTGRES_IN_THE_WAY = frozenset({"42P07", "42809", "2BP01", "0A000", "42701"})
"""A relation or column of the name is there, of another kind, or something depends on it."""
_CONVENIENCE_TIMEOUT = 0.25
"""Seconds at most that an opening waits for another writer to make views again."""
_ALEMBIC = threading.Lock()  # alembic keeps what it migrates in a global variable


def prepare(opened: Opened, create: bool) -> None:
    """Create the schema of this version, or migrate to it, if needed.

    Raises `DatabaseError` and changes nothing if the database is of a newer version, is no tuning
    database, is empty and not to be created, is older and open read-only, or if `guard` refuses it.
    """
    with opened.reading() as connection:
        check_objects(connection)
        revision = _revision(connection)
        dropped = _check_current(connection) if revision == HEAD else []
    if revision == HEAD:
        if dropped and not opened.read_only:
            _make_again(opened, dropped)
        return
    if revision is None and not create:
        raise DatabaseError(
            "database {0} is empty; expected a tuning database",
            opened.location,
            hint=_EMPTY,
            awaited=True,
        )
    if revision is not None:
        _require_older(opened, revision)
    use_wal(opened)
    with opened.writing(migrating=True) as connection:
        revision = _revision(connection)
        if revision is not None:
            _check_constraints(connection, revision)
        if revision is None:
            _create(connection)
        elif revision != HEAD:
            _migrate(connection, revision)
        _check_current(connection)


def _check_current(connection: Connection) -> list[str]:
    """The views that are not there; raises `DatabaseError` for what is not as it is made."""
    check_columns(connection)
    dropped = check_views(connection)
    _check_constraints(connection, HEAD)
    return dropped


def _make_again(opened: Opened, dropped: list[str]) -> None:
    """Make views that somebody dropped. Tilewright does without: what hinders it is a warning.

    The next opening tries it again, so none waits long for another writer.
    """
    try:
        with opened.writing(_CONVENIENCE_TIMEOUT) as connection:
            views.make(connection, check_views(connection))
    except DatabaseError as error:
        _log.warning(
            "database %s has no view %s any more, and it is not made again now; the next opening "
            "for writing tries it again: %s",
            opened.location,
            ", ".join(dropped),
            error,
        )


def _check_constraints(connection: Connection, revision: str) -> None:
    if connection.dialect.name == "sqlite":
        check_constraints(connection, _constraints_of(revision))


@cache
def _constraints_of(revision: str) -> Mapping[str, frozenset[str]]:
    """The constraints of the tables of a revision, from a database in memory."""
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            if revision == HEAD:
                METADATA.create_all(connection)
            else:
                _upgrade(connection, revision)
            return constraints(connection)
    finally:
        engine.dispose()


def _create(connection: Connection) -> None:
    """Make in one step what all migrations make, without importing them."""
    with _nothing_in_the_way(connection, f"cannot be made of revision {HEAD}"):
        for table in METADATA.sorted_tables:
            connection.execute(CreateTable(table))
            for index in INDICES.get(table.name, ()):
                connection.execute(CreateIndex(index))
        views.make(connection)
        REVISION.create(connection)
        connection.execute(REVISION.insert().values(version_num=HEAD))


def _migrate(connection: Connection, revision: str) -> None:
    """Bring the schema up to date, inside the connection's transaction."""
    with _nothing_in_the_way(connection, f"cannot be migrated from revision {revision} to {HEAD}"):
        if revision >= _FIRST_WITH_VIEWS:
            views.drop(connection)
        _upgrade(connection, HEAD)
        views.make(connection)


@contextmanager
def _nothing_in_the_way(connection: Connection, failure: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if not _in_the_way(error):
            raise  # a full disk, say
        raise DatabaseError(
            "database {0} {1}: {2}",
            location(connection),
            failure,
            excerpt(str(error.orig)),
            hint="a table, column, index, view or trigger that was added is in the way: remove it "
            "first; if nothing was added, the revision is wrong: take another copy",
        ) from error


def _in_the_way(error: DBAPIError) -> bool:
    """Whether a statement failed because of what is in the database, on either backend."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _POSTGRES_IN_THE_WAY
    return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


def _upgrade(connection: Connection, revision: str) -> None:
    # Imported here: opening a database of the current revision never needs it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=VERSION_TABLE)
    with _ALEMBIC:
        command.upgrade(config, revision)


def _revision(connection: Connection) -> str | None:
    inspector = inspect(connection)
    if inspector.has_table(VERSION_TABLE):
        query = select(column("version_num", Text)).select_from(named_table(VERSION_TABLE))
        revisions = connection.execute(query.limit(2)).scalars().all()
        if len(revisions) == 1 and isinstance(revisions[0], str):
            return revisions[0]
        raise _no_revision(location(connection), revisions)
    others = inspector.get_table_names() if connection.dialect.name == "sqlite" else []
    if others:
        raise DatabaseError(
            "database {0} is not a tuning database: it holds the tables {1} of something else",
            location(connection),
            ", ".join(excerpt(name, _TABLE_NAME) for name in others[:5]),
            hint="check the path",
        )
    return None


def _no_revision(where: str, found: Sequence[object]) -> DatabaseError:
    return DatabaseError(
        "database {0} does not say what revision its schema is of: {1} has {2}",
        where,
        VERSION_TABLE,
        excerpt(repr(found)),
        hint="it was damaged or changed by something else",
    )


def _require_older(opened: Opened, revision: str) -> None:
    known = {path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("*.py")}
    if revision not in known and (not _REVISION.fullmatch(revision) or revision < HEAD):
        raise _no_revision(opened.location, [revision])
    if revision not in known:
        raise DatabaseError(
            "database {0} was written by a newer version of Tilewright: its schema is revision "
            "{1}, this version knows revisions up to {2}",
            opened.location,
            revision,
            HEAD,
            hint="upgrade Tilewright; nothing was changed",
        )
    if opened.read_only:
        raise DatabaseError(
            "database {0} is of schema revision {1}, and this version reads {2}",
            opened.location,
            revision,
            HEAD,
            hint="open it once for writing, by `TuningDatabase(path)`: that migrates it",
        )
