"""What disturbed a session, and what to do about it, in plain words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..durations import format_ratio
from ..ids import short_id
from ..tuning_db.gains import Gains
from ..tuning_db.values import Baseline, ComparedSchedule, Session, Verdict
from .drift import DISTURBED, changed, drift_text

_APART = 3.0
"""From this ratio of the ends of an interval on, the finals were disturbed."""
_JUDGED = 5
"""Trials of fewer samples do not show whether something disturbed them."""
_DISTURBED_SHARE = 0.25
"""This share of samples that took long makes a trial disturbed, and of such trials a session."""
_NAMED = 3
"""Other sessions that a sentence names."""
_FEW = 3
"""So many disturbed trials are needed at least."""


def was_disturbed(samples: Sequence[float]) -> bool | None:
    """Whether something disturbed a trial, as its samples show; `None` if these are too few.

    If so, a quarter of them, and at least two, took twice as long as the shortest.
    """
    if len(samples) < _JUDGED:
        return None
    slow = sum(seconds >= DISTURBED * min(samples) for seconds in samples)
    return slow >= max(2, _DISTURBED_SHARE * len(samples))


def trials_text(disturbed: Sequence[bool | None]) -> str | None:
    """Plain words where a quarter of the trials were disturbed (see `was_disturbed`)."""
    judged = [d for d in disturbed if d is not None]
    if sum(judged) < max(_FEW, _DISTURBED_SHARE * len(judged)):
        return None
    of = f"{len(judged)} trials"
    if len(judged) < len(disturbed):
        of = f"the {len(judged)} trials with enough calls to judge (of {len(disturbed)})"
    return (
        f"{sum(judged)} of {of} were disturbed: many of their calls took "
        "twice as long as the shortest, and their times are uncertain."
    )


def noise_text(
    drift: Sequence[float],
    comparison: Sequence[ComparedSchedule],
    threads: int,
    gains: Gains | None = None,
    disturbed: Sequence[bool | None] = (),
    act: str = "Tune",
    others: Callable[[], Sequence[Session]] = list,
) -> str | None:
    """Plain words where times of a session are not comparable, or its finals could not choose.

    `drift` has the times of the reference kernel over its first, `comparison` the finalists, and
    `threads` is the number that the kernels use. `gains` are those that the finals measured,
    `disturbed` says which trials something disturbed, and `act` what to do again. `others` returns
    the other sessions of this machine meanwhile; it is asked only where something was found.
    """
    found = (
        _drift_text(drift),
        trials_text(disturbed),
        _finals_text(comparison) or _gains_text({} if gains is None else gains),
    )
    texts = [text for text in found if text is not None]
    if not texts:
        return None
    return " ".join([*texts, *others_text(others()), advice(threads, act)])


def disturbed_finals_text(
    slowdown: float,
    threads: int,
    act: str = "Tune",
    others: Callable[[], Sequence[Session]] = list,
) -> str:
    """Plain words for finals that were not recorded; the arguments are those of `noise_text`."""
    found = drift_text(slowdown, finals=True)
    return " ".join([found, *others_text(others()), advice(threads, act)])


def others_text(others: Sequence[Session]) -> list[str]:
    """Which other sessions were at work on this machine, as a sentence; none if there were none."""
    if not others:
        return []
    own = os.getpid()
    named = [
        f"{short_id(s.id)} (of {'this process' if s.pid == own else f'process {s.pid}'})"
        for s in others[:_NAMED]
    ]
    more = [f"{len(others) - _NAMED} more"] if len(others) > _NAMED else []
    sessions, were = ("session", "was") if len(others) == 1 else ("sessions", "were")
    return [f"Meanwhile {sessions} {', '.join([*named, *more])} {were} at work on this machine."]


def advice(threads: int, act: str = "Tune") -> str:
    """What to do on a machine that is busy."""
    alone = f", or {act.lower()} for one thread (-threads=1)" if threads > 1 else ""
    return f"{act} again when the machine is calm{alone}."


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
    near = (high / low for low, high in filter(None, intervals) if low <= 1)
    widest = max(near, default=1.0)
    if widest <= _APART:
        return None
    factor = format_ratio(widest)
    return (
        f"In the finals, ratios of times are uncertain by a factor of up to {factor}: "
        "the machine was too busy for a sure choice."
    )


def _gains_text(gains: Gains) -> str | None:
    """Plain words where a gain is uncertain: the choice among the candidates is not."""
    apart = {
        baseline: gain.interval[1] / gain.interval[0]
        for baseline, gain in gains.items()
        if gain.interval is not None
    }
    unsure = [baseline for baseline in Baseline if apart.get(baseline, 1.0) > _APART]
    if not unsure:
        return None
    names = " and ".join(baseline.phrase for baseline in unsure)
    factor = format_ratio(max(apart[baseline] for baseline in unsure))
    return (
        f"The gain over {names} is uncertain by a factor of up to {factor}, since the machine was "
        "busy; the choice among the candidates is sure."
    )
