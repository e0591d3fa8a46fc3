"""The best schedule of a workload on a target: a query over verified, comparable measurements.

A measurement is usable if it is of the same workload, of a target of the same compat and perf
class, of the same toolchain generation (where one is given), ok, verified, and not measured again
later: of several measurements of a schedule the last one speaks for it, else the luckiest of many
noisy ones would win. The fastest usable one wins, or, where it was timed in turns with others, the
one that `contest` takes of them: it ties with the fastest. A pin wins over that.

What a session measured before it timed the fastest in turns lost to these, and does not win later
because the machine was slower then, or caches held more kernels: the last contest speaks for it.

A schedule that computes by other algebra (Winograd's) is usable where the caller says what error he
tolerates, and no check has found a larger one; a pin is the user's word for it as well.

It is a seek in the index `ix_measurement_best`, a step for each faster one that was superseded, and
seeks for the last contest of its session and those of the same contest; as much again for each
session that has faster ones from before its last contest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, cast

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    literal_column,
    or_,
    select,
    tuple_,
)

from .contest import rank
from .models import TABLES
from .read import COLUMNS, get, pair, to_record, with_schedule
from .values import Best, CostModelRecord, Measurement, Outcome, Pin, ScheduleRecord

# The location and a connection of each database, uppermost first.
Layers = list[tuple[str, Connection]]

measurement = TABLES["measurement"]
verification = TABLES["verification"]
schedules = TABLES["schedule"]
target = TABLES["target"]
toolchain = TABLES["toolchain"]
pin = TABLES["pin"]


# What a numeric check speaks for, of one workload.
CHECKED = tuple_(measurement.c.schedule, measurement.c.target, measurement.c.toolchain)
Check = tuple[str, str, str]
# When sessions (ids) held their last contests.
Moments = dict[str, datetime]


def _superseded() -> ColumnElement[bool]:
    later = measurement.alias("later")
    same = ("workload", "schedule", "comparable", "toolchain")
    tie = and_(later.c.created == measurement.c.created, later.c.id > measurement.c.id)
    return (
        select(later.c.id)
        .where(
            *(later.c[name] == measurement.c[name] for name in same),
            or_(later.c.created > measurement.c.created, tie),
        )
        .exists()
    )


# Whether the same schedule was measured again later, with whatever outcome.
SUPERSEDED = _superseded()


EXACT = schedules.c.algebra == ""


def within(tolerance: float | BindParameter[float] | None) -> ColumnElement[bool]:
    """Whether a schedule is exact, or no check has found an error that is not tolerated."""
    if tolerance is None:
        return EXACT
    check = verification.alias("worse")
    same = ("workload", "schedule", "target", "toolchain")
    worse = select(check.c.id).where(
        *(check.c[name] == measurement.c[name] for name in same), check.c.max_error > tolerance
    )
    return or_(EXACT, ~worse.exists())


# Without a tolerance, and with one as a parameter.
_WITHIN = (EXACT, within(bindparam("tolerance")))


def _conditions(given: frozenset[str]) -> list[ColumnElement[bool]]:
    """What is usable, by parameters of the names `given`."""
    of_generation = measurement.c.toolchain.in_(
        select(toolchain.c.id).where(toolchain.c.generation == bindparam("generation"))
    )
    named = {
        "generation": of_generation,
        "failed": CHECKED.not_in(bindparam("failed", expanding=True)),
        "schedule": measurement.c.schedule == bindparam("schedule"),
        "tolerance": _WITHIN[True],
    }
    return [
        measurement.c.workload == bindparam("workload"),
        measurement.c.comparable == bindparam("comparable"),
        measurement.c.outcome == Outcome.OK,
        measurement.c.verified,
        ~SUPERSEDED,
        *(named[name] for name in sorted(given)),
        *([] if given & {"schedule", "tolerance"} else [EXACT]),
    ]


# Statements are built once: SQLAlchemy caches their text, and the driver its prepared form.
@functools.cache
def _usable(given: frozenset[str], most: int, sessions: int) -> Select[Any]:
    """The `most` fastest that are usable, but for what some `sessions` timed before a moment."""
    before = (
        and_(
            measurement.c.session == bindparam(f"session{n}"),
            measurement.c.created < bindparam(f"moment{n}"),
        )
        for n in range(sessions)
    )
    return (
        with_schedule()
        .where(*_conditions(given), *(~b for b in before))
        .order_by(measurement.c.seconds, measurement.c.id)
        .limit(literal_column(str(most)))
    )


_LAST = (
    select(measurement.c.created)
    .where(
        measurement.c.session == bindparam("session"),
        measurement.c.workload == bindparam("workload"),
    )
    .order_by(measurement.c.created.desc())
    .limit(literal_column("1"))
)
# Few share a moment. What else they must share is no condition: SQLite would seek that instead.
_OF_MOMENT = [
    with_schedule()
    .where(measurement.c.created == bindparam("created"), measurement.c.verified, ~SUPERSEDED)
    .where(tolerated)
    .order_by(measurement.c.id)
    for tolerated in _WITHIN
]
_AT_ONCE = attrgetter("session", "workload", "target", "toolchain", "outcome")
_FAILED = select(verification.c.schedule, verification.c.target, verification.c.toolchain).where(
    verification.c.workload == bindparam("workload"), ~verification.c.passed
)
_PIN = (
    select(*COLUMNS["pin"])
    .join(target, pin.c.target == target.c.id)
    .where(pin.c.workload == bindparam("workload"), target.c.comparable == bindparam("comparable"))
    .order_by(pin.c.created.desc(), pin.c.id)
    .limit(literal_column("1"))
)


def fastest(
    connection: Connection,
    workload: str,
    comparable: str,
    generation: str | None,
    failed: Collection[Check],
    schedule: str | None = None,
    tolerance: float | None = None,
) -> tuple[Measurement, ScheduleRecord] | None:
    """The fastest usable measurement of one database; see `usable`."""
    found, _ = usable(connection, workload, comparable, generation, failed, schedule, 1, tolerance)
    return found[0] if found else None


def usable(
    connection: Connection,
    workload: str,
    comparable: str,
    generation: str | None,
    failed: Collection[Check],
    schedule: str | None = None,
    most: int = 1,
    tolerance: float | None = None,
) -> tuple[list[tuple[Measurement, ScheduleRecord]], Moments]:
    """The `most` fastest usable measurements of one database, the fastest first.

    And the last contests of the sessions that had measured faster ones before them. `failed` are
    the checks that failed in any layer. `schedule` asks for that schedule only, which need not be
    among those of the last contest.
    """
    wanted = {
        "generation": generation,
        "failed": sorted(failed) or None,
        "schedule": schedule,
        "tolerance": tolerance if schedule is None else None,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    values = {"workload": workload, "comparable": comparable, **given}
    moments: Moments = {}
    while True:
        rows = connection.execute(
            _usable(frozenset(given), most, len(moments)), {**values, **_named(moments)}
        )
        found = [pair(row) for row in rows]
        later = {} if schedule else _last_contests(connection, found, failed, tolerance)
        if not later:
            return found, moments
        moments |= later


def _named(moments: Moments) -> dict[str, Any]:
    """The parameters of `_usable` that say when sessions held their last contests."""
    named: dict[str, Any] = {}
    for n, (session, moment) in enumerate(moments.items()):
        named |= {f"session{n}": session, f"moment{n}": moment}
    return named


def _last_contests(
    connection: Connection,
    found: Iterable[tuple[Measurement, ScheduleRecord]],
    failed: Collection[Check],
    tolerance: float | None,
) -> Moments:
    """When the sessions of some measurements held a contest last, of those that are older than it.

    One of which nobody else is usable is none.
    """
    later: Moments = {}
    for measured, _ in found:
        which = {"session": measured.session, "workload": measured.workload}
        last: datetime = connection.execute(_LAST, which).scalar_one()
        if last <= measured.created:
            continue
        if len(contest(connection, replace(measured, created=last), failed, tolerance)) > 1:
            later[measured.session] = last
    return later


def contest(
    connection: Connection,
    measured: Measurement,
    failed: Collection[Check],
    tolerance: float | None,
) -> list[tuple[Measurement, ScheduleRecord]]:
    """What is usable of those that were timed in turns with a usable one, itself among them."""
    values = {"created": measured.created, "tolerance": tolerance}
    rows = connection.execute(_OF_MOMENT[tolerance is not None], values)
    return [
        (other, schedule)
        for other, schedule in map(pair, rows)
        if _AT_ONCE(other) == _AT_ONCE(measured)
        and (other.schedule, other.target, other.toolchain) not in failed
    ]


def failed_checks(layers: Layers, workload: str) -> set[Check]:
    """What of a workload failed a numeric check in any layer."""
    return {
        (row.schedule, row.target, row.toolchain)
        for _, connection in layers
        for row in connection.execute(_FAILED, {"workload": workload})
    }


def pinned(connection: Connection, workload: str, comparable: str) -> Pin | None:
    """The pin of a workload on comparable targets in one database."""
    values = {"workload": workload, "comparable": comparable}
    row = connection.execute(_PIN, values).mappings().first()
    return None if row is None else to_record(Pin, cast(Mapping[str, Any], row))


def best(
    layers: Layers,
    workload: str,
    comparable: str,
    generation: str | None,
    tolerance: float | None = None,
) -> Best | None:
    """The best of all layers, the uppermost first where they tie; pins of upper layers first."""
    # Of one database alone, `verified` says it already.
    failed = failed_checks(layers, workload) if len(layers) > 1 else set()
    for location, connection in layers:
        decided = pinned(connection, workload, comparable)
        if decided is not None:
            return _of_pin(layers, location, decided, comparable, generation, failed)
    found: Best | None = None
    for location, connection in layers:
        usable = fastest(connection, workload, comparable, generation, failed, tolerance=tolerance)
        if usable is None:
            continue
        choice = _of_contest(contest(connection, usable[0], failed, tolerance), location)
        if found is None or _time(choice.measurement) < _time(found.measurement):
            found = choice
    return found


def _of_contest(entries: list[tuple[Measurement, ScheduleRecord]], location: str) -> Best:
    standings = rank(entries)
    measured, schedule = next(e for e in entries if e[1].id == standings[0].schedule)
    among = tuple(standings) if len(standings) > 1 else ()
    return Best(schedule, measured, False, location, among)


def _time(record: Measurement | None) -> float:
    return math.inf if record is None or record.seconds is None else record.seconds


def _of_pin(
    layers: Layers,
    location: str,
    choice: Pin,
    comparable: str,
    generation: str | None,
    failed: set[Check],
) -> Best | None:
    schedule: ScheduleRecord | None = None
    measured: Measurement | None = None
    for _, connection in layers:
        schedule = schedule or get(connection, ScheduleRecord, choice.schedule)
        found = fastest(
            connection, choice.workload, comparable, generation, failed, choice.schedule
        )
        if found is not None and _time(found[0]) < _time(measured):
            measured = found[0]
    return None if schedule is None else Best(schedule, measured, True, location)


def newest_model(
    connection: Connection, comparable: str, feature_version: str
) -> CostModelRecord | None:
    """The newest cost model of one database for comparable targets and a version of features."""
    model = TABLES["cost_model"]
    wanted = (
        select(*COLUMNS["cost_model"])
        .join(target, model.c.target == target.c.id)
        .where(target.c.comparable == comparable, model.c.feature_version == feature_version)
        .order_by(model.c.created.desc(), model.c.id)
        .limit(1)
    )
    row = connection.execute(wanted).mappings().first()
    return None if row is None else to_record(CostModelRecord, cast(Mapping[str, Any], row))
