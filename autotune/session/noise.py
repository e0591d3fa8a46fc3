"""What disturbed a session, and what to do about it, in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ...base.durations import format_ratio
from ...base.text import short_id
from ...tuning_db.gains import Gains
from ...tuning_db.values import Baseline, ComparedSchedule, Session, Verdict
from .drift import DISTURBED, changed

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


def were_disturbed(trials: Sequence[bool | None]) -> bool:
    """Whether a quarter of the trials were disturbed (see `was_disturbed`)."""
    judged = [d for d in trials if d is not None]
    return sum(judged) >= max(_FEW, _DISTURBED_SHARE * len(judged))


def uncertain_text(factor: float, what: str = "times") -> str:
    """The one line that says it: `noisy machine: times uncertain by up to 3.8x`."""
    by = f" by up to {format_ratio(factor)}x" if factor > 1 else ""
    return f"noisy machine: {what} uncertain{by}"


def noise_text(
    drift: Sequence[float],
    comparison: Sequence[ComparedSchedule],
    threads: int,
    gains: Gains | None = None,
    disturbed: Sequence[bool | None] = (),
    act: str = "tune",
    others: Callable[[], Sequence[Session]] = list,
) -> str | None:
    """A line where times of a session are not comparable, or its finals could not choose.

    `noisy machine: times uncertain by up to 3.8x; tune again when calm`. The factor is the largest
    that anything shows.

    `drift` has the times of the reference kernel over its first, `comparison` the finalists, and
    `threads` is the number that the kernels use. `gains` are those that the finals measured,
    `disturbed` says which trials something disturbed, and `act` what to do again. `others` returns
    the other sessions of this machine meanwhile; it is asked only where something was found.
    """
    factors = [_drift(drift), _finals(comparison)]
    if were_disturbed(disturbed):
        factors.append(DISTURBED)
    found = [factor for factor in factors if factor is not None]
    if found:
        return _advised(uncertain_text(max(found)), threads, act, others)
    unsure = _unsure({} if gains is None else gains)
    if not unsure:
        return None
    names = " and ".join(baseline.phrase for baseline in unsure)
    text = uncertain_text(max(unsure.values()), f"gain over {names}")
    return _advised(text, threads, act, others)


def disturbed_finals_text(
    slowdown: float,
    threads: int,
    act: str = "tune",
    others: Callable[[], Sequence[Session]] = list,
) -> str:
    """The line of finals that were not recorded; the arguments are those of `noise_text`."""
    text = f"noisy machine: finals took {format_ratio(slowdown)}x as long as trials, and are void"
    return _advised(text, threads, act, others)


def _advised(text: str, threads: int, act: str, others: Callable[[], Sequence[Session]]) -> str:
    """The line with the other sessions, and what to do on a machine that is busy."""
    alone = ", or for one thread (-threads=1)" if threads > 1 else ""
    return "; ".join([text, *_others(others()), f"{act} again when calm{alone}"])


def _others(others: Sequence[Session]) -> list[str]:
    """Which other sessions were at work on this machine, as a phrase; none if there were none."""
    if not others:
        return []
    own = os.getpid()
    named = [
        f"{short_id(s.id)} (of {'this process' if s.pid == own else f'process {s.pid}'})"
        for s in others[:_NAMED]
    ]
    more = [f"{len(others) - _NAMED} more"] if len(others) > _NAMED else []
    sessions = "session" if len(others) == 1 else "sessions"
    return [f"{sessions} {', '.join([*named, *more])} ran meanwhile"]


def _drift(drift: Sequence[float]) -> float | None:
    """The largest factor of the reference kernel, in either direction, where it is too much."""
    worst = max(map(changed, drift), default=1.0)
    return None if worst < DISTURBED else worst


def _finals(comparison: Sequence[ComparedSchedule]) -> float | None:
    """How far the ends of an interval are apart that hides the choice, at most.

    1 where finalists were unsettled in too few rounds for an interval.
    """
    unsettled = [c for c in comparison if c.verdict is Verdict.UNSETTLED]
    near = [c for c in comparison if c.interval is not None and c.interval[0] <= 1]
    intervals = (c.interval for c in (*unsettled, *near))
    widest = max((high / low for low, high in filter(None, intervals)), default=1.0)
    return widest if unsettled or widest > _APART else None


def _unsure(gains: Gains) -> dict[Baseline, float]:
    """The baselines over which the gain is uncertain, by which factor: the choice is not."""
    apart = {baseline: gains[baseline].interval for baseline in Baseline if baseline in gains}
    return {
        baseline: interval[1] / interval[0]
        for baseline, interval in apart.items()
        if interval is not None and interval[1] / interval[0] > _APART
    }
