"""What disturbed a session, and what to do about it, in one line.

Drift of the machine: one kernel of a session is timed again now and then.

Which trials are timed again: their times are far beyond what is plausible.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence

from ...base.durations import format_ratio
from ...base.text import short_id
from ...tuning_db.gains import Gains
from ...tuning_db.results import Baseline, ComparedSchedule, Verdict
from ...tuning_db.values import Outcome, Session
from ..measure.any_measurer import AnyMeasurer
from ..measure.measure_result import Kernel, MeasureResult
from .finals import Finalist

_APART = 3.0
"""From this ratio of the ends of an interval on, the finals were disturbed."""
_JUDGED = 5
"""Trials of fewer samples do not show whether something disturbed them."""
_DISTURBED_SHARE = 0.25
"""This share of samples that took long makes a trial disturbed, and of such trials a session."""
_NAMED = 3
"""Other sessions that a sentence names."""
_FEW = 3
"""So many disturbed trials are needed at least."""


def was_disturbed(samples: Sequence[float]) -> bool | None:
    """Whether something disturbed a trial, as its samples show; `None` if these are too few.

    If so, a quarter of them, and at least two, took twice as long as the shortest.
    """
    if len(samples) < _JUDGED:
        return None
    slow = sum(seconds >= DISTURBED * min(samples) for seconds in samples)
    return slow >= max(2, _DISTURBED_SHARE * len(samples))


def were_disturbed(trials: Sequence[bool | None]) -> bool:
    """Whether a quarter of the trials were disturbed (see `was_disturbed`)."""
    judged = [d for d in trials if d is not None]
    return sum(judged) >= max(_FEW, _DISTURBED_SHARE * len(judged))


def uncertain_text(factor: float, what: str = "times") -> str:
    """The one line that says it: `noisy machine: times uncertain by up to 3.8x`."""
    by = f" by up to {format_ratio(factor)}x" if factor > 1 else ""
    return f"noisy machine: {what} uncertain{by}"


def noise_text(
    drift: Sequence[float],
    comparison: Sequence[ComparedSchedule],
    threads: int,
    gains: Gains | None = None,
    disturbed: Sequence[bool | None] = (),
    act: str = "tune",
    others: Callable[[], Sequence[Session]] = list,
) -> str | None:
    """A line where times of a session are not comparable, or its finals could not choose.

    `noisy machine: times uncertain by up to 3.8x; tune again when calm`. The factor is the largest
    that anything shows.

    `drift` has the times of the reference kernel over its first, `comparison` the finalists, and
    `threads` is the number that the kernels use. `gains` are those that the finals measured,
    `disturbed` says which trials something disturbed, and `act` what to do again. `others` returns
    the other sessions of this machine meanwhile; it is asked only where something was found.
    """
    factors = [_drift(drift), _finals(comparison)]
    if were_disturbed(disturbed):
        factors.append(DISTURBED)
    found = [factor for factor in factors if factor is not None]
    if found:
        return _advised(uncertain_text(max(found)), threads, act, others)
    unsure = _unsure({} if gains is None else gains)
    if not unsure:
        return None
    names = " and ".join(baseline.phrase for baseline in unsure)
    text = uncertain_text(max(unsure.values()), f"gain over {names}")
    return _advised(text, threads, act, others)


def disturbed_finals_text(
    slowdown: float,
    threads: int,
    act: str = "tune",
    others: Callable[[], Sequence[Session]] = list,
) -> str:
    """The line of finals that were not recorded; the arguments are those of `noise_text`."""
    text = f"noisy machine: finals took {format_ratio(slowdown)}x as long as trials, and are void"
    return _advised(text, threads, act, others)


def _advised(text: str, threads: int, act: str, others: Callable[[], Sequence[Session]]) -> str:
    """The line with the other sessions, and what to do on a machine that is busy."""
    alone = ", or for one thread (-threads=1)" if threads > 1 else ""
    return "; ".join([text, *_others(others()), f"{act} again when calm{alone}"])


def _others(others: Sequence[Session]) -> list[str]:
    """Which other sessions were at work on this machine, as a phrase; none if there were none."""
    if not others:
        return []
    own = os.getpid()
    named = [
        f"{short_id(s.id)} (of {'this process' if s.pid == own else f'process {s.pid}'})"
        for s in others[:_NAMED]
    ]
    more = [f"{len(others) - _NAMED} more"] if len(others) > _NAMED else []
    sessions = "session" if len(others) == 1 else "sessions"
    return [f"{sessions} {', '.join([*named, *more])} ran meanwhile"]


def _drift(drift: Sequence[float]) -> float | None:
    """The largest factor of the reference kernel, in either direction, where it is too much."""
    worst = max(map(changed, drift), default=1.0)
    return None if worst < DISTURBED else worst


def _finals(comparison: Sequence[ComparedSchedule]) -> float | None:
    """How far the ends of an interval are apart that hides the choice, at most.

    1 where finalists were unsettled in too few rounds for an interval.
    """
    unsettled = [c for c in comparison if c.verdict is Verdict.UNSETTLED]
    near = [c for c in comparison if c.interval is not None and c.interval[0] <= 1]
    intervals = (c.interval for c in (*unsettled, *near))
    widest = max((high / low for low, high in filter(None, intervals)), default=1.0)
    return widest if unsettled or widest > _APART else None


def _unsure(gains: Gains) -> dict[Baseline, float]:
    """The baselines over which the gain is uncertain, by which factor: the choice is not."""
    apart = {baseline: gains[baseline].interval for baseline in Baseline if baseline in gains}
    return {
        baseline: interval[1] / interval[0]
        for baseline, interval in apart.items()
        if interval is not None and interval[1] / interval[0] > _APART
    }


DISTURBED = 2.0
"""From this factor on, times from before and after are not comparable."""
_ROUNDS = 5
_PATIENCE = 3
"""How often the kernel is timed again, after pauses, before a disturbed machine is accepted."""


class DriftMonitor:
    """One kernel that is timed again after every `every` trials: its time should not change.

    Where it takes several times as long as at best, `pause` is called and it is timed again, at
    most three times, each after twice as many pauses; not again while the machine stays like that.
    `ratios` are its later times over its first.
    """

    def __init__(self, every: int, pause: Callable[[], None]) -> None:
        self.ratios: list[float] = []
        self._every = every
        self._pause = pause
        self._due = every
        self._kernel: Kernel | None = None
        self._seconds = self._least = 0.0
        self.disturbed = False
        """Whether it took several times as long as at best when it was last timed."""

    @property
    def spread(self) -> float:
        """The largest factor by which its time changed."""
        return max(map(changed, self.ratios), default=1.0)

    def watch(self, trials: int, first: Finalist | None, measurer: AnyMeasurer) -> float | None:
        """The kernel's time over its first, if it is due after `trials` trials."""
        if self._kernel is None:
            if first is not None and (seconds := _median(first.kernel, measurer)):
                self._kernel, self._seconds, self._least = first.kernel, seconds, seconds
                self._due = trials + self._every
            return None
        if trials < self._due:
            return None
        self._due = trials + self._every
        return self.look(measurer)

    def look(self, measurer: AnyMeasurer) -> float | None:
        """The kernel's time now over its first; `None` while there is no kernel."""
        if self._kernel is None:
            return None
        seconds = _median(self._kernel, measurer)
        for attempt in range(0 if self.disturbed else _PATIENCE):
            if seconds is None or seconds < DISTURBED * self._least:
                break
            for _ in range(2**attempt):
                self._pause()
            seconds = _median(self._kernel, measurer)
        if seconds is None:
            return None
        self.disturbed = seconds >= DISTURBED * self._least
        self._least = min(self._least, seconds)
        self.ratios.append(seconds / self._seconds)
        return self.ratios[-1]


