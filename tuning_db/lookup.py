"""The best schedule of a workload on a target: a query over verified, comparable measurements.

`TuningDatabase.best` says which measurements are usable, and which of them is the choice. Of
several measurements of a schedule only the last one counts: otherwise the luckiest of many noisy
ones would win.

Within a session, final timings replace earlier ones, and of finals only the choice competes with
other measurements: see `finals_rule`. `choices` has all that competes, for whatever asks about it.

A database may come from elsewhere. The records that a lookup returns are therefore checked like
imported ones, `verified` and `comparable` against the records that they are derived from. A damaged
record is left out, whatever its time, and so is a schedule that does not apply to the program.
Other records are not read.

To the seek of the fastest measurement (`usable.py`) come seeks for the finals of its session and
their measurements; as much again for each session that has faster measurements from before its
finals. Where the choice of finals is slower than another finalist, the measurements up to its time
are read too. What is superseded in another layer is left out as well: the result is that of one
database with the records of all.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, func, literal_column, or_, select

from ..base.errors import DatabaseError
from ..base.text import short_id
from .codec import instant
from .confirm import Applies, Check, Entry, Wanted, confirmed, intact
from .failures import CallersError
from .finals_rule import FINALS, finals_key
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
from .results import Best
from .tables import measurement, pin, target, verification
from .usable import (
    IN_RANGE,
    OF_SESSION,
    SUPERSEDED,
    WITHIN,
    Finals,
    Found,
    OfSession,
    fastest,
    walk,
)
from .values import Measurement, Outcome, Pin, ScheduleRecord, Session, Verification, verified

MOST_REFUSED = 100
"""Schedules that do not apply before a lookup gives up: each takes a while to try."""
_MOMENTS = (
    select(*(measurement.c[name] for name in OF_SESSION), raw(measurement.c.created))
    .where(measurement.c.workload == bindparam("workload"), measurement.c.outcome == Outcome.OK)
    .group_by(*(measurement.c[name] for name in OF_SESSION), measurement.c.created)
    .having(func.count() > literal_column("1"))
    .order_by(measurement.c.created)
)
"""When the finals of a program were recorded."""
# A session is of one program, which is no condition: SQLite would seek that instead.
_LATER_MOMENTS = (
    select(raw(measurement.c.created))
    .where(
        *(measurement.c[name] == bindparam(name) for name in OF_SESSION),
        measurement.c.outcome == Outcome.OK,
        measurement.c.created > bindparam("created"),
    )
    .group_by(measurement.c.created)
    .having(func.count() > literal_column("1"))
    .order_by(measurement.c.created.desc())
)
# Few share a moment. What else they must share is no condition: SQLite would seek that instead.
_OF_MOMENT = [
    with_schedule()
    .add_columns(SUPERSEDED.label("superseded"))
    .where(measurement.c.created == bindparam("created"), measurement.c.verified, IN_RANGE)
    .where(tolerated)
    .order_by(measurement.c.id)
    for tolerated in WITHIN
]
_LATER: Select[Any] = (
    select(literal_column("1"))
    .where(
        *(measurement.c[name] == bindparam(name) for name in ("workload", "schedule", "toolchain")),
        measurement.c.comparable == bindparam("comparable"),
        or_(
            measurement.c.created > bindparam("created"),
            and_(
                measurement.c.created == bindparam("created"), measurement.c.id > bindparam("last")
            ),
        ),
    )
    .limit(literal_column("1"))
)
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


class Choice(NamedTuple):
    """What competes in a lookup: a measurement, or the choice of finals.

    `finalists` are the usable measurements of its finals, or it alone.
    """

    best: Best
    finalists: list[Entry]
    connection: Connection


class _Lookup:
    """One lookup in all layers, and what it knows of the finals of sessions."""

    def __init__(self, layers: Layers, wanted: Wanted) -> None:
        self._layers = layers
        self._wanted = wanted
        self._finals: Finals = {}
        self._without: Finals = {}
        """From when on nothing outdates what sessions measured."""
        self._read: tuple[object, dict[object, list[tuple[Entry, bool]]]] | None = None
        """The layer and moment that were read last, and the finalists of that moment."""

    def choices(self, connection: Connection) -> Iterator[Choice]:
        """What competes of one layer, the fastest first."""
        waiting: list[tuple[float, str, Choice]] = []
        seen: set[str] = set()
        for entry, shared, _ in self._usable(connection):
            now = _time(entry[0])
            while waiting and waiting[0][0] <= now:
                yield heapq.heappop(waiting)[-1]
            if entry[0].id in seen:
                continue
            group = self._not_superseded(connection, entry[0]) if shared else []
            seen |= {entry[0].id, *(measured.id for measured, _ in group)}
            chosen = _choice(connection, group, entry, self._wanted)
            choice = Choice(chosen, group or [entry], connection)
            heapq.heappush(waiting, (_time(chosen.measurement), chosen.schedule.id, choice))
            # None of the rest is faster than this entry.
            while waiting and waiting[0][0] <= now:
                yield heapq.heappop(waiting)[-1]
        while waiting:
            yield heapq.heappop(waiting)[-1]

    def outdated(self) -> Finals:
        """The last finals of all sessions of the program."""
        finals: Finals = {}
        values = {"workload": self._wanted.workload}
        for connection in self._layers:
            for *of_session, created in connection.execute(_MOMENTS, values).all():
                key = (of_session[0], of_session[1], of_session[2])
                moment = self._compared(connection, key, created)
                if moment is not None:
                    finals[key] = max(moment, finals.get(key, moment))
        return finals

    def _superseded_elsewhere(self, connection: Connection, measured: Measurement) -> bool:
        measured_as = (
            self._wanted.workload,
            self._wanted.comparable,
            measured.schedule,
            measured.toolchain,
        )
        return any(
            superseded_in(other, measured_as, measured.created, measured.id)
            for other in self._layers
            if other is not connection
        )

    def _usable(self, connection: Connection) -> Iterator[Found]:
        """The usable measurements of one layer that finals do not outdate, the fastest first."""
        last: Measurement | None = None
        while True:
            for found in walk(connection, self._wanted, self._finals, last):
                measured = found.entry[0]
                if not found.outdated and len(self._layers) == 1:
                    self._without.setdefault(_of_session(measured), measured.created)
                if self._is_outdated(measured):
                    break  # all that these finals outdate is passed over
                last = measured
                if not self._superseded_elsewhere(connection, last):
                    yield found
            else:
                return

    def _is_outdated(self, measured: Measurement) -> bool:
        key = _of_session(measured)
        if key in self._finals:
            return measured.created < self._finals[key]
        if measured.created >= self._without.get(key, _NEVER):
            return False
        values = dict(zip(OF_SESSION, key, strict=True), created=measured.created)
        moments = (self._last_compared(connection, key, values) for connection in self._layers)
        last = max(filter(None, moments), default=None)
        if last is None:
            self._without[key] = measured.created
            return False
        self._finals[key] = last
        return True

    def _last_compared(
        self, connection: Connection, key: OfSession, values: dict[str, Any]
    ) -> datetime | None:
        """The moment of a session's last finals in a layer, of those that `values` ask for."""
        later = connection.execute(_LATER_MOMENTS, values).scalars().all()
        moments = (self._compared(connection, key, created) for created in later)
        return next(filter(None, moments), None)

    def _compared(self, connection: Connection, key: OfSession, created: object) -> datetime | None:
        """The moment of finals as it was read, if a lookup may use two of them or more."""
        try:
            moment = instant(created)
        except DatabaseError:
            return None  # the row is damaged, and no time
        finals = (key[0], self._wanted.workload, *key[1:], moment)
        return moment if len(self._finalists(connection, finals)) > 1 else None

    def _finalists(
        self, connection: Connection, finals: tuple[object, ...]
    ) -> list[tuple[Entry, bool]]:
        """The measurements of finals that a lookup may use, each with whether it is superseded.

        Finals of many sessions at one moment are read once.
        """
        key = (connection, finals[-1])
        if self._read is None or self._read[0] != key:
            self._read = key, _finalists_of(*key, self._wanted)
        return self._read[1].get(finals, [])

    def _not_superseded(self, connection: Connection, measured: Measurement) -> list[Entry]:
        """The usable measurements of the finals of a measurement, which is among them."""
        return [
            entry
            for entry, superseded in self._finalists(connection, finals_key(measured))
            if not superseded and not self._superseded_elsewhere(connection, entry[0])
        ]


