"""Opening: from a path or URL to an engine on a database of the current schema.

SQLite runs in WAL mode with foreign keys on and synchronous=NORMAL: a commit survives the death of
any process; a power cut may lose the last moments, and never damages the file. Writers take turns
(BEGIN IMMEDIATE, with a busy timeout of 30 s unless the URL has `?timeout=`); readers never wait.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    PoolProxiedConnection,
    QueuePool,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from ..errors import DatabaseError
from .failures import translated

BUSY_TIMEOUT = 30.0
_HEADER = 100


@dataclass(frozen=True)
class Opened:
    """An engine and the rules of its use; `location` is what errors call the database."""

    engine: Engine
    location: str
    read_only: bool
    process: int
    timeout: float

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in a transaction that sees one state of the database."""
        self._require_process()
        with translated(self.location), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection in a transaction that is durable when the block ends, or never happened."""
        self._require_process()
        if self.read_only:
            raise DatabaseError(
                "database {0} is open read-only",
                self.location,
                hint="open it without read_only=True, or write to a database of your own",
            )
        with translated(self.location), self.engine.connect() as connection:
            connection = connection.execution_options(tilewright_write=True)
            with connection.begin():
                yield connection

    def _require_process(self) -> None:
        if os.getpid() != self.process:
            raise DatabaseError(
                "database {0} was opened by process {1} and is used in its fork {2}",
                self.location,
                self.process,
                os.getpid(),
                hint="open it again in the child process",
            )


def open_engine(path_or_url: str | os.PathLike[str] | URL, create: bool, read_only: bool) -> Opened:
    """Open a database without looking into it. Raises `DatabaseError`."""
    url = _url(path_or_url)
    backend = url.get_backend_name()
    if backend == "sqlite":
        return _open_sqlite(url, create and not read_only, read_only)
    if backend == "postgresql":
        return _open_postgres(url, read_only)
    raise DatabaseError("no tuning database on {0}; expected sqlite or postgresql", backend)


def use_wal(opened: Opened) -> None:
    """Put a SQLite file into WAL mode, once in its life.

    SQLite does not wait by its busy timeout for this one, so two processes that create a database
    at once would see it locked.
    """
    if opened.engine.dialect.name != "sqlite":
        return
    give_up = time.monotonic() + opened.timeout
    with translated(opened.location):
        raw = opened.engine.raw_connection()
        try:
            while not _try_wal(raw, give_up):
                time.sleep(0.02)
        finally:
            raw.close()


def _try_wal(raw: PoolProxiedConnection, give_up: float) -> bool:
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL")
    except sqlite3.DatabaseError as error:
        busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
        if busy and time.monotonic() < give_up:
            return False
        raise OperationalError("PRAGMA journal_mode=WAL", {}, error) from error
    return True


def _url(path_or_url: str | os.PathLike[str] | URL) -> URL:
    if isinstance(path_or_url, URL):
        return path_or_url
    text = os.fspath(path_or_url)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        return make_url(text)
    except ArgumentError as error:
        raise DatabaseError("database URL {0!r} does not parse: {1}", text, error) from error


def _open_sqlite(url: URL, create: bool, read_only: bool) -> Opened:
    timeout = float(str(url.query.get("timeout", BUSY_TIMEOUT)))
    if url.database in (None, "", ":memory:"):
        if read_only:
            raise DatabaseError("a database in memory cannot be read-only")
        return _sqlite_engine("file:tilewright?mode=memory", "memory", timeout, read_only)
    path = Path(str(url.database)).absolute()
    _check_file(path, create)
    mode = "ro" if read_only else "rwc" if create else "rw"
    address = f"file:{quote(str(path))}?mode={mode}"
    if read_only and _is_frozen(path):
        address += "&immutable=1"
    return _sqlite_engine(address, str(path), timeout, read_only)


def _check_file(path: Path, create: bool) -> None:
    if path.is_dir():
        raise DatabaseError("database {0} is a directory; expected a file", path)
    if not path.parent.is_dir():
        raise DatabaseError(
            "database {0}: there is no directory {1}",
            path,
            path.parent,
            hint=f"mkdir -p {path.parent}",
        )
    if not create and not path.exists():
        raise DatabaseError(
            "there is no tuning database at {0}",
            path,
            hint="check the path, or create it by tuning",
        )
    if path.exists() and 0 < path.stat().st_size < _HEADER:
        raise DatabaseError(
            "database {0} is not a tuning database, or truncated: it has {1} bytes",
            path,
            path.stat().st_size,
        )


def _is_frozen(path: Path) -> bool:
    """Nobody can write here and nothing waits in a log: SQLite may read without its side files."""
    wal = path.with_name(path.name + "-wal")
    return not os.access(path.parent, os.W_OK) and not wal.exists()


def _sqlite_engine(address: str, location: str, timeout: float, read_only: bool) -> Opened:
    memory = location == "memory"

    def connect() -> sqlite3.Connection:
        # isolation_level=None: transactions are begun below, not guessed by the driver.
        return sqlite3.connect(
            address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
        )

    # In memory each connection would be a database of its own: all threads share one in turn.
    size = 1 if memory else 5
    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0 if memory else 32,
        pool_reset_on_return="rollback",
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: object) -> None:
        for pragma in ("foreign_keys=ON", "trusted_schema=OFF", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("tilewright_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return Opened(engine, location, read_only, os.getpid(), timeout)


def _open_postgres(url: URL, read_only: bool) -> Opened:
    location = url.render_as_string(hide_password=True)
    try:
        engine = create_engine(
            url, pool_pre_ping=True, execution_options={"postgresql_readonly": read_only}
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise DatabaseError(
            "database {0} needs a driver that is not installed: {1}",
            location,
            error,
            hint="pip install 'tilewright[postgres]'",
        ) from error
    return Opened(engine, location, read_only, os.getpid(), BUSY_TIMEOUT)
