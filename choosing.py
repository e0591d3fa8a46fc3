"""Which schedule a build takes: the policy, from records to predictions."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import BuildError, DatabaseError, NotTunedError, ScheduleError, similar
from .runtime.module import Origin
from .target import Target

if TYPE_CHECKING:
    from .autotune.search.remembered import Way
    from .autotune.search.replay import Replays
    from .schedule import Schedule
    from .tir.ir import Func
    from .tuning_db import Best, Explanation, TargetRecord, Toolchain, TuningDatabase, Workload

POLICIES = ("record", "transfer", "model", "default")
MOST_UNFIT = 8
"""Recorded schedules that do not compile before records are given up; each takes a process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """A scheduled program, the origin of its schedule, and the ids of its records.

    `foreign`: the schedule was not measured on this host. `pinned`: the user has fixed it.
    `recalled`: it was chosen by an earlier build, and remembered on disk.
    """

    func: Func
    origin: Origin
    schedule_id: str | None = None
    measurement_id: str | None = None
    foreign: bool = False
    pinned: bool = False
    recalled: bool = False


def choose(found: Choice | tuple[Func, Way], target: Target, *, recall: bool = True) -> Choice:
    """Returns what `chosen_without_search` found for a resolved target, after the search if needed.

    Without `recall` no remembered choice is taken.
    """
    from .autotune.measure.machine import with_rates
    from .autotune.search.remembered import chosen_anew, recalled

    if isinstance(found, Choice):
        return found
    func, way = found
    target = with_rates(target)
    origin, schedule = Origin(way, None, _WHY[way]), recalled(func, target, way) if recall else None
    if schedule is not None:
        return Choice(schedule.func, origin, recalled=True)
    return Choice(chosen_anew(func, target, way).func, origin)


def chosen_without_search(
    program: Func | Schedule,
    target: Target,
    database: TuningDatabase | None,
    allow: Sequence[str],
    tolerance: float | None = None,
    unfit: Mapping[str, str] | None = None,
) -> Choice | tuple[Func, Way]:
    """Returns the schedule that the policy selects, or the program and who chooses by searching.

    The target is resolved; for the policy see `build`. `unfit` maps the ids of recorded schedules
    that do not compile to the reason.
    """
    from .autotune.measure.numeric_check import require_tolerance
    from .schedule import Schedule
    from .tir.verify import verify

    if isinstance(allow, str) or not isinstance(allow, Sequence):
        raise BuildError(
            "allow: expected a list of policies, found {0!r}",
            allow,
            hint=f"allow=[{allow!r}]" if allow in POLICIES else f"some of {', '.join(POLICIES)}",
        )
    unknown = [a for a in allow if a not in POLICIES]
    if unknown:
        raise BuildError(
            "unknown policy {0!r}; expected some of {1}",
            unknown[0],
            ", ".join(POLICIES),
            hint=similar(str(unknown[0]), POLICIES),
        )
    if isinstance(program, Schedule):
        if program.space is not None:
            raise BuildError(
                "the sizes of a symbolic schedule are open",
                hint="replay its trace with decisions: trace.with_row(row).apply(func)",
            )
        if len(program.funcs) > 1:
            raise BuildError(
                "a schedule of several programs ({0}); expected one, to build one kernel",
                ", ".join(program.funcs),
                hint=f"build(Schedule(sch.funcs[{next(iter(program.funcs))!r}])) builds one as is",
            )
        verify(program.original)
        return Choice(program.func, Origin("schedule"))
    _require_program(program)
    if database is not None:
        from .tuning_db.arguments import require_database

        require_database(database, BuildError)
    require_tolerance(tolerance, BuildError)
    verify(program)
    if database is not None and "record" in allow:
        found = _lookup(program, target, database, tolerance, unfit or {})
        if found is not None:
            return found
    if database is not None and "transfer" in allow:
        found = _transferred(program, target, database)
        if found is not None:
            return found
    for way in _WHY:
        if way in allow:
            return program, way
    raise _not_tuned(program, target, database, allow, tolerance, unfit or {})


_WHY: dict[Way, str] = {
    "model": "chosen by the cost model, nothing was measured",
    "default": "chosen by the analytic model",
}


