"""A tuning session of a program: asks the search, measures, records, tells the search.

Every measurement is in the database before the next begins, so that a session may be killed at any
moment. One that is resumed holds its finals with the fastest of before.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property

from ...base.durations import format_seconds
from ...base.errors import TilewrightError
from ...base.text import count
from ...schedule import Trace
from ...tuning_db.gains import Gains
from ...tuning_db.interleaved_comparison import summary
from ...tuning_db.results import Baseline
from ...tuning_db.values import Measurement, Outcome, ScheduleRecord, SessionStatus
from ..cluster.measurer import ClusterMeasurer
from ..config import TuneConfig
from ..measure.any_measurer import AnyMeasurer, Numbered
from ..measure.measure_result import BuildRequest, MeasureResult
from ..measure.worker_pool import Built
from ..model.target_model import Roofline
from ..result import BestResult, Spent, TuneResult, instead_text
from ..search.search import Candidate, Observation, Predicted, Search
from .budget import Meter
from .events import Batch, Callback, Drift, Ended, Event, Started, Trial, Waiting, ignore
from .final_comparison import FinalComparison, Rival, Rivals, WrongResults
from .finals import Fastest, Finalist
from .gain import Progress
from .noise import DriftMonitor, Plausibility, disturbed_finals_text, noise_text, was_disturbed
from .own_sketches import GivenHints, OwnRules, OwnSchedules
from .recorder import Recorder

_log = logging.getLogger(__name__)
STREAMED = 4
"""Batches of a step on a cluster: it waits for the slowest worker once, and looks at the drift."""
_SILENCE = 1.0
_STEP = 0.2
"""Seconds of a pause between looks at interrupts and the time."""


class OutOfTime(Exception):
    """The seconds of the budget ended while candidates were at work."""


@dataclass(eq=False)
class Tuning:
    """A session that runs in this process, a batch at a time.

    `check_interrupt` raises `KeyboardInterrupt` if it should end. `beat` shows that all sessions
    that share the budget are alive. `known` schedules were measured before; `best` is the fastest
    schedule, `None` while none is known. `make_search` makes the search, when it is asked first.
    `search_seconds` is the time that it took, its creation included, but for what it did while
    builders worked. The target has so many `threads`. This program is `number` of the `programs`
    that share the budget. `tolerance` is the error that is accepted of inexact schedules. `rivals`
    are the schedules that the best has to beat, `own_rules` the rules that users registered,
    `own_schedules` and `hints` what `tune` was given. `earlier_seconds` is the duration of the
    calls that it resumes.

    `ended` is why the program gets no more trials, `None` while it may. `progress` is the gain of
    its trials.
    """

    recorder: Recorder
    make_search: Callable[[], Search]
    measurer: AnyMeasurer
    meter: Meter
    config: TuneConfig
    callback: Callback
    check_interrupt: Callable[[], None]
    beat: Callable[[], None]
    roofline: Roofline
    threads: int
    number: int
    programs: int
    known: int
    best: BestResult | None
    search_seconds: float
    tolerance: float | None
    rivals: Sequence[Rival] = ()
    own_rules: OwnRules = field(default_factory=OwnRules)
    own_schedules: OwnSchedules | None = None
    hints: GivenHints | None = None
    earlier_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.ended: str | None = None
        self.progress = Progress(self.roofline.seconds, [])
        self._earlier = self.recorder.trials
        self._outcomes: Counter[Outcome] = Counter()
        self._history: list[Trial] = []
        self._error: str | None = None
        self._wrong = WrongResults(self.rivals)
        self._fastest = Fastest()
        self._rivals = Rivals(self.rivals)
        self._drift = DriftMonitor(self.config.calm, self._pause)
        self._plausibility = Plausibility()
        self._finals = FinalComparison(
            config=self.config,
            measurer=self.measurer,
            recorder=self.recorder,
            fastest=self._fastest,
            rivals=self._rivals,
            drift=self._drift,
            tolerance=self.tolerance,
            earlier=self.recorder.earlier(self.config.finalists, self.config.margin),
            measured=self._finalist,
            pause=self._pause,
        )
        self._last_word = time.monotonic()
        self.measurer.tick = self._tick
        self._batches = 0
        self._recorded_end = False
        self._seconds = self.earlier_seconds + self.meter.lap()
        self._at_work = False
        self.recorder.elapsed = self._elapsed

    @cached_property
    def search(self) -> Search:
        """The search, which is made when it is asked first."""
        return self.make_search()

    @property
    def best_seconds(self) -> float | None:
        """The time of the best schedule; `None` while none is known."""
        return None if self.best is None else self.best.seconds

    @property
    def most(self) -> int:
        """How many candidates a step should have: a batch, or several that a cluster streams."""
        width = self.measurer.width
        return self.config.batch * width * (1 if width == 1 else STREAMED)

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

    def step(self, most: int) -> None:
        """Measure at most `most` candidates; if there are none, the session has `ended`."""
        self._at_work = True
        try:
            self._tick()
            candidates = self._ask(min(most, self.config.batch * self.measurer.width))
            if not candidates:
                trials = self._outcomes.total()
                tried = count(trials, "trial")
                self.ended = f"the rules have no other schedule of this program, after {tried}"
                return
            self._batches += 1
            self._tell(Batch(self._batches, len(candidates), self._elapsed()))
            self._measure(candidates, most)
            self._watch_drift()
        finally:
            took = self._rest()
        self.progress.add(len(candidates), took, self.best_seconds)

    def measure_first(self, candidate: Predicted) -> None:
        """Measure a candidate that is known before there is a search, which may take long to make.

        The search learns of it from the database.
        """
        self._at_work = True
        try:
            self._tick()
            self._batches += 1
            self._tell(Batch(self._batches, 1, self._elapsed()))
            for _, first in self._results([candidate]):
                self._measured(candidate, first)
        finally:
            took = self._rest()
        self.progress.add(1, took, self.best_seconds)

    def hold_finals(self) -> None:
        """Time the fastest candidates interleaved.

        Within the session these measurements replace earlier ones: the fastest of those were lucky
        too.
        """
        self._at_work = True
        try:
            compared = self._finals.hold()
            if self._finals.disturbed:
                self._tell(Drift(self._finals.slowdown, self._elapsed(), finals=True))
            if compared is None:
                return
            self._look_up()
            _log.info("%s: %s", self._name, summary(compared.comparison))
            self._tell(self.recorder.history.final(self._elapsed()))
        finally:
            self._rest()

    def finish(self, reason: str, status: SessionStatus) -> TuneResult:
        """End the session in the database, and return its result."""
        reason = self.ended or reason
        noise = self._noise()
        self._rest()
        seconds = self.recorder.end(status, noise).duration
        self._recorded_end = True
        self._look_up()
        workload = self.recorder.subject.workload
        history = self.recorder.history
        kept = self.recorder.kept if status is SessionStatus.INTERRUPTED else None
        finals = () if history.finals is None else history.finals.comparison
        chosen = None if self.best is None else self.best.schedule_id
        result = TuneResult(
            best=self.best,
            workload=f"{workload.name} {workload.shape}",
            target=self.recorder.subject.target.text,
            flops=workload.flops,
            history=tuple(self._history),
            finals=finals,
            trials=self._outcomes.total(),
            earlier_trials=self._earlier,
            outcomes=dict(self._outcomes),
            error=self._error,
            status=status,
            reason=reason,
            session=self.recorder.session.id,
            seconds=seconds,
            spent=self._spent(seconds),
            roofline=self.roofline,
            drift=tuple(self._drift.ratios),
            gains=self._gains(),
            noise=noise,
            doubts=self._wrong.text(self._outcomes[Outcome.WRONG_RESULT], self._outcomes.total()),
            own_seconds=history.own_seconds,
            trial_seconds=history.trial_seconds,
            rules=self.own_rules.uses,
            schedules={}
            if self.own_schedules is None
            else self.own_schedules.uses(self._history, finals, chosen),
            hints=None if self.hints is None else self.hints.use(self._history, finals, chosen),
            kept=kept,
            pinned=self.recorder.pinned,
        )
        if result.doubts is not None:
            _log.warning("%s: %s", self._name, result.doubts)
        if kept is not None and self.callback is ignore:
            # A signal may end the process before the result is printed.
            _log.warning("%s: interrupted; %s", self._name, kept)
        _log.info("%s: %s", self._name, result)
        self._tell(
            Ended(
                reason,
                result.interrupted,
                result.trials,
                None if self.best is None else self.best.time,
                seconds,
                best_session=None if self.best is None else self.best.session,
                own_seconds=result.own_seconds,
                kept=kept,
                noise=noise,
                pinned=None if chosen is None else instead_text(result.pinned, chosen),
            )
        )
        return result

    def abandon(self) -> None:
        """End the session in the database, if it has not ended; ignore a failure of that."""
        if self._recorded_end:
            return
        with suppress(TilewrightError):
            self.recorder.end(SessionStatus.INTERRUPTED, self._noise())

    def _rest(self) -> float:
        """Count the time since the last lap, and let other programs work; returns it."""
        took = self.meter.lap()
        self._seconds += took
        self._at_work = False
        return took

    def _elapsed(self) -> float:
        """The duration of the session: of programs that share a budget, one is at work."""
        return self._seconds + (self.meter.since_lap if self._at_work else 0.0)

    def _tick(self) -> None:
        """Called while workers are busy: notices interrupts and the end of the time."""
        self.check_interrupt()
        if self.meter.seconds_left == 0:
            raise OutOfTime
        self.beat()
        silence = time.monotonic() - self._last_word
        if silence > _SILENCE and not self.measurer.timing:
            started = self.measurer.reference_seconds is not None
            what = "building" if started else "building, and running the unscheduled program"
            self._tell(Waiting(what, self._elapsed()))

    def _ask(self, count: int) -> list[Candidate]:
        began = time.monotonic()
        candidates = self.search.ask(count)
        self.search_seconds += time.monotonic() - began
        return candidates

    def _learn(self, observed: list[Observation]) -> None:
        began = time.monotonic()
        self.search.learn(observed)
        self.search_seconds += time.monotonic() - began
        observed.clear()

    def _measure(self, candidates: list[Candidate], most: int) -> None:
        """Measure candidates. A cluster is given others, at most so many, while these are at work.

        They are added to `candidates`.
        """
        observed = list[Observation]()

        def more(count: int) -> list[BuildRequest]:
            left = most - len(candidates)
            if left <= 0:
                return []
            self._learn(observed)
            deque(self.search.explore(), maxlen=0)
            new = self._ask(min(count, left))
            candidates.extend(new)
            return _requests(new)

        last = self.meter.trials_left == len(candidates)
        meanwhile = () if last else self.search.explore()
        for number, first in self._results(candidates, more, meanwhile):
            candidate = candidates[number]
            measured = self._measured(candidate, first)
            fastest = min(measured.samples, default=None)
            observed.append(candidate.observed(measured.outcome, fastest))
        self._learn(observed)

    def _results(
        self,
        candidates: Sequence[Predicted],
        more: Callable[[int], list[BuildRequest]] = lambda _: [],
        meanwhile: Iterable[None] = (),
    ) -> Iterator[Numbered]:
        """The results of candidates, by their numbers; on a cluster, of `more` as well."""
        requests = _requests(candidates)
        if isinstance(self.measurer, ClusterMeasurer):
            return self.measurer.stream(requests, self.best_seconds, more)
        return self.measurer.measure(requests, self.best_seconds, meanwhile)

    def _measured(self, candidate: Predicted, first: MeasureResult) -> MeasureResult:
        """Record the result of a candidate, and better ones; conclude it with the last."""
        measured, written = first, self._record(candidate, first)
        try:
            for again in self._better(candidate, first):
                written, measured = self._record(candidate, again), again
        finally:  # an interrupt leaves a trial that was measured
            self._conclude(candidate, measured, written)
        return measured

    def _record(self, candidate: Predicted, measured: MeasureResult) -> Measurement:
        return self.recorder.trial(
            candidate.schedule, measured, candidate.features, candidate.predicted_seconds
        )

    def _better(self, candidate: Predicted, first: MeasureResult) -> Iterator[MeasureResult]:
        """Better results of a candidate, timed again where something seems to have disturbed it."""
        best = self.best_seconds

        def run() -> MeasureResult:
            assert first.kernel is not None, "what ran was built"
            return self.measurer.run(Built(first.kernel, 0.0), best)

        def look() -> None:
            self._tell_drift(self._drift.look(self.measurer))

        return self._plausibility.better(first, candidate.predicted_seconds, best, run, look)

    def _conclude(
        self, candidate: Predicted, measured: MeasureResult, written: Measurement
    ) -> None:
        """Count a stored measurement, let its candidate compete, and tell the caller."""
        assert written.elapsed is not None, "a recorder knows the duration"
        self.meter.spend(1)
        if isinstance(candidate, Candidate):
            self.own_rules.count(candidate.sketch, measured.error)
        self._outcomes[measured.outcome] += 1
        self._error = measured.error or self._error
        _log.debug("trial %d: %s %s", self.meter.trials, measured.outcome, measured.error or "")
        finalist = self._finalist(candidate.schedule, candidate.trace, measured)
        record = False
        if finalist is not None:
            self._fastest.add(finalist)
            record = finalist.checked and self._compete(finalist, written)
        trial = Trial(
            number=self.meter.trials,
            outcome=measured.outcome,
            seconds=measured.seconds,
            best_seconds=self.best_seconds,
            record=record,
            error=measured.error,
            schedule=written.schedule,
            elapsed=written.elapsed,
            program=self.number,
            predicted=candidate.predicted_seconds,
            disturbed=was_disturbed(measured.samples),
        )
        self._history.append(trial)
        self._tell(trial)

    def _finalist(
        self, schedule: ScheduleRecord, trace: Trace, measured: MeasureResult
    ) -> Finalist | None:
        """A schedule that was measured, if it may be the best; it is noted if it is a rival."""
        finalist = None
        if measured.outcome is Outcome.WRONG_RESULT:
            self._wrong.note(schedule.id, measured.error or "")
        if measured.seconds is not None:
            assert measured.kernel is not None, "what ran was built"
            checked = measured.accepted(self.tolerance)
            if checked or measured.check is None:
                seconds, kernel = measured.seconds, measured.kernel
                finalist = Finalist(seconds, schedule, trace, kernel, checked)
        self._rivals.note(schedule, finalist, measured.samples)
        return finalist

    def _compete(self, finalist: Finalist, written: Measurement) -> bool:
        """Make a checked measurement the best if it is; return whether it is."""
        seconds = finalist.seconds
        if self.best is not None and seconds >= self.best.seconds:
            return False
        assert written.time is not None, "a finalist has a time"
        self.best = BestResult(
            written.time,
            finalist.trace,
            written.schedule,
            written.id,
            generator=finalist.schedule.generator,
            session=written.session,
            resources=written.resources,
        )
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
        trials, first = self.meter.trials, self._fastest.first
        self._tell_drift(self._drift.watch(trials, first, self.measurer))

    def _tell_drift(self, ratio: float | None) -> None:
        if ratio is None:
            return
        _log.info("the same code takes %.2f times as long as at first", ratio)
        self.recorder.drift(ratio)
        self._tell(Drift(ratio, self._elapsed()))

    def _pause(self) -> None:
        """Wait for whatever disturbs the machine."""
        end = time.monotonic() + self.config.pause
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP))
            self._tick()

    def _gains(self) -> Gains:
        """The gains of the best; lower bounds of those that were not measured in its finals."""
        if self.best is None:
            return {}
        here = self._fastest.of(self.best.schedule_id) is not None
        reference = self.measurer.reference_seconds
        bounds = self._rivals.bounds(self.best.seconds, reference) if here else {}
        gains = {**bounds, **self.best.gains}
        return {baseline: gains[baseline] for baseline in Baseline if baseline in gains}

    def _noise(self) -> str | None:
        """Plain words where the machine was so disturbed that it was not fit to choose."""
        threads = self.threads
        if self._finals.disturbed:
            slowdown = self._finals.slowdown
            return disturbed_finals_text(slowdown, threads, others=self.recorder.others)
        best, gains = self.best, None
        if self._finals.compared and best is not None and best.session == self.recorder.session.id:
            gains = best.gains
        disturbed = [trial.disturbed for trial in self._history]
        return noise_text(
            self._drift.ratios,
            self._finals.compared,
            threads,
            gains,
            disturbed,
            others=self.recorder.others,
        )

    def _spent(self, seconds: float) -> Spent:
        measurer = self.measurer
        model = self.search.seconds_in_model if "search" in vars(self) else 0.0
        searching = self.search_seconds + measurer.seconds_meanwhile
        parts = Spent(
            search=max(0.0, searching - model),
            model=model,
            build=measurer.seconds_building,
            run=measurer.seconds_running,
            waiting=measurer.seconds_waiting,
            other=0.0,
            earlier=self.earlier_seconds,
        )
        return replace(parts, other=max(0.0, seconds - sum(astuple(parts))))

    def _tell(self, event: Event) -> None:
        self._last_word = time.monotonic()
        if not isinstance(event, Started):
            event = replace(event, budget_elapsed=self.meter.elapsed)
        self.callback(replace(event, program=self.number))

    @property
    def _name(self) -> str:
        return self.recorder.subject.workload.name


def _requests(candidates: Sequence[Predicted]) -> list[BuildRequest]:
    return [BuildRequest(c.schedule.trace, c.trace.error_factor) for c in candidates]
