"""A tuning session of a program: asks the search, measures, records, tells the search.

Every measurement is in the database before the next begins, so that a session may be killed at any
moment; what it knows beyond that is only how to go on faster.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace

from ..errors import TilewrightError
from ..runtime.timer import format_seconds, turn_seconds
from ..schedule import Trace
from ..tuning_db.interleaved_comparison import summary
from ..tuning_db.values import ComparedSchedule, Measurement, Outcome, SessionStatus
from .budget import Meter
from .config import MIN_FINALISTS, TuneConfig
from .drift import DriftMonitor
from .events import Batch, Callback, Drift, Ended, Event, Final, Started, Trial, Waiting
from .finals import Fastest, Finalist, InterleavedTiming
from .gain import Progress
from .measure.measure_result import BuildRequest, MeasureResult
from .measure.measurer import Measurer
from .model.roofline import Roofline
from .recorder import Recorder
from .result import BestResult, Spent, TuneResult
from .search.search import Candidate, Search

_log = logging.getLogger(__name__)
_SILENCE = 1.0


class OutOfTime(Exception):
    """The seconds of the budget ended while candidates were at work."""


@dataclass(eq=False)
class Tuning:
    """A session that runs in this process, a batch at a time.

    `check_interrupt` raises `KeyboardInterrupt` if it should end. `known` schedules were measured
    before; `best` is the fastest schedule, `None` while none is known. `search_seconds` is the time
    that the search took, its creation included, but for what it did while builders worked. This
    program is `number` of the `programs` that share the budget. `tolerance` is the error that is
    accepted of inexact schedules.

    `ended` is why the program gets no more trials, `None` while it may. `course` is its progress.
    """

    recorder: Recorder
    search: Search
    measurer: Measurer
    meter: Meter
    config: TuneConfig
    callback: Callback
    check_interrupt: Callable[[], None]
    roofline: Roofline
    number: int
    programs: int
    known: int
    best: BestResult | None
    search_seconds: float
    tolerance: float | None

    def __post_init__(self) -> None:
        self.ended: str | None = None
        self.course = Progress(self.roofline.seconds, [])
        self._outcomes: Counter[Outcome] = Counter()
        self._error: str | None = None
        self._fastest = Fastest()
        self._drift = DriftMonitor(self.config.calm)
        self._last_word = time.monotonic()
        self.measurer.tick = self._tick
        self._batches = 0
        self._recorded_end = False
        self._seconds = self.meter.lap()

    @property
    def best_seconds(self) -> float | None:
        """The time of the best schedule; `None` while none is known."""
        return None if self.best is None else self.best.seconds

    def begin(self) -> None:
        """Announce the session to the callback."""
        workload, target = self.recorder.subject.workload, self.recorder.subject.target
        budget = self.meter.budget
        _log.info("%s: tuning for %s", workload.name, target.text)
        self._tell(
            Started(
                session=self.recorder.session.id,
                workload=f"{workload.name} {workload.shape}",
                target=target.text,
                trials=budget.trials,
                seconds=budget.seconds,
                done=self.meter.trials,
                known=self.known,
                flops=workload.flops,
                best_seconds=self.best_seconds,
                programs=self.programs,
            )
        )

    def step(self, count: int) -> None:
        """Measure at most `count` candidates; if there are none, the session has `ended`."""
        try:
            self._tick()
            began = time.monotonic()
            candidates = self.search.ask(count)
            self.search_seconds += time.monotonic() - began
            if not candidates:
                trials = self._outcomes.total()
                self.ended = f"the search has no candidate left after {trials} trials"
                return
            self._batches += 1
            self._tell(Batch(self._batches, len(candidates), self.meter.elapsed))
            self._measure(candidates)
            self._watch_drift()
        finally:
            took = self.meter.lap()
            self._seconds += took
        self.course.add(len(candidates), took, self.best_seconds)

    def hold_finals(self) -> None:
        """Time the fastest candidates interleaved.

        Within the session these measurements replace earlier ones: the fastest of those were lucky
        too.
        """
        try:
            self._hold_finals()
        finally:
            self._seconds += self.meter.lap()

    def finish(self, reason: str, status: SessionStatus) -> TuneResult:
        """End the session in the database, and return its result."""
        reason = self.ended or reason
        self.recorder.end(status)
        self._recorded_end = True
        self._look_up()
        self._seconds += self.meter.lap()
        seconds = self._seconds
        result = TuneResult(
            best=self.best,
            trials=self._outcomes.total(),
            outcomes=dict(self._outcomes),
            error=self._error,
            status=status,
            reason=reason,
            session=self.recorder.session.id,
            seconds=seconds,
            spent=self._spent(seconds),
            roofline=self.roofline,
            drift=tuple(self._drift.ratios),
        )
        _log.info("%s: %s", self._name, result)
        self._tell(
            Ended(
                reason,
                result.interrupted,
                result.trials,
                self.best_seconds,
                self.meter.elapsed,
            )
        )
        return result

    def abandon(self) -> None:
        """End the session in the database, if it has not ended; ignore a failure of that."""
        if self._recorded_end:
            return
        with suppress(TilewrightError):
            self.recorder.end(SessionStatus.INTERRUPTED)

    def _tick(self) -> None:
        """Called while workers are busy: notices interrupts and the end of the time."""
        self.check_interrupt()
        if self.meter.seconds_left == 0:
            raise OutOfTime
        self.recorder.beat()
        silence = time.monotonic() - self._last_word
        if silence > _SILENCE and not self.measurer.timing:
            started = self.measurer.reference_seconds is not None
            what = "building" if started else "building, and running the unscheduled program"
            self._tell(Waiting(what, self.meter.elapsed))

    def _measure(self, candidates: Sequence[Candidate]) -> None:
        requests = [BuildRequest(c.schedule.trace, c.trace.error_factor) for c in candidates]
        last = self.meter.trials_left == len(candidates)
        results = self.measurer.measure(
            requests, self.best_seconds, () if last else self.search.explore()
        )
        observed = []
        for candidate, measured in zip(candidates, results, strict=True):
            written = self.recorder.trial(candidate, measured)
            self._conclude(candidate, measured, written)
            observed.append(
                candidate.observed(measured.outcome, min(measured.samples, default=None))
            )
        began = time.monotonic()
        self.search.learn(observed)
        self.search_seconds += time.monotonic() - began

    def _conclude(
        self, candidate: Candidate, measured: MeasureResult, written: Measurement
    ) -> None:
        """What follows from a measurement that is in the database."""
        self.meter.spend(1)
        self._outcomes[measured.outcome] += 1
        self._error = measured.error or self._error
        _log.debug("trial %d: %s %s", self.meter.trials, measured.outcome, measured.error or "")
        record = False
        if measured.seconds is not None:
            assert measured.kernel is not None, "what ran was built"
            checked = measured.accepted(self.tolerance)
            if checked or measured.check is None:
                self._fastest.add(
                    Finalist(
                        measured.seconds,
                        candidate.schedule,
                        candidate.trace,
                        measured.kernel,
                        checked,
                    )
                )
            record = checked and self._compete(measured.seconds, candidate.trace, written)
        self._tell(
            Trial(
                number=self.meter.trials,
                outcome=measured.outcome,
                seconds=measured.seconds,
                best_seconds=self.best_seconds,
                record=record,
                error=measured.error,
                schedule=written.schedule,
                elapsed=self.meter.elapsed,
            )
        )

    def _compete(self, seconds: float, trace: Trace, written: Measurement) -> bool:
        """Make a checked measurement the best if it is; return whether it is."""
        if self.best is not None and seconds >= self.best.seconds:
            return False
        self.best = BestResult(seconds, trace, written.schedule, written.id)
        done = self.meter.trials
        _log.info("%s: %s after %d trials", self._name, format_seconds(seconds), done)
        return True

    def _look_up(self) -> None:
        """Take the best from the database; keep the notes of a trace of this session."""
        best = self.recorder.best()
        if best is not None:
            here = self._fastest.of(best.schedule_id)
            self.best = best if here is None else replace(best, trace=here.trace)

    def _watch_drift(self) -> None:
        ratio = self._drift.watch(self.meter.trials, self._fastest.first, self.measurer)
        if ratio is None:
            return
        _log.info("the same code takes %.2f times as long as at first", ratio)
        self._tell(Drift(ratio, self.meter.elapsed))

    def _hold_finals(self) -> None:
        near, seconds = self._near(), self.config.final_seconds
        if not self._timing(near, seconds).rounds:
            return
        finalists = [f for f in near if f.checked or self._passes(f)]
        comparison = self._compare(finalists, seconds)
        if comparison:
            self._look_up()
            _log.info("%s: %s", self._name, summary(comparison))
            self._tell(Final(tuple(comparison), self.meter.elapsed))

    def _near(self) -> list[Finalist]:
        """The candidates that may be the fastest."""
        config, first = self.config, self._fastest.first
        if first is None:
            return []
        each = config.rounds * turn_seconds(first.seconds, config.measure.sample_seconds)
        count = max(MIN_FINALISTS, int(config.final_seconds / 4 / each))
        margin = config.margin * self._drift.spread
        return self._fastest.finalists(min(config.finalists, count), margin)

    def _passes(self, finalist: Finalist) -> bool:
        """Check the results of a finalist that was not checked yet; return whether they pass."""
        result = self.measurer.check(finalist.kernel)
        self.recorder.check(finalist.schedule.id, result)
        return result.passed and finalist.kernel.allows(result, self.tolerance)

    def _timing(self, finalists: Sequence[Finalist], seconds: float) -> InterleavedTiming:
        config = self.config
        return InterleavedTiming(finalists, config.rounds, seconds, config.measure.sample_seconds)

    def _compare(self, finalists: Sequence[Finalist], seconds: float) -> list[ComparedSchedule]:
        """Time kernels interleaved and record it; empty if there is no time for that."""
        timing = self._timing(finalists, seconds)
        comparison: list[ComparedSchedule] = []
        try:
            timing.run(self.measurer.interleave)
        finally:
            if any(timing.samples):
                timed = zip((f.schedule for f in finalists), timing.samples, strict=True)
                comparison = self.recorder.finals(list(timed))
        return comparison

    def _spent(self, seconds: float) -> Spent:
        measurer, model = self.measurer, self.search.seconds_in_model
        searching = self.search_seconds + measurer.seconds_meanwhile
        parts = Spent(
            search=max(0.0, searching - model),
            model=model,
            build=measurer.seconds_building,
            run=measurer.seconds_running,
            waiting=measurer.seconds_waiting,
            other=0.0,
        )
        return replace(parts, other=max(0.0, seconds - sum(astuple(parts))))

    def _tell(self, event: Event) -> None:
        self._last_word = time.monotonic()
        self.callback(replace(event, program=self.number))

    @property
    def _name(self) -> str:
        return self.recorder.subject.workload.name
