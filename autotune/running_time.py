"""How long sessions ran: the time between recorded moments, without long pauses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

_PAUSE = timedelta(seconds=60)
"""A session in which nothing happened for longer was not running all the time."""


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
