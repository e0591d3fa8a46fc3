"""Views as data frames of pandas, which the extra `plot` installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ..errors import DatabaseError
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


def frame(connection: Connection, view: str) -> pandas.DataFrame:
    """See `TuningDatabase.to_pandas`."""
    if view not in VIEWS:
        raise DatabaseError("there is no view {0!r:.80}; there are {1}", view, ", ".join(VIEWS))
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise DatabaseError(
            "a data frame takes pandas, which is not installed",
            hint="pip install 'tilewright[plot]'",
        ) from error
    rows = connection.exec_driver_sql(query(view, connection.dialect.name))
    found = pandas.DataFrame(rows.all(), columns=list(rows.keys())).set_index("id")
    for name in found.columns.intersection(list(_TIMES)):
        found[name] = pandas.to_datetime(found[name], utc=True, format="ISO8601")
    return found.astype({name: _TYPES[name] for name in found.columns if name not in _TIMES})