def _of_session(measured: Measurement) -> OfSession:
    return measured.session, measured.target, measured.toolchain


_NEVER = datetime.max.replace(tzinfo=UTC)


def choices(layers: Layers, wanted: Wanted) -> Iterator[Choice]:
    """All that competes in a lookup, the fastest first; of equal times the upper layer's.

    That is what finals do not outdate: the choices of finals, and measurements that are in none.
    """
    lookup = _Lookup(layers, wanted)
    each = (lookup.choices(connection) for connection in layers)
    return heapq.merge(*each, key=lambda choice: _time(choice.best.measurement))


def ranked(layers: Layers, wanted: Wanted) -> Iterator[tuple[str, Entry]]:
    """All usable measurements that finals do not outdate, each with the layer that has it.

    In the order of `choices`; the finalists that lost to one follow it, as they compare.
    """
    for best, finalists, connection in choices(layers, wanted):
        by_id = {schedule.id: (measured, schedule) for measured, schedule in finalists}
        first = best.schedule.id
        for id in dict.fromkeys((first, *(c.schedule for c in best.comparison))):
            if id == first or confirmed(connection, by_id[id], wanted):
                yield location(connection), by_id[id]


def outdating(layers: Layers, wanted: Wanted) -> Finals:
    """The finals that outdate what their sessions measured before, by session and place."""
    return _Lookup(layers, wanted).outdated()


