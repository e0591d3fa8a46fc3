"""Which schedule a build takes: the policy, from records to predictions."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..base.errors import (
    BuildError,
    DatabaseError,
    LockError,
    NotTunedError,
    ScheduleError,
    TilewrightError,
    similar,
)
from ..base.text import count, printable, short_id
from ..runtime.module import Origin
from ..target import Target

if TYPE_CHECKING:
    from ..autotune.search.remembered import Way
    from ..autotune.search.replay import Replays
    from ..schedule import Schedule
    from ..tir.ir import Func
    from ..tuning_db import Best, Explanation, TargetRecord, Toolchain, TuningDatabase, Workload
    from .lock_file import LockedKernel, LockFile

POLICIES = ("record", "transfer", "model", "default")
MOST_UNFIT = 8
"""Recorded schedules that do not compile before records are given up; each takes a process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """A schedule that a policy offers: `func` is scheduled, or its schedule is found by `way`.

    The ids are those of its records. `seconds` are of a call, as measured for a record, as expected
    for a transfer; not known of others. A `way` may take steps of an `error_factor`
    (`Trace.error_factor`). `anew`: what is remembered on disk is not taken. `foreign`: the schedule
    was not measured on this host. `named`: what a warning calls it. `last`: where it
    fails, so does the build. `trace` is the JSON text of its steps, where it has no `way`.
    `reason` says why it is the choice, without what differs from place to place. `best` is what the
    lookup of a record found, `locked` the entry of a lock.
    """

    func: Func
    origin: Origin
    schedule_id: str | None = None
    measurement_id: str | None = None
    seconds: float | None = None
    way: Way | None = None
    error_factor: float = 1.0
    anew: bool = False
    foreign: bool = False
    named: str = "schedule"
    last: bool = False
    trace: str | None = None
    reason: str = ""
    best: Best | None = None
    locked: LockedKernel | None = None

    def trace_text(self, target: Target) -> str:
        """The JSON text of its steps; one with a `way` is found again, on disk where it is kept."""
        from ..autotune.measure.machine import with_rates
        from ..autotune.search.remembered import chosen

        if self.trace is not None:
            return self.trace
        assert self.way is not None, "a choice has steps, or a way to find them"
        found = chosen(self.func, with_rates(target), self.way, self.error_factor)
        return found.trace.to_json(notes=False)

    def scheduled(self, target: Target) -> Func:
        """The scheduled program, for a resolved target; it is searched for where it has a `way`."""
        from ..autotune.measure.machine import with_rates
        from ..autotune.search.remembered import chosen, chosen_anew

        if self.way is None:
            return self.func
        choose = chosen_anew if self.anew else chosen
        return choose(self.func, with_rates(target), self.way, self.error_factor).func


class Choices(Iterator[Choice]):
    """The choices for a build of one program, the first one first; for the policies see `build`.

    The target is resolved. Whoever finds that one fails sets it aside, and takes the next one.
    Where none is left, `NotTunedError` is raised.
    """

    def __init__(
        self,
        program: Func | Schedule,
        target: Target,
        database: TuningDatabase | None,
        allow: Sequence[str],
        tolerance: float | None = None,
        locked: LockFile | None = None,
    ) -> None:
        self.func = cast("Func", getattr(program, "func", program))
        self.name: str = getattr(self.func, "name", "?")
        self._unfit: dict[str, str] = {}
        self._offers = self._offered(program, target, database, allow, tolerance, locked)

    def __next__(self) -> Choice:
        return next(self._offers)

    def set_aside(self, choice: Choice, error: TilewrightError, *, found: bool) -> None:
        """Warn that a choice does not compile, or is not even found; raise where it is the last."""
        from ..autotune.search.replay import brief

        if choice.last:
            raise error
        reason = f"it {'does not compile' if found else 'is not found'}: {brief(error)}"
        _log.warning("%s: the %s is set aside: %s", self.name, choice.named, reason)
        if choice.schedule_id is not None:
            self._unfit[choice.schedule_id] = reason

    def _offered(
        self,
        program: Func | Schedule,
        target: Target,
        database: TuningDatabase | None,
        allow: Sequence[str],
        tolerance: float | None,
        locked: LockFile | None,
    ) -> Iterator[Choice]:
        from ..schedule import Schedule

        if isinstance(program, Schedule):
            yield _as_scheduled(program)
            return
        if locked is not None:
            yield _locked(program, locked)
            return
        _require_buildable(program)
        for n, policy in enumerate(policies := [p for p in POLICIES if p in allow]):
            last = n + 1 == len(policies)
            if policy == "record" and database is not None:
                yield from _recorded(program, target, database, tolerance, self._unfit)
            elif policy == "transfer" and database is not None:
                yield from _transferred(program, target, database, last=last)
            elif policy in _WHY:
                yield from _unmeasured(program, target, policy, tolerance, last=last)
        raise _not_tuned(program, target, database, allow, tolerance, self._unfit)


