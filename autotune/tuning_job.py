"""The work of a call of `tune`: its sessions are prepared, run, and end with their results."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import TuningError
from ..target import Target
from ..tuning_db import TuningDatabase
from ..tuning_db.gains import Baseline
from ..tuning_db.values import Machine, Session, SessionStatus
from .budget import Budget, Meter
from .config import TuneConfig
from .events import Callback
from .interrupt import Interrupts
from .measure.machine import Again, described
from .measure.measurer import Measurer
from .measure.worker_pool import WorkerPool
from .model.target_model import model_for
from .open_session import started_session, unfinished_session
from .own_rules import OwnRules, warn_of_unused
from .recorder import Recorder, Subject
from .records import environment_record, target_record, toolchain_record, workload_record
from .result import BestResult, TuneResult
from .rivals import Rival, rivals_of
from .run_sessions import run
from .search import history, transfer
from .search.replay import Replays
from .search.search import Search
from .session import Tuning
from .stop import StopRules
from .tasks import Prepared, Task, prepared_sketches


@dataclass(frozen=True)
class TuningJob:
    """What is to be tuned, checked: `run` does it, in whatever thread."""

    programs: Sequence[Task]
    target: Target
    database: TuningDatabase
    budget: Budget
    rules: StopRules
    weights: Sequence[float]
    seed: int
    resume: bool
    tolerance: float | None
    config: TuneConfig

    def run(
        self, callback: Callback, stop: threading.Event, tunings: list[Tuning]
    ) -> list[TuneResult]:
        """Tune until the budget is used up, or `stop` is set; the sessions go into `tunings`."""
        meter = Meter(self.budget)
        target, machine = self._described()
        subjects = self._stored(target, machine)
        unfinished = self._unfinished(subjects, meter)
        prepared = [
            prepared_sketches(p, target, inexact=self.tolerance is not None) for p in self.programs
        ]
        with Interrupts(stop) as interrupts, ExitStack() as stack:
            measurers = self._measurers(target, prepared, stack)
            for n, program in enumerate(self.programs):
                start = self._start(program, target, subjects[n], prepared[n], meter)
                tuning = Tuning(
                    recorder=self._recorder(subjects[n], unfinished[n], start),
                    search=start.search,
                    measurer=measurers[n],
                    meter=meter,
                    config=self.config,
                    callback=callback,
                    check_interrupt=interrupts.check,
                    roofline=model_for(target).roofline(program.func, target),
                    number=n,
                    programs=len(self.programs),
                    known=start.known,
                    best=start.best,
                    search_seconds=start.seconds,
                    tolerance=self.tolerance,
                    rivals=start.rivals,
                    own_rules=start.own_rules,
                )
                stack.callback(tuning.abandon)
                tunings.append(tuning)
            warn_of_unused([(t.recorder.subject.workload.name, t.own_rules) for t in tunings])
            return self._finished(tunings, meter)

    def _described(self) -> tuple[Target, Machine | None]:
        """The target with the rates of this machine, and their record, which is stored."""
        target, description = described(self.target, Again.IF_DOUBTFUL)
        if description is None:
            return target, None
        machine = description.record(target_record(target).id)
        self.database.put(target_record(target), machine)
        return target, machine

    def _stored(self, target: Target, machine: Machine | None) -> list[Subject]:
        """The records that sessions refer to. Raises `TuningError` for a program given twice."""
        subjects: list[Subject] = []
        for program in self.programs:
            subject = Subject(
                workload_record(program.func),
                target_record(target),
                toolchain_record(target),
                environment_record(target, machine),
            )
            if any(subject.workload.id == other.workload.id for other in subjects):
                raise TuningError(
                    "{0} ({1}) is there twice",
                    subject.workload.name,
                    subject.workload.shape,
                    hint="give it once, with a weight of 2",
                )
            self.database.put(*subject)
            subjects.append(subject)
        return subjects

    def _unfinished(self, subjects: Sequence[Subject], meter: Meter) -> list[Session | None]:
        """The sessions to be resumed; what they have used of the budget is counted."""
        found = [
            unfinished_session(self.database, s, self.budget) if self.resume else None
            for s in subjects
        ]
        meter.spend(*history.used(self.database, [u for u in found if u is not None]))
        return found

    def _measurers(
        self, target: Target, prepared: Sequence[Prepared], stack: ExitStack
    ) -> list[Measurer]:
        """The measurers of the programs, whose processes get ready; closed by the stack."""
        modules = {
            name
            for program, some in zip(self.programs, prepared, strict=True)
            for sketch in (*(some.sketches or ()), *program.beside)
            for name in sketch.modules
        }
        config = self.config.measure
        workers = WorkerPool(target, config, sorted(modules))
        measurers = []
        for program in self.programs:
            measurer = Measurer(
                program.func, target, config, workers=workers, tolerance=self.tolerance
            )
            stack.push(measurer)  # it holds memory before it is entered
            measurers.append(measurer)
        for measurer in measurers:
            measurer.__enter__()
        return measurers

    def _start(
        self, program: Task, target: Target, subject: Subject, prepared: Prepared, meter: Meter
    ) -> _Start:
        """The search of a program, with what the database knows and what it begins with."""
        replays = Replays(program.func)
        records = (self.database, *subject[:3])
        best = history.best_known(*records, self.tolerance, replays=replays)
        # What claims to be faster and does not apply is nothing to learn from.
        known = history.known(*records, model_for(target), without=replays.refused)
        began = meter.elapsed
        search = Search(
            program.func,
            target,
            seed=self.seed,
            config=self.config.search,
            prepared=prepared.sketches,
            beside=[s.within(target) for s in program.beside],
            known=known,
            inexact=self.tolerance is not None,
            as_written=program.user_sketches is None,
        )
        rivals: tuple[Rival, ...] = ()
        own_rules = OwnRules()
        if program.user_sketches is None:
            transfer.warm(search, *records, self.tolerance)
            rivals = rivals_of(program.func, target, search)
            for rival in rivals:
                if rival.baseline is Baseline.UNTUNED:
                    search.begin_with(rival.trace)
            own_rules = OwnRules.of(search.sketches, prepared.refusals)
            search.begin_with_each(own_rules.sketches)
            for trace in program.first:
                search.begin_with(trace)
        seconds = meter.elapsed - began
        return _Start(search, rivals, own_rules, replays, best, len(known), seconds)

    def _recorder(self, subject: Subject, unfinished: Session | None, start: _Start) -> Recorder:
        """The recorder of the session that is resumed, or of a new one."""
        if unfinished is not None:
            session = self.database.resume_session(unfinished.id)
        else:
            session = started_session(
                self.database,
                subject,
                self.budget,
                self.seed,
                self.config,
                self.tolerance,
                start.search,
                start.rivals,
            )
        version = start.search.target_model.feature_version
        return Recorder(self.database, subject, session, start.replays, version, self.tolerance)

    def _finished(self, tunings: Sequence[Tuning], meter: Meter) -> list[TuneResult]:
        """Run sessions until the budget, a rule or an interrupt ends them; return their results."""
        try:
            for tuning in tunings:
                tuning.begin()
            reason = run(tunings, self.weights, meter, self.rules)
            status = SessionStatus.FINISHED
        except KeyboardInterrupt:
            reason, status = "interrupted", SessionStatus.INTERRUPTED
        return [t.finish(reason, status) for t in tunings]


class _Start(NamedTuple):
    """What the session of a program begins with.

    `best` is the best schedule of the database, and so many schedules of the program are `known` to
    it. `seconds` is the time that the search took so far.
    """

    search: Search
    rivals: Sequence[Rival]
    own_rules: OwnRules
    replays: Replays
    best: BestResult | None
    known: int
    seconds: float
