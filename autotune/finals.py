"""The finals of a session: its fastest kernels are timed interleaved until the slower are known.

`Fastest` keeps the finalists while candidates are measured, `InterleavedTiming` times them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..runtime.timer import turn_seconds
from ..schedule import Trace
from ..tuning_db.interleaved_comparison import fastest_row, time_ratio
from ..tuning_db.values import ScheduleRecord
from .measure.measure_result import Kernel

_KEPT = 32

Interleave = Callable[[Sequence[Kernel], int], list[tuple[float, ...]] | None]


class Finalist(NamedTuple):
    """A candidate that ran, with its code to time it again.

    `checked` says that its results were compared.
    """

    seconds: float
    schedule: ScheduleRecord
    trace: Trace
    kernel: Kernel
    checked: bool


class Fastest:
    """The fastest candidates of a session, the fastest first."""

    def __init__(self) -> None:
        self._ranked: list[Finalist] = []

    def add(self, finalist: Finalist) -> None:
        self._ranked.append(finalist)
        self._ranked.sort(key=lambda f: f.seconds)
        del self._ranked[_KEPT:]

    @property
    def first(self) -> Finalist | None:
        return self._ranked[0] if self._ranked else None

    def of(self, schedule: str) -> Finalist | None:
        """The candidate with that schedule (id)."""
        return next((f for f in self._ranked if f.schedule.id == schedule), None)

    def finalists(self, most: int, margin: float) -> list[Finalist]:
        """The `most` fastest within `margin` times the first; empty if that is only one."""
        near = [f for f in self._ranked[:most] if f.seconds <= margin * self._ranked[0].seconds]
        return near if len(near) > 1 else []


class InterleavedTiming:
    """The timing of finalists, interleaved: at first `rounds` rounds, in all about `seconds`.

    A finalist that `interleaved_comparison` finds slower than the fastest takes no part in later
    rounds. The number of rounds doubles until the comparison of the others is settled. `samples`
    has the times of each finalist, also if timing was interrupted.

    A sample takes at least `sample_seconds`.
    """

    def __init__(
        self,
        finalists: Sequence[Finalist],
        rounds: int,
        seconds: float,
        sample_seconds: float,
    ) -> None:
        self.samples: list[tuple[float, ...]] = [()] * len(finalists)
        self._finalists = finalists
        self._running = list(range(len(finalists)))
        self._next = rounds
        self._left = seconds
        self._sample_seconds = sample_seconds

    @property
    def rounds(self) -> int:
        """The number of rounds that come next; 0 if it would be less than two."""
        if len(self._running) < 2:
            return 0
        rounds = min(self._next, int(self._left / self._round_seconds()))
        return rounds if rounds > 1 else 0

    def run(self, interleave: Interleave) -> None:
        """Time them until the comparison is settled, the time is over, or one of them fails."""
        while rounds := self.rounds:
            rows = interleave([self._finalists[n].kernel for n in self._running], rounds)
            if rows is None:
                return
            self._left -= rounds * self._round_seconds()
            for n, row in zip(self._running, rows, strict=True):
                self.samples[n] += row
            self._next = len(self.samples[self._running[0]])
            self._drop_slower()

    def _drop_slower(self) -> None:
        first = fastest_row(self.samples)
        ratios = {n: time_ratio(self.samples[n], self.samples[first]) for n in self._running}
        if all(ratio.settled for n, ratio in ratios.items() if n != first):
            self._running = []
        else:
            self._running = [n for n in self._running if n == first or not ratios[n].slower]

    def _round_seconds(self) -> float:
        """About how long a round takes."""
        seconds = [self._finalists[n].seconds for n in self._running]
        return max(1e-9, sum(turn_seconds(s, self._sample_seconds) for s in seconds))
