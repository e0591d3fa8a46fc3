"""Schedules of records on a program: which apply, and why the others do not.

A record may come from elsewhere: its trace may be of a newer version, name a primitive that is not
there, or be refused by one. Such a record is set aside, and the next best takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...base.errors import DatabaseError, ScheduleError, TilewrightError
from ...base.text import excerpt, short_id
from ...schedule import Schedule, Trace
from ...tir.ir import Func
from ...tir.verify import verify
from ...tuning_db.values import AnyRecord, Measurement, Pin, ScheduleRecord, Workload
from ..records import workload_record

if TYPE_CHECKING:
    from ...tuning_db import TuningDatabase

_log = logging.getLogger(__name__)
_NAMED = 3
_WIDEST = 160


class Replays:
    """Decides whether schedules apply to `func`, for `TuningDatabase.best`; remembers the answers.

    A schedule applies if its trace can be replayed, the program that it makes verifies, and its
    record names its inexact steps. `unfit` are schedules (ids) that are known to be
    unusable, with reasons. `refused` are all that do not apply, with reasons.
    """

    def __init__(self, func: Func, unfit: Mapping[str, str] | None = None) -> None:
        self.refused: dict[str, str] = {}
        self._func = func
        self._unfit = unfit or {}
        self._applied: dict[str, Schedule] = {}
        self._told: set[str] = set(self._unfit)

    def __call__(self, record: ScheduleRecord) -> str | None:
        """The reason why a schedule does not apply; `None` if it does."""
        reason = self._unfit.get(record.id)
        if reason is None:
            try:
                inexact = ", ".join(self.schedule(record).trace.inexact)
            except ScheduleError as error:
                reason = brief(error)
            else:
                if inexact and not record.inexact:
                    reason = f"it has inexact steps ({inexact}), which its record does not name"
        if reason is not None:
            self.refused[record.id] = reason
        return reason

    def schedule(self, record: ScheduleRecord) -> Schedule:
        """The program, scheduled as a record says. Raises `ScheduleError` if it does not apply."""
        if record.id not in self._applied:
            self._applied[record.id] = replayed(Trace.from_json(record.trace), self._func)
        return self._applied[record.id]

    def warn(self, location: str) -> None:
        """Log which schedules of a database were set aside, each once."""
        new = {id: why for id, why in self.refused.items() if id not in self._told}
        if not new:
            return
        self._told.update(new)
        named = [f"schedule {short_id(id)}: {why}" for id, why in new.items()][:_NAMED]
        more = f"; and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        _log.warning(
            "%s: set aside %d of the best schedules in %s, which do not apply: %s%s",
            self._func.name,
            len(new),
            location,
            "; ".join(named),
            more,
        )


def replayed(trace: Trace, func: Func) -> Schedule:
    """The program, scheduled by a trace from elsewhere. Raises `ScheduleError` if that fails.

    Each step has its own checks: the result is verified because a trace may be written for what a
    step forgets.
    """
    try:
        schedule = trace.apply(func)
        verify(schedule.func)
    except ScheduleError:
        raise
    except (TilewrightError, RecursionError) as error:
        raise ScheduleError("{0}: {1}", type(error).__name__, brief(error)) from error
    return schedule


def read_trace(record: ScheduleRecord) -> Trace | None:
    """The trace of a record; `None`, with a warning, if it cannot be read."""
    try:
        return Trace.from_json(record.trace)
    except ScheduleError as error:
        _log.warning("the schedule %s cannot be read: %s", short_id(record.id), error)
        return None


def row_of(trace: Trace) -> tuple[int, ...] | None:
    """The decisions of a trace in order; `None` if it leaves some open."""
    row = [v for values in trace.decisions.values() for v in values]
    return None if None in row else tuple(v for v in row if v is not None)


def brief(error: BaseException) -> str:
    """The first line of an error and its hint, each shortened if it is long."""
    lines = str(error).splitlines() or [type(error).__name__]
    hints = [line.strip() for line in lines[1:] if line.startswith("  hint: ")][:1]
    return "; ".join(excerpt(line, _WIDEST) for line in (lines[0], *hints))


# The schedule of a record, on a program that people have in hand.


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
