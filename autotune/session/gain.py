"""The expected gain of another measurement of a program: it shares budgets and ends sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_WINDOW = 3
"""Batches over which the trend is taken."""
_TREND = 0.2
"""The weight of the trend beside that of what may be left."""


@dataclass
class Progress:
    """The course of a search: after each batch, the trials done and the best seconds.

    `limit` is a lower bound of the time. `seconds` is the duration of the trials of this session.
    """

    limit: float
    points: list[tuple[int, float]]
    trials: int = 0
    seconds: float = 0.0

    def add(self, trials: int, seconds: float, best: float | None) -> None:
        """Count a batch of `trials` that took `seconds`; `best` is the best time after it."""
        self.trials += trials
        self.seconds += seconds
        if best is not None:
            self.points.append((self.trials, best))

    @property
    def best(self) -> float | None:
        return self.points[-1][1] if self.points else None

    @property
    def seconds_per_trial(self) -> float | None:
        return self.seconds / self.trials if self.trials else None

    @property
    def gain(self) -> float | None:
        """The seconds of a call that the next trial is expected to save; `None` if nothing ran.

        The gradient of Ansor's task scheduler (Zheng et al., OSDI 2020, section 6): a mean of the
        trend of the last batches and of an optimistic guess, that as many trials again reach the
        limit. The limit is the roofline in place of zero, and of similar tasks.
        """
        if not self.points:
            return None
        trials, best = self.points[-1]
        trend = 0.0
        if len(self.points) > 1:
            since, then = self.points[max(0, len(self.points) - 1 - _WINDOW)]
            trend = max(0.0, then - best) / max(1, trials - since)
        left = max(0.0, best - self.limit) / max(1, trials)
        return _TREND * trend + (1 - _TREND) * left


def most_promising(sessions: Sequence[Progress], weights: Sequence[float]) -> int:
    """Which program the next batch is expected to gain most for, in weighted seconds of a call.

    One that was not tried yet comes first; one of which nothing ran gets its turn by trials.
    """
    untried = [n for n, progress in enumerate(sessions) if not progress.trials]
    if untried:
        return untried[0]
    failing = [n for n, progress in enumerate(sessions) if progress.gain is None]
    if failing:
        least = min(failing, key=lambda n: sessions[n].trials)
        if sessions[least].trials <= min(progress.trials for progress in sessions):
            return least
    gains = [w * (c.gain or 0.0) for c, w in zip(sessions, weights, strict=True)]
    return max(range(len(sessions)), key=lambda n: gains[n])


def relative_gain(sessions: Sequence[Progress], weights: Sequence[float]) -> float | None:
    """The gain that is expected of a second of tuning, as a share of the weighted time of all.

    Of the most promising program; `None` before all of them have run.
    """
    total = best = 0.0
    for progress, weight in zip(sessions, weights, strict=True):
        if progress.gain is None or progress.best is None or not progress.seconds_per_trial:
            return None
        total += weight * progress.best
        best = max(best, weight * progress.gain / progress.seconds_per_trial)
    return best / total
