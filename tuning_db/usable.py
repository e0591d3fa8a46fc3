"""Usable measurements of one database, the fastest first, as few statements as there may be.

Most lookups are one statement (`_first`): a server is asked once, and what it returns says whether
there is more to ask. It is a seek in the index `ix_measurement_best`, and a step for each faster
measurement that was superseded.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from ..base.durations import LONGEST, SHORTEST
from .confirm import ID, MOST_CHECKS, SECONDS, Context, Entry, Wanted, confirmed, intact
from .read import COLUMNS, NAMES, with_schedule
from .tables import CHECKED, measurement, pin, schedule, target, toolchain, verification
from .values import Measurement, Outcome

OfSession = tuple[str, str, str]
"""The session, target and toolchain (ids) of measurements of a program."""
Finals = dict[OfSession, datetime]
"""When the last finals were recorded that outdate what came before."""
_MORE = 8
"""How many times as many measurements are read next where some were not enough."""
_LARGEST_PAGE = 1000
# A time that no call takes is not usable; in SQLite a text, say, is larger than any number.
IN_RANGE = measurement.c.seconds.between(
    literal_column(f"{SHORTEST!r}"), literal_column(f"{LONGEST!r}")
)


SAME = ("workload", "schedule", "comparable", "toolchain")
"""The columns that measurements have in common of which the last one counts."""


def superseded(of: FromClause) -> ColumnElement[bool]:
    """Whether the same schedule was measured again later, with whatever outcome."""
    later = measurement.alias()
    tie = and_(later.c.created == of.c.created, later.c.id > of.c.id)
    return (
        select(later.c.id)
        .where(
            *(later.c[name] == of.c[name] for name in SAME),
            or_(later.c.created > of.c.created, tie),
        )
        .exists()
    )


SUPERSEDED = superseded(measurement)


EXACT = schedule.c.inexact == ""


def within(tolerance: float | BindParameter[float] | None) -> ColumnElement[bool]:
    """Whether a schedule is exact, or no check has found an error that is not tolerated."""
    if tolerance is None:
        return EXACT
    check = verification.alias("worse")
    worse = select(check.c.id).where(
        *(check.c[name] == measurement.c[name] for name in CHECKED), check.c.max_error > tolerance
    )
    return or_(EXACT, ~worse.exists())


# Without a tolerance, and with one as a parameter.
WITHIN = (EXACT, within(bindparam("tolerance")))


def _conditions(given: frozenset[str]) -> list[ColumnElement[bool]]:
    """The conditions on a usable measurement, by parameters of the names `given`."""
    of_check = tuple_(measurement.c.schedule, measurement.c.target, measurement.c.toolchain)
    of_generation = measurement.c.toolchain.in_(
        select(toolchain.c.id).where(toolchain.c.generation == bindparam("generation"))
    )
    named = {
        "generation": of_generation,
        "failed": of_check.not_in(bindparam("failed", expanding=True)),
        "schedule": measurement.c.schedule == bindparam("schedule"),
        "tolerance": WITHIN[True],
    }
    return [
        measurement.c.workload == bindparam("workload"),
        measurement.c.comparable == bindparam("comparable"),
        measurement.c.outcome == Outcome.OK,
        measurement.c.verified,
        IN_RANGE,
        ~SUPERSEDED,
        *(named[name] for name in sorted(given)),
        *([] if given & {"schedule", "tolerance"} else [EXACT]),
    ]


# Statements are built once: SQLAlchemy caches their text, and the driver its prepared form.
@functools.cache
def _page(given: frozenset[str], most: int, sessions: int, more: bool = False) -> Select[Any]:
    """The `most` fastest usable measurements, without those of `sessions` from before their finals.

    With `more`, those after the one with the time `after` and the id `last`.
    """
    before = (
        and_(
            *(measurement.c[name] == bindparam(f"{name}{n}") for name in OF_SESSION),
            measurement.c.created < bindparam(f"moment{n}"),
        )
        for n in range(sessions)
    )
    after: BindParameter[float] = bindparam("after")
    beyond = and_(
        measurement.c.seconds >= after,
        or_(measurement.c.seconds > after, measurement.c.id > bindparam("last")),
    )
    return (
        with_schedule()
        .where(*_conditions(given), *(~b for b in before), *([beyond] if more else []))
        .order_by(measurement.c.seconds, measurement.c.id)
        .limit(literal_column(str(most)))
    )


OF_SESSION = ("session", "target", "toolchain")
_MEASURED, _SCHEDULED = len(NAMES["measurement"]), len(NAMES["schedule"])
_PLACED = len(NAMES["target"]) + len(NAMES["toolchain"])


@functools.cache
def _first(given: frozenset[str]) -> Select[Any]:
    """The fastest usable measurement, a row for each check of it, with all that most lookups need.

    That is its schedule, its target and toolchain, and the check. In the end: how many measurements
    have its moment, whether its session may have later finals, and how many pins there are. Indexes
    alone say these.
    """
    found = (
        select(*COLUMNS["measurement"])
        .join_from(measurement, schedule, measurement.c.schedule == schedule.c.id)
        .where(*_conditions(given))
        .order_by(measurement.c.seconds, measurement.c.id)
        .limit(literal_column("1"))
        .subquery("found")
    )
    checked = and_(*(verification.c[name] == found.c[name] for name in CHECKED))
    together = select(func.count(measurement.c.id)).where(measurement.c.created == found.c.created)
    later = (
        select(measurement.c.created)
        .where(measurement.c.session == found.c.session, measurement.c.created > found.c.created)
        .group_by(measurement.c.created)
        .having(func.count() > literal_column("1"))
        .exists()
    )
    of_target = target.alias()
    pins = (
        select(func.count(pin.c.id))
        .join(of_target, pin.c.target == of_target.c.id)
        .where(
            pin.c.workload == bindparam("workload"),
            of_target.c.comparable == bindparam("comparable"),
        )
    )
    return (
        select(
            *found.c,
            *COLUMNS["schedule"],
            *COLUMNS["target"],
            *COLUMNS["toolchain"],
            *COLUMNS["verification"],
            together.scalar_subquery(),
            later,
            pins.scalar_subquery(),
        )
        .select_from(found)
        .join(schedule, schedule.c.id == found.c.schedule)
        .outerjoin(target, target.c.id == found.c.target)
        .outerjoin(toolchain, toolchain.c.id == found.c.toolchain)
        .outerjoin(verification, checked)
        .order_by(verification.c.passed, verification.c.id)
        .limit(literal_column(str(MOST_CHECKS)))
    )


class Found(NamedTuple):
    """A usable measurement: whether another may share its moment, or outdate it as later finals."""

    entry: Entry
    shared: bool = True
    outdated: bool = True


def fastest(connection: Connection, wanted: Wanted) -> Entry | None:
    """The fastest usable measurement of one database, outdated or not."""
    return next((found.entry for found in walk(connection, wanted, {})), None)


def walk(
    connection: Connection, wanted: Wanted, finals: Finals, last: Measurement | None = None
) -> Iterator[Found]:
    """The usable measurements, the fastest first, that are neither damaged nor refused.

    Those that `finals` outdate are left out, and those up to the `last` one.
    """
    parameters = {
        "generation": wanted.generation,
        "failed": sorted(wanted.failed) or None,
        "schedule": wanted.schedule,
        "tolerance": wanted.tolerance if wanted.schedule is None else None,
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    values: dict[str, Any] = {
        "workload": wanted.workload,
        "comparable": wanted.comparable,
        **given,
    }
    for n, (of_session, moment) in enumerate(finals.items()):
        named = zip(OF_SESSION, of_session, strict=True)
        values |= {f"{name}{n}": value for name, value in named} | {f"moment{n}": moment}
    sessions = len(finals)
    # Most lookups return the first row; where rows are left out, longer pages follow.
    more, most = last is not None, 1
    if last is not None:
        values |= {"after": last.seconds, "last": last.id}
    if last is None and not finals:
        rows = connection.execute(_first(frozenset(given)), values).all()
        if not rows:
            return
        yield from _found_first(connection, rows, wanted)
        more, most = True, _MORE
        values |= {"after": rows[0][SECONDS], "last": rows[0][ID]}
    while True:
        statement = _page(frozenset(given), most, sessions, more)
        rows = connection.execute(statement, values).all()
        for row in rows:
            entry = intact(connection, row, wanted)
            if entry is not None and confirmed(connection, entry, wanted):
                yield Found(entry)
        if len(rows) < most:
            return
        more, most = True, min(_MORE * most, _LARGEST_PAGE)
        values |= {"after": rows[-1][SECONDS], "last": rows[-1][ID]}


def _found_first(
    connection: Connection, rows: Sequence[Row[Any]], wanted: Wanted
) -> Iterator[Found]:
    """The measurement of the rows of `_first`, unless it is damaged or refused."""
    *values, together, later, pins = tuple(rows[0])
    if pins == 0:
        wanted.unpinned.add((connection, wanted.workload))
    place = _MEASURED + _SCHEDULED
    entry = intact(connection, values[:place], wanted)
    if entry is None:
        return
    checks = [tuple(row[place + _PLACED : -3]) for row in rows]
    known_place = tuple(values[place : place + _PLACED])
    complete = known_place[0] is not None and known_place[len(NAMES["target"])] is not None
    context = Context(
        known_place if complete else None, [check for check in checks if check[0] is not None]
    )
    if confirmed(connection, entry, wanted, context):
        yield Found(entry, together != 1, later)
