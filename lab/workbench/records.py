"""Schedules of a database as starting points, and the lab's choice as the one that builds take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ...autotune.records import schedule_record, target_record
from ...base.errors import ScheduleError
from ...base.text import short_id
from ...schedule import Trace
from ...target import Target
from ...tuning_db import TuningDatabase
from ...tuning_db.finals_rule import finals_key
from ...tuning_db.interleaved_comparison import compare_schedules
from ...tuning_db.results import Best, ComparedSchedule
from ...tuning_db.values import (
    Measurement,
    Order,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    Workload,
    verified,
)
from ..pictures.decisions import DecisionNames
from ..pictures.page import text
from .program_tree import Data
from .sliders import MOST as MOST_SLIDERS
from .versions import LabError, Timing, Version

MOST = 2000
"""The newest measurements among which the schedules of a program are listed."""
_NAME = 120
"""Characters of the name of a decision."""
_FAST = 200
"""The fastest measurements whose schedules are listed too, however old they are."""
Entry = tuple[Measurement, ScheduleRecord]
Compared = tuple[Measurement, ScheduleRecord, ComparedSchedule | None]
"""A schedule with its last time, and how it compares where that is of finals."""


def required(database: TuningDatabase | None) -> TuningDatabase:
    """The database of a lab. Raises `LabError` if it has none."""
    if database is None:
        raise LabError(
            "this lab has no database",
            hint='open it with one: tw.lab(func, target, tw.TuningDatabase("tuning.db"))',
        )
    return database


Listed = tuple[Data, Measurement, ScheduleRecord]
"""A row of the list of schedules, with what it is of."""


def listed(database: TuningDatabase, workload: Workload, target: Target) -> list[Listed]:
    """The schedules of a program that ran, by their last times, as `open` shows them.

    The pinned one comes first and the recorded best next, then the fastest, finals in their own
    order at the place of their choice; those of comparable targets before others.
    """
    here = target_record(target)
    best = database.best(workload.id, here, pins=False)
    pin = pinned_schedule(database, workload, target)
    ranked: list[Compared] = []
    for where in (here, None):
        ranked += _ranked(_last(database, workload, where).values(), best)
    found: dict[str, Compared] = {}
    for entry in sorted(ranked, key=lambda entry: entry[1].id != pin):
        found.setdefault(entry[1].id, entry)
    targets: dict[str, TargetRecord] = {}
    of_all: list[Listed] = []
    for m, s, c in found.values():
        more = {"pinned": s.id == pin, "finals": _of_finals(c)}
        of_all.append(({**_row(database, m, s, here, targets), **more}, m, s))
    return of_all


def completed(
    database: TuningDatabase, entries: Sequence[Listed], names: DecisionNames
) -> list[Data]:
    """The rows of a page, with what is read for no others.

    These are the `decisions` in which schedules of the same decisions differ, and whether the
    numeric check of a schedule `failed`.
    """
    decisions = [_decisions(schedule, names) for _, _, schedule in entries]
    groups: dict[tuple[str, ...], list[dict[str, int]]] = {}
    for row in decisions:
        groups.setdefault(tuple(row), []).append(row)
    differ = {
        key: {n for n in key if len({r[n] for r in rows}) > 1} for key, rows in groups.items()
    }
    return [
        {
            **row,
            "failed": _checked(database, measured) is False,
            "decisions": [
                {"name": text(name, _NAME), "value": value}
                for name, value in taken.items()
                if name in differ[tuple(taken)]
            ][:MOST_SLIDERS],
        }
        for (row, measured, _), taken in zip(entries, decisions, strict=True)
    ]


def _decisions(schedule: ScheduleRecord, names: DecisionNames) -> dict[str, int]:
    try:
        return names.decisions(Trace.from_json(schedule.trace, older=True))
    except ScheduleError:  # damaged, or of a primitive that is not here
        return {}


def pinned_schedule(database: TuningDatabase, workload: Workload, target: Target) -> str | None:
    """The id of the schedule that is pinned for builds of a program; `None` without a pin."""
    pin = database.pinned(workload.id, target_record(target))
    return None if pin is None else pin.schedule


def _ranked(entries: Iterable[Entry], best: Best | None) -> list[Compared]:
    """Schedules by their times, finals in their own order; the best before all."""
    first = None if best is None else best.schedule.id
    comparison = () if best is None else best.comparison
    groups: dict[object, list[Entry]] = {}
    for measured, schedule in entries:
        groups.setdefault(finals_key(measured), []).append((measured, schedule))
    ranked = [_compared(group, comparison) for group in groups.values()]
    ranked.sort(key=lambda group: (group[0][1].id != first, _timing(group[0][0]).seconds))
    listed = [entry for group in ranked for entry in group]
    return sorted(listed, key=lambda entry: entry[1].id != first)


def _compared(group: Sequence[Entry], best: Sequence[ComparedSchedule]) -> list[Compared]:
    """Measurements of one moment, in the order of their comparison."""
    if len(group) == 1:
        return [(*group[0], None)]
    by_id = {schedule.id: (measured, schedule) for measured, schedule in group}
    if by_id.keys() != {c.schedule for c in best}:
        # Nothing is chosen by this: the times before the finals, which may, are not read.
        best = compare_schedules(group, dict)
    return [(*by_id[c.schedule], c) for c in best]


def _of_finals(compared: ComparedSchedule | None) -> str | None:
    """How a finalist compares, where its time does not show it."""
    return (
        f"finals, compared with the fastest: {compared}"
        if compared is not None and compared.early
        else None
    )


def times(database: TuningDatabase, workload: Workload, target: Target) -> dict[str, float]:
    """The last times of schedules (ids) of a program on such a target."""
    last = _last(database, workload, target_record(target))
    return {id: m.seconds for id, (m, _) in last.items() if m.seconds is not None}


def _last(
    database: TuningDatabase, workload: Workload, target: TargetRecord | None
) -> dict[str, tuple[Measurement, ScheduleRecord]]:
    """The last measurement of each schedule (id): that of finals, where a session held them."""
    rows = partial(database.history, workload=workload.id, target=target, outcome=Outcome.OK)
    last: dict[str, tuple[Measurement, ScheduleRecord]] = {}
    for measured, schedule in rows(limit=MOST):
        last.setdefault(schedule.id, (measured, schedule))
    for _, schedule in rows(order=Order.TIME, limit=_FAST):
        if schedule.id not in last:
            last.update((s.id, (m, s)) for m, s in rows(schedule=schedule.id, limit=1))
    return last


def _row(
    database: TuningDatabase,
    measured: Measurement,
    schedule: ScheduleRecord,
    here: TargetRecord,
    targets: dict[str, TargetRecord],
) -> Data:
    if measured.target not in targets:
        targets[measured.target] = database.get(TargetRecord, measured.target)
    target = targets[measured.target]
    timing = _timing(measured).data()
    return {
        "record": schedule.id,
        "id": short_id(schedule.id),
        "seconds": timing["seconds"],
        "interval": timing["interval"],
        "text": timing["text"],
        "generator": text(schedule.generator),
        "target": text(target.text),
        "comparable": target.comparable == here.comparable,
        "created": measured.created.isoformat(timespec="seconds"),
    }


def known_timing(
    database: TuningDatabase, workload: Workload, target: Target, schedule: ScheduleRecord
) -> Timing | str | None:
    """The last time of a schedule on such a target; `None` if it never ran there.

    `checked` says whether the database has it as verified. Of one whose numeric check failed, that
    is returned as words.
    """
    here = target_record(target)
    rows = database.measurements(
        workload=workload.id, target=here, schedule=schedule.id, outcome=Outcome.OK, limit=1
    )
    if not rows:
        return None
    (last,) = rows
    known = _checked(database, last)
    if known is False:
        return "a numeric check of its results failed, as the database has it"
    return _timing(last, checked=known is True)


def _checked(database: TuningDatabase, measured: Measurement) -> bool | None:
    """Whether checks verify a schedule where it was measured; `None` if there are none."""
    target = database.get(TargetRecord, measured.target)
    checks = database.verifications(measured.workload, target, measured.schedule)
    place = (measured.target, measured.toolchain)
    return verified(c for c in checks if (c.target, c.toolchain) == place)


def _timing(measured: Measurement, checked: bool | None = None) -> Timing:
    assert measured.seconds is not None, "what ran has a time"
    return Timing(measured.seconds, measured.samples, checked)


def pinned(
    database: TuningDatabase,
    workload: Workload,
    target: Target,
    version: Version,
    generator: str,
    *,
    unverified: bool,
) -> ScheduleRecord:
    """Record the schedule of a version, and make it the choice of builds; see `pin`."""
    record = schedule_record(version.schedule.trace, generator)
    database.pin(workload, target_record(target), record, unverified=unverified)
    return record
