"""Drift of the machine: one kernel of a session is timed again now and then."""

from __future__ import annotations

import statistics

from .finals import Finalist
from .measure.measure_result import Kernel
from .measure.measurer import Measurer

_ROUNDS = 5


class DriftMonitor:
    """One kernel that is timed again after every `every` trials: its time should not change.

    `ratios` are its later times over its first.
    """

    def __init__(self, every: int) -> None:
        self.ratios: list[float] = []
        self._every = every
        self._due = every
        self._kernel: Kernel | None = None
        self._seconds = 0.0

    @property
    def spread(self) -> float:
        """The largest factor by which its time changed."""
        return max((max(r, 1 / r) for r in self.ratios), default=1.0)

    def watch(self, trials: int, first: Finalist | None, measurer: Measurer) -> float | None:
        """The kernel's time over its first, if it is due after `trials` trials."""
        if self._kernel is None:
            if first is not None and (seconds := _median(first.kernel, measurer)):
                self._kernel, self._seconds = first.kernel, seconds
                self._due = trials + self._every
            return None
        if trials < self._due:
            return None
        self._due = trials + self._every
        seconds = _median(self._kernel, measurer)
        if seconds is None:
            return None
        self.ratios.append(seconds / self._seconds)
        return self.ratios[-1]


def _median(kernel: Kernel, measurer: Measurer) -> float | None:
    rows = measurer.interleave([kernel], _ROUNDS)
    return None if rows is None else statistics.median(rows[0])
