"""Reading records back: rows to values, and the queries that return many of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select

from .models import TABLES
from .values import (
    KINDS,
    AnyRecord,
    Measurement,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    Workload,
)

R = TypeVar("R", bound=AnyRecord)

measurement = TABLES["measurement"]
schedule = TABLES["schedule"]
_DERIVED = frozenset({"comparable", "verified", "algebra"})
COLUMNS = {
    kind: [c for c in table.columns if c.name not in _DERIVED] for kind, table in TABLES.items()
}


def to_record(kind: type[R], row: Mapping[str, Any]) -> R:
    """The record of a row; its id is taken from the row, not computed again."""
    if kind.kind == Workload.kind:
        return kind(**row)
    record = kind(**{name: value for name, value in row.items() if name != "id"})
    record.__dict__["id"] = row["id"]
    return record


def pair(row: Row[Any]) -> tuple[Measurement, ScheduleRecord]:
    """The records of a row of `with_schedule`."""
    cut = len(COLUMNS["measurement"])
    first = dict(zip((c.name for c in COLUMNS["measurement"]), row[:cut], strict=True))
    second = dict(zip((c.name for c in COLUMNS["schedule"]), row[cut:], strict=True))
    return to_record(Measurement, first), to_record(ScheduleRecord, second)


def with_schedule() -> Select[Any]:
    """Measurements, each with its schedule; see `pair`."""
    columns = [*COLUMNS["measurement"], *COLUMNS["schedule"]]
    return select(*columns).join_from(
        measurement, schedule, measurement.c.schedule == schedule.c.id
    )


def get(connection: Connection, kind: type[R], id: str) -> R | None:
    """The record of that id, or None."""
    columns = COLUMNS[kind.kind]
    table = TABLES[kind.kind]
    row = connection.execute(select(*columns).where(table.c.id == id)).mappings().first()
    return None if row is None else to_record(kind, cast(Mapping[str, Any], row))


def scan(connection: Connection, kind: type[R]) -> Iterator[R]:
    """Every record of a kind, by id, a thousand at a time."""
    table = TABLES[kind.kind]
    every = select(*COLUMNS[kind.kind]).order_by(table.c.id)
    with connection.execute(every, execution_options={"yield_per": 1000}) as found:
        for row in found.mappings():
            yield to_record(kind, cast(Mapping[str, Any], row))


def with_prefix(connection: Connection, prefix: str, limit: int) -> list[AnyRecord]:
    """At most `limit` records of each kind whose id begins with hexadecimal digits."""
    found: list[AnyRecord] = []
    for name, kind in KINDS.items():
        table = TABLES[name]
        rows = connection.execute(
            select(*COLUMNS[name])
            .where(table.c.id >= prefix, table.c.id < prefix + "g")
            .order_by(table.c.id)
            .limit(limit)
        )
        found += [to_record(kind, cast(Mapping[str, Any], row)) for row in rows.mappings()]
    return found


def filters(
    workload: str | None,
    target: TargetRecord | None,
    session: str | None,
    schedule_id: str | None,
    outcome: Outcome | None,
    family: str | None,
) -> list[ColumnElement[bool]]:
    """The conditions on measurements of `TuningDatabase.measurements`."""
    wanted = {
        "workload": workload,
        "comparable": None if target is None else target.comparable,
        "session": session,
        "schedule": schedule_id,
        "outcome": outcome,
    }
    found = [measurement.c[name] == value for name, value in wanted.items() if value is not None]
    if family is not None:
        table = TABLES["workload"]
        found.append(measurement.c.workload.in_(select(table.c.id).where(table.c.family == family)))
    return found


def trials(connection: Connection, session: str) -> int:
    """How many schedules a session has measured, however often."""
    return connection.execute(
        select(func.count(measurement.c.schedule.distinct())).where(
            measurement.c.session == session
        )
    ).scalar_one()
