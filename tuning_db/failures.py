"""Driver errors, said in the database's own words.

`translated(location)` wraps every use of a connection: what SQLite or PostgreSQL raise leaves it
as a `DatabaseError` that names the database, what happened and what to do.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ..base.errors import DatabaseError, no_files_hint
from ..base.text import excerpt
from .codec import LONGEST_ROW

_FULL = (
    "cannot grow: the disk is full, or a limit of file sizes is reached (what was recorded before "
    "is kept)",
    "free some space, or raise the limit (ulimit -f), and run again",
)
# SQLite's result code, the extended one before its primary one -> what happened, what to do.
_SQLITE: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_IOERR_WRITE: _FULL,
    sqlite3.SQLITE_IOERR_SHMSIZE: _FULL,
    sqlite3.SQLITE_BUSY: (
        "is locked: another process is writing, for longer than the busy timeout",
        "end the other writer, or wait longer with the URL sqlite:///FILE?timeout=SECONDS",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written: the file, its directory or its file system is read-only",
        "open it with read_only=True, or attach it as a layer and write to a database of your own",
    ),
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_NOTADB: (
        "is not a tuning database: expected a SQLite file, found something else",
        "check the path; JSON lines come in with import, not by opening them",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "is damaged: it is truncated or was overwritten",
        "if it was copied while in use, copy its log (FILE-wal) too, or when the session is over; "
        "else restore it from a copy or an export; sqlite3's .recover may save some of it",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened or created",
        "check that its directory exists and may be written, also for its -wal and -shm files",
    ),
    sqlite3.SQLITE_PERM: ("may not be opened", "check the permissions of the file"),
    sqlite3.SQLITE_IOERR: ("could not be read or written: the disk reports an error", "check it"),
    sqlite3.SQLITE_TOOBIG: (
        f"does not take, or holds, a row of more than {LONGEST_ROW} bytes",
        "no record is that long: shorten it, or delete the row",
    ),
}

# PostgreSQL's SQLSTATE, or its class of two characters.
_POSTGRES: dict[str, tuple[str, str]] = {
    "40": ("was written by another process at the same moment", "run again"),
    "53100": _FULL,
    "55P03": ("is locked by another writer", "end it, or run again"),
    "25006": _SQLITE[sqlite3.SQLITE_READONLY],
    "3D000": ("does not exist on the server", "create it with createdb"),
    "42501": ("lacks a right for this user", "grant it"),
    "08": ("has lost its connection", "check that the server runs, and run again"),
    "28": ("refuses this user or password", "check the URL"),
    "53": ("has no resources left for this", "see the server's log"),
    "57": ("was shut down by its administrator", "start the server and run again"),
}


_CAUSE = 500
"""Characters of what a driver says, which may repeat a name or a statement of any length."""


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Raise `DatabaseError` for whatever SQLAlchemy or a driver raises inside."""
    try:
        yield
    except DBAPIError as error:
        raise translate(error, location) from error
    except UnicodeDecodeError as error:
        # The driver fails to decode SQLite's message, which quotes what it could not parse.
        what, hint = _SQLITE[sqlite3.SQLITE_CORRUPT]
        raise DatabaseError("database {0} {1}", location, what, hint=hint) from error
    except PoolTimeoutError as error:
        raise DatabaseError(
            "database {0}: no free connection; too many threads use it at once", location
        ) from error
    except SQLAlchemyError as error:
        raise DatabaseError("database {0}: {1}", location, excerpt(str(error), _CAUSE)) from error


class CallersError(Exception):
    """Carries an error of a caller's function past `sensible`: it says nothing of the database."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def sensible(location: str) -> Iterator[None]:
    """Raise `DatabaseError` if a value that is read does not belong in its column.

    An error that names a damaged record is extended by the name of the database.
    """
    try:
        yield
    except DatabaseError as error:
        if "reason" not in error.data:
            raise
        raise DatabaseError("database {0}: {1}", location, error, **error.data) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DatabaseError(
            "database {0} holds a value that does not belong there: {1}",
            location,
            excerpt(str(error), _CAUSE),
            hint="it was damaged or changed by something else",
        ) from error


def translate(error: DBAPIError, location: str) -> DatabaseError:
    """The `DatabaseError` that says what a driver's error means."""
    cause = error.orig
    words = excerpt(" ".join(str(cause).split()), _CAUSE)
    code: int | None = getattr(cause, "sqlite_errorcode", None)
    state: str | None = getattr(cause, "sqlstate", None)
    if code is not None:
        meaning = _SQLITE.get(code) or _SQLITE.get(code & 0xFF)
    elif state is not None:
        meaning = _POSTGRES.get(state, _POSTGRES.get(state[:2]))
    elif isinstance(cause, sqlite3.Error):
        # Raised by the driver itself: text that is no text.
        meaning = _SQLITE[sqlite3.SQLITE_CORRUPT]
    elif isinstance(error, OperationalError):
        meaning = ("cannot be reached", "check that the server runs and that the URL is right")
    else:
        meaning = None
    if meaning is None:  # it is about what was written
        return DatabaseError("database {0}: {1}", location, words, refused=True)
    what, hint = meaning
    if state == "42501":
        return _missing_right(error, location, words)
    if meaning is _SQLITE[sqlite3.SQLITE_CANTOPEN]:
        hint = no_files_hint() or hint
    data: dict[str, Any] = {"unreachable": True} if _is_unreachable(error, state) else {}
    return DatabaseError("database {0} {1} ({2})", location, what, words, hint=hint, **data)


def _is_unreachable(error: DBAPIError, state: str | None) -> bool:
    """Whether the server was not reached, or has ended the connection: it may be there later."""
    if isinstance(error.orig, sqlite3.Error):
        return False
    lost = state is not None and (state.startswith("08") or state in _GONE)
    return lost or (state is None and isinstance(error, OperationalError))


_GONE = frozenset({"57P01", "57P02", "57P03", "57P05", "53300"})
"""The server ends, starts, or has no connection left."""
_VERB = re.compile(r"\s*([A-Za-z]+)")
_OBJECT = re.compile(r"(?:for|of) (table|view|schema|column|database|relation) \"?([^\s\"]+)")


def _missing_right(error: DBAPIError, location: str, words: str) -> DatabaseError:
    """The error that a user of a server lacks a right, which it names."""
    verb = _VERB.match(error.statement or "")
    right = "ownership" if "must be owner" in words else (verb[1].upper() if verb else "a right")
    of = _OBJECT.search(words)
    where = "the database" if of is None else f"{of[1]} {of[2]}"
    return DatabaseError(
        "database {0} refuses this user: {1} on {2} is missing ({3})",
        location,
        right,
        where,
        words,
        hint="its owner grants rights: tilewright db roles --db URL; migrations need the owner",
        right=right,
        on=None if of is None else of[2],
    )