def require_policies(allow: object) -> None:
    """Raise `BuildError` unless these are policies."""
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


def _as_scheduled(program: Schedule) -> Choice:
    from ..tir.verify import verify

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
    trace = program.trace.to_json(notes=False)
    return Choice(program.func, Origin("schedule"), last=True, trace=trace)


def _require_buildable(program: Func) -> None:
    from ..tir.verify import verify

    _require_program(program)
    verify(program)


_WHY: dict[Way, str] = {
    "model": "chosen by the cost model, nothing was measured",
    "default": "chosen by the analytic model",
}


def _recorded(
    func: Func,
    target: Target,
    database: TuningDatabase,
    tolerance: float | None,
    unfit: Mapping[str, str],
) -> Iterator[Choice]:
    """The recorded schedules that apply, the best one first, as long as they are set aside."""
    while (choice := best_record(func, target, database, tolerance, unfit)) is not None:
        yield choice


def _locked(func: Func, lock: LockFile) -> Choice:
    """The schedule that a lock has for one of its programs; there is no other."""
    from ..autotune.search.replay import Replays
    from ..tir.equality import structural_hash

    _require_buildable(func)
    kernel = lock.by_program[structural_hash(func)]
    replays = Replays(func)
    refusal = replays(kernel.recorded)
    if refusal is not None:
        raise LockError(
            "{0}: the schedule {1} does not apply to {2}: {3}",
            lock.location, short_id(kernel.schedule), func.name, refusal,
            hint="freeze again, and review the difference: tilewright freeze",
            kernel=kernel.program,
        )  # fmt: skip
    where = "" if kernel.host is None else f" on {printable(kernel.host)}"
    recorded = kernel.source == "record"
    return Choice(
        replays.schedule(kernel.recorded).func,
        Origin(
            kernel.source,
            kernel.record,
            f"{printable(kernel.reason)}{where}, locked",
            schedule_id=kernel.schedule if recorded else None,
        ),
        kernel.schedule if recorded else None,
        kernel.record if kernel.time is not None else None,
        None if kernel.time is None else kernel.time.seconds,
        foreign=kernel.host != socket.gethostname(),
        named=f"locked schedule {short_id(kernel.schedule)}",
        last=True,
        trace=kernel.recorded.trace,
        reason=kernel.reason,
        locked=kernel,
    )


def best_record(
    func: Func,
    target: Target,
    database: TuningDatabase,
    tolerance: float | None,
    unfit: Mapping[str, str],
) -> Choice | None:
    """Returns the best recorded schedule that applies and is not unfit, or `None`."""
    from ..autotune.search.replay import Replays

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
    reason, doubt = "pinned" if best.pinned else "measured", f", {best.doubt}" if best.doubt else ""
    origin = Origin(
        "record",
        best.schedule.id if measured is None else measured,
        f"{reason} in {best.layer}{doubt}",
        schedule_id=best.schedule.id,
    )
    if best.doubt:
        named = short_id(best.schedule.id)
        _log.warning("%s: schedule %s: its results may be wrong: %s", func.name, named, best.how)
    return Choice(
        _replayed(func, best, replays),
        origin,
        best.schedule.id,
        measured,
        best.seconds,
        foreign=host_of(best, database) != socket.gethostname(),
        named=f"schedule {short_id(best.schedule.id)}, {origin.detail},",
        last=best.pinned,
        trace=best.schedule.trace,
        reason=reason + doubt,
        best=best,
    )


