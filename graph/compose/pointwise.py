"""Functions of the elements at one place."""

from __future__ import annotations

import numpy as np

from ...base import dtypes
from ...base.errors import IRError, UnsupportedError
from ..builder import Builder
from ..ir import Constant, Value
from .basics import cast_to, reshaped


def promoted(first: str, second: str) -> str:
    """The common dtype by numpy's rules. Raises `UnsupportedError` if there is none."""
    try:
        return dtypes.promote(first, second)
    except IRError as error:
        raise UnsupportedError("{0} and {1}", first, second) from error


def clipped(b: Builder, x: Value, low: Value | None, high: Value | None) -> Value:
    """Between bounds of one element."""
    bounds = [None if v is None else reshaped(b, v, ()) for v in (low, high)]
    x = x if bounds[0] is None else b.add("maximum", x, bounds[0])
    return x if bounds[1] is None else b.add("minimum", x, bounds[1])


def power(b: Builder, x: Value, exponent: Value) -> Value:
    """In the common dtype of base and exponent; whole powers of floats up to 3 are products."""
    if (
        isinstance(exponent, Constant)
        and exponent.type.size == 1
        and exponent.type.rank <= x.type.rank
    ):
        number = exponent.data.reshape(-1)[0]
        if number in (1, 2, 3):
            value = x
            for _ in range(int(number) - 1):
                value = b.add("multiply", value, x)
            return value
    dtype = promoted(x.dtype, exponent.dtype)
    both = (cast_to(b, x, dtype), cast_to(b, exponent, dtype))
    return cast_to(b, b.add("power", *both), x.dtype)


def is_infinite(b: Builder, x: Value, *, negative: bool = True, positive: bool = True) -> Value:
    """Whether it is an infinity of these signs."""
    infinity = b.constant(np.inf, x.dtype)
    if negative and positive:
        x = b.add("abs", x)
    elif negative:
        x = b.add("negative", x)
    value = b.add("equal", x, infinity)
    return value if negative or positive else b.add("logical_and", value, b.constant(False))


def prelu(b: Builder, x: Value, slope: Value) -> Value:
    """`x`, or `x * slope` below 0; the slope broadcasts."""
    negative = b.add("less", x, b.constant(0, x.dtype))
    return b.add("where", negative, b.add("multiply", x, slope), x)


def threshold(b: Builder, x: Value, least: float) -> Value:
    """`x` above a number, else 0."""
    above = b.add("less", b.constant(least, x.dtype), x)
    return b.add("where", above, x, b.constant(0, x.dtype))


def shrink(b: Builder, x: Value, limit: float, bias: float) -> Value:
    """`x + bias` below `-limit`, `x - bias` above `limit`, 0 between them."""
    by = b.constant(bias, x.dtype)
    below = b.add("less", x, b.constant(-limit, x.dtype))
    above = b.add("less", b.constant(limit, x.dtype), x)
    upper = b.add("where", above, b.add("subtract", x, by), b.constant(0, x.dtype))
    return b.add("where", below, b.add("add", x, by), upper)
