"""Lookups take nothing on trust: a row is checked, and so is what was derived of others.

`verified` and `comparable` are columns that make a lookup one seek, and anybody may have written
them. What a lookup is about to take is therefore compared with the records that they are derived
from. Which steps of a schedule are inexact only those know who apply it: `applies` compares that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection, bindparam, literal_column, select

from ..base.errors import DatabaseError
from .read import COLUMNS, NAMES, Damage, damaged, known
from .staleness import other_version
from .tables import CHECKED, target, toolchain, verification
from .values import Measurement, ScheduleRecord, TargetRecord, Toolchain, Verification

Check = tuple[str, str, str]
Entry = tuple[Measurement, ScheduleRecord]
Applies = Callable[[ScheduleRecord], str | None]
"""Why a schedule does not apply to the program that is looked up, `None` if it does."""


MOST_CHECKS = 100
"""Checks of a schedule that a lookup reads, those that failed first."""

_PLACE = (
    select(*COLUMNS["target"], *COLUMNS["toolchain"])
    .select_from(target.join(toolchain, literal_column("1 = 1")))
    .where(target.c.id == bindparam("target"), toolchain.c.id == bindparam("toolchain"))
)
_OF_SCHEDULE = (
    select(*COLUMNS["verification"])
    .where(*(verification.c[name] == bindparam(name) for name in CHECKED))
    .order_by(verification.c.passed, verification.c.id)
    .limit(literal_column(str(MOST_CHECKS)))
)


@dataclass
class Wanted:
    """The subject of a lookup, and what it leaves out.

    `tools` are those of today, `None` for any. `failed` are the checks that failed in any layer.
    `schedule` asks for that schedule only,
    whether or not it was a finalist. `refused` are schedules that do not apply, and why. `unpinned`
    are the layers that have no pin of a workload, as far as they were read.
    """

    workload: str
    comparable: str
    tools: Toolchain | None = None
    tolerance: float | None = None
    failed: Collection[Check] = ()
    schedule: str | None = None
    damage: Damage = field(default_factory=Damage)
    refused: dict[str, str] = field(default_factory=dict)
    unpinned: set[tuple[Connection, str]] = field(default_factory=set)

    @property
    def generation(self) -> str | None:
        """The generation of the tools whose times count; `None` for any."""
        return None if self.tools is None else self.tools.generation


ID, SECONDS, _SCHEDULE = map(NAMES["measurement"].index, ("id", "seconds", "schedule"))


def intact(connection: Connection, row: Sequence[Any], wanted: Wanted) -> Entry | None:
    """The records of a row of `with_schedule` that is neither damaged, refused nor stale."""
    if row[_SCHEDULE] in wanted.refused or wanted.damage.has(connection, row[ID]):
        return None
    entry = wanted.damage.or_none(connection, partial(_pair, row))
    if entry is None or wanted.tools is None:
        return entry
    return entry if other_version(entry[1].trace, wanted.tools) is None else None


def _pair(row: Sequence[Any]) -> Entry:
    values = tuple(row)
    cut = len(NAMES["measurement"])
    measured = known(Measurement, values[:cut])
    try:
        return measured, known(ScheduleRecord, values[cut:])
    except DatabaseError as error:
        raise damaged(Measurement.kind, measured.id, error.first_line) from error


@dataclass(frozen=True)
class Context:
    """The rows that confirm a measurement: of its target and toolchain, and of checks.

    `None` for the first where one of the two is missing.
    """

    place: tuple[Any, ...] | None
    checks: Sequence[tuple[Any, ...]]


def confirmed(
    connection: Connection, entry: Entry, wanted: Wanted, context: Context | None = None
) -> bool:
    """Whether the derived columns of a measurement agree with the records they come from.

    These are read, unless they are given.
    """
    context = _context(connection, entry[0]) if context is None else context
    check = partial(_confirmed, connection, entry[0], context, wanted)
    return wanted.damage.or_none(connection, check) is not None


def _context(connection: Connection, measured: Measurement) -> Context:
    values = {name: getattr(measured, name) for name in CHECKED}
    place = connection.execute(_PLACE, values).first()
    checks = connection.execute(_OF_SCHEDULE, values).all()
    return Context(None if place is None else tuple(place), [tuple(row) for row in checks])


def _confirmed(
    connection: Connection, measured: Measurement, context: Context, wanted: Wanted
) -> Measurement:
    """Raises `DatabaseError` unless target, toolchain and checks confirm a measurement."""

    def refuse(reason: str) -> DatabaseError:
        return damaged(Measurement.kind, measured.id, reason)

    if context.place is None:
        raise refuse("its target or toolchain is missing")
    cut = len(NAMES["target"])
    try:
        where = known(TargetRecord, context.place[:cut])
        tools = known(Toolchain, context.place[cut:])
    except DatabaseError as error:
        raise refuse(error.first_line) from error
    if measured.workload != wanted.workload or where.comparable != wanted.comparable:
        raise refuse("it is of another workload or target than its row is found by")
    if wanted.generation not in (None, tools.generation):
        raise refuse(f"its toolchain is {tools.generation}, expected {wanted.generation}")
    read = (
        wanted.damage.or_none(connection, partial(known, Verification, row))
        for row in context.checks
    )
    checks = [check for check in read if check is not None]
    if not checks or not all(c.passed for c in checks):
        raise refuse("it is marked as verified, and no intact check says so")
    return measured
