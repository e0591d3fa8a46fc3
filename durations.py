"""Durations, and ratios of them, as text."""

from __future__ import annotations

from decimal import Decimal

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def format_seconds(seconds: float) -> str:
    """Seconds as text with three digits and a unit: `8.86 ms`, and 0.9999 ms as `1 ms`."""
    unit, scale = _unit(seconds)
    return f"{_number(seconds / scale)} {unit}"


def format_measured(seconds: float, interval: tuple[float, float] | None) -> str:
    """A measured time with its interval, if there is one: `8.86 ms (8.81 to 9.02)`.

    Every time of a best schedule is printed by this, so that texts can be compared.
    """
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


def _unit(seconds: float) -> tuple[str, float]:
    return next((u for u in _UNITS if seconds >= 0.9995 * u[1]), _UNITS[-1])


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"
