"""`tune`: search for a fast schedule of a program by measuring candidates."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..codegen.detect import check_runnable, resolve, usable_processors
from ..errors import TilewrightError, TuningError
from ..schedule import Schedule
from ..target import Target
from ..tir.equality import structural_equal
from ..tir.ir import Func
from ..tir.verify import verify
from ..tuning_db import TuningDatabase
from ..tuning_db.values import Session, SessionStatus
from . import history
from .budget import Budget, Meter
from .config import TuneConfig
from .cost_model import PARAMETERS, CostModel
from .interrupt import Interrupts
from .measure import Measurer
from .progress import Callback, ignore
from .recorder import Recorder, Subject
from .records import environment_record, target_record, toolchain_record, workload_record
from .result import TuneResult
from .search import Search
from .session import Setting, Tuning
from .sketch import Sketch

_log = logging.getLogger(__name__)


def tune(
    func: Func | Schedule | Sequence[Schedule],
    target: Target | str = "cpu",
    *,
    database: TuningDatabase,
    trials: int | None = 64,
    seconds: float | None = None,
    seed: int = 0,
    resume: bool = False,
    callback: Callback | None = None,
    config: TuneConfig | None = None,
) -> TuneResult:
    """Search for a fast schedule of `func` on `target` by measuring candidates on this machine.

    Rules make the schedules to search. Symbolic schedules of a program in place of `func` are
    searched as they are; primitives of their own must come from modules that can be imported.

    The budget is `trials` new measurements, `seconds` of wall-clock time, or both: the first that
    is used up ends the session. Every measurement is in `database` as soon as it is made. What the
    database knows of this program and target warms the search and is not measured again. `resume`
    goes on with what is left of the last session of this program, target and budget that did not
    finish; where there is none, a new one starts.

    An interrupt (Ctrl-C, or that of a notebook) ends the session early, with the best so far in the
    result. `callback` gets the events of `progress`, in this thread; what it raises ends the
    session and is passed on. `seed` makes the search, not the measurements, the same again.

    Raises `TuningError` for a budget that is none and where the program cannot be measured,
    `VerifyError` for a program that breaks a rule (reads out of bounds, say), `ScheduleError` where
    no rule makes a schedule for it, `TargetError` for a target that this
    machine does not run, and `DatabaseError`.
    """
    own = None if isinstance(func, Func) else _own(func)
    if not isinstance(func, Func):
        func = (func if isinstance(func, Schedule) else func[0]).original
    if not isinstance(database, TuningDatabase):
        raise TuningError(
            "database: expected a TuningDatabase, found {0!r}",
            database,
            hint='open one: tw.TuningDatabase("tuning.db")',
        )
    verify(func)
    meter = Meter(Budget(trials, seconds))
    options = config or TuneConfig()
    resolved = _runnable(target)
    subject = Subject(
        workload_record(func),
        target_record(resolved),
        toolchain_record(),
        environment_record(resolved),
    )
    database.put(*subject)
    unfinished = _unfinished(database, subject, meter.budget) if resume else None
    if unfinished is not None:
        meter.spend(*history.used(database, unfinished))
    modules = sorted({name for sketch in own or () for name in sketch.modules})
    with (
        Interrupts() as interrupts,
        Measurer(func, resolved, options.measure, modules=modules) as measurer,
    ):
        known = history.known(database, *subject[:3])
        began = meter.elapsed
        search = Search(func, resolved, seed=seed, config=options.search, made=own, known=known)
        search_seconds = meter.elapsed - began
        if unfinished is not None:
            session = database.resume_session(unfinished.id)
        else:
            session = _started(database, subject, meter.budget, seed, options)
        recorder = Recorder(database, subject, session)
        setting = Setting(
            recorder=recorder,
            search=search,
            measurer=measurer,
            meter=meter,
            config=options,
            callback=callback or ignore,
            check_interrupt=interrupts.check,
            best=recorder.best(),
            search_seconds=search_seconds,
        )
        return _finished(Tuning(setting), recorder, len(known))


def _own(func: Any) -> list[Sketch]:
    """What is not a program but symbolic schedules of one, as sketches."""
    schedules = [func] if isinstance(func, Schedule) else func
    made = isinstance(schedules, Sequence) and all(isinstance(s, Schedule) for s in schedules)
    if not made or not schedules:
        raise TuningError(
            "expected a program (Func) to tune, or an open schedule of it, found {0!r}",
            type(func).__name__,
            hint="call the function that makes the program: tune(matmul(), ...)",
        )
    sketches = [Sketch.of(schedule, f"own{n}") for n, schedule in enumerate(schedules)]
    for sketch, schedule in zip(sketches, schedules, strict=True):
        if not structural_equal(schedule.original, schedules[0].original):
            raise TuningError(
                "schedules of two programs, {0} and {1}; a session tunes one",
                schedules[0].original.name,
                schedule.original.name,
            )
        if "__main__" in sketch.modules:
            raise TuningError(
                "{0} takes steps that this script or notebook defines, which the processes that "
                "build cannot import",
                sketch.name,
                hint="put the primitives into a module, and import that here",
            )
    return sketches


def _finished(tuning: Tuning, recorder: Recorder, known: int) -> TuneResult:
    """Run a session to its end, whichever that is."""
    try:
        tuning.begin(known)
        reason = tuning.run()
    except KeyboardInterrupt:
        return tuning.finish("interrupted", SessionStatus.INTERRUPTED)
    except BaseException:
        with suppress(TilewrightError):
            recorder.end(SessionStatus.INTERRUPTED)
        raise
    return tuning.finish(reason, SessionStatus.FINISHED)


def _runnable(target: Target | str) -> Target:
    resolved = resolve(target)
    check_runnable(resolved)
    if resolved.threads > usable_processors():
        _log.warning(
            "target %s has more threads than the %d processors that this process may use",
            resolved,
            usable_processors(),
        )
    return resolved


def _unfinished(database: TuningDatabase, subject: Subject, budget: Budget) -> Session | None:
    found = database.unfinished_session(
        subject.workload.id, subject.target.id, trials=budget.trials, seconds=budget.seconds
    )
    if found is None:
        _log.info("%s: no unfinished session to resume", subject.workload.name)
    return found


def _started(
    database: TuningDatabase, subject: Subject, budget: Budget, seed: int, config: TuneConfig
) -> Session:
    return database.start_session(
        subject.workload.id,
        subject.target.id,
        trials=budget.trials,
        seconds=budget.seconds,
        seed=seed,
        search=config.to_json(),
        model={"features": CostModel.feature_version, **PARAMETERS},
    )
