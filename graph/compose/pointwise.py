"""Functions of the elements at one place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base import dtypes
from ...base.errors import IRError, UnsupportedError
from ..builder import Builder
from ..ir import Constant, Value
from .basics import cast_to, reshaped, times


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


def floor_divided(b: Builder, x: Value, y: Value) -> Value:
    """The largest integer that is not above `x / y`, of two integers; it wraps around."""
    quotient, rest = b.add("divide", x, y), b.add("fmod", x, y)
    zero, one = b.constant(0, x.dtype), b.constant(1, x.dtype)
    turned = b.add("logical_xor", b.add("less", y, zero), b.add("less", rest, zero))
    left = b.add("logical_not", b.add("equal", rest, zero))
    below = b.add("logical_and", left, turned)
    return b.add("where", below, b.add("subtract", quotient, one), quotient)


def logarithm(b: Builder, x: Value, base: int) -> Value:
    """To base 2 or 10. What is next to a whole number is it, so that powers are exact."""
    value = times(b, b.add("log", x), 1 / math.log(base))
    whole = b.add("round", value)
    ulps = times(b, b.add("abs", whole), 2.0 ** (1 - dtypes.info(x.dtype).mantissa))
    near = b.add("less_equal", b.add("abs", b.add("subtract", value, whole)), ulps)
    return b.add("where", near, whole, value)


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


def hypotenuse(b: Builder, x: Value, y: Value) -> Value:
    """`sqrt(x * x + y * y)`, which overflows only where it is too large."""
    x, y = b.add("abs", x), b.add("abs", y)
    most, least = b.add("maximum", x, y), b.add("minimum", x, y)
    ratio = b.add("divide", least, most)
    square = b.add("add", b.add("multiply", ratio, ratio), b.constant(1, x.dtype))
    length = b.add("multiply", most, b.add("sqrt", square))
    infinity, zero = b.constant(np.inf, x.dtype), b.constant(0, x.dtype)
    infinite = b.add("logical_or", b.add("equal", x, infinity), b.add("equal", y, infinity))
    known = b.add("logical_or", infinite, b.add("equal", most, zero))
    return b.add("where", known, b.add("where", infinite, infinity, zero), length)


def greatest_common_divisor(b: Builder, x: Value, y: Value) -> Value:
    """Of integers of one shape, by Euclid's algorithm with as many steps as any two need.

    It is negative for some `y` where `x` is the smallest integer, which has no absolute value.
    """
    step = Builder("step")
    larger, smaller = step.input("larger", x.type), step.input("smaller", x.type)
    zero, one = (step.constant(value, x.dtype) for value in (0, 1))
    is_done = step.add("equal", smaller, zero)
    rest = step.add("fmod", larger, step.add("where", is_done, one, smaller))
    body = step.graph({"larger": step.add("where", is_done, larger, smaller), "smaller": rest})
    golden = (1 + math.sqrt(5)) / 2  # what Fibonacci's numbers, the slowest, grow by
    count = math.ceil(8 * dtypes.nbytes(x.dtype) / math.log2(golden)) + 2
    states = [b.add("abs", value) for value in (y, x)]
    found, _ = b.add_all("loop", *states, body=str(body), count=count, carried=2, sliced=0)
    return found


def least_common_multiple(b: Builder, x: Value, y: Value) -> Value:
    """Of integers of one shape; 0 where one of them is. Its sign goes where 32 bits have it."""
    own = x.dtype if dtypes.nbytes(x.dtype) >= 4 else "int32"
    zero, one = (b.constant(value, own) for value in (0, 1))
    divisor = cast_to(b, greatest_common_divisor(b, x, y), own)
    none = b.add("equal", divisor, zero)
    part = b.add("divide", cast_to(b, x, own), b.add("where", none, one, divisor))
    found = b.add("abs", b.add("multiply", part, cast_to(b, y, own)))
    return cast_to(b, found, x.dtype)


_SHIFT = 10
"""Sums by Bernoulli numbers are exact in float64 from here on."""
_LGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760)


def lgamma(b: Builder, x: Value) -> Value:
    """The logarithm of the absolute value of the gamma function, of float64.

    Stirling's series, below `_SHIFT` of a later place; its reflection below 1 / 2.
    """
    one, half = b.constant(1.0), b.constant(0.5)
    z, reflected = _reflected(b, x)
    small = b.add("less", z, b.constant(float(_SHIFT)))
    product: Value = z
    for k in range(1, _SHIFT):
        product = b.add("multiply", product, b.add("add", z, b.constant(float(k))))
    product = b.add("where", small, product, one)
    w = b.add("where", small, b.add("add", z, b.constant(float(_SHIFT))), z)
    main = b.add("multiply", b.add("subtract", w, half), b.add("log", w))
    main = b.add("add", b.add("subtract", main, w), b.constant(0.5 * math.log(2 * math.pi)))
    inverse = b.add("divide", one, w)
    tail = b.add("multiply", _series(b, b.add("multiply", inverse, inverse), _LGAMMA), inverse)
    value = b.add("subtract", b.add("add", main, tail), b.add("log", product))
    sine = b.add("abs", b.add("sin", times(b, _fraction(b, x), math.pi)))
    around = b.add("log", b.add("divide", b.constant(math.pi), sine))
    value = b.add("where", reflected, b.add("subtract", around, value), value)
    return b.add("where", is_infinite(b, x), b.constant(np.inf), value)


def digamma(b: Builder, x: Value) -> Value:
    """The derivative of `lgamma`, of float64: the same series and reflection."""
    one = b.constant(1.0)
    z, reflected = _reflected(b, x)
    small = b.add("less", z, b.constant(float(_SHIFT)))
    before: Value = b.add("divide", one, z)
    for k in range(1, _SHIFT):
        place = b.add("add", z, b.constant(float(k)))
        before = b.add("add", before, b.add("divide", one, place))
    before = b.add("where", small, before, b.constant(0.0))
    w = b.add("where", small, b.add("add", z, b.constant(float(_SHIFT))), z)
    inverse = b.add("divide", one, w)
    square = b.add("multiply", inverse, inverse)
    tail = b.add("multiply", _series(b, square, _DIGAMMA), square)
    value = b.add("subtract", b.add("log", w), times(b, inverse, 0.5))
    value = b.add("subtract", b.add("add", value, tail), before)
    angle = times(b, _fraction(b, x), math.pi)
    around = b.add("divide", b.constant(math.pi), b.add("tan", angle))
    value = b.add("where", reflected, b.add("subtract", value, around), value)
    whole = b.add("equal", b.add("floor", x), x)
    pole = b.add("logical_and", whole, b.add("less", x, b.constant(0.0)))
    value = b.add("where", pole, b.constant(np.nan), value)
    zero = b.add("equal", x, b.constant(0.0))
    return b.add("where", zero, b.add("negative", b.add("divide", one, x)), value)


def _reflected(b: Builder, x: Value) -> tuple[Value, Value]:
    """`1 - x` where it is below 1 / 2, else `x`, and where that is."""
    reflected = b.add("less", x, b.constant(0.5))
    return b.add("where", reflected, b.add("subtract", b.constant(1.0), x), x), reflected


def _fraction(b: Builder, x: Value) -> Value:
    return b.add("subtract", x, b.add("floor", x))


def _series(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    value: Value = b.constant(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        value = b.add("add", b.add("multiply", value, x), b.constant(c, x.dtype))
    return value
