"""Confidence intervals of medians, by the sign test.

They hold for any distribution: the true median lies between the k-th smallest and the k-th largest
of n values unless fewer than k of n coins show heads, or tails (Thompson, "On confidence ranges for
the median", Ann. Math. Statist. 7, 1936). k is the largest for which that is less likely than 5%.
For 9 values k is 2: one in either direction may be spoilt. Fewer than 6 have no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ..base.durations import MeasuredTime

_CHANCE = 20
"""An interval misses the true median at most once in so many times."""


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The interval that contains the true median; `None` for too few values."""
    k = _rank(len(values))
    if not k:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def measured_time(seconds: float, samples: Sequence[float]) -> MeasuredTime:
    """A time, the median of `samples`, with its interval."""
    return MeasuredTime(seconds, median_interval(samples), len(samples))


@cache
def _rank(count: int) -> int:
    """The k of the interval: it begins at the k-th smallest value; 0 if there is no interval."""
    k, tail, ways, all_ways = 0, 1, 1, 2**count
    while 2 * _CHANCE * tail <= all_ways:
        ways = ways * (count - k) // (k + 1)  # of choosing k + 1 values
        k += 1
        tail += ways
    return k
