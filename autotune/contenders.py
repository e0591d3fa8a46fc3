"""The fastest kernels of a session, and one of them timed now and then for drift."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from ..schedule import Trace
from ..tuning_db.values import ScheduleRecord
from .measure.measured import Kernel
from .measure.measurer import Measurer

_ROUNDS = 5
_KEPT = 32


class Contender(NamedTuple):
    """A candidate that ran, with its code to time it again.

    `checked` says that its results were compared.
    """

    seconds: float
    schedule: ScheduleRecord
    trace: Trace
    kernel: Kernel
    checked: bool


class Contenders:
    """The fastest candidates of a session, the fastest first."""

    def __init__(self) -> None:
        self._ranked: list[Contender] = []

    def add(self, contender: Contender) -> None:
        self._ranked.append(contender)
        self._ranked.sort(key=lambda c: c.seconds)
        del self._ranked[_KEPT:]

    @property
    def first(self) -> Contender | None:
        return self._ranked[0] if self._ranked else None

    def of(self, schedule: str) -> Contender | None:
        """The contender with that schedule (id)."""
        return next((c for c in self._ranked if c.schedule.id == schedule), None)

    def finalists(self, most: int, margin: float) -> list[Contender]:
        """The `most` fastest within `margin` times the first; one alone is no contest, and none."""
        near = [c for c in self._ranked[:most] if c.seconds <= margin * self._ranked[0].seconds]
        return near if len(near) > 1 else []


class Sentinel:
    """One kernel that is timed again after every `every` trials: its time should not change."""

    def __init__(self, every: int) -> None:
        self.ratios: list[float] = []
        self._every = every
        self._due = every
        self._kernel: Kernel | None = None
        self._seconds = 0.0

    @property
    def spread(self) -> float:
        """By which factor its time changed at most."""
        return max((max(r, 1 / r) for r in self.ratios), default=1.0)

    def watch(self, trials: int, first: Contender | None, measurer: Measurer) -> float | None:
        """The kernel's time over what it was at first, if it is due after `trials` trials."""
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