def superseded_in(
    connection: Connection, measured_as: tuple[str, str, str, str], created: datetime, id: str
) -> bool:
    """Whether a layer has a measurement that supersedes one of another layer.

    That one is of this moment and id, and of a workload, comparable target, schedule and toolchain.
    """
    names = ("workload", "comparable", "schedule", "toolchain")
    values = dict(zip(names, measured_as, strict=True), created=created, last=id)
    return connection.execute(_LATER, values).first() is not None


def _finalists_of(
    connection: Connection, moment: object, wanted: Wanted
) -> dict[object, list[tuple[Entry, bool]]]:
    """The measurements of a moment that a lookup may use, by the finals that they would be of.

    Each has whether it is superseded.
    """
    values = {"created": moment, "tolerance": wanted.tolerance}
    found: dict[object, list[tuple[Entry, bool]]] = {}
    for row in connection.execute(_OF_MOMENT[wanted.tolerance is not None], values).all():
        entry = intact(connection, row[:-1], wanted)
        if entry is None or entry[0].outcome is not Outcome.OK:
            continue
        if (entry[0].schedule, entry[0].target, entry[0].toolchain) not in wanted.failed:
            found.setdefault(finals_key(entry[0]), []).append((entry, bool(row[-1])))
    return found


def gains(layers: Layers, best: Best, damage: Damage) -> Gains:
    """The gains of the best over what was timed interleaved with it, even if superseded since."""
    measured = best.measurement
    if measured is None:
        return {}
    for connection in layers:
        if location(connection) != best.layer:
            continue
        session = _session_of(connection, measured, damage)
        rows = connection.execute(_OF_COMPARISON, {"created": measured.created})
        entries = (damage.or_none(connection, partial(pair, row)) for row in rows)
        timed = [e for e in entries if e is not None and _together(e[0], measured)]
        return gains_of(measured, timed if len(timed) > 1 else [], untuned_of(session))
    return {}


def noise(layers: Layers, best: Best, damage: Damage) -> str | None:
    """What disturbed the session that measured the best, in plain words that name the session."""
    if best.measurement is None:
        return None
    layer = next((c for c in layers if location(c) == best.layer), None)
    session = None if layer is None else _session_of(layer, best.measurement, damage)
    if session is None or session.noise is None:
        return None
    words = " ".join(session.noise.split()).removeprefix("noisy machine: ")
    return f"Session {short_id(session.id)}, which measured it, was not calm: {words}"


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
    first: Best | None = _best(layers, wanted)  # it says where nothing is pinned
    for connection in layers if pins else ():
        if (connection, wanted.workload) in wanted.unpinned:
            continue
        users_pin = pinned(connection, wanted.workload, wanted.comparable)
        if users_pin is not None:
            return _of_pin(layers, location(connection), users_pin, wanted)
    while len(wanted.refused) < MOST_REFUSED:
        choice = _best(layers, wanted) if wanted.refused else first
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
    return next((choice.best for choice in choices(layers, wanted)), None)


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
    if len(entries) == 1:
        measured, schedule = entries[0]
        return Best(schedule, measured, False, location(connection))
    earlier = partial(_earlier, connection, entries, wanted)
    session = partial(get, connection, Session, entries[0][0].session)
    untuned = untuned_of(wanted.damage.or_none(connection, session))
    comparison = compare_schedules(entries, earlier, untuned)
    measured, schedule = next(e for e in entries if e[1].id == comparison[0].schedule)
    return Best(schedule, measured, False, location(connection), tuple(comparison))


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
        if entry is not None and _in_one_place(entry[0], timed):
            times.setdefault(entry[1].id, []).extend(entry[0].samples)
    return times


def _session_of(connection: Connection, measured: Measurement, damage: Damage) -> Session | None:
    return damage.or_none(connection, partial(get, connection, Session, measured.session))


def _together(measured: Measurement, other: Measurement) -> bool:
    """Whether two measurements are of the same finals."""
    return finals_key(measured) == finals_key(other) and measured.outcome is other.outcome


def _in_one_place(measured: Measurement, other: Measurement) -> bool:
    """Whether two measurements of a session are of one program, target and toolchain."""
    return all(getattr(measured, name) == getattr(other, name) for name in FINALS[:-1])


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
