"""The budget of a tuning session, the part of it that is spent, and rules that end it before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...base.durations import format_ratio, format_seconds
from ...base.errors import TuningError
from ..model.target_model import Roofline

_MAX_TRIALS = 10_000_000


@dataclass(frozen=True)
class Budget:
    """A number of new measurements and of wall-clock seconds; `None` is no limit.

    A session ends when the first of them is used up. Raises `TuningError` for a limit that is no
    positive number.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
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


@dataclass(frozen=True)
class StopRules:
    """`stop_at` is a share of the roofline: a program that reaches it gets no more trials.

    `min_gain` ends the session once a second of tuning is expected to gain less than that share of
    the programs' time. Raises `TuningError` for values that are none.
    """

    stop_at: float | None = None
    min_gain: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value <= 1 and math.isfinite(value)):
                raise TuningError(
                    "{0}={1!r}: expected a share of more than 0 and at most 1", name, value
                )

    def reached(self, best: float | None, roof: Roofline) -> str | None:
        """The reason why a program needs no more trials; `None` if it does."""
        if self.stop_at is None or best is None or best * self.stop_at > roof.seconds:
            return None
        share = roof.seconds / best
        return f"{format_seconds(best)} is {share:.0%} of the roofline ({roof})"

    def futile(self, gain: float | None) -> str | None:
        """The reason to stop if a second is expected to `gain` that share; `None` to go on."""
        if self.min_gain is None or gain is None or gain >= self.min_gain:
            return None
        share = format_ratio(gain)
        return f"a second of tuning is expected to gain {share} of the time, below min_gain"
