"""Arguments of the database's methods are of the declared kinds: others are typed errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..errors import DatabaseError, TilewrightError
from .values import Best, Record, TargetRecord, Toolchain, Workload

C = TypeVar("C", bound=type)
_KINDS: dict[str, type] = {
    "str": str,
    "None": type(None),
    "AnyRecord": Record,
    "type[R]": type,
    **{kind.__name__: kind for kind in (Best, TargetRecord, Toolchain, Workload)},
}
"""What parameters are declared as, where that is checked."""
_MEANING = {"str": "an id (str)", "AnyRecord": "a record", "type[R]": "a class of records"}
_HINT = (
    "tilewright.explain(func, target, database) takes a program and the text of a target; "
    "tilewright.autotune.records has the functions workload_record(func) and target_record(target)"
)


def require_database(database: object, error: type[TilewrightError]) -> None:
    """Raise `error` for what is no database."""
    from .store import TuningDatabase  # those who have one have loaded it

    if not isinstance(database, TuningDatabase):
        raise error(
            "database: expected a TuningDatabase, found {0!r:.80}",
            database,
            hint='open one: tw.TuningDatabase("tuning.db")',
        )


def checked_arguments(cls: C) -> C:
    """A decorator of a class: its public methods raise `DatabaseError` for what they do not take.

    They check what is declared as a text, a record, or one of several such kinds.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    declared = {
        name: p.annotation.split(" | ")
        for name, p in signature.parameters.items()
        if p.annotation is not p.empty
    }
    kinds = {
        name: tuple(_KINDS[text] for text in texts)
        for name, texts in declared.items()
        if set(texts) <= set(_KINDS)
    }
    several = {name for name, p in signature.parameters.items() if p.kind is p.VAR_POSITIONAL}

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name in filter(given.__contains__, kinds):
            for value in given[name] if name in several else (given[name],):
                if not isinstance(value, kinds[name]):
                    raise _error(method.__name__, name, value, declared[name])
        return method(*args, **kwargs)

    return call


def _error(method: str, name: str, value: object, declared: list[str]) -> DatabaseError:
    expected = " or ".join(_MEANING.get(t, f"a {t}") for t in declared if t != "None")
    found = repr(value) if isinstance(value, str) else f"of type {type(value).__name__}"
    hint = _HINT if name in ("workload", "target") else None
    if isinstance(value, Record) and "str" in declared:
        hint = f"give {name}.id"
    return DatabaseError(
        "{0}: {1} is {2:.80}, expected {3}", method, name, found, expected, hint=hint
    )
