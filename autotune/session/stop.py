"""When a session ends before its budget is used up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...base.durations import format_ratio, format_seconds
from ...base.errors import TuningError
from ..model.target_model import Roofline


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
