"""Runs tuning sessions, of one program or of several that share a budget, until it is used up."""

from __future__ import annotations

from collections.abc import Sequence

from .budget import Meter
from .gain import most_promising, relative_gain
from .session import OutOfTime, Tuning
from .stop import StopRules


def run(tunings: Sequence[Tuning], weights: Sequence[float], meter: Meter, rules: StopRules) -> str:
    """Measure until the budget is used up or a rule ends it; return the reason.

    The next batch goes to the program that is expected to gain most. A program that ended earlier
    has its reason in `ended`.
    """
    try:
        reason = _measure(tunings, weights, meter, rules)
        if meter.seconds_left != 0:
            for tuning in tunings:
                tuning.hold_finals()
    except OutOfTime:
        return meter.spent or "the time is over"
    return reason


def _measure(
    tunings: Sequence[Tuning], weights: Sequence[float], meter: Meter, rules: StopRules
) -> str:
    while (spent := meter.spent) is None:
        for tuning in tunings:
            tuning.ended = tuning.ended or rules.reached(tuning.best_seconds, tuning.roofline)
        going = [n for n, tuning in enumerate(tunings) if tuning.ended is None]
        if not going:
            return "all programs have ended" if len(tunings) > 1 else str(tunings[0].ended)
        progress = [tunings[n].progress for n in going]
        shares = [weights[n] for n in going]
        if (futile := rules.futile(relative_gain(progress, shares))) is not None:
            return futile
        tuning = tunings[going[most_promising(progress, shares)]]
        untried = sum(not each.trials for each in progress)
        tuning.step(meter.batch(tuning.config.batch, among=max(1, untried)))
    return spent
