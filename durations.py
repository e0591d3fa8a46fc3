"""Durations, and ratios of them, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import NamedTuple

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


def format_long(seconds: float) -> str:
    """A long time as text with three digits, in words: `90 seconds`, `2.5 hours`."""
    for scale, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def format_ratio(ratio: float, digits: int = 2) -> str:
    """A ratio of a sentence to so many digits, without an exponent: `400`, `1.3` or `12000`."""
    return format(Decimal(f"{ratio:.{digits}g}"), "f")


def format_factor(ratio: float) -> str:
    """How many times as long, with the digits that matter: `1.004x`, `1.13x`, `7.3x` or `37x`."""
    return f"{ratio:.3f}x" if ratio < 1.0995 else f"{_factor(ratio)}x"


def format_factors(low: float, high: float) -> str:
    """An interval of such factors: `0.99 to 1.02`. What is not 1 is not printed as 1."""
    return f"{_factor(low)} to {_factor(high)}"


def format_factor_between(ratio: float, interval: tuple[float, float] | None) -> str:
    """A factor and its interval: `1.13x (1.08 to 1.2)`, or `1.13x (too few rounds)` for `None`."""
    if interval is None:
        return f"{format_factor(ratio)} (too few rounds)"
    ends = [_factor(end) for end in interval]
    factor, between = contained((ratio, format_factor(ratio)[:-1]), interval, ends)
    return f"{factor}x ({between})"


def contained(
    value: tuple[float, str], interval: tuple[float, float], ends: Sequence[str]
) -> tuple[str, str]:
    """The texts of a value and of the interval that it is in, so that this is also true of them.

    `value` is given with its rounded text, and `ends` are those of the interval. Where rounding
    leaves the value outside, a text gets more decimals: of `1.08` in `1.1 to 2.7`, `1.06 to 2.7`.
    """
    low, high = interval
    numbers, texts = (low, value[0], high), [ends[0], value[1], ends[1]]
    # With as many decimals, rounding keeps the order.
    while pair := next((p for p in ((0, 1), (1, 2)) if _disordered(*(texts[n] for n in p))), None):
        shortest = min(pair, key=lambda n: _decimals(texts[n]))
        texts[shortest] = f"{numbers[shortest]:.{_decimals(texts[shortest]) + 1}f}"
    return texts[1], f"{texts[0]} to {texts[2]}"


class Change(NamedTuple):
    """How a time differs from another one: a `factor` above 1, and `faster` or `slower`.

    Both are empty where no decimal shows a difference. As text: `1.99x faster`, or `same time`.
    """

    factor: str
    direction: str

    def __str__(self) -> str:
        return f"{self.factor} {self.direction}" if self.direction else "same time"


def change(ratio: float, decimals: int = 2) -> Change:
    """How a time that is `ratio` times another one differs from it, with so many decimals.

    Raises `ValueError` for what is no ratio of two times: each is above 0 and finite.
    """
    if not 0 < ratio < inf:
        raise ValueError(f"a ratio of times is above 0 and finite, not {ratio}")
    factor = max(ratio, 1 / ratio)
    much = f"{factor:.{decimals}f}" if factor < 9.995 else _number(factor)
    if float(much) == 1:
        return Change("", "")
    return Change(f"{much}x", "faster" if ratio < 1 else "slower")


def format_change(ratio: float, decimals: int = 2) -> str:
    """A change of a time as text: `1.99x faster`, like the gains of a result, or `same time`."""
    return str(change(ratio, decimals))


def format_changes(low: float, high: float, decimals: int = 2) -> str:
    """An interval of ratios of times as factors above 1: `1.86x to 1.91x`.

    Where it has 1 in it, each end says its direction.
    """
    first, last = (change(end, decimals) for end in sorted((low, high)))
    if first == last:
        return str(first)
    if not first.direction or first.direction != last.direction:
        return f"{first} to {last}"
    near, far = (last, first) if first.direction == "faster" else (first, last)
    return f"{near.factor} to {far.factor}"


def _factor(ratio: float) -> str:
    decimals = 2 if ratio < 1.995 else 1 if ratio < 9.95 else 0
    text = f"{ratio:.{decimals}f}"
    # Whether 1 is in an interval is what it is read for.
    while float(text) == 1 != ratio and decimals < _MOST_DECIMALS:
        decimals += 1
        text = f"{ratio:.{decimals}f}"
    return text


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


def _disordered(low: str, high: str) -> bool:
    """Whether two rounded numbers are in the wrong order, and more decimals may show the right."""
    return float(low) > float(high) and _decimals(low) != _decimals(high)


def _unit(seconds: float) -> tuple[str, float]:
    return next((u for u in _UNITS if seconds >= 0.9995 * u[1]), _UNITS[-1])


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"
