"""Which trials are timed again: their times are far beyond what is plausible."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...tuning_db.values import Outcome
from ..measure.measure_result import MeasureResult

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
