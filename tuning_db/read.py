"""Reading records back: rows to values, and the queries that return many of them.

Every row is checked as an imported record is: somebody else may have written it. One that is
damaged is refused by name where it is asked for, and left out of what is many, see `Damage`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Row, Select, Text, literal, select, type_coerce
from sqlalchemy import cast as cast_to
from sqlalchemy.types import NullType

from ..base.errors import DatabaseError
from ..base.text import FEWEST_DIGITS, short_id
from .codec import from_row
from .tables import TABLES, machine, measurement, schedule
from .tables import workload as workloads
from .values import (
    KINDS,
    AnyRecord,
    Machine,
    Measurement,
    Order,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    field_types,
    in_utc,
)

R = TypeVar("R", bound=AnyRecord)
T = TypeVar("T")

LOCATION = "tilewright_location"
"""The option of a connection that says what errors call its database."""
Layers = Sequence[Connection]
"""A connection to each database, uppermost first."""
_NAMED = 3
_MOST_NAMED = 5
"""Records that an error lists."""
_log = logging.getLogger(__name__)

NAMES = {kind: list({"id": "str", **field_types(kind)}) for kind in KINDS}


def raw(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column without conversion: one bad value would end the reading of all rows."""
    return type_coerce(column, NullType())


def is_text(value: object) -> bool:
    """Whether a value as it was read is UTF-8 text; what is not has lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def among(column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """Whether a column has one of some values as they were read, of damaged records too."""
    broken = [v for v in values if isinstance(v, str) and not is_text(v)]
    if not broken:
        return raw(column).in_(values)
    found = [cast_to(literal(v.encode("utf-8", "surrogateescape")), Text) for v in broken]
    return raw(column).in_([*(v for v in values if v not in broken), *found])


COLUMNS = {
    kind: [raw(TABLES[kind].c[name]).label(name) for name in names] for kind, names in NAMES.items()
}


def location(connection: Connection) -> str:
    """The name of a connection's database in errors."""
    return str(connection.get_execution_options()[LOCATION])


class Damage:
    """The damaged records that a call left out, by the locations of databases, with reasons."""

    def __init__(self) -> None:
        self.left_out: dict[tuple[str, str, str], str] = {}

    def note(self, connection: Connection, error: DatabaseError) -> None:
        """Add the record and reason of an error of `to_record`."""
        key = location(connection), str(error.data["kind"]), str(error.data["record"])
        self.left_out.setdefault(key, str(error.data["reason"]))

    def of(self, connection: Connection) -> dict[str, str]:
        """Why measurements are left out, by their ids."""
        wanted = location(connection), Measurement.kind
        return {id: why for (at, what, id), why in self.left_out.items() if (at, what) == wanted}

    def has(self, connection: Connection, measurement: object) -> bool:
        """Whether the measurement of that id was left out."""
        return (location(connection), Measurement.kind, measurement) in self.left_out

    def or_none(self, connection: Connection, read: Callable[[], T]) -> T | None:
        """The result of `read`; `None` for a damaged record, which is noted."""
        try:
            return read()
        except DatabaseError as error:
            if "record" not in error.data:
                raise
            self.note(connection, error)
            return None

    def warn(self) -> None:
        """Log what was left out, in one line."""
        if not self.left_out:
            return
        named = [f"{k} {short_id(i)} in {w}: {why}" for (w, k, i), why in self.left_out.items()][
            :_NAMED
        ]
        more = len(self.left_out) - len(named)
        _log.warning(
            "damaged records are set aside: %s%s",
            "; ".join(named),
            f"; and {more} more" if more else "",
        )


def to_record(kind: type[R], values: Sequence[Any]) -> R:
    """The record of a row of `COLUMNS`.

    Raises `DatabaseError` that names the record if it is damaged: a value does not belong there, or
    the content is not what the id says.
    """
    row = dict(zip(NAMES[kind.kind], values, strict=True))
    try:
        return cast(R, from_row(cast(type[AnyRecord], kind), row))
    except DatabaseError as error:
        raise damaged(kind.kind, row["id"], str(error)) from error


def damaged(kind: str, id: object, reason: str) -> DatabaseError:
    """The error that a record is damaged."""
    # An id may be anything, and is shown on terminals.
    id = id if isinstance(id, str) and id.isascii() and id.isalnum() else ascii(id)
    return DatabaseError(
        "{0} {1} is damaged: {2}",
        kind,
        short_id(id),
        reason,
        hint="it was changed by something else, or the file is damaged: restore it from a copy",
        kind=kind,
        record=id,
        reason=reason,
    )


@lru_cache(maxsize=512)
def known(kind: type[R], values: tuple[Any, ...]) -> R:
    """As `to_record`, for records that lookups read repeatedly: the same row is checked once."""
    return to_record(kind, values)


def pair(row: Row[Any]) -> tuple[Measurement, ScheduleRecord]:
    """The records of a row of `with_schedule`."""
    cut = len(NAMES["measurement"])
    return to_record(Measurement, row[:cut]), to_record(ScheduleRecord, row[cut:])


def with_schedule() -> Select[Any]:
    """Measurements, each with its schedule; see `pair`."""
    columns = [*COLUMNS["measurement"], *COLUMNS["schedule"]]
    return select(*columns).join_from(
        measurement, schedule, measurement.c.schedule == schedule.c.id
    )


