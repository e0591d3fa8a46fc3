"""Numbers of bytes as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: int) -> str:
    """A number of bytes in the largest unit that it fills once rounded: 768 B, 1.5 KiB, 32 MiB."""
    value, unit = float(count), 0
    while value >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 999.5 else f"{value:.3g} {_UNITS[unit]}"
