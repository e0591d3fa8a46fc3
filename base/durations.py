"""Durations and ratios of them as text, and confidence intervals of measured ones.

How a time compares with another one is said in one way everywhere: a factor above 1 and its
direction, `1.25x faster` or `1.25x slower`. Its subject is what the sentence, row or column is of;
what it is compared with is named behind `than`, or by the table or its column. `1.25x slower` takes
1.25 times as long; `1.25x faster` is the same pair the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import inf
from typing import NamedTuple

SHORTEST, LONGEST = 1e-12, 1e9
"""Seconds of a call: beyond these it is no measurement, and arithmetic with it overflows."""
_MOST_DECIMALS = 9
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def format_seconds(seconds: float) -> str:
    """Seconds as text with three digits and a unit: `8.86 ms`, and 0.9999 ms as `1 ms`."""
    unit, scale = _unit(seconds)
    return f"{_number(seconds / scale)} {unit}"


@dataclass(frozen=True, repr=False)
class MeasuredTime:
    """A measured time of one call in seconds: the median of so many `samples`.

    `interval` contains the true one with a confidence of 95%; `None` for too few samples. The text
    is `8.86 ms (8.81 to 9.02)`, or `748 ms (1 sample)`. Every time of a schedule is printed by
    this, so that texts can be compared.
    """

    seconds: float
    interval: tuple[float, float] | None = None
    samples: int | None = None

    def __str__(self) -> str:
        more = "1 sample" if self.samples == 1 else self.interval_text
        return f"{format_seconds(self.seconds)} ({more})" if more else format_seconds(self.seconds)

    def __repr__(self) -> str:
        return f"<MeasuredTime {self}>"

    @property
    def interval_text(self) -> str:
        """The interval in the unit of the time: `8.81 to 9.02`; empty for too few samples."""
        scale = _unit(self.seconds)[1]
        return " to ".join(_number(end / scale) for end in self.interval or ())


def format_ratio(ratio: float, digits: int = 2) -> str:
    """A ratio of a sentence to so many digits, without an exponent: `400`, `1.3` or `12000`."""
    return format(Decimal(f"{ratio:.{digits}g}"), "f")


class Change(NamedTuple):
    """How a time differs from another one: a `factor` above 1, and `faster` or `slower`.

    Both are empty where no decimal shows a difference. As text: `1.99x faster`, or `same time`.
    """

    factor: str
    direction: str

    def __str__(self) -> str:
        return f"{self.factor} {self.direction}" if self.direction else "same time"

    def than(self, other: str) -> str:
        """The change with what the time is compared with: `1.99x faster than the first`."""
        return f"{self} {'than' if self.direction else 'as'} {other}"


def change(ratio: float, *, interleaved: bool = False) -> Change:
    """How a time that is `ratio` times another one differs from it, with three digits.

    If the two were timed `interleaved`, there are as many decimals as show the difference:
    `1.004x slower`. Raises `ValueError` for what is no ratio of two times: each is above 0 and
    finite.
    """
    if not 0 < ratio < inf:
        raise ValueError(f"a ratio of times is above 0 and finite, not {ratio}")
    factor = max(ratio, 1 / ratio)
    decimals = 2
    much = f"{factor:.2f}" if factor < 9.995 else _number(factor)
    while interleaved and float(much) == 1 != factor and decimals < _MOST_DECIMALS:
        decimals += 1
        much = f"{factor:.{decimals}f}"
    if float(much) == 1:
        return Change("", "")
    return Change(f"{much}x", "faster" if ratio < 1 else "slower")


def format_change(ratio: float) -> str:
    """A change of a time as text: `1.99x faster`, or `same time`."""
    return str(change(ratio))


def format_changes(low: float, high: float) -> str:
    """An interval of ratios of times that were interleaved: `1.86x to 1.91x faster`.

    Where it has 1 in it, each end says its direction: `1.02x faster to 1.03x slower`.
    """
    ends, direction = _changes(low, high)
    return f"{ends} {direction}".rstrip()


def format_change_between(
    ratio: float, interval: tuple[float, float] | None, than: str = ""
) -> str:
    """The change of a time that was interleaved with another one, and its interval.

    `1.13x slower (1.08x to 1.20x)`, or `1.13x slower (too few rounds)` for `None`; where `than`
    says what it is compared with, `1.13x slower than the first (1.08x to 1.20x)`.
    """
    differs = change(ratio, interleaved=True)
    words = differs.than(than) if than else str(differs)
    if interval is None:
        return f"{words} (too few rounds)"
    ends, direction = _changes(*interval)
    said_twice = f"{ends} {direction}".rstrip() == str(differs)
    return words if said_twice else f"{words} ({ends})"


def _changes(low: float, high: float) -> tuple[str, str]:
    """An interval of changes, and the direction that both ends have, if it is one."""
    first, last = (change(end, interleaved=True) for end in sorted((low, high)))
    if first == last:
        return (first.factor, first.direction) if first.direction else (str(first), "")
    if not first.direction or first.direction != last.direction:
        return f"{first} to {last}", ""
    near, far = (last, first) if first.direction == "faster" else (first, last)
    return f"{near.factor} to {far.factor}", first.direction


def _unit(seconds: float) -> tuple[str, float]:
    return next((u for u in _UNITS if seconds >= 0.9995 * u[1]), _UNITS[-1])


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"


# Confidence intervals of medians, by the sign test.
#
# They hold for any distribution: the true median lies between the k-th smallest and the k-th
# largest of n values unless fewer than k of n coins show heads, or tails (Thompson, "On confidence
# ranges for the median", Ann. Math. Statist. 7, 1936). k is the largest for which that is less
# likely than 5%. For 9 values k is 2: one in either direction may be spoilt. Fewer than 6 have no
# interval.

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
