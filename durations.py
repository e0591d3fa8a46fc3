"""Durations, and ratios of them, as text."""

from __future__ import annotations

from decimal import Decimal
from math import inf

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def format_seconds(seconds: float) -> str:
    """Seconds as text with three digits and a unit: `8.86 ms`, and 0.9999 ms as `1 ms`."""
    unit, scale = _unit(seconds)
    return f"{_number(seconds / scale)} {unit}"


def format_measured(
    seconds: float, interval: tuple[float, float] | None, samples: int | None = None
) -> str:
    """A measured time with its interval, if there is one: `8.86 ms (8.81 to 9.02)`.

    One of a single sample says so: `748 ms (1 sample)`. Every time of a schedule is printed by
    this, so that texts can be compared.
    """
    if samples == 1:
        return f"{format_seconds(seconds)} (1 sample)"
    if interval is None:
        return format_seconds(seconds)
    unit, scale = _unit(seconds)
    low, high = (_number(end / scale) for end in interval)
    return f"{_number(seconds / scale)} {unit} ({low} to {high})"


def format_long(seconds: float) -> str:
    """A long time as text with three digits, in words: `90 seconds`, `2.5 hours`."""
    for scale, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def format_ratio(ratio: float, digits: int = 2) -> str:
    """A ratio of a sentence to so many digits, without an exponent: `400`, `1.3` or `12000`."""
    return format(Decimal(f"{ratio:.{digits}g}"), "f")


def format_change(ratio: float, decimals: int = 2) -> str:
    """How a time that is `ratio` times another one differs from it, as a factor above 1.

    `1.99x faster` or `1.20x slower` read like the gains of a result; what no decimal shows is the
    `same time`.
    """
    faster = ratio < 1
    factor = ratio if ratio >= 1 else 1 / ratio if ratio > 0 else inf
    if factor == inf:
        return SAME_TIME
    much = f"{factor:.{decimals}f}" if factor < 9.995 else _number(factor)
    if float(much) == 1:
        return SAME_TIME
    return f"{much}x {'faster' if faster else 'slower'}"


def format_changes(low: float, high: float, decimals: int = 2) -> str:
    """An interval of ratios of times as factors above 1: `1.86x to 1.91x`.

    Where it has 1 in it, each end says its direction.
    """
    ends = [format_change(end, decimals) for end in sorted((low, high))]
    factors = [end.partition(" ")[0] for end in ends]
    if ends[0] == ends[1]:
        return ends[0]
    if all(end.endswith("faster") for end in ends):
        return " to ".join(reversed(factors))
    return " to ".join(factors if all(end.endswith("slower") for end in ends) else ends)


SAME_TIME = "same time"


def _unit(seconds: float) -> tuple[str, float]:
    return next((u for u in _UNITS if seconds >= 0.9995 * u[1]), _UNITS[-1])


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"
