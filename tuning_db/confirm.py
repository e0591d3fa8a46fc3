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


_CHECKS = 100
"""Checks of a schedule that a lookup reads, those that failed first."""

_CONTEXT = (
    select(*COLUMNS["target"], *COLUMNS["toolchain"])
    .select_from(target.join(toolchain, literal_column("1 = 1")))
    .where(target.c.id == bindparam("target"), toolchain.c.id == bindparam("toolchain"))
)
_OF_SCHEDULE = (
    select(*COLUMNS["verification"])
    .where(*(verification.c[name] == bindparam(name) for name in CHECKED))
    .order_by(verification.c.passed, verification.c.id)
    .limit(literal_column(str(_CHECKS)))
)


@dataclass
class Wanted:
    """The subject of a lookup, and what it leaves out.

    `tools` are those of today, `None` for any. `failed` are the checks that failed in any layer.
    `schedule` asks for that schedule only,
    whether or not it was a finalist. `refused` are schedules that do not apply, and why.
    """

    workload: str
    comparable: str
    tools: Toolchain | None = None
    tolerance: float | None = None
    failed: Collection[Check] = ()
    schedule: str | None = None
    damage: Damage = field(default_factory=Damage)
    refused: dict[str, str] = field(default_factory=dict)

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


def confirmed(connection: Connection, entry: Entry, wanted: Wanted) -> bool:
    """Whether the derived columns of a measurement agree with the records they come from."""
    check = partial(_confirmed, connection, entry[0], wanted)
    return wanted.damage.or_none(connection, check) is not None


def _confirmed(connection: Connection, measured: Measurement, wanted: Wanted) -> Measurement:
    """Raises `DatabaseError` unless target, toolchain and checks confirm a measurement."""

    def refuse(reason: str) -> DatabaseError:
        return damaged(Measurement.kind, measured.id, reason)

    row = connection.execute(
        _CONTEXT, {"target": measured.target, "toolchain": measured.toolchain}
    ).first()
    if row is None:
        raise refuse("its target or toolchain is missing")
    values, cut = tuple(row), len(NAMES["target"])
    try:
        where = known(TargetRecord, values[:cut])
        tools = known(Toolchain, values[cut:])
    except DatabaseError as error:
        raise refuse(error.first_line) from error
    if measured.workload != wanted.workload or where.comparable != wanted.comparable:
        raise refuse("it is of another workload or target than its row is found by")
    if wanted.generation not in (None, tools.generation):
        raise refuse(f"its toolchain is {tools.generation}, expected {wanted.generation}")
    checks = _checks(connection, measured, wanted.damage)
    if not checks or not all(c.passed for c in checks):
        raise refuse("it is marked as verified, and no intact check says so")
    return measured


def _checks(connection: Connection, measured: Measurement, damage: Damage) -> list[Verification]:
    rows = connection.execute(_OF_SCHEDULE, {name: getattr(measured, name) for name in CHECKED})
    read = (damage.or_none(connection, partial(known, Verification, tuple(row))) for row in rows)
    return [check for check in read if check is not None]
