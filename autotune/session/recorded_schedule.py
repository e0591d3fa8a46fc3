"""The schedule of a record, on a program that people have in hand."""

from __future__ import annotations

from typing import NamedTuple

from ...base.errors import DatabaseError, ScheduleError
from ...base.text import short_id
from ...schedule import Schedule
from ...tir.ir import Func
from ...tuning_db import TuningDatabase
from ...tuning_db.values import AnyRecord, Measurement, Pin, ScheduleRecord, Workload
from ..search.replay import Replays
from .records import workload_record

_NAMED = 3


class RecordedSchedule(NamedTuple):
    """The program with the schedule of `record`.

    `of_others` are the programs that it was measured or pinned for, if this is none of them.
    """

    record: ScheduleRecord
    schedule: Schedule
    of_others: list[str]


def recorded_schedule(database: TuningDatabase, prefix: str, func: Func) -> RecordedSchedule:
    """The schedule of the record whose id begins so: a schedule, a measurement or a pin.

    Raises `DatabaseError` if there is none, and `ScheduleError`, which names the step, where it
    does not apply. That says what it is of, if not of this program.
    """
    named = database.find(prefix)
    record = database.schedule_of(named)
    if record is None:
        raise DatabaseError(
            "{0} is the id of a {1}; expected a schedule or a measurement",
            short_id(named.id),
            named.kind,
            hint="`tilewright db list` has the ids of measurements",
        )
    own = workload_record(func)
    workloads = _workloads(database, named)
    others = [w.text for w in workloads] if own.id not in {w.id for w in workloads} else []
    try:
        return RecordedSchedule(record, Replays(func).schedule(record), others)
    except ScheduleError as error:
        if not others:
            raise
        raise ScheduleError(
            "the {0} {1} is of {2}, and does not apply to {3}: {4}",
            named.kind,
            short_id(named.id),
            "; ".join(others[:_NAMED]),
            own.text,
            error,
            hint="name the program and the sizes that it is of, or a record of this program, of "
            "which `tilewright db list` has the ids",
            at=error.place,
            primitive=error.primitive,
            asked=error.asked,
            step=error.step,
            func=error.func,
        ) from error


def _workloads(database: TuningDatabase, record: AnyRecord) -> list[Workload]:
    """The programs that a record is of: for a schedule, those that it was measured for."""
    match record:
        case Measurement() | Pin():
            ids = [record.workload]
        case _:
            measured = database.measurements(schedule=record.id)
            ids = list(dict.fromkeys(m.workload for m in measured))
    return [database.get(Workload, id) for id in ids]
