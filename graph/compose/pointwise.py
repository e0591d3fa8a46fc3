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


def expm1(b: Builder, x: Value) -> Value:
    """`exp(x) - 1` without cancellation: above 0 it is `-(exp(-x) - 1) * exp(x)`."""
    mirrored = b.add("elu", b.add("negative", x), alpha=1.0)
    above = b.add("negative", b.add("multiply", mirrored, b.add("exp", x)))
    positive = b.add("less", b.constant(0, x.dtype), x)
    return b.add("where", positive, above, b.add("elu", x, alpha=1.0))


def log1p(b: Builder, x: Value) -> Value:
    """`log(1 + x)`, whose sum is rounded: corrected by what was lost (Kahan)."""
    one = b.constant(1, x.dtype)
    total = b.add("add", x, one)
    kept = b.add("subtract", total, one)
    exact = b.add("multiply", b.add("log", total), b.add("divide", x, kept))
    tiny = b.add("equal", kept, b.constant(0, x.dtype))
    infinite = b.add("equal", x, b.constant(np.inf, x.dtype))
    return b.add("where", b.add("logical_or", tiny, infinite), x, exact)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), from -pi to pi; the signs of zeros count."""
    zero, dtype = b.constant(0, x.dtype), x.dtype
    width, height = b.add("abs", x), b.add("abs", y)
    small, large = b.add("minimum", width, height), b.add("maximum", width, height)
    ratio = b.add(
        "where", b.add("equal", small, large), b.constant(1, dtype), b.add("divide", small, large)
    )
    ratio = b.add("where", b.add("equal", small, zero), small, ratio)
    angle = b.add("atan", ratio)
    steep = b.add("less", width, height)
    angle = b.add("where", steep, b.add("subtract", b.constant(np.pi / 2, dtype), angle), angle)
    angle = b.add(
        "where", is_negative(b, x), b.add("subtract", b.constant(np.pi, dtype), angle), angle
    )
    return b.add("where", is_negative(b, y), b.add("negative", angle), angle)


def is_negative(b: Builder, x: Value) -> Value:
    """Whether a float has the sign of negative numbers, as -0 has."""
    zero = b.constant(0, x.dtype)
    inverse = b.add("divide", b.constant(1, x.dtype), x)
    return b.add("less", b.add("where", b.add("equal", x, zero), inverse, x), zero)