def changed(ratio: float) -> float:
    """The factor by which a time changed, up or down."""
    return max(ratio, 1 / ratio)


def _median(kernel: Kernel, measurer: AnyMeasurer) -> float | None:
    rows = measurer.interleave([kernel], _ROUNDS)
    return None if rows is None else statistics.median(rows[0])


IMPLAUSIBLE = 16.0
"""From this factor over its prediction on, a short trial is taken to be disturbed."""
_SHORT = 0.1
"""Seconds of a call that some time slices of other processes do not lengthen so much."""
_CALL = 1e-7
"""Seconds that a call takes by itself, which predictions of small programs leave out."""
_CONFIRMED = 8


class Plausibility:
    """Tells trials that something disturbed from those whose predictions are off.

    Threads that wait for each other wait for a time slice each where something else wants their
    processors: a call of microseconds then takes milliseconds, which no model predicts. Once
    several trials in a row were doubted and took as long again, the model is off, and the least
    factor by which it is off is allowed for.
    """

    def __init__(self) -> None:
        self._confirmed: list[float] = []

    def doubts(self, seconds: float | None, predicted: float, best: float | None) -> bool:
        """Whether a time is far beyond its prediction and the best time, and short enough."""
        if seconds is None or seconds >= _SHORT:
            return False
        off = min(self._confirmed) if len(self._confirmed) >= _CONFIRMED else 1.0
        return seconds >= IMPLAUSIBLE * max(off * predicted, best or 0.0, _CALL)

    def conclude(self, seconds: float, predicted: float, *, doubtful: bool) -> None:
        """Count a trial that was timed again: whether its time is `doubtful` as before."""
        if doubtful:
            self._confirmed.append(max(1.0, seconds / predicted))
        else:
            self._confirmed.clear()

    def better(
        self,
        first: MeasureResult,
        predicted: float,
        best: float | None,
        run: Callable[[], MeasureResult],
        look: Callable[[], object],
    ) -> Iterator[MeasureResult]:
        """The results that replace the `first` of a candidate, each as soon as it is known.

        One that is doubted is timed again by `run`, and once more after a `look` at the machine. A
        shorter time replaces the one before; so do wrong results. Other failures end it: the
        candidate has run.
        """
        seconds, shortest, doubtful = first.seconds, min(first.samples, default=0.0), True
        if not self.doubts(seconds, predicted, best):
            return
        assert seconds is not None, "what is doubted has a time"
        for again in (False, True):
            if again:
                look()
            result = run()
            if result.outcome is Outcome.WRONG_RESULT:
                yield result
            if result.seconds is None:
                return
            shortest = min(shortest, *result.samples)
            if result.seconds < seconds:
                seconds = result.seconds
                yield result
            doubtful = self.doubts(seconds, predicted, best)
            if not doubtful:
                break
        # Their shortest sample shows by how much a model is off: a disturbance only adds time.
        self.conclude(shortest, predicted, doubtful=doubtful)
