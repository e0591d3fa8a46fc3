"""The database that functions are given: one that is open, or the path or URL of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeGuard

from ..base.errors import DatabaseError, TilewrightError
from ..base.text import masked_url

if TYPE_CHECKING:
    from sqlalchemy import URL

    from .store import DatabaseOrPath, TuningDatabase

READER, TUNER = "tilewright_reader", "tilewright_tuner"
"""The names of the roles of a server, see `tuning_db/roles.py`."""


def is_address(value: object) -> TypeGuard[str | os.PathLike[str] | URL]:
    """Whether a value is of a kind that a path or URL has."""
    from sqlalchemy import URL

    return isinstance(value, (str, os.PathLike, URL))


def opened(
    database: DatabaseOrPath, error: type[TilewrightError], *, write: bool = False
) -> TuningDatabase:
    """The database that a function is given, which may be the path or URL of one.

    A path is opened for reading, and the database must be there; with `write` it may be created.
    Its connections are closed when nothing refers to it any more.

    Raises `error` for what is neither, and `DatabaseError` where it cannot be opened.
    """
    from .store import TuningDatabase  # those who have one have loaded it

    if isinstance(database, TuningDatabase):
        return database
    if not is_address(database):
        raise error(
            "database: expected a TuningDatabase, or the path or URL of one, found {0!r:.80}",
            _shown(database),
            hint='write database="tuning.db", or tw.TuningDatabase("tuning.db")',
        )
    return TuningDatabase(database, create=write, read_only=not write)


def opened_or_none(
    database: DatabaseOrPath | None, error: type[TilewrightError], *, write: bool = False
) -> TuningDatabase | None:
    """`opened`, and `None` where no database is given."""
    return None if database is None else opened(database, error, write=write)


def require_amounts(**numbers: float | None) -> None:
    """Raise `DatabaseError` for a number that is negative, not finite or beyond 64 bits.

    A query would take a negative limit for none.
    """
    for name, number in numbers.items():
        if number is not None and not 0 <= number < 2**63:
            raise DatabaseError("{0} is {1}, expected a number from 0 on", name, number)


def _shown(value: object) -> object:
    """A value as errors show it: it may have been meant as the URL of a database."""
    if isinstance(value, bytes):
        return masked_url(os.fsdecode(value)).encode(errors="replace")
    return value
