"""Budgets: what is one, and what is left of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tilewright import TuningError
from tilewright.autotune.session.budget import Budget, Meter


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ({"trials": 0}, "trials=0 is no budget"),
        ({"trials": -3}, "trials=-3"),
        ({"trials": 2.5}, "trials: expected a number, found 2.5"),
        ({"trials": True}, "trials: expected a number, found True"),
        ({"trials": 10**12}, "is no budget"),
        ({"seconds": 0.0}, "seconds=0.0"),
        ({"seconds": math.nan}, "seconds=nan"),
        ({"seconds": math.inf}, "seconds=inf"),
        ({"seconds": "60"}, "seconds: expected a number, found '60'"),
    ],
)
def test_what_is_no_budget_is_refused(budget: dict[str, Any], says: str) -> None:
    with pytest.raises(TuningError) as refused:
        Budget(**budget)
    assert says in str(refused.value)


def test_trials_run_out() -> None:
    meter = Meter(Budget(trials=10))
    assert meter.batch(8) == 8
    meter.spend(8)
    assert (meter.spent, meter.batch(8)) == (None, 2)
    meter.spend(2)
    assert meter.trials_left == 0
    assert meter.seconds_left is None
    assert meter.spent == "all 10 trials are done"
    only = Meter(Budget(trials=1))
    only.spend(1)
    assert only.spent == "the one trial is done"


def test_seconds_run_out() -> None:
    now = [100.0]
    meter = Meter(Budget(trials=None, seconds=60), clock=lambda: now[0])
    meter.spend(3, seconds=20.0)
    now[0] = 139.0
    assert (meter.elapsed, meter.seconds_left, meter.spent) == (59.0, 1.0, None)
    assert meter.batch(8) == 8
    now[0] = 141.0
    assert meter.spent == "the 60 seconds are over"
    assert meter.seconds_left == 0.0
