"""What disturbed a session, and what to do about it, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from ..durations import format_ratio
from ..tuning_db.values import ComparedSchedule, Verdict
from .drift import DISTURBED, changed, drift_text

_APART = 3.0
"""From this ratio of the ends of an interval on, the finals were disturbed."""


def noise_text(
    drift: Sequence[float], comparison: Sequence[ComparedSchedule], threads: int
) -> str | None:
    """Plain words where times of a session are not comparable, or its finals could not choose.

    `drift` has the times of the reference kernel over its first, `comparison` the finalists, and
    `threads` is the number that the kernels use.
    """
    texts = [text for text in (_drift_text(drift), _finals_text(comparison)) if text is not None]
    return " ".join([*texts, advice(threads)]) if texts else None


def advice(threads: int) -> str:
    """What to do on a machine that is busy."""
    alone = ", or tune for one thread (-threads=1)" if threads > 1 else ""
    return f"Tune again when the machine is calm{alone}."


def _drift_text(drift: Sequence[float]) -> str | None:
    worst = max(drift, key=changed, default=1.0)
    if changed(worst) < DISTURBED:
        return None
    if changed(drift[-1]) >= DISTURBED:
        return drift_text(worst)
    what = "took {0} times as long as" if worst > 1 else "was {0} times as fast as"
    return (
        f"For a while, the reference kernel {what.format(format_ratio(changed(worst)))} at the "
        "start; something else was running, and these times are not comparable."
    )


def _finals_text(comparison: Sequence[ComparedSchedule]) -> str | None:
    unsettled = sum(compared.verdict is Verdict.UNSETTLED for compared in comparison)
    if unsettled:
        return (
            f"The machine was too busy to compare {unsettled} of {len(comparison)} finalists by "
            "ratios of times; the shortest times decided."
        )
    intervals = (compared.interval for compared in comparison)
    widest = max((high / low for low, high in filter(None, intervals)), default=1.0)
    if widest <= _APART:
        return None
    factor = format_ratio(widest)
    return (
        f"In the finals, ratios of times are uncertain by a factor of up to {factor}: "
        "the machine was too busy for a sure choice."
    )
