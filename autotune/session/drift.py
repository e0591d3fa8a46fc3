"""Drift of the machine: one kernel of a session is timed again now and then."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from ..measure.measure_result import Kernel
from ..measure.measurer import Measurer
from .finals import Finalist

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

    def watch(self, trials: int, first: Finalist | None, measurer: Measurer) -> float | None:
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

    def look(self, measurer: Measurer) -> float | None:
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


def _median(kernel: Kernel, measurer: Measurer) -> float | None:
    rows = measurer.interleave([kernel], _ROUNDS)
    return None if rows is None else statistics.median(rows[0])