def _transferred(
    func: Func, target: Target, database: TuningDatabase, *, last: bool
) -> Iterator[Choice]:
    """The best schedule of other sizes or threads, re-fitted, if one fits."""
    from ..autotune.measure.machine import with_rates
    from ..autotune.search.transfer import threads_of, transferred
    from ..base.durations import format_seconds
    from ..tuning_db import TargetRecord

    workload, where, tools = _records(func, target)
    found = transferred(func, with_rates(target), database, workload, where, tools)
    if found is None:
        _log.info(
            "%s has no other sizes or threads of %s on %s", database.location, func.name, target
        )
        return
    source = found.source
    measured = source.measurement
    assert measured.seconds is not None, "what is usable has a time"
    # Where there is no arithmetic, the bytes are the work.
    work = (workload.flops, source.workload.flops)
    here, there = work if all(work) else (workload.bytes, source.workload.bytes)
    same_rate = measured.seconds * here / there if there else measured.seconds
    change = same_rate / found.seconds - 1
    fitted = f"re-fitted from {source.workload.shape}"
    if source.workload.id == workload.id:
        there = threads_of(database.get(TargetRecord, measured.target)) or 0
        threads = count(target.threads, "thread")
        fitted = f"recorded for {count(there, 'thread')} and re-fitted to {threads}"
    rate = f"{abs(change):.0%} {'below' if change < 0 else 'above'} the rate of that record"
    if round(change, 2) == 0:
        rate = f"at the same {'GFLOP/s' if all(work) else 'GB/s'} as the record"
    detail = (
        f"{fitted}, measured in {source.layer}; expected to take "
        f"{format_seconds(found.seconds)}, {rate}"
    )
    origin = Origin("transfer", measured.id, detail, round(max(0.0, -change), 4), measured.schedule)
    yield Choice(
        found.schedule.func,
        origin,
        seconds=found.seconds,
        named="schedule re-fitted from other sizes or threads",
        last=last,
        trace=found.schedule.trace.to_json(notes=False),
        reason=fitted,
    )


def _unmeasured(
    func: Func, target: Target, policy: str, tolerance: float | None, *, last: bool
) -> Iterator[Choice]:
    """The schedule that an earlier build has chosen, if it is remembered, and then a new one.

    Inexact steps may be taken if the error that is accepted of them, which is several times as
    large as those that are measured, is within the tolerance.
    """
    from ..autotune.measure.machine import with_rates
    from ..autotune.measure.numeric_check import tolerance_of
    from ..autotune.search.remembered import recalled

    way, factor, within = cast("Way", policy), 1.0, ""
    rounding = 0.0 if tolerance is None else tolerance_of(func)
    if tolerance is not None and 0.0 < rounding < tolerance:
        factor, within = tolerance / rounding, f", within a tolerance of {tolerance:g}"
    why = _WHY[way] + within
    origin = Origin(way, None, why)
    schedule = recalled(func, with_rates(target), way, factor)
    anew = schedule is not None
    if schedule is not None:
        trace = schedule.trace.to_json(notes=False)
        yield Choice(schedule.func, origin, named="remembered schedule", trace=trace, reason=why)
    yield Choice(
        func, origin, way=way, error_factor=factor, anew=anew, named=f"schedule {why},", last=last,
        reason=why,
    )  # fmt: skip


def host_of(best: Best, database: TuningDatabase) -> str | None:
    """The host whose session measured it; `None` where that is not known."""
    from ..tuning_db import Session

    if best.measurement is None:
        return None
    try:
        return database.get(Session, best.measurement.session).host
    except DatabaseError:
        return None  # a damaged session says nothing


def _replayed(func: Func, best: Best, replays: Replays) -> Func:
    try:
        return replays.schedule(best.schedule).func
    except ScheduleError as error:
        # Only of a pinned one: of others the lookup has asked.
        raise BuildError(
            "the schedule {0} that is pinned in {1} does not apply to {2}: {3}",
            short_id(best.schedule.id),
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
        hint=f"tune the program into the database, or allow {permitted(explanation)!r}",
        explanation=explanation,
    )


def permitted(explanation: Explanation | None) -> str:
    """The policy that would have found a schedule."""
    from ..tuning_db import Reason

    if explanation is None:
        return "default"
    threads = any(r.reason is Reason.OTHER_THREADS for r in explanation.refused)
    sizes = any(n.relative and n.count for n in explanation.near)
    return "transfer" if threads or sizes else "default"


def _require_program(program: object) -> None:
    from ..tir.ir import Func

    if not isinstance(program, Func):
        from ..tir.program import program_hint, shown

        raise BuildError(
            "expected a program (Func), a Schedule or a Graph to build, found {0}",
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
    from ..autotune.search.replay import Replays

    _require_program(func)
    replays = Replays(func, unfit)
    return database.explain(*_records(func, target), tolerance=tolerance, applies=replays)


def _records(func: Func, target: Target) -> tuple[Workload, TargetRecord, Toolchain]:
    """The key of a lookup: the program, where it is to run, and the compiler."""
    from ..autotune.records import target_record, toolchain_record, workload_record

    return workload_record(func), target_record(target), toolchain_record(target)
