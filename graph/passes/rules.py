"""What rules of several passes ask of values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Constant, Value


def number(value: Value) -> float | int | None:
    """The number that all elements of a constant are, if it has one element."""
    if isinstance(value, Constant) and value.type.size == 1:
        found = value.data.reshape(-1)[0].item()
        return None if isinstance(found, bool) else found
    return None


def is_number(value: Value, wanted: float) -> bool:
    """Whether it is a constant of that one number, with its sign if that is zero."""
    found = number(value)
    return found == wanted and np.signbit(found) == np.signbit(wanted)


def units(shape: Sequence[int]) -> tuple[int, ...]:
    """The extents of a shape that are not 1."""
    return tuple(e for e in shape if e != 1)
