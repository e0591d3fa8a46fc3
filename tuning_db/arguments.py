"""Arguments of the database's methods are of the declared kinds: others are typed errors."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

from ..base.errors import DatabaseError, TilewrightError, bind
from ..base.text import masked_url
from .codec import is_ratio
from .values import (
    KINDS,
    Best,
    Order,
    Outcome,
    Record,
    ScheduleRecord,
    SessionStatus,
    TargetRecord,
    Toolchain,
    Workload,
)

if TYPE_CHECKING:
    from sqlalchemy import URL

    from .store import DatabaseOrPath, TuningDatabase

C = TypeVar("C", bound=type)
Count: TypeAlias = int
"""From 0 on."""
Amount: TypeAlias = float
"""Finite, from 0 on."""
Ratio: TypeAlias = float
"""Of two times."""
Kind: TypeAlias = tuple[str, Callable[[Any], bool]]
"""What errors call it, and whether a value is of it."""

_HINT = (
    "tilewright.explain(func, target, database) takes a program and the text of a target; "
    "tilewright.autotune.session.records has workload_record(func) and target_record(target)"
)


def _of(meaning: str, *kinds: type) -> Kind:
    return meaning, lambda value: isinstance(value, kinds)


def _one_of(enum: type[Order | Outcome | SessionStatus]) -> Kind:
    return f"one of {', '.join(enum)}", lambda v: isinstance(v, str) and v in tuple(enum)


def _is_text(value: object) -> bool:
    # Databases hold UTF-8, which has no lone surrogates.
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_amount(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < 2**63  # type: ignore[operator]


def is_address(value: object) -> TypeGuard[str | os.PathLike[str] | URL]:
    """Whether a value is of a kind that a path or URL has."""
    from sqlalchemy import URL

    return isinstance(value, (str, os.PathLike, URL))


_KINDS: dict[str, Kind] = {
    "None": _of("None", type(None)),
    "str": ("an id (str)", _is_text),
    "bool": _of("True or False", bool),
    "int": ("an integer of 64 bits", _is_integer),
    "Count": ("an integer from 0 on", lambda value: _is_integer(value) and value >= 0),
    "Amount": ("a number from 0 on", _is_amount),
    "Ratio": ("a ratio of two times", lambda value: _is_amount(value) and is_ratio(value)),
    "Mapping[str, Json]": _of("a dict", Mapping),
    "AnyRecord": _of("a record", Record),
    "Sequence[AnyRecord]": (
        "a list of records",
        lambda value: (
            isinstance(value, (list, tuple)) and all(isinstance(record, Record) for record in value)
        ),
    ),
    "Sequence[str]": (
        "a list of ids",
        lambda value: isinstance(value, (list, tuple)) and all(map(_is_text, value)),
    ),
    "datetime": (
        "a datetime with a time zone",
        lambda value: isinstance(value, datetime) and value.tzinfo is not None,
    ),
    "type[R]": ("a class of records", lambda v: isinstance(v, type) and v in KINDS.values()),
    "Order": _one_of(Order),
    "Outcome": _one_of(Outcome),
    "SessionStatus": _one_of(SessionStatus),
    "PathOrURL": ("a path or a URL", is_address),
    "Sequence[PathOrURL]": (
        "a list of paths and URLs",
        lambda value: isinstance(value, Sequence) and not isinstance(value, (str, bytes)),
    ),
    "Path": _of("a path", str, os.PathLike),
    "IO[str]": (
        "an open text file",
        lambda value: hasattr(value, "write") or hasattr(value, "readline"),
    ),
    **{
        kind.__name__: _of(f"a {kind.__name__}", kind)
        for kind in (Best, ScheduleRecord, TargetRecord, Toolchain, Workload)
    },
    **dict.fromkeys(("Applies", "Inexact", "Clock"), ("a function", callable)),
}
"""What parameters are declared as."""


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


def checked_arguments(cls: C) -> C:
    """A decorator of a class: what its methods do not take is a `DatabaseError`.

    All public methods, whose parameters are declared by the names in `_KINDS`.
    """
    known = {**_KINDS, cls.__name__: _of(f"a {cls.__name__}", cls)}
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            shown = cls.__name__ if name == "__init__" else name
            hint = f'tw.{cls.__name__}("tuning.db")' if name == "__init__" else None
            setattr(cls, name, _checked(method, shown, known, hint))
    return cls


def _checked(
    method: Callable[..., Any], name: str, known: dict[str, Kind], hint: str | None
) -> Callable[..., Any]:
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[1:]
    kinds = {p.name: [known[text] for text in p.annotation.split(" | ")] for p in parameters}
    several = {p.name for p in parameters if p.kind is p.VAR_POSITIONAL}

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = bind(signature, args, kwargs, DatabaseError, name, hint)
        for parameter, value in list(given.items())[1:]:
            for part in value if parameter in several else (value,):
                if not any(has(part) for _, has in kinds[parameter]):
                    raise _error(name, parameter, part, kinds[parameter])
        return method(*args, **kwargs)

    return call


def _shown(value: object) -> object:
    """A value as errors show it: it may have been meant as the URL of a database."""
    if isinstance(value, bytes):
        return masked_url(os.fsdecode(value)).encode(errors="replace")
    return masked_url(value) if isinstance(value, str) else value


def _error(method: str, name: str, value: object, kinds: list[Kind]) -> DatabaseError:
    expected = " or ".join(meaning for meaning, _ in kinds if meaning != "None")
    shown = value is None or isinstance(value, (str, bytes, int, float))
    hint = _HINT if name in ("workload", "target") else None
    if isinstance(value, Record) and _KINDS["str"] in kinds:
        hint = f"give {name}.id"
    return DatabaseError(
        "{0}: {1} is {2!r:.80}, expected {3}" if shown else "{0}: {1} is of type {2}, expected {3}",
        method,
        name,
        _shown(value) if shown else type(value).__name__,
        expected,
        hint=hint,
    )
