"""Durations as text."""

from __future__ import annotations

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


def _unit(seconds: float) -> tuple[str, float]:
    return next((u for u in _UNITS if seconds >= 0.9995 * u[1]), _UNITS[-1])


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"
