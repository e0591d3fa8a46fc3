"""A tuning session: asks the search, measures, records, tells the search, until a budget is spent.

Every measurement is in the database before the next begins, so that a session may be killed at any
moment; what it knows beyond that is only how to go on faster.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Protocol

from ..runtime.timer import format_seconds
from ..schedule import Trace
from ..tuning_db.values import Measurement, Outcome, SessionStatus
from .budget import Meter
from .config import TuneConfig
from .contenders import Contender, Contenders, Sentinel
from .measure import Measurer
from .measured import Measured
from .progress import Batch, Callback, Drift, Ended, Event, Final, Started, Trial, Waiting
from .recorder import Recorder
from .result import BestResult, Spent, TuneResult
from .search import Candidate, Observation
from .sketch import Sketch

_log = logging.getLogger(__name__)
_SILENCE = 1.0


class Proposals(Protocol):
    """What a session needs of a search."""

    sketches: tuple[Sketch, ...]
    seconds_in_model: float

    def ask(self, count: int) -> list[Candidate]: ...
    def tell(self, observations: Sequence[Observation]) -> None: ...


class OutOfTime(Exception):
    """The seconds of the budget ended while candidates were at work."""


@dataclass
class Setting:
    """What a session is given. `check_interrupt` raises `KeyboardInterrupt` where it should end.

    `best` is the fastest schedule known before, and `search_seconds` what making the search took.
    """

    recorder: Recorder
    search: Proposals
    measurer: Measurer
    meter: Meter
    config: TuneConfig
    callback: Callback
    check_interrupt: Callable[[], None]
    best: BestResult | None = None
    search_seconds: float = 0.0


class Tuning:
    """A session that runs in this process."""

    def __init__(self, setting: Setting) -> None:
        self._recorder = setting.recorder
        self._search = setting.search
        self._measurer = setting.measurer
        self._meter = setting.meter
        self._config = setting.config
        self._callback = setting.callback
        self._check_interrupt = setting.check_interrupt
        self._best = setting.best
        self._search_seconds = setting.search_seconds
        self._outcomes: Counter[Outcome] = Counter()
        self._contenders = Contenders()
        self._sentinel = Sentinel(setting.config.calm)
        self._last_word = time.monotonic()
        self._measurer.tick = self._tick

    def begin(self, known: int) -> None:
        """Say what is about to happen; `known` schedules are in the database."""
        workload, target = self._recorder.subject.workload, self._recorder.subject.target
        budget = self._meter.budget
        _log.info("%s: tuning for %s", workload.name, target.text)
        self._tell(
            Started(
                session=self._recorder.session.id,
                workload=f"{workload.name} {workload.shape}",
                target=target.text,
                trials=budget.trials,
                seconds=budget.seconds,
                done=self._meter.trials,
                known=known,
                flops=workload.flops,
                best_seconds=self._best_seconds,
            )
        )

    def run(self) -> str:
        """Measure until the budget is spent; the reason to end."""
        number = 0
        try:
            while (spent := self._meter.spent) is None:
                self._tick()
                candidates = self._ask()
                if not candidates:
                    return f"the search has no candidate left after {self._meter.trials} trials"
                number += 1
                self._tell(Batch(number, len(candidates), self._meter.elapsed))
                self._measure(candidates)
                self._watch_drift()
            if self._meter.seconds_left != 0:
                self._hold_finals()
        except OutOfTime:
            return self._meter.spent or "the time is over"
        return spent

    def finish(self, reason: str, status: SessionStatus) -> TuneResult:
        """End the session in the database, and say what came of it."""
        self._recorder.end(status)
        seconds = self._meter.elapsed
        result = TuneResult(
            best=self._best,
            trials=self._outcomes.total(),
            outcomes=dict(self._outcomes),
            status=status,
            reason=reason,
            session=self._recorder.session.id,
            seconds=seconds,
            spent=self._spent(seconds),
            drift=tuple(self._sentinel.ratios),
        )
        _log.info("%s: %s", self._name, result)
        self._tell(Ended(reason, result.interrupted, result.trials, self._best_seconds, seconds))
        return result

    def _tick(self) -> None:
        """Called while workers are busy: notices interrupts and the end of the time."""
        self._check_interrupt()
        if self._meter.seconds_left == 0:
            raise OutOfTime
        self._recorder.beat()
        silence = time.monotonic() - self._last_word
        if silence > _SILENCE and not self._measurer.timing:
            started = self._measurer.reference_seconds is not None
            what = "building" if started else "building, and running the unscheduled program"
            self._tell(Waiting(what, self._meter.elapsed))

    def _ask(self) -> list[Candidate]:
        began = time.monotonic()
        candidates = self._search.ask(self._meter.batch(self._config.batch))
        self._search_seconds += time.monotonic() - began
        return candidates

    def _measure(self, candidates: Sequence[Candidate]) -> None:
        traces = [c.trace for c in candidates]
        results = self._measurer.measure(traces, self._best_seconds)
        observed = []
        for candidate, measured in zip(candidates, results, strict=True):
            sketch = self._search.sketches[candidate.sketch].name
            written = self._recorder.trial(candidate, sketch, measured)
            self._conclude(candidate, measured, written)
            observed.append(
                Observation(
                    candidate.key,
                    candidate.trace,
                    candidate.features,
                    measured.outcome,
                    measured.seconds,
                )
            )
        began = time.monotonic()
        self._search.tell(observed)
        self._search_seconds += time.monotonic() - began

    def _conclude(self, candidate: Candidate, measured: Measured, written: Measurement) -> None:
        """What follows from a measurement that is in the database."""
        self._meter.spend(1)
        self._outcomes[measured.outcome] += 1
        _log.debug("trial %d: %s %s", self._meter.trials, measured.outcome, measured.error or "")
        record = False
        if measured.seconds is not None:
            assert measured.kernel is not None, "what ran was built"
            checked = measured.check is not None
            self._contenders.add(
                Contender(
                    measured.seconds, written.schedule, candidate.trace, measured.kernel, checked
                )
            )
            record = checked and self._compete(measured.seconds, candidate.trace, written)
        self._tell(
            Trial(
                number=self._meter.trials,
                outcome=measured.outcome,
                seconds=measured.seconds,
                best_seconds=self._best_seconds,
                record=record,
                error=measured.error,
                schedule=written.schedule,
                elapsed=self._meter.elapsed,
            )
        )

    def _compete(self, seconds: float, trace: Trace, written: Measurement) -> bool:
        """Whether a checked measurement is the best so far, which it then becomes."""
        if self._best is not None and seconds >= self._best.seconds:
            return False
        self._best = BestResult(seconds, trace, written.schedule, written.id)
        done = self._meter.trials
        _log.info("%s: %s after %d trials", self._name, format_seconds(seconds), done)
        return True

    def _watch_drift(self) -> None:
        ratio = self._sentinel.watch(self._meter.trials, self._contenders.first, self._measurer)
        if ratio is None:
            return
        _log.info("the same code takes %.2f times as long as at first", ratio)
        self._tell(Drift(ratio, self._meter.elapsed))

    def _hold_finals(self) -> None:
        """Time the fastest candidates in turns.

        These are measurements of their own, and the last word on those schedules: the first times
        were good by luck too. Where that makes one the best that did not take part, it gets its
        own contest with the winner.
        """
        near = self._contenders.finalists(self._config.finalists, self._config.margin)
        if self._rounds(near) < 2:
            return
        finalists = [c for c in near if c.checked or self._passes(c)]
        timed: dict[str, float] = {}
        while len(finalists) > 1:
            seconds = self._contest(finalists)
            if not seconds:
                break
            timed |= seconds
            self._best = self._recorder.best() or self._best
            challenger = self._contenders.of(self._best.schedule_id) if self._best else None
            winner = self._contenders.of(min(seconds, key=lambda s: seconds[s]))
            if challenger is None or winner is None or challenger.schedule in timed:
                break
            finalists = [winner, challenger]
        if timed:
            ranked = sorted(timed.items(), key=lambda item: item[1])
            self._tell(Final(tuple(ranked), self._meter.elapsed))

    def _passes(self, contender: Contender) -> bool:
        """Whether the results of a candidate are right that was not the best before."""
        result = self._measurer.verify(contender.kernel)
        self._recorder.check(contender.schedule, result)
        return result.passed

    def _rounds(self, finalists: Sequence[Contender]) -> int:
        """How many times these kernels can be timed in the time for finals."""
        turn = sum(c.seconds for c in finalists)
        return min(self._config.rounds, int(self._config.final_seconds / max(turn, 1e-9)))

    def _contest(self, finalists: Sequence[Contender]) -> dict[str, float]:
        """Time kernels in turns and record it; seconds by schedule, none if it takes too long."""
        rounds = self._rounds(finalists)
        if rounds < 2:
            return {}
        rows = self._measurer.interleave([c.kernel for c in finalists], rounds)
        if rows is None:
            return {}
        return {
            contender.schedule: self._recorder.again(contender.schedule, samples)
            for contender, samples in zip(finalists, rows, strict=True)
        }

    def _spent(self, seconds: float) -> Spent:
        measurer, model = self._measurer, self._search.seconds_in_model
        parts = Spent(
            search=max(0.0, self._search_seconds - model),
            model=model,
            reference=measurer.seconds_waiting,
            build=measurer.seconds_building,
            run=measurer.seconds_running,
            other=0.0,
        )
        return replace(parts, other=max(0.0, seconds - sum(astuple(parts))))

    def _tell(self, event: Event) -> None:
        self._last_word = time.monotonic()
        self._callback(event)

    @property
    def _name(self) -> str:
        return self._recorder.subject.workload.name

    @property
    def _best_seconds(self) -> float | None:
        return None if self._best is None else self._best.seconds
