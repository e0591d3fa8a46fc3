"""Schedules of a database as starting points, and the lab's choice as the one that builds take."""

from __future__ import annotations

from ..autotune.records import schedule_record, target_record
from ..autotune.search.replay import Replays
from ..errors import DatabaseError
from ..ids import short_id
from ..schedule import Schedule
from ..target import Target
from ..tir.ir import Func
from ..tuning_db import TuningDatabase
from ..tuning_db.values import (
    Measurement,
    Order,
    Outcome,
    Pin,
    ScheduleRecord,
    TargetRecord,
    Workload,
)
from .page import text
from .program_tree import Data
from .versions import LabError, Timing, Version

MOST = 2000
"""Measurements among which the schedules of a program are listed."""


def required(database: TuningDatabase | None) -> TuningDatabase:
    """The database of a lab. Raises `LabError` if it has none."""
    if database is None:
        raise LabError(
            "this lab has no database",
            hint='open it with one: tw.lab(func, target, tw.TuningDatabase("tuning.db"))',
        )
    return database


def listed(database: TuningDatabase, workload: Workload, target: Target) -> list[Data]:
    """The schedules of a program that ran, the fastest first; those of comparable targets before
    others."""
    here = target_record(target)
    found: dict[str, tuple[Measurement, ScheduleRecord]] = {}
    for where in (here, None):
        rows = database.history(
            workload=workload.id, target=where, outcome=Outcome.OK, order=Order.TIME, limit=MOST
        )
        for measured, schedule in rows:
            found.setdefault(schedule.id, (measured, schedule))
    targets: dict[str, TargetRecord] = {}
    return [_row(database, m, s, here, targets) for m, s in found.values()]


def times(database: TuningDatabase, workload: Workload, target: Target) -> dict[str, float]:
    """The last times of schedules (ids) of a program on such a target."""
    here = target_record(target)
    rows = database.measurements(workload=workload.id, target=here, outcome=Outcome.OK, limit=MOST)
    found: dict[str, float] = {}
    for measured in rows:
        if measured.seconds is not None:
            found.setdefault(measured.schedule, measured.seconds)
    return found


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
    return {
        "record": schedule.id,
        "id": short_id(schedule.id),
        "seconds": measured.seconds,
        "generator": text(schedule.generator),
        "target": text(target.text),
        "comparable": target.comparable == here.comparable,
        "created": measured.created.isoformat(timespec="seconds"),
    }


def opened(database: TuningDatabase, prefix: str, func: Func) -> tuple[ScheduleRecord, Schedule]:
    """The schedule of a record, that of a schedule or measurement whose id begins so.

    Raises `DatabaseError` if there is none, and `ScheduleError`, which names the step, where it
    does not apply to the program.
    """
    record = database.find(prefix)
    if isinstance(record, (Measurement, Pin)):
        record = database.get(ScheduleRecord, record.schedule)
    if not isinstance(record, ScheduleRecord):
        raise DatabaseError(
            "{0} is a {1}; expected a schedule or a measurement", short_id(record.id), record.kind
        )
    return record, Replays(func).schedule(record)


def known_timing(
    database: TuningDatabase, workload: Workload, target: Target, schedule: ScheduleRecord
) -> Timing | None:
    """The last time of a schedule on such a target; `None` if it never ran there."""
    here = target_record(target)
    rows = database.measurements(
        workload=workload.id, target=here, schedule=schedule.id, outcome=Outcome.OK, limit=1
    )
    if not rows or rows[0].seconds is None:
        return None
    return Timing(rows[0].seconds, rows[0].samples, None)


def pinned(
    database: TuningDatabase, workload: Workload, target: Target, version: Version, generator: str
) -> ScheduleRecord:
    """Record the schedule of a version, and make it the choice of builds."""
    record = schedule_record(version.schedule.trace, generator)
    where = target_record(target)
    database.put(workload, where, record)
    database.pin(workload.id, where, record.id)
    return record
