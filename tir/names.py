"""Names and constants in printed programs: identifiers unique in their scope, exact literals."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from keyword import iskeyword

from ..base import dtypes

RESERVED = frozenset({"T", "tw", "range"})
"""Names that program text uses itself; nothing in a program is called so."""


def identifier(name: str, default: str = "v") -> str:
    """`name` as an ASCII identifier that is no keyword."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII) or default
    if clean[0].isdigit():
        clean = f"_{clean}"
    return f"{clean}_" if iskeyword(clean) else clean


def unique(name: str, taken: set[str]) -> str:
    """`name`, with a number if it is taken; takes it."""
    result, count = name, 0
    while result in taken:
        count += 1
        result = f"{name}_{count}"
    taken.add(result)
    return result


class Names:
    """Names of variables and buffers, by identity. A name that was never bound is free for good."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._used: set[str] = set(RESERVED)

    @property
    def given(self) -> Mapping[object, str]:
        """The names so far; things of different scopes may have the same."""
        return self._names

    def bind(self, thing: object, name: str) -> str:
        """A name for `thing` from here on, after `name` and different from those in use."""
        fresh = self._names[thing] = unique(identifier(name), self._used)
        return fresh

    def release(self, thing: object) -> None:
        """The scope of `thing` has ended: its name may be used again."""
        self._used.discard(self._names[thing])

    def of(self, thing: object, name: str) -> str:
        """The name of `thing`, which counts as free if it has no name yet."""
        known = self._names.get(thing)
        return self.bind(thing, name) if known is None else known


# Constants as values of their dtype, and as Python literals that read back the same.

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