def get(connection: Connection, kind: type[R], id: str) -> R | None:
    """The record of that id, or None."""
    row = connection.execute(
        select(*COLUMNS[kind.kind]).where(TABLES[kind.kind].c.id == id)
    ).first()
    return None if row is None else to_record(kind, row)


def every(connection: Connection, kinds: Iterable[str] = KINDS) -> Iterator[AnyRecord]:
    """Every record of some kinds, parents first. Raises `DatabaseError` for a damaged one."""
    for name in kinds:
        kind = KINDS[name]
        rows = select(*COLUMNS[name]).order_by(TABLES[name].c.id)
        with connection.execute(rows, execution_options={"yield_per": 1000}) as result:
            yield from (to_record(kind, row) for row in result)


def undamaged(
    layers: Layers,
    statement: Select[Any],
    read: Callable[[Row[Any]], T],
    damage: Damage,
    **values: Any,
) -> dict[str, T]:
    """The results of `read` for the rows of all layers, by their first column, an id.

    Of rows with one id the uppermost counts. Damaged records are left out and noted in `damage`.
    """
    by_id: dict[str, T] = {}
    for connection in layers:
        for row in connection.execute(statement, values):
            value = damage.or_none(connection, partial(read, row))
            if value is not None:
                by_id.setdefault(row[0], value)
    return by_id


def newest_machine(layers: Layers, target: str, damage: Damage) -> Machine | None:
    """See `TuningDatabase.machine`."""
    newest_first = (
        select(*COLUMNS["machine"])
        .where(machine.c.target == target)
        .order_by(machine.c.created.desc(), machine.c.id)
    )
    newest: list[Machine] = []
    for connection in layers:
        with connection.execute(newest_first) as rows:
            reads = (partial(to_record, Machine, row) for row in rows)
            intact = filter(None, (damage.or_none(connection, read) for read in reads))
            newest += islice(intact, 1)
    return max(newest, key=lambda m: m.created, default=None)


def with_prefix(connection: Connection, prefix: str, kind: str | None = None) -> dict[str, str]:
    """The kinds of the records whose id begins with hexadecimal digits, by their ids.

    A few of each kind, or of one. Raises `DatabaseError` for what are no digits, or too few.
    """
    if len(prefix) < FEWEST_DIGITS or not set(prefix) <= set("0123456789abcdef"):
        raise DatabaseError(
            "{0!r:.80} is no id: expected at least {1} hexadecimal digits", prefix, FEWEST_DIGITS
        )
    matches: dict[str, str] = {}
    for name in KINDS if kind is None else [kind]:
        id = TABLES[name].c.id
        found = select(id).where(id >= prefix, id < prefix + "g").order_by(id)
        ids = connection.execute(found.limit(_MOST_NAMED + 1)).scalars()
        matches |= dict.fromkeys(ids, name)
    return matches


def unique(matches: Mapping[str, str], prefix: str, where: str, kind: str | None = None) -> str:
    """The one id of what `with_prefix` returned. Raises `DatabaseError` for none, and for more."""
    if len(matches) == 1:
        return next(iter(matches))
    if not matches:
        raise DatabaseError("there is no {0} {1} in {2}", kind or "record", short_id(prefix), where)
    shared = os.path.commonprefix(list(matches))  # noqa: RUF071 - no paths
    named = [f"{name} {short_id(id, beyond=shared)}" for id, name in matches.items()]
    more = ", ..." if len(named) > _MOST_NAMED else ""
    raise DatabaseError(
        "{0} may be any of {1}{2}",
        prefix,
        ", ".join(named[:_MOST_NAMED]),
        more,
        hint="give more digits",
    )


def filters(
    workload: str | Sequence[str] | None,
    target: TargetRecord | None,
    session: str | None,
    schedule_id: str | None,
    outcome: Outcome | None,
    family: str | None,
    since: datetime | None = None,
) -> list[ColumnElement[bool]]:
    """The conditions on measurements of `TuningDatabase.measurements`."""
    wanted = {
        "comparable": None if target is None else target.comparable,
        "session": session,
        "schedule": schedule_id,
        "outcome": outcome,
    }
    conditions = [
        measurement.c[name] == value for name, value in wanted.items() if value is not None
    ]
    if workload is not None:
        ids = [workload] if isinstance(workload, str) else list(workload)
        conditions.append(measurement.c.workload.in_(ids))
    if family is not None:
        relatives = select(workloads.c.id).where(workloads.c.family == family)
        conditions.append(measurement.c.workload.in_(relatives))
    if since is not None:
        conditions.append(measurement.c.created >= in_utc(since))
    return conditions


def ordered(wanted: Select[Any], order: Order) -> Select[Any]:
    """Measurements in an order, which `order_key` repeats for those of several databases."""
    newest = (measurement.c.created.desc(), measurement.c.id)
    first = {
        Order.CREATED: (),
        Order.TIME: (measurement.c.seconds.asc().nulls_last(),),
        Order.OUTCOME: (measurement.c.outcome,),
    }
    return wanted.order_by(*first[order], *newest)


def order_key(order: Order, m: Measurement) -> tuple[Any, ...]:
    """What measurements are sorted by."""
    newest = (-m.created.timestamp(), m.id)
    match order:
        case Order.CREATED:
            return newest
        case Order.TIME:
            return (m.seconds is None, m.seconds or 0.0, *newest)
        case Order.OUTCOME:
            return (m.outcome, *newest)
