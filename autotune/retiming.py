"""Which trials are timed again: their times are far beyond what is plausible."""

from __future__ import annotations

IMPLAUSIBLE = 16.0
"""From this factor over its prediction on, a short trial is taken to be disturbed."""
_SHORT = 0.1
"""Seconds of a call that some time slices of other processes do not lengthen so much."""
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
        return seconds >= IMPLAUSIBLE * max(off * predicted, best or 0.0)

    def conclude(self, seconds: float, predicted: float, *, doubtful: bool) -> None:
        """Count a trial that was timed again: whether its time is `doubtful` as before."""
        if doubtful:
            self._confirmed.append(max(1.0, seconds / predicted))
        else:
            self._confirmed.clear()