def _lookup(
    func: Func,
    target: Target,
    database: TuningDatabase,
    tolerance: float | None,
    unfit: Mapping[str, str],
) -> Choice | None:
    """Returns the best recorded schedule that applies, or `None`."""
    from .autotune.search.replay import Replays

    if len(unfit) >= MOST_UNFIT:
        _log.warning("%s: no other record is tried, %d do not compile", func.name, len(unfit))
        return None
    workload, where, tools = _records(func, target)
    replays = Replays(func, unfit)
    best = database.best(workload.id, where, tools, tolerance=tolerance, applies=replays)
    replays.warn(database.location)
    if best is None:
        _log.info("%s has no usable record of %s on %s", database.location, func.name, target)
        return None
    measured = None if best.measurement is None else best.measurement.id
    origin = Origin(
        "record",
        best.schedule.id if measured is None else measured,
        f"pinned in {best.layer}" if best.pinned else f"measured in {best.layer}",
    )
    foreign = not _measured_here(best, database)
    scheduled = _replayed(func, best, replays)
    return Choice(scheduled, origin, best.schedule.id, measured, foreign, best.pinned)


def _transferred(func: Func, target: Target, database: TuningDatabase) -> Choice | None:
    """Returns the best schedule of other sizes, re-fitted, or `None` if none fits."""
    from .autotune.measure.machine import with_rates
    from .autotune.search.transfer import transferred
    from .runtime.timer import format_seconds

    workload, where, tools = _records(func, target)
    found = transferred(func, with_rates(target), database, workload, where, tools)
    if found is None:
        _log.info("%s has no other sizes of %s on %s", database.location, func.name, target)
        return None
    source = found.source
    measured = source.measurement
    assert measured.seconds is not None, "what is usable has a time"
    # Where there is no arithmetic, the bytes are the work.
    work = (workload.flops, source.workload.flops)
    here, there = work if all(work) else (workload.bytes, source.workload.bytes)
    same_rate = measured.seconds * here / there if there else measured.seconds
    loss = max(0.0, 1 - same_rate / found.seconds)
    detail = (
        f"re-fitted from {source.workload.shape}, measured in {source.layer}; expected to take "
        f"{format_seconds(found.seconds)}, {loss:.0%} below the rate of that record"
    )
    func = found.trace.apply(func).func
    return Choice(func, Origin("transfer", measured.id, detail, round(loss, 4)))


def _measured_here(best: Best, database: TuningDatabase) -> bool:
    """Whether a session on this host measured it; otherwise it was pinned, imported or merged."""
    from .tuning_db import Session

    if best.measurement is None:
        return False
    try:
        session = database.get(Session, best.measurement.session)
    except DatabaseError:
        return False  # a damaged session says nothing
    return session.host == socket.gethostname()


def _replayed(func: Func, best: Best, replays: Replays) -> Func:
    try:
        return replays.schedule(best.schedule).func
    except ScheduleError as error:
        # Only of a pinned one: of others the lookup has asked.
        raise BuildError(
            "the schedule {0} that is pinned in {1} does not apply to {2}: {3}",
            best.schedule.id[:12],
            best.layer,
            func.name,
            error,
            hint="pin another schedule, or remove the pin: database.unpin(workload_id, target)",
        ) from error


def _not_tuned(
    func: Func,
    target: Target,
    database: TuningDatabase | None,
    allow: Sequence[str],
    tolerance: float | None,
    unfit: Mapping[str, str],
) -> NotTunedError:
    explanation = None
    if database is not None:
        explanation = explained(func, target, database, tolerance, unfit)
    return NotTunedError(
        "no schedule for {0} on {1} is permitted by allow={2}:\n{3}",
        func.name,
        str(target),
        list(allow),
        "no database was given" if explanation is None else explanation,
        hint="tune the program into the database, or allow 'default'",
        explanation=explanation,
    )


def _require_program(program: object) -> None:
    from .tir.ir import Func

    if not isinstance(program, Func):
        from .tir.no_program import program_hint, shown

        raise BuildError(
            "expected a program (Func) or a Schedule to build, found {0}",
            shown(program),
            hint=program_hint(program, "tw.build"),
        )


def explained(
    func: Func,
    target: Target,
    database: TuningDatabase,
    tolerance: float | None,
    unfit: Mapping[str, str] | None = None,
) -> Explanation:
    from .autotune.search.replay import Replays
    from .tuning_db.arguments import require_database

    _require_program(func)
    require_database(database, BuildError)
    replays = Replays(func, unfit)
    return database.explain(*_records(func, target), tolerance=tolerance, applies=replays)


def _records(func: Func, target: Target) -> tuple[Workload, TargetRecord, Toolchain]:
    """The key of a lookup: the program, where it is to run, and the compiler."""
    from .autotune.records import target_record, toolchain_record, workload_record

    return workload_record(func), target_record(target), toolchain_record(target)
