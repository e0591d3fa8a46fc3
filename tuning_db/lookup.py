"""The best schedule of a workload on a target: a query over verified, comparable measurements.

`TuningDatabase.best` says which measurements are usable, and which of them is the choice. Of
several measurements of a schedule only the last one counts: otherwise the luckiest of many noisy
ones would win.

Within a session, final timings replace earlier ones. What was measured before the finals lost to
the finalists, and must not win later because the machine was slower during the finals. Of finals,
only the choice competes with other measurements: one that lost to it may have a shorter time, of
other rounds.

A database may come from elsewhere. The records that a lookup returns are therefore checked like
imported ones, `verified` and `comparable` against the records that they are derived from. A damaged
record is left out, whatever its time, and so is a schedule that does not apply to the program.
Other records are not read.

A lookup is a seek in the index `ix_measurement_best`, a step for each faster measurement that was
superseded, and seeks for the finals of its session and their measurements; as much again for each
session that has faster measurements from before its finals. Where the choice of finals is slower
than another finalist, the measurements up to its time are read too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
    bindparam,
    literal_column,
    or_,
    select,
    tuple_,
)

from ..errors import DatabaseError
from .codec import LONGEST, SHORTEST, instant
from .confirm import ID, SECONDS, Applies, Check, Entry, Wanted, confirmed, intact
from .failures import CallersError
from .gains import Gains, gains_of, untuned_of
from .interleaved_comparison import compare_schedules
from .read import (
    COLUMNS,
    Damage,
    Layers,
    get,
    location,
    pair,
    raw,
    to_record,
    undamaged,
    with_schedule,
)
from .tables import CHECKED, measurement, pin, schedule, target, toolchain, verification
from .values import Best, Measurement, Outcome, Pin, ScheduleRecord, Session, Verification, verified

# When the last finals of sessions (ids) were recorded.
Finals = dict[str, datetime]
MOST_REFUSED = 100
"""Schedules that do not apply before a lookup gives up: each takes a while to try."""
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
_WITHIN = (EXACT, within(bindparam("tolerance")))


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
        "tolerance": _WITHIN[True],
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
def _usable(given: frozenset[str], most: int, sessions: int, more: bool = False) -> Select[Any]:
    """The `most` fastest usable measurements, without those of `sessions` from before their finals.

    With `more`, those after the one with the time `after` and the id `last`.
    """
    before = (
        and_(
            measurement.c.session == bindparam(f"session{n}"),
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


_LAST = (
    select(raw(measurement.c.created))
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
    .where(
        measurement.c.created == bindparam("created"), measurement.c.verified, IN_RANGE, ~SUPERSEDED
    )
    .where(tolerated)
    .order_by(measurement.c.id)
    for tolerated in _WITHIN
]
_OF_COMPARISON = with_schedule().where(
    measurement.c.created == bindparam("created"), measurement.c.verified, IN_RANGE
)
_EARLIER = with_schedule().where(
    measurement.c.session == bindparam("session"),
    measurement.c.workload == bindparam("workload"),
    measurement.c.created < bindparam("created"),
    measurement.c.schedule.in_(bindparam("schedules", expanding=True)),
    measurement.c.outcome == Outcome.OK,
    IN_RANGE,
)
_AT_ONCE = attrgetter("session", "workload", "target", "toolchain", "outcome")
_FAILED = select(verification.c.schedule, verification.c.target, verification.c.toolchain).where(
    verification.c.workload == bindparam("workload"), ~verification.c.passed
)
_CHECKS = (
    select(*COLUMNS["verification"])
    .join(target, verification.c.target == target.c.id)
    .where(
        verification.c.workload == bindparam("workload"),
        verification.c.schedule == bindparam("schedule"),
        target.c.comparable == bindparam("comparable"),
    )
)
_PIN = (
    select(*COLUMNS["pin"])
    .join(target, pin.c.target == target.c.id)
    .where(pin.c.workload == bindparam("workload"), target.c.comparable == bindparam("comparable"))
    .order_by(pin.c.created.desc(), pin.c.id)
    .limit(literal_column("1"))
)


def fastest(connection: Connection, wanted: Wanted) -> Entry | None:
    """The fastest usable measurement of one database; see `usable`."""
    entries, _ = usable(connection, wanted)
    return entries[0] if entries else None


def usable(connection: Connection, wanted: Wanted, most: int = 1) -> tuple[list[Entry], Finals]:
    """The `most` fastest usable measurements of one database, the fastest first.

    Also the finals of the sessions whose faster measurements they replace.
    """
    finals: Finals = {}
    while True:
        entries = list(islice(_walk(connection, wanted, most, finals), most))
        later = {} if wanted.schedule else _later_finals(connection, entries, wanted)
        if not later:
            return entries, finals
        finals |= later


def _walk(connection: Connection, wanted: Wanted, most: int, finals: Finals) -> Iterator[Entry]:
    """The usable measurements, the fastest first, that are neither damaged nor refused."""
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
    for n, (session, moment) in enumerate(finals.items()):
        values |= {f"session{n}": session, f"moment{n}": moment}
    # Most lookups return the first row; where rows are left out, longer pages follow.
    more = False
    while True:
        statement = _usable(frozenset(given), most, len(finals), more)
        rows = connection.execute(statement, values).all()
        for row in rows:
            entry = intact(connection, row, wanted)
            if entry is not None and confirmed(connection, entry, wanted):
                yield entry
        if len(rows) < most:
            return
        more, most = True, min(_MORE * most, _LARGEST_PAGE)
        values |= {"after": rows[-1][SECONDS], "last": rows[-1][ID]}


def _later_finals(connection: Connection, entries: Iterable[Entry], wanted: Wanted) -> Finals:
    """The last finals of the sessions of some measurements, if they came later.

    They count if at least two finalists are usable.
    """
    later: Finals = {}
    for measured, _ in entries:
        parameters = {"session": measured.session, "workload": measured.workload}
        try:
            last = instant(connection.execute(_LAST, parameters).scalar_one())
        except DatabaseError:
            continue  # the row is damaged, and no time
        if last <= measured.created:
            continue
        if len(interleaved(connection, replace(measured, created=last), wanted)) > 1:
            later[measured.session] = last
    return later


def interleaved(connection: Connection, measured: Measurement, wanted: Wanted) -> list[Entry]:
    """The usable measurements that are interleaved with a usable one, which is among them."""
    values = {"created": measured.created, "tolerance": wanted.tolerance}
    rows = connection.execute(_OF_MOMENT[wanted.tolerance is not None], values)
    entries = (intact(connection, row, wanted) for row in rows)
    return [
        entry
        for entry in entries
        if entry is not None
        and _AT_ONCE(entry[0]) == _AT_ONCE(measured)
        and (entry[0].schedule, entry[0].target, entry[0].toolchain) not in wanted.failed
    ]


def gains(layers: Layers, best: Best, damage: Damage) -> Gains:
    """The gains of the best over what was timed interleaved with it, even if superseded since."""
    measured = best.measurement
    if measured is None:
        return {}
    for connection in layers:
        if location(connection) != best.layer:
            continue
        session = damage.or_none(connection, partial(get, connection, Session, measured.session))
        rows = connection.execute(_OF_COMPARISON, {"created": measured.created})
        entries = (damage.or_none(connection, partial(pair, row)) for row in rows)
        timed = [e for e in entries if e is not None and _AT_ONCE(e[0]) == _AT_ONCE(measured)]
        return gains_of(measured, timed if len(timed) > 1 else [], untuned_of(session))
    return {}


def failed_checks(layers: Layers, workload: str) -> set[Check]:
    """The schedules of a workload that failed a numeric check in any layer."""
    return {
        (row.schedule, row.target, row.toolchain)
        for connection in layers
        for row in connection.execute(_FAILED, {"workload": workload})
    }


def pinned(connection: Connection, workload: str, comparable: str) -> Pin | None:
    """The pin of a workload on comparable targets in one database.

    Raises `DatabaseError` for a damaged one: a decision of the user is never skipped.
    """
    values = {"workload": workload, "comparable": comparable}
    row = connection.execute(_PIN, values).first()
    return None if row is None else to_record(Pin, row)


def in_force(layers: Layers, workload: str, comparable: str, damage: Damage) -> Pin | None:
    """The pin of the uppermost layer that has one. Damaged ones are left out, and noted."""
    for connection in layers:
        read = partial(pinned, connection, workload, comparable)
        if (intact_pin := damage.or_none(connection, read)) is not None:
            return intact_pin
    return None


def best(
    layers: Layers, wanted: Wanted, applies: Applies | None = None, *, pins: bool = True
) -> Best | None:
    """The best of all layers; of equal times the upper layer's. Pins of upper layers come first.

    Without `pins` it is what it would be if there were none. A schedule that does not apply is
    added to `wanted.refused`, and the next best is looked up. `applies` is not asked about pinned
    schedules.
    """
    # Of one database alone, `verified` says it already.
    if len(layers) > 1:
        wanted.failed = failed_checks(layers, wanted.workload)
    for connection in layers if pins else ():
        users_pin = pinned(connection, wanted.workload, wanted.comparable)
        if users_pin is not None:
            return _of_pin(layers, location(connection), users_pin, wanted)
    while len(wanted.refused) < MOST_REFUSED:
        choice = _best(layers, wanted)
        reason = None if choice is None or applies is None else _asked(applies, choice.schedule)
        if choice is None or reason is None:
            return choice
        wanted.refused[choice.schedule.id] = reason
    return None


def _asked(applies: Applies, schedule: ScheduleRecord) -> str | None:
    try:
        return applies(schedule)
    except Exception as error:
        raise CallersError(error) from error


def _best(layers: Layers, wanted: Wanted) -> Best | None:
    candidates = (_best_of(connection, wanted) for connection in layers)
    return min(filter(None, candidates), key=lambda b: _time(b.measurement), default=None)


def _best_of(connection: Connection, wanted: Wanted) -> Best | None:
    """The best of one database: of finals their choice competes, else each measurement."""
    best: Best | None = None
    compared: set[str] = set()
    most = 1
    while True:
        entries, _ = usable(connection, wanted, most)
        for entry in entries:
            if best is not None and _time(entry[0]) >= _time(best.measurement):
                return best
            if entry[0].id not in compared:
                group = interleaved(connection, entry[0], wanted)
                compared |= {entry[0].id, *(measured.id for measured, _ in group)}
                choice = _choice(connection, group, entry, wanted)
                best = min(filter(None, (best, choice)), key=lambda b: _time(b.measurement))
        slowest = _time(entries[-1][0]) if entries else math.inf
        if len(entries) < most or (best is not None and _time(best.measurement) <= slowest):
            return best
        most *= _MORE


def _choice(connection: Connection, entries: list[Entry], known: Entry, wanted: Wanted) -> Best:
    """The choice among interleaved measurements, of which the `known` one is confirmed."""
    while entries:
        choice = _compared(connection, entries, wanted)
        entry = next(e for e in entries if e[0] is choice.measurement)
        if entry[0].id == known[0].id or confirmed(connection, entry, wanted):
            return choice
        entries.remove(entry)
    return _compared(connection, [known], wanted)


def _compared(connection: Connection, entries: list[Entry], wanted: Wanted) -> Best:
    """The choice among interleaved measurements."""
    earlier = partial(_earlier, connection, entries, wanted)
    untuned = None
    if len(entries) > 1:
        session = partial(get, connection, Session, entries[0][0].session)
        untuned = untuned_of(wanted.damage.or_none(connection, session))
    comparison = compare_schedules(entries, earlier, untuned)
    measured, schedule = next(e for e in entries if e[1].id == comparison[0].schedule)
    others = tuple(comparison) if len(comparison) > 1 else ()
    return Best(schedule, measured, False, location(connection), others)


def _earlier(
    connection: Connection, entries: list[Entry], wanted: Wanted
) -> dict[str, list[float]]:
    """The times of interleaved schedules in their session before, by their ids."""
    timed = entries[0][0]
    values = {
        "session": timed.session,
        "workload": timed.workload,
        "created": timed.created,
        "schedules": [schedule.id for _, schedule in entries],
    }
    times: dict[str, list[float]] = {}
    for row in connection.execute(_EARLIER, values):
        entry = intact(connection, row, wanted)
        if entry is not None and _AT_ONCE(entry[0]) == _AT_ONCE(timed):
            times.setdefault(entry[1].id, []).extend(entry[0].samples)
    return times


def _time(record: Measurement | None) -> float:
    return math.inf if record is None or record.seconds is None else record.seconds


def _of_pin(layers: Layers, layer: str, choice: Pin, wanted: Wanted) -> Best | None:
    schedules = (get(connection, ScheduleRecord, choice.schedule) for connection in layers)
    schedule = next(filter(None, schedules), None)
    measured = fastest_of(layers, wanted, choice.schedule)
    if schedule is None:
        return None
    checks = checks_of(layers, choice.workload, wanted.comparable, schedule.id, wanted.damage)
    return Best(schedule, measured, True, layer, verified=verified(checks))


def fastest_of(layers: Layers, wanted: Wanted, schedule: str) -> Measurement | None:
    """The fastest usable measurement of a schedule (id) in all layers."""
    only = replace(wanted, schedule=schedule)
    entries = filter(None, (fastest(connection, only) for connection in layers))
    return min((measured for measured, _ in entries), key=_time, default=None)


def checks_of(
    layers: Layers, workload: str, comparable: str, schedule: str, damage: Damage
) -> list[Verification]:
    """The numeric checks of a schedule of a workload (ids) on comparable targets."""
    values = {"workload": workload, "comparable": comparable, "schedule": schedule}
    checks = undamaged(layers, _CHECKS, partial(to_record, Verification), damage, **values)
    return [checks[id] for id in sorted(checks)]
