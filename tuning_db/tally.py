"""Counts of measurements, and measurements one after the other, for summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select

from .finals_rule import FINALS, of_finals
from .read import COLUMNS, NAMES, Damage, get, raw, to_record
from .staleness import reverify, suspicious
from .tables import TABLES, measurement, schedule, session
from .values import Measurement, Outcome, TargetRecord, Toolchain

_PAGE = 1000


class Tally(NamedTuple):
    """How many measurements of a workload on a target a session (ids) has with an outcome.

    `trials` of them are trials (see `Trials`); the others are finals and what they compare with.
    """

    session: str
    workload: str
    target: str
    toolchain: str
    outcome: Outcome
    measurements: int
    trials: int


class Trials:
    """Counts the trials among the measurements of a session, which come in the order of time.

    A trial is a schedule that the budget paid for. Older versions did not record which those are:
    there each first measurement of a schedule is one while the budget lasts, if it is not of
    `finals`.
    """

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._schedules: set[str] = set()

    def __len__(self) -> int:
        return len(self._schedules)

    def add(self, schedule: str, trial: bool | None, *, finals: bool) -> bool:
        """Count the next measurement, by its schedule and its `trial`, if it is a new trial."""
        if trial is None:
            trial = not finals and len(self) != self._budget
        new = trial and schedule not in self._schedules
        if new:
            self._schedules.add(schedule)
        return new


def count_trials(connection: Connection, session_id: str) -> int:
    """How many trials a session (id) has in a database; 0 for an unknown one."""
    budget = select(session.c.trials).where(session.c.id == session_id)
    trials = Trials(connection.execute(budget).scalar())
    measured = (
        select(*(raw(measurement.c[name]).label(name) for name in _READ))
        .where(measurement.c.session == session_id)
        .order_by(measurement.c.created, measurement.c.id)
    )
    for row, finals in _with_finals(connection.execute(measured)):
        trials.add(row.schedule, row.trial, finals=finals)
    return len(trials)


def tally(connection: Connection) -> Iterator[Tally]:
    """The counts of a database; rows whose outcome is damaged are left out."""
    budgets = {row[0]: row[1] for row in connection.execute(_BUDGETS)}
    with connection.execute(_MEASURED, execution_options={"yield_per": _PAGE}) as rows:
        for session_id, of_session in groupby(rows, key=itemgetter(0)):
            yield from _tally_of_session(Trials(budgets.get(session_id)), of_session)


class Place(NamedTuple):
    """What a database has of a target and a generation of the compiler.

    `reverify` of the `measurements` are to be verified again; `None` where the tools of today are
    not known.
    """

    target: str
    generation: str
    programs: int
    measurements: int
    usable: int
    reverify: int | None


def counts(connection: Connection) -> dict[str, int]:
    """How many records of each kind a database has."""
    return {
        kind: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for kind, table in TABLES.items()
    }


def places(
    connection: Connection, today: Callable[[str], Toolchain | None], damage: Damage
) -> list[Place]:
    """What a database has by target and generation; `today` has the tools for a target's text."""
    of = measurement.c
    good = func.count().filter(of.outcome == Outcome.OK, of.verified)
    keys = [raw(of[name]) for name in ("target", "toolchain", "workload")]
    rows = connection.execute(select(*keys, func.count(), good).group_by(*keys).order_by(*keys))
    found: dict[tuple[str, str], list[_Part]] = {}
    for (target, tools), group in groupby(rows.all(), key=itemgetter(0, 1)):
        where = damage.or_none(connection, partial(get, connection, TargetRecord, target))
        made_by = damage.or_none(connection, partial(get, connection, Toolchain, tools))
        if where is not None and made_by is not None:
            _, _, workloads, numbers, usable = zip(*group, strict=True)
            part = _Part(where, made_by, set(workloads), sum(numbers), sum(usable))
            found.setdefault((where.text, made_by.generation), []).append(part)
    return [
        Place(
            *key,
            programs=len(set().union(*(part.workloads for part in parts))),
            measurements=sum(part.measurements for part in parts),
            usable=sum(part.usable for part in parts),
            reverify=_stale(connection, parts, today(key[0])),
        )
        for key, parts in sorted(found.items())
    ]


class _Part(NamedTuple):
    """What one toolchain measured on one target."""

    target: TargetRecord
    toolchain: Toolchain
    workloads: set[str]
    measurements: int
    usable: int


def _stale(connection: Connection, parts: Iterable[_Part], today: Toolchain | None) -> int | None:
    """How many measurements the tools of today have to verify again; `None` if there are none."""
    if today is None:
        return None
    stale = 0
    for target, made_by, _, measurements, _ in parts:
        if made_by.generation != today.generation:
            stale += measurements
            continue
        traces = (
            select(raw(schedule.c.trace))
            .join_from(measurement, schedule, measurement.c.schedule == schedule.c.id)
            .where(
                measurement.c.target == target.id,
                measurement.c.toolchain == made_by.id,
                or_(*map(schedule.c.trace.like, suspicious(today))),
            )
        )
        for trace in connection.execute(traces, execution_options={"yield_per": _PAGE}).scalars():
            stale += reverify(trace, made_by, today) is not None
    return stale


_BUDGETS = select(*(raw(session.c[name]) for name in ("id", "trials")))
_GROUP = Tally._fields[:5]
_READ = (*_GROUP, "created", "schedule", "trial")
_MEASURED = select(*(raw(measurement.c[name]).label(name) for name in _READ)).order_by(
    measurement.c.session, measurement.c.created, measurement.c.id
)


def _with_finals(rows: Iterable[Row[Any]]) -> Iterator[tuple[Row[Any], bool]]:
    """The measurements of a session in the order of time, each with whether it is of finals."""
    for _, group in groupby(rows, key=attrgetter("created")):
        together = list(group)
        keys = ((tuple(getattr(row, n) for n in FINALS), row.outcome) for row in together)
        yield from zip(together, of_finals(keys), strict=True)


def _tally_of_session(trials: Trials, rows: Iterable[Row[Any]]) -> Iterator[Tally]:
    """The counts of one session, whose measurements come in the order of time."""
    counts: dict[tuple[Any, ...], list[int]] = {}
    latest: Any = None
    counted: list[int] = []
    for row, finals in _with_finals(rows):
        count = counts.setdefault(tuple(row[: len(_GROUP)]), [0, 0])
        count[0] += 1
        if trials.add(row.schedule, row.trial, finals=finals):
            latest, counted = row.schedule, count
            count[1] += 1
        elif row.trial and row.schedule == latest:  # timed again: the last outcome counts
            counted[1] -= 1
            count[1] += 1
            counted = count
    for key, (number, of_trials) in counts.items():
        session_id, workload, target, toolchain, outcome = key
        with suppress(ValueError):
            yield Tally(
                session_id, workload, target, toolchain, Outcome(outcome), number, of_trials
            )


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
