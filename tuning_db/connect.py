"""Opening: from a path or URL to an engine on a database of the current schema.

SQLite runs in WAL mode with foreign keys on and synchronous=NORMAL: a commit survives the death of
any process; a power cut may lose the last moments, and never damages the file. What is written goes
to a log beside the file first; `checkpoint` moves it into the file.

Writers take turns on every backend (BEGIN IMMEDIATE, an advisory lock), so that what a writer has
read is still so when it writes; they wait for at most the busy timeout. Readers never wait, and see
one state of the database for as long as they read.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, repeat
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    PoolProxiedConnection,
    QueuePool,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import (
    ArgumentError,
    InvalidatePoolError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from ..base.errors import DatabaseError
from ..base.text import excerpt, masked_url
from .codec import LONGEST_ROW
from .failures import sensible, translated
from .read import LOCATION
from .tables import HEAD, VERSION_TABLE

_log = logging.getLogger(__name__)

BUSY_TIMEOUT = 30.0
LONGEST_PATH = 4096
"""Characters of a path of Linux, at most."""
_LONGEST_WAIT = (2**31 - 1) // 1000
"""Seconds: SQLite counts milliseconds in 32 bits."""
_SHOWN = 80
"""Characters of a path that is too long that an error shows."""
_PRAGMAS = (
    "foreign_keys=ON",
    "cache_size=-65536",  # KiB: what a large import changes is written to the log once
    "synchronous=NORMAL",
    # The file may be somebody else's: its schema runs nothing, its pages are checked when read.
    "trusted_schema=OFF",
    "cell_size_check=ON",
)
_LIBPQ: dict[str, Any] = {
    "client_encoding": "utf8",  # of a server that tells none, SQLAlchemy gets bytes
    # A network that drops what is sent is noticed: nothing waits for it for minutes.
    "connect_timeout": 10,
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
"""Options of connections to PostgreSQL, where the URL does not give others."""
_MOST_IDLE = 120.0
"""Seconds for which a writer may say nothing: all others wait for one that was stopped."""
_LOCK = 0x54574442  # the advisory lock that PostgreSQL's writers take
_REVISION = f"SELECT version_num FROM {VERSION_TABLE}"
_READING: dict[str, dict[str, Any]] = {
    "sqlite": {},
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}
_ALONE = "tilewright_alone"
"""The option that counts the statements of a connection without a transaction."""
_HEADER = 100
_FILE = "file"
_TIMEOUT = "timeout"
_USED = "used"
_IDLE = 1.0
"""Seconds without use after which a connection may have been lost."""
LOG = "-wal"
"""What the name of the log is, behind that of its database."""
_SIDE_FILES = (LOG, "-shm", "-journal")
_CHECKPOINT_TIMEOUT = 1.0
"""Seconds that the end of a piece of work waits for readers of an earlier state."""
_NOT_REGULAR = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class SecondStatement(Exception):
    """What was to be one statement is more: it needs a transaction."""


@dataclass(frozen=True)
class Opened:
    """An engine and the rules of its use; `location` is what errors call the database.

    It has no password in it.
    """

    engine: Engine = field(repr=False)
    location: str
    read_only: bool
    process: int
    timeout: float

    def close(self) -> None:
        """Move the log into the file, and close the connections that nobody uses."""
        if not self.read_only and os.getpid() == self.process:
            checkpoint(self)
        self.engine.dispose()

    def release(self) -> None:
        """`close`, in the process that opened the connections."""
        if os.getpid() == self.process:
            self.close()

    @contextmanager
    def reading(self, *, alone: bool = False) -> Iterator[Connection]:
        """A connection in a transaction that sees one state of the database.

        For a statement `alone` a server needs none: it begins and commits by itself, in one turn of
        the network and not three. A second one raises `SecondStatement`.
        """
        self._require_process()
        with (
            translated(self.location),
            self.engine.connect() as connection,
            sensible(self.location),
        ):
            options = _READING[connection.dialect.name]
            if alone and connection.dialect.name == "postgresql":
                options = {"isolation_level": "AUTOCOMMIT", _ALONE: count()}
            yield connection.execution_options(**options)
            connection.commit()  # at a ROLLBACK psycopg forgets its prepared statements

    @contextmanager
    def writing(
        self, timeout: float = inf, *, into_file: bool = False, migrating: bool = False
    ) -> Iterator[Connection]:
        """A connection in a transaction that is durable when the block ends, or never happened.

        It waits for another writer for at most `timeout` seconds, and never longer than all do.
        Unless it is `migrating`, the schema has to be that of this version: another process may
        have migrated the database since it was opened.
        With `into_file` the file alone holds everything afterwards: for the last write of a piece
        of work, after which people copy the file.
        """
        self._require_process()
        if self.read_only:
            raise DatabaseError(
                "database {0} is open read-only",
                self.location,
                hint="open it without read_only=True, or write to a database of your own",
            )
        with translated(self.location), self.engine.connect() as connection:
            wait = min(timeout, self.timeout)
            connection = connection.execution_options(
                tilewright_write=True, tilewright_timeout=wait
            )
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.exec_driver_sql(
                        f"SET LOCAL lock_timeout = '{wait:.3f}s';"
                        f"SET LOCAL idle_in_transaction_session_timeout = '{_MOST_IDLE:.3f}s'"
                    )
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
                if not migrating:
                    self._require_revision(connection)
                yield connection
        if into_file:
            checkpoint(self)

    def _require_revision(self, connection: Connection) -> None:
        revision = connection.exec_driver_sql(_REVISION).scalar()
        if revision != HEAD:
            raise DatabaseError(
                "database {0} is of schema revision {1} now, and this version writes {2}",
                self.location,
                revision,
                HEAD,
                hint="another version of Tilewright migrated it while it was open: use that",
                revision=revision,
            )

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


def checkpoint(opened: Opened) -> bool:
    """Move what the log of a SQLite file holds into the file; return whether all of it was.

    A reader of an earlier state keeps the log in use. It is waited for a moment, and is a warning:
    nothing is lost, but a copy of the file alone lacks what the log holds.
    """
    log = f"{opened.location}{LOG}"
    if opened.engine.dialect.name != "sqlite" or not os.path.lexists(log):
        return True
    try:
        raw = opened.engine.raw_connection()
        try:
            raw.info[_TIMEOUT] = _CHECKPOINT_TIMEOUT
            cursor = raw.cursor()
            cursor.execute(f"PRAGMA busy_timeout={int(1000 * _CHECKPOINT_TIMEOUT)}")
            _, pages, moved = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            raw.close()
    except (SQLAlchemyError, sqlite3.Error) as error:
        why: object = error
    else:
        if pages == moved:
            return True
        why = "another process or thread reads an earlier state"
    _log.warning(
        "part of database %s is still in its log %s, copy both: %s", opened.location, log, why
    )
    return False


def _try_wal(raw: PoolProxiedConnection, give_up: float) -> bool:
    try:
        mode = raw.cursor().execute("PRAGMA journal_mode=WAL").fetchone()[0]
    except sqlite3.DatabaseError as error:
        busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
        if busy and time.monotonic() < give_up:
            return False
        raise OperationalError("PRAGMA journal_mode=WAL", {}, error) from error
    if mode not in ("wal", "memory"):
        raise DatabaseError(
            "the file system cannot hold a SQLite database that several processes use at once",
            hint="put it on a local disk, or use PostgreSQL",
        )
    return True


def _url(path_or_url: str | os.PathLike[str] | URL) -> URL:
    if isinstance(path_or_url, URL):
        return path_or_url
    try:
        text = os.fspath(path_or_url)
    except TypeError as error:
        raise DatabaseError("expected a path or a URL of a database: {0}", error) from error
    if not isinstance(text, str):
        raise DatabaseError("expected a path as text, found {0}", type(text).__name__)
    if not text:
        raise DatabaseError(
            "the path of a database is empty",
            hint="write sqlite:// for one in memory, which ends with the process",
        )
    require_short(text, "the path or URL of a database")
    if "://" not in text:
        if masked_url(text) != text:
            raise DatabaseError(
                "database {0!r}: expected a path or a URL",
                masked_url(text),
                hint="write postgresql+psycopg://USER@HOST/DATABASE, or ./NAME of such a file",
            )
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
        if "@" in f"{url.host}{url.database}" and url.get_backend_name() != "sqlite":
            raise ArgumentError("it has more than one @")
        return url
    except (ArgumentError, ValueError, NoSuchModuleError) as error:
        # An error of a port that is no number names it, and it may be a part of the password.
        why = str(error) if isinstance(error, ArgumentError) else "its port is no number"
        raise DatabaseError(
            "database URL {0!r} does not parse: {1}",
            masked_url(text),
            why,
            hint="write characters such as / and @ of a password as %2F and %40",
        ) from None


def require_short(path: str, what: str) -> None:
    """Raise `DatabaseError` for a path that is longer than any can be."""
    if len(path) > LONGEST_PATH:
        raise DatabaseError(
            "{0} has {1} characters, expected {2} at most: {3!r}",
            what,
            len(path),
            LONGEST_PATH,
            excerpt(masked_url(path), _SHOWN),
        )


def _open_sqlite(url: URL, create: bool, read_only: bool) -> Opened:
    timeout = _timeout(url)
    if url.database in (None, "", ":memory:"):
        if read_only:
            raise DatabaseError("a database in memory cannot be read-only")
        return _sqlite_engine(lambda: "file:tilewright?mode=memory", "memory", timeout, read_only)
    path = Path(str(url.database)).absolute()
    try:
        if "\0" in str(path):
            raise ValueError("embedded null byte")
        _check_file(path, create, read_only)
    except (OSError, ValueError) as error:
        raise DatabaseError("database {0!r} cannot be looked at: {1}", str(path), error) from error
    if read_only:
        return _sqlite_engine(lambda: _reading_address(path), str(path), timeout, read_only)
    modes = iter(["rwc"] if create else [])  # a file that is gone is not created again
    address = f"file:{quote(os.fsencode(path))}?mode="
    return _sqlite_engine(lambda: address + next(modes, "rw"), str(path), timeout, read_only)


def _timeout(url: URL) -> float:
    options = {"timeout": str(BUSY_TIMEOUT), **url.query}
    try:
        timeout = float(str(options.pop("timeout")))
    except ValueError as error:
        raise DatabaseError("database URL {0}: timeout is no number", _shown(url)) from error
    if not 0 <= timeout <= _LONGEST_WAIT:
        raise DatabaseError(
            "database URL {0}: timeout is {1}; expected seconds from 0 to {2}",
            _shown(url),
            timeout,
            _LONGEST_WAIT,
        )
    if options:
        raise DatabaseError(
            "database URL {0} has the option {1}; expected timeout", _shown(url), ", ".join(options)
        )
    return timeout


def _shown(url: URL) -> str:
    try:
        return masked_url(url.render_as_string())
    except UnicodeEncodeError:  # a path that is no UTF-8
        return ascii(url.database)


def _check_file(path: Path, create: bool, read_only: bool) -> None:
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
            awaited=True,
        )
    for side in _SIDE_FILES:
        _require_regular(path.with_name(path.name + side), path)
    found = _require_regular(path, path)
    if found is not None and 0 < found.st_size < _HEADER:
        raise DatabaseError(
            "database {0} is not a tuning database, or truncated: it has {1} bytes",
            path,
            found.st_size,
        )
    if not read_only:
        _require_writable(path)


def _require_regular(file: Path, database: Path) -> os.stat_result | None:
    """What is known of `file`, None where it is not there.

    Opening a pipe waits for its other end, and a device may never end. SQLite removes its side
    files when the last connection closes: only one look tells one moment.
    """
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise DatabaseError(
            "database {0}: {1} is {2}; expected a regular file",
            database,
            file,
            _NOT_REGULAR.get(stat.S_IFMT(found.st_mode), "a directory"),
        )
    return found


def _require_writable(path: Path) -> None:
    for place in (path, path.parent):
        if place.exists() and not os.access(place, os.W_OK):
            raise DatabaseError(
                "database {0} cannot be written: {1} is read-only",
                path,
                place,
                hint="open it with read_only=True, or attach it as a layer to one of your own",
            )


def _reading_address(path: Path) -> str:
    """Where SQLite cannot make its side files and none is there, it reads without them."""
    wal = path.with_name(path.name + LOG)
    alone = not os.access(path.parent, os.W_OK) and not wal.exists()
    return f"file:{quote(os.fsencode(path))}?mode=ro{'&immutable=1' if alone else ''}"


def _file_id(location: str) -> tuple[int, int] | None:
    """What tells a file from others of its name; `None` where there is none."""
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sqlite_engine(
    address: Callable[[], str], location: str, timeout: float, read_only: bool
) -> Opened:
    memory = location == "memory"

    def connect() -> sqlite3.Connection:
        # isolation_level=None: transactions are begun below, not guessed by the driver.
        return sqlite3.connect(
            address(), uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
        )

    # In memory each connection would be a database of its own: all threads share one in turn.
    # What others may write and we may only read is opened anew each time, see _reading_address.
    pool: dict[str, Any] = {"poolclass": QueuePool, "max_overflow": 32}
    if memory:
        pool = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    elif read_only and not os.access(Path(location).parent, os.W_OK):
        pool = {"poolclass": NullPool}
    options = {LOCATION: location}
    engine = create_engine("sqlite://", creator=connect, execution_options=options, **pool)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        if not memory:
            record.info[_FILE] = _file_id(location)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)
        # What is no UTF-8 is refused with its record, not with all rows that are read.
        connection.text_factory = lambda value: value.decode("utf-8", "surrogateescape")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if not memory and connection.info[_FILE] != _file_id(location):
            # SQLite would go on with what has no name any more, and all of it would be lost.
            connection.invalidate()
            raise DatabaseError(
                "database {0} was deleted or replaced while it was open",
                location,
                hint=f"open it again: tw.TuningDatabase({location!r})",
            )
        options = connection.get_execution_options()
        wait = options.get("tilewright_timeout", timeout)
        if connection.info.get(_TIMEOUT, timeout) != wait:
            connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1000 * wait)}")
            connection.info[_TIMEOUT] = wait
        write = options.get("tilewright_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return Opened(engine, location, read_only, os.getpid(), timeout)


def _open_postgres(url: URL, read_only: bool) -> Opened:
    location = masked_url(url.render_as_string())
    try:
        options = {LOCATION: location}
        given = {name: v for name, v in _LIBPQ.items() if name not in url.query}
        engine = create_engine(url, execution_options=options, connect_args=given)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise DatabaseError(
            "database {0} needs a driver that is not installed: {1}",
            location,
            error,
            hint="pip install 'tilewright[postgres]'",
        ) from error
    _ask_idle_connections(engine)
    event.listen(engine, "before_cursor_execute", _require_first)
    return Opened(engine, location, read_only, os.getpid(), BUSY_TIMEOUT)


def _require_first(connection: Connection, *_: object) -> None:
    statements: Iterator[int] = connection.get_execution_options().get(_ALONE, repeat(0))
    if next(statements) > 0:
        raise SecondStatement


def _ask_idle_connections(engine: Engine) -> None:
    """Replace connections that were lost while nobody used them: each is asked before its next use.

    One that was used a moment ago is not: a lookup would take another turn of the network.
    """

    @event.listens_for(engine, "checkin")
    def leave(connection: Any, record: Any) -> None:  # noqa: ARG001 - SQLAlchemy passes it
        record.info[_USED] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ask(connection: Any, record: Any, proxy: Any) -> None:  # noqa: ARG001 - as above
        if time.monotonic() - record.info.get(_USED, time.monotonic()) < _IDLE:
            return
        try:
            engine.dialect.do_ping(connection)
        except Exception as error:
            raise InvalidatePoolError from error
