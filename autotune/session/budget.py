"""The budget of a tuning session: trials and seconds, and the part of them that is spent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

from ...base.errors import TuningError

_MAX_TRIALS = 10_000_000
_PAUSE = timedelta(seconds=60)
"""A session in which nothing happened for longer was not running all the time."""


@dataclass(frozen=True)
class Budget:
    """A number of new measurements and of wall-clock seconds; `None` is no limit.

    A session ends when the first of them is used up. Raises `TuningError` if both are `None`, and
    for a limit that is no positive number.
    """

    trials: int | None = 64
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise TuningError(
                "a session needs a budget, found trials=None and seconds=None",
                hint="give trials, seconds or both",
            )
        if self.trials is not None:
            _check("trials", self.trials, isinstance(self.trials, int), _MAX_TRIALS)
        if self.seconds is not None:
            _check("seconds", self.seconds, isinstance(self.seconds, (int, float)), math.inf)


def budget_text(trials: int | None, seconds: float | None) -> str:
    """A budget as text, `300 trials or 60 s` for instance."""
    parts = [] if trials is None else [f"{trials} trials"]
    return " or ".join([*parts, *([] if seconds is None else [f"{seconds:g} s"])])


class Meter:
    """The rest of a budget. `trials` is the number of those done."""

    def __init__(self, budget: Budget, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.trials = 0
        self._clock = clock
        self._began = clock()
        self._before = 0.0
        self._lap = self._began

    def lap(self) -> float:
        """Seconds since the last lap, which ends here."""
        last, self._lap = self._lap, self._clock()
        return self._lap - last

    @property
    def since_lap(self) -> float:
        """Seconds since the last lap, which goes on."""
        return self._clock() - self._lap

    def spend(self, trials: int, seconds: float = 0.0) -> None:
        """Count the trials and seconds that an earlier run has used."""
        self.trials += trials
        self._before += seconds

    @property
    def elapsed(self) -> float:
        """Seconds of this run and of the earlier ones that it continues."""
        return self._before + self._clock() - self._began

    @property
    def trials_left(self) -> int | None:
        limit = self.budget.trials
        return None if limit is None else max(0, limit - self.trials)

    @property
    def seconds_left(self) -> float | None:
        limit = self.budget.seconds
        return None if limit is None else max(0.0, limit - self.elapsed)

    @property
    def spent(self) -> str | None:
        """The part of the budget that is used up, as a sentence; `None` while none is."""
        if self.trials_left == 0:
            one = self.budget.trials == 1
            return "the one trial is done" if one else f"all {self.budget.trials} trials are done"
        if self.seconds_left == 0:
            return f"the {self.budget.seconds:g} seconds are over"
        return None

    def batch(self, size: int, among: int = 1) -> int:
        """The size of the next batch: at most `size`, and a share if `among` programs wait."""
        left = self.trials_left
        return size if left is None else min(size, max(1, left // among))


def _check(name: str, value: Any, is_number: bool, most: float) -> None:
    if isinstance(value, bool) or not is_number:
        raise TuningError("{0}: expected a number, found {1!r}", name, value)
    if not (value > 0 and value <= most and math.isfinite(value)):
        raise TuningError(
            "{0}={1!r} is no budget; expected more than 0",
            name,
            value,
            hint="tune measures; `build` without a record chooses a schedule by the model alone",
        )


def running(moments: Iterable[datetime]) -> float:
    """The seconds between the first and the last moment, without long pauses between moments."""
    return max(running_at(moments).values(), default=0.0)


def running_at(moments: Iterable[datetime]) -> dict[datetime, float]:
    """The `running` seconds until each of the moments."""
    ordered = sorted(moments)
    pauses = (min(end - begin, _PAUSE).total_seconds() for begin, end in pairwise(ordered))
    return dict(zip(ordered, accumulate(pauses, initial=0.0), strict=True)) if ordered else {}


def parts(moments: Iterable[tuple[datetime, str]]) -> dict[str, float]:
    """The `running` seconds of several (names) that work in turns, of the moments of each.

    The time between two moments is of the one whose moment ends it.
    """
    ordered = sorted(moments)
    times = dict.fromkeys((name for _, name in ordered), timedelta())
    for (begin, _), (end, name) in pairwise(ordered):
        times[name] += min(end - begin, _PAUSE)
    return {name: time.total_seconds() for name, time in times.items()}
