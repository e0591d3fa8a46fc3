"""Views as data frames of pandas, which the extra `plot` installs."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ..base.errors import DatabaseError, TilewrightError
from .views import VIEWS, query

if TYPE_CHECKING:
    import pandas

_KINDS = {
    "category": (
        "workload", "shape", "target", "compiler", "outcome", "rules", "inexact", "status", "host",
    ),
    "float64": ("seconds", "gflops", "predicted", "budget_seconds", "elapsed", "fastest"),
    "bool": ("verified", "superseded", "pinned"),
    "Int64": ("budget_trials", "trials", "measurements", "failures"),
    "string": ("error", "noise", "schedule", "session", "workload_id", "target_id"),
}  # fmt: skip
_TYPES = {name: kind for kind, names in _KINDS.items() for name in names}
_TIMES = ("created", "started", "ended")


def required_pandas(error: type[TilewrightError]) -> ModuleType:
    """The module `pandas`; raises `error` that says what to install where it is not."""
    try:
        return import_module("pandas")
    except ModuleNotFoundError as missing:
        raise error(
            "a data frame takes pandas, which is not installed",
            hint="pip install 'tilewright[plot]'",
        ) from missing


def frame(connection: Connection, view: str) -> pandas.DataFrame:
    """See `TuningDatabase.to_pandas`."""
    if view not in VIEWS:
        raise DatabaseError("there is no view {0!r:.80}; there are {1}", view, ", ".join(VIEWS))
    module = required_pandas(DatabaseError)
    rows = connection.exec_driver_sql(query(view, connection.dialect.name))
    data: pandas.DataFrame = module.DataFrame(rows.all(), columns=list(rows.keys()))
    data = data.set_index("id")
    for name in data.columns.intersection(list(_TIMES)):
        data[name] = module.to_datetime(data[name], utc=True, format="ISO8601")
    return data.astype({name: _TYPES[name] for name in data.columns if name not in _TIMES})
