"""Constants as values of their dtype, and as Python literals that read back the same."""

from __future__ import annotations

import math
import struct
from functools import lru_cache

from ..base import dtypes

_STRUCT = {"float16": "<e", "float32": "<f"}


def rounded(value: float, dtype: str) -> float:
    """`value` rounded to nearest even in a float `dtype`; infinity where it overflows."""
    scalar = dtypes.info(dtype).scalar
    if scalar == "float64":
        return value
    layout = _STRUCT.get(scalar)
    if layout is None:
        return float(dtypes.to_numpy(scalar).type(value))
    try:
        return float(struct.unpack(layout, struct.pack(layout, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def literal(value: float, dtype: str) -> str:
    """A Python literal for a constant of `dtype`; strings `"nan"`, `"inf"`, `"-inf"` where needed.

    Floats get the fewest digits that round back to the same value of `dtype`.
    """
    kind = dtypes.info(dtype).kind
    if kind == "float":
        value = rounded(float(value), dtype)
        if not math.isfinite(value):
            return '"nan"' if math.isnan(value) else f'"{value}"'
        return "-" * (math.copysign(1, value) < 0) + _digits(abs(value), dtype)
    return repr(bool(value)) if kind == "bool" else str(int(value))


def quoted(text: str) -> str:
    """A Python string literal in ASCII, with double quotes where it needs no escapes."""
    plain = text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}
    return f'"{text}"' if plain else ascii(text)


@lru_cache(4096)
def _digits(value: float, dtype: str) -> str:
    if dtypes.info(dtype).scalar == "float64":
        return repr(value)
    for precision in range(1, 17):
        short = float(f"{value:.{precision}g}")
        if rounded(short, dtype) == value:
            return repr(short)
    return repr(value)
