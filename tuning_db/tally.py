"""Counts of measurements, and measurements one after the other, for summaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select

from .read import COLUMNS, NAMES, Damage, raw, to_record
from .tables import measurement, schedule
from .values import Measurement, Outcome

_PAGE = 1000


class Tally(NamedTuple):
    """How many measurements of a workload on a target a session (ids) has with an outcome."""

    session: str
    workload: str
    target: str
    toolchain: str
    outcome: Outcome
    measurements: int


def tally(connection: Connection) -> Iterator[Tally]:
    """The counts of a database; rows whose outcome is damaged are left out."""
    group = [raw(measurement.c[name]) for name in Tally._fields[:-1]]
    for row in connection.execute(select(*group, func.count()).group_by(*group)):
        with suppress(ValueError):
            yield Tally(*row[:4], Outcome(row[4]), row[5])


def each(
    connection: Connection, conditions: list[ColumnElement[bool]], damage: Damage
) -> Iterator[tuple[Measurement, str]]:
    """Measurements, the oldest first, each with the generator of its schedule.

    A page of them is in memory at a time. Damaged ones are left out and noted.
    """
    wanted = (
        select(*COLUMNS["measurement"], raw(schedule.c.generator))
        .join_from(measurement, schedule, measurement.c.schedule == schedule.c.id)
        .where(*conditions)
        .order_by(measurement.c.created, measurement.c.id)
    )
    with connection.execute(wanted, execution_options={"yield_per": _PAGE}) as rows:
        for row in rows:
            pair = damage.or_none(connection, partial(_pair, tuple(row)))
            if pair is not None:
                yield pair


def _pair(row: tuple[Any, ...]) -> tuple[Measurement, str]:
    return to_record(Measurement, row[: len(NAMES["measurement"])]), str(row[-1])
