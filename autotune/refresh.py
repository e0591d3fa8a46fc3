"""`refresh`: the best schedules of older compilers and primitives are measured again.

What another generation of the compiler measured, or an older version of a primitive made, is no
longer known to be fast or right: no build takes it (see `tuning_db/staleness.py`). Its steps are
still a good guess. They are applied again with the primitives of today, and a short session
compares the program that they make with the program as written and the untuned build.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..base.durations import format_seconds
from ..base.errors import ScheduleError, TilewrightError, TuningError, checked_call
from ..codegen.detect import check_runnable, resolve
from ..schedule import Schedule, Trace
from ..target import Target
from ..tir.equality import structural_hash
from ..tir.ir import Func
from ..tir.parser import parse
from ..tuning_db import TuningDatabase
from ..tuning_db.arguments import opened
from ..tuning_db.results import Best
from ..tuning_db.staleness import PRIMITIVE, reverify
from ..tuning_db.store import DatabaseOrPath
from ..tuning_db.values import ScheduleRecord, Session, TargetRecord, Toolchain, Workload
from .config import TuneConfig
from .records import schedule_record, target_record, toolchain_record, workload_record
from .result import TuneResult
from .rules.division import pieces_of
from .search.replay import brief, replayed
from .tune import HasKernels, tune

_BESIDE = 4
"""Trials of the program as written, the untuned build and schedules of other sizes, which may take
half of a batch."""


@dataclass(frozen=True)
class Refreshed:
    """A program whose best schedule was to be verified again, on a target.

    `seconds` is its time as it was recorded, and `why` says what made it stale. `result` is that of
    the session that measured it again; `None` where none did, because `refused` says so in words,
    or because the time was over.
    """

    workload: str
    target: str
    seconds: float
    why: str
    result: TuneResult | None = None
    refused: str | None = None

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        if self.refused is not None:
            return self.refused
        if self.result is None:
            return "waits: the time is over"
        best = self.result.best
        return "nothing usable" if best is None else format_seconds(best.seconds)

    def __repr__(self) -> str:
        was = format_seconds(self.seconds)
        return f"<Refreshed {self.workload[:40]!r}: was {was}, {self.outcome}>"


@checked_call(TuningError, 'tw.refresh("tuning.db")')
def refresh(
    database: DatabaseOrPath,
    programs: Func | HasKernels | Sequence[Func | HasKernels] | None = None,
    target: Target | str | None = None,
    *,
    seconds: float | None = None,
    tolerance: float | None = None,
    config: TuneConfig | None = None,
    callback: Callable[[Refreshed], None] | None = None,
) -> list[Refreshed]:
    """Measure the best schedules of older compilers and primitives again, for at most `seconds`.

    Of each program the best is taken as each older generation of the compiler measured it, or as
    older versions of primitives made it. The most used programs come first: of models those that a
    call runs most often, of a database alone those with the most sessions. What was measured again
    already is left out, so that a refresh that ended early goes on where it was.

    `programs` are all of the database by default; `target` is each of its targets that this machine
    is. An interrupt ends it, as it ends `tune`. The older records stay as they are. `callback` is
    called with each program as soon as its session ends; `tolerance` is as for `tune`.

    Raises `TuningError` for what are no programs, `TargetError` for a target that this machine does
    not run, and `DatabaseError`. What hinders a single program is its `refused`.
    """
    store = opened(database, TuningError, write=True)
    ends = None if seconds is None else time.monotonic() + seconds
    stale = list(_stale(store, _weighed(store, programs), _targets(store, target), tolerance))
    done = []
    for one in stale:
        left = None if ends is None else ends - time.monotonic()
        done.append(_measured(store, one, left, tolerance, config))
        if callback is not None:
            callback(done[-1])
        if (result := done[-1].result) is not None and result.interrupted:
            break
    return done


class _Stale(NamedTuple):
    """A program, and the schedules of older compilers that are to be measured again."""

    func: Func | None
    workload: Workload
    target: Target
    best: Best
    why: str
    schedules: Sequence[Schedule] = ()
    refused: str | None = None


def _measured(
    database: TuningDatabase,
    stale: _Stale,
    seconds: float | None,
    tolerance: float | None,
    config: TuneConfig | None,
) -> Refreshed:
    result, refused = None, stale.refused
    if refused is None and (seconds is None or seconds > 0):
        try:
            result = tune(
                stale.schedules,
                stale.target,
                database=database,
                trials=2 * len(stale.schedules) + _BESIDE,
                seconds=seconds,
                tolerance=tolerance,
                config=config,
                progress=False,
            )
        except TilewrightError as error:
            if isinstance(error, TuningError | ScheduleError):
                refused = brief(error)
            else:
                raise
    assert stale.best.seconds is not None, "what is pinned is not asked"
    return Refreshed(
        stale.workload.text, str(stale.target), stale.best.seconds, stale.why, result, refused
    )


def _weighed(
    database: TuningDatabase, programs: Func | HasKernels | Sequence[Func | HasKernels] | None
) -> list[tuple[Workload, Func | None]]:
    """The programs, the most used first; `None` for one whose record does not read back."""
    if programs is None:
        sessions = Counter(session.workload for session in database.records(Session))
        known = [w for w in database.records(Workload) if sessions[w.id] > 0]
        known.sort(key=lambda w: (-sessions[w.id], w.id))
        return [(workload, _program(workload)) for workload in known]
    runs: dict[str, tuple[Func, float]] = {}
    for given in programs if isinstance(programs, Sequence) else [programs]:
        for func, count in _kernels(given).items():
            key = structural_hash(func)
            runs[key] = func, count + runs.get(key, (func, 0.0))[1]
    used = sorted(runs.values(), key=lambda run: -run[1])
    return [(workload_record(func), func) for func, _ in used]


def _kernels(given: object) -> dict[Func, float]:
    if isinstance(given, HasKernels):
        return dict(given.kernels())
    if not isinstance(given, Func):
        raise TuningError("expected programs (Func) or graphs, found {0!r:.80}", given)
    return {p.func: 1.0 for p in pieces_of(given, resolve("cpu"))} or {given: 1.0}


def _program(workload: Workload) -> Func | None:
    """The program of a record, if its text is that of its id."""
    try:
        func = parse(workload.ir)
        return func if structural_hash(func) == workload.id else None
    except (TilewrightError, RecursionError):
        return None


def _targets(database: TuningDatabase, target: Target | str | None) -> list[Target]:
    """The target, or those of the database that this machine is."""
    if target is not None:
        resolved = resolve(target)
        check_runnable(resolved)
        return [resolved]
    found: dict[str, Target] = {}
    for record in database.records(TargetRecord):
        try:
            resolved = resolve(record.text)
            check_runnable(resolved)
        except TilewrightError:
            continue  # of another machine
        here = target_record(resolved)
        if here.comparable == record.comparable:
            found.setdefault(here.comparable, resolved)
    return list(found.values())


def _stale(
    database: TuningDatabase,
    programs: Sequence[tuple[Workload, Func | None]],
    targets: Sequence[Target],
    tolerance: float | None,
) -> Iterator[_Stale]:
    toolchains = database.records(Toolchain)
    for workload, func in programs:
        for target in targets:
            stale = _stale_of(database, workload, func, target, toolchains, tolerance)
            if stale is not None:
                yield stale


def _stale_of(
    database: TuningDatabase,
    workload: Workload,
    func: Func | None,
    target: Target,
    toolchains: Sequence[Toolchain],
    tolerance: float | None,
) -> _Stale | None:
    """What is to be measured again of a program; `None` where nothing is."""
    now, where = toolchain_record(target), target_record(target)
    current = {t.id for t in toolchains if t.generation == now.generation}
    renewed: dict[str, Schedule] = {}

    def applies(record: ScheduleRecord) -> str | None:
        if func is None:
            return None
        try:
            renewed[record.id] = replayed(Trace.from_json(record.trace, older=True), func)
        except ScheduleError as error:
            return brief(error)
        return None

    found: list[tuple[Best, str]] = []
    for tools in {_known_by(t): t for t in toolchains}.values():
        best = database.best(
            workload.id,
            where,
            tools,
            tolerance=tolerance,
            applies=applies,
            pins=False,
        )
        why = None if best is None else reverify(best.schedule.trace, tools, now)
        if best is not None and why is not None:
            found.append((best, why))
    if not found:
        return None
    best, why = min(found, key=lambda each: each[0].seconds or 0.0)
    if func is None:
        refused = "its recorded text does not read back as the program; name the program"
        return _Stale(None, workload, target, best, why, refused=refused)
    schedules: dict[str, Schedule] = {}
    for each, _ in found:
        schedule = renewed[each.schedule.id]
        record = schedule_record(schedule.trace)
        again = database.measurements(workload=workload.id, target=where, schedule=record.id)
        if not any(m.toolchain in current for m in again):
            schedules[record.id] = schedule
    if not schedules:
        return None
    return _Stale(func, workload, target, best, why, list(schedules.values()))


def _known_by(tools: Toolchain) -> tuple[object, ...]:
    """What tells toolchains apart in a lookup: the generation, and the versions of primitives."""
    versions = ((name, v) for name, v in tools.versions.items() if name.startswith(PRIMITIVE))
    return tools.generation, *sorted(versions)
