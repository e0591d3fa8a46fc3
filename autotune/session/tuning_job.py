"""The work of a call of `tune`: its sessions are prepared, run, and end with their results.

Runs tuning sessions, of one program or of several that share a budget, until it is used up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from ...base.errors import ClusterError, DatabaseError, TilewrightError, TuningError
from ...target import Target
from ...tuning_db import TuningDatabase
from ...tuning_db.results import Baseline
from ...tuning_db.sessions import AT_WORK
from ...tuning_db.values import Session, SessionStatus, TargetRecord
from ..cluster.cluster import Cluster
from ..cluster.measurer import ClusterMeasurer
from ..config import TuneConfig
from ..measure.any_measurer import AnyMeasurer
from ..measure.machine import Again, Description, described
from ..measure.measurer import Measurer
from ..measure.worker_pool import WorkerPool
from ..model.target_model import model_for
from ..records import environment_record, target_record, toolchain_record, workload_record
from ..result import BestResult, TuneResult
from ..search import history, transfer
from ..search.replay import Replays
from ..search.search import Known, Predicted, Search
from ..search.unmeasured import unsearched
from ..tasks import Prepared, Task, prepared_sketches
from ..tvm_records import HintRecords
from .budget import Budget, Meter, StopRules
from .events import Callback
from .final_comparison import Rival, rivals_of
from .gain import most_promising, relative_gain
from .interrupts import Interrupts
from .own_sketches import GivenHints, OwnRules, OwnSchedules, warn_of_unused
from .preparation import (
    Begun,
    Heartbeats,
    result_without_trials,
    started_session,
    unfinished_session,
)
from .recorder import Recorder, Subject
from .session import OutOfTime, Tuning

_log = logging.getLogger(__name__)


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
    cluster: Cluster | None = None
    """Where candidates are measured; on this machine if it is `None`."""
    hints: HintRecords | None = None

    @property
    def record(self) -> TargetRecord:
        """The record of the target, on the machines that measure."""
        return target_record(self.target) if self.cluster is None else self.cluster.record

    def run(
        self, callback: Callback, stop: threading.Event, tunings: list[Tuning]
    ) -> list[TuneResult]:
        """Tune until the budget is used up, or `stop` is set; the sessions go into `tunings`."""

        def elapsed(n: int) -> float:
            """The duration of a session; the preparation counts for one at a time."""
            if n < len(tunings):
                return tunings[n].recorder.elapsed()
            return begun[n].seconds + (meter.since_lap if n == len(tunings) else 0.0)

        def beat() -> None:
            for n, some in enumerate(begun):
                self.database.heartbeat(some.session.id, elapsed(n))

        def say() -> None:
            if len(tunings) < len(self.programs):
                _log.warning("interrupted: stopping once this step of the preparation has ended")

        meter = Meter(self.budget)
        with Interrupts(stop, say) as interrupts, ExitStack() as stack:
            begun = self._begun(meter, stack)

            def without_trials(n: int, reason: str, status: SessionStatus) -> TuneResult:
                return result_without_trials(
                    self.database, self.programs[n].func, self.target, self.record, begun[n],
                    elapsed(n), self.tolerance, reason, status,
                )  # fmt: skip

            try:
                with Heartbeats(beat), _telling_what_is_kept(tunings):
                    self._prepare(begun, meter, callback, interrupts.check, tunings, stack)
            except KeyboardInterrupt:
                ended = "interrupted", SessionStatus.INTERRUPTED
                at_work = tunings if self._in_turn else []
                rest = range(len(at_work), len(self.programs))
                return [t.finish(*ended) for t in at_work] + [
                    without_trials(n, *ended) for n in rest
                ]
            for tuning in () if self._in_turn else tunings:
                stack.callback(tuning.abandon)
            warn_of_unused([(t.recorder.subject.workload.name, t.own_rules) for t in tunings])
            results = self._finished(tunings, meter)
            for n in range(len(tunings), len(self.programs)):
                reason = meter.spent or "the time is over"
                results.append(without_trials(n, reason, SessionStatus.FINISHED))
            return results

    @property
    def _in_turn(self) -> bool:
        """Whether each program has a turn as soon as it is ready, before the next is prepared.

        To prepare many may take longer than the seconds that they share.
        """
        return self.budget.seconds is not None and len(self.programs) > 1

    def _prepare(
        self,
        begun: Sequence[Begun],
        meter: Meter,
        callback: Callback,
        check_interrupt: Callable[[], None],
        tunings: list[Tuning],
        stack: ExitStack,
    ) -> None:
        """Get the sessions ready, and put each into `tunings` when it is.

        Once the budget is used up, the others are left out.
        """

        def beat() -> None:
            for tuning in tunings:
                tuning.recorder.beat()

        inexact = self.tolerance is not None
        target, description = self.target, None
        if self.cluster is None:
            target, description = described(self.target, Again.IF_DOUBTFUL, check_interrupt)
        subjects = self._stored(target, description)
        prepared = []
        for program in self.programs:
            check_interrupt()
            prepared.append(prepared_sketches(program, target, inexact=inexact))
        check_interrupt()
        measurers = self._measurers(target, prepared, stack)
        for n, program in enumerate(self.programs):
            check_interrupt()
            if self._in_turn and n and meter.spent is not None:
                return
            given = program, target, subjects[n], prepared[n], meter
            start = self._start_untuned(*given) if self._in_turn else None
            start = start or self._start(*given)
            tunings.append(
                Tuning(
                    recorder=self._recorder(subjects[n], n, begun, start),
                    make_search=start.make_search,
                    measurer=measurers[n],
                    meter=meter,
                    config=self.config,
                    callback=callback,
                    check_interrupt=check_interrupt,
                    beat=beat,
                    roofline=model_for(target).roofline(program.func, target),
                    threads=target.threads,
                    number=n,
                    programs=len(self.programs),
                    known=start.known,
                    best=start.best,
                    search_seconds=start.seconds,
                    tolerance=self.tolerance,
                    rivals=start.rivals,
                    own_rules=start.own_rules,
                    own_schedules=start.own_schedules,
                    hints=start.hints,
                    earlier_seconds=begun[n].seconds,
                )
            )
            if self._in_turn:
                stack.callback(tunings[n].abandon)
                waiting = len(self.programs) - n
                self._first_turn(tunings[n], start.first, meter, waiting)

    def _first_turn(
        self, tuning: Tuning, first: Predicted | None, meter: Meter, waiting: int
    ) -> None:
        """Measure the `first` candidate of a program, or else what its search takes for the best.

        Of the latter, one for each worker of a cluster. So many programs are `waiting` for a turn.
        """
        tuning.begin()
        tuning.ended = self.rules.reached(tuning.best_seconds, tuning.roofline)
        if tuning.ended is not None or meter.spent is not None:
            return
        with suppress(OutOfTime):
            if first is not None:
                tuning.measure_first(first)
            else:
                tuning.step(meter.batch(tuning.measurer.width, among=waiting))

    def _begun(self, meter: Meter, stack: ExitStack) -> list[Begun]:
        """The sessions, new or resumed, whose records are there before anything takes time.

        The stack ends those that are still at work when it ends. Raises `TuningError` for a
        program given twice.
        """
        target, toolchain = self.record, toolchain_record(self.target)
        workloads = [workload_record(program.func) for program in self.programs]
        for n, workload in enumerate(workloads):
            if any(workload.id == other.id for other in workloads[:n]):
                raise TuningError(
                    "{0} ({1}) is there twice",
                    workload.name,
                    workload.shape,
                    hint="give it once, with a weight of 2",
                )
        found = [
            unfinished_session(self.database, w, target, toolchain, self.budget, self.tolerance)
            if self.resume
            else None
            for w in workloads
        ]
        resumed = [session for session in found if session is not None]
        durations = history.durations(self.database, resumed)
        trials = sum(self.database.trials(session.id) for session in resumed)
        meter.spend(trials, sum(durations.values()))
        begun = []
        for workload, before in zip(workloads, found, strict=True):
            if before is not None:
                session = self.database.resume_session(
                    before.id, preparing=True, elapsed=durations[before.id]
                )
            else:
                session = started_session(
                    self.database,
                    workload,
                    target,
                    self.target,
                    self.budget,
                    self.seed,
                    self.config,
                    self.tolerance,
                )
            stack.callback(self._abandon, session.id)
            begun.append(Begun(session, session.duration))
        return begun

    def _abandon(self, session: str) -> None:
        """End a session that nothing else has ended; ignore a failure of that."""
        with suppress(TilewrightError):
            if self.database.get(Session, session).status in AT_WORK:
                self.database.finish_session(session, SessionStatus.INTERRUPTED)

    def _stored(self, target: Target, description: Description | None) -> list[Subject]:
        """The records that measurements refer to. While sessions run, nothing prunes them."""
        record = self.record
        machine = None if description is None else description.record(record.id)
        if self.cluster is None:
            environment = environment_record(target, machine)
        else:
            environment = self.cluster.workers[0].environment
        subjects = [
            Subject(workload_record(program.func), record, toolchain_record(target), environment)
            for program in self.programs
        ]
        for subject in subjects:
            self.database.put(*subject, *(() if machine is None else (machine,)))
        return subjects

    def _measurers(
        self, target: Target, prepared: Sequence[Prepared], stack: ExitStack
    ) -> Sequence[AnyMeasurer]:
        """The measurers of the programs, whose processes get ready; closed by the stack."""
        modules = {
            name
            for program, some in zip(self.programs, prepared, strict=True)
            for sketch in (*(some.sketches or ()), *program.beside)
            for name in sketch.modules
        }
        config = self.config.measure
        if self.cluster is not None:
            return [
                ClusterMeasurer(
                    program.func,
                    self.cluster,
                    config,
                    modules=sorted(modules),
                    tolerance=self.tolerance,
                    keep=self.database.put,
                )
                for program in self.programs
            ]
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
        records = (self.database, *subject[:3])
        replays, best, known = self._known(program, target, subject)
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
        for trace in program.first:
            search.begin_with(trace)
        if program.user_sketches is None:
            transfer.warm(search, *records, self.tolerance)
            rivals = rivals_of(program.func, target, search)
            for rival in rivals:
                if rival.baseline is Baseline.UNTUNED:
                    search.begin_with(rival.trace)
            own_rules = OwnRules.of(search, prepared.refusals)
            search.begin_with_each(own_rules.sketches)
        else:
            own = enumerate(search.sketches)
            search.begin_with_each([n] for n, sketch in own if sketch.space.initial)
        own_schedules = OwnSchedules(search, program.user_sketches or program.beside)
        hints = None if self.hints is None else GivenHints(search, program.func, self.hints)
        seconds = meter.elapsed - began
        return _Start(
            make_search=lambda: search,
            rivals=rivals,
            own_rules=own_rules,
            own_schedules=own_schedules,
            hints=hints,
            replays=replays,
            best=best,
            known=len(known),
            seconds=seconds,
        )

    def _start_untuned(
        self, program: Task, target: Target, subject: Subject, prepared: Prepared, meter: Meter
    ) -> _Start | None:
        """What a session begins with before its search is made: the schedule of an untuned build.

        `None` where the search is needed at once: for what users brought, and where that schedule
        was measured before.
        """
        brought = program.user_sketches is not None or program.beside or self.hints is not None
        if brought or prepared.sketches is not None:
            return None
        replays, best, known = self._known(program, target, subject)
        began = meter.elapsed
        rivals = rivals_of(program.func, target, None)
        (untuned,) = (rival for rival in rivals if rival.baseline is Baseline.UNTUNED)
        if untuned.schedule.id in {each.schedule for each in known}:
            return None
        return _Start(
            make_search=lambda: self._start(
                program, target, subject, prepared, meter
            ).make_search(),
            rivals=rivals,
            own_rules=OwnRules(),
            own_schedules=None,
            hints=None,
            replays=replays,
            best=best,
            known=len(known),
            seconds=meter.elapsed - began,
            first=unsearched(
                program.func, target, untuned.trace, untuned.schedule, self.config.search
            ),
        )

    def _known(
        self, program: Task, target: Target, subject: Subject
    ) -> tuple[Replays, BestResult | None, Sequence[Known]]:
        """What the database has of a program: the best, and all that was measured."""
        replays = Replays(program.func)
        records = (self.database, *subject[:3])
        best = history.best_known(*records, self.tolerance, replays=replays)
        # What claims to be faster and does not apply is nothing to learn from.
        known = history.known(*records, model_for(target), without=replays.refused)
        return replays, best, known

    def _recorder(
        self, subject: Subject, number: int, begun: Sequence[Begun], start: _Start
    ) -> Recorder:
        """The recorder of one of the sessions, which is prepared now."""
        untuned = (r.schedule.id for r in start.rivals if r.baseline is Baseline.UNTUNED)
        session = self.database.prepared_session(begun[number].session.id, next(untuned, None))
        version = model_for(self.target).feature_version
        return Recorder(
            self.database,
            subject,
            session,
            start.replays,
            version,
            self.tolerance,
            together=[each.session.id for each in begun],
        )

    def _finished(self, tunings: Sequence[Tuning], meter: Meter) -> list[TuneResult]:
        """Run sessions until the budget, a rule or an interrupt ends them; return their results."""
        try:
            with _telling_what_is_kept(tunings):
                for tuning in () if self._in_turn else tunings:
                    tuning.begin()
                reason = run(tunings, self.weights, meter, self.rules)
            status = SessionStatus.FINISHED
        except KeyboardInterrupt:
            reason, status = "interrupted", SessionStatus.INTERRUPTED
        return [t.finish(reason, status) for t in tunings]


@contextmanager
def _telling_what_is_kept(tunings: Sequence[Tuning]) -> Iterator[None]:
    """Errors that end the sessions, of a full disk, say, tell what is in the database."""
    try:
        yield
    except (DatabaseError, ClusterError) as error:
        with suppress(DatabaseError):
            kept = "\n".join(tuning.recorder.kept for tuning in tunings)
            error.detail = lambda _: kept
        raise


class _Start(NamedTuple):
    """What the session of a program begins with.

    `best` is the best schedule of the database, and so many schedules of the program are `known` to
    it. `seconds` is the time that the search took so far. `first` is measured before there is a
    search.
    """

    make_search: Callable[[], Search]
    rivals: Sequence[Rival]
    own_rules: OwnRules
    own_schedules: OwnSchedules | None
    hints: GivenHints | None
    replays: Replays
    best: BestResult | None
    known: int
    seconds: float
    first: Predicted | None = None


def run(tunings: Sequence[Tuning], weights: Sequence[float], meter: Meter, rules: StopRules) -> str:
    """Measure until the budget is used up or a rule ends it; return the reason.

    The next batch goes to the program that is expected to gain most. A program that ended earlier
    has its reason in `ended`.
    """
    try:
        reason = _measure(tunings, weights, meter, rules)
        if meter.seconds_left != 0:
            for tuning in tunings:
                tuning.hold_finals()
    except OutOfTime:
        return meter.spent or "the time is over"
    return reason


def _measure(
    tunings: Sequence[Tuning], weights: Sequence[float], meter: Meter, rules: StopRules
) -> str:
    while (spent := meter.spent) is None:
        for tuning in tunings:
            tuning.ended = tuning.ended or rules.reached(tuning.best_seconds, tuning.roofline)
        going = [n for n, tuning in enumerate(tunings) if tuning.ended is None]
        if not going:
            return "all programs have ended" if len(tunings) > 1 else str(tunings[0].ended)
        progress = [tunings[n].progress for n in going]
        shares = [weights[n] for n in going]
        if (futile := rules.futile(relative_gain(progress, shares))) is not None:
            return futile
        tuning = tunings[going[most_promising(progress, shares)]]
        untried = sum(not each.trials for each in progress)
        tuning.step(meter.batch(tuning.most, among=max(1, untried)))
    return spent
