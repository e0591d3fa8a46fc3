"""Complex tensors, as two of their parts: what models do between transforms of Fourier.

Graphs have no complex numbers. Their inputs and results are as they lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..builder import Builder
from ..ir import Value
from . import pointwise
from .basics import cast_to, reshaped, row, stacked, times
from .signal import dft

PART_DTYPES = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Complex:
    """A complex tensor, as its parts.

    In memory, and so at the border of a graph, they alternate: a last dimension of two.
    """

    real: Value
    imag: Value

    @staticmethod
    def of(b: Builder, pairs: Value) -> Complex:
        """The tensor whose parts are the last dimension."""
        last = pairs.type.rank - 1
        return Complex(row(b, pairs, last, 0), row(b, pairs, last, 1))

    @staticmethod
    def of_real(b: Builder, x: Value) -> Complex:
        """A real tensor, whose imaginary part is 0."""
        return Complex(x, b.add("broadcast_to", b.constant(0, x.dtype), shape=x.shape))

    @property
    def parts(self) -> tuple[Value, Value]:
        return self.real, self.imag

    def pairs(self, b: Builder) -> Value:
        """The parts as a last dimension."""
        return stacked(b, self.parts, self.real.type.rank)

    def each(self, function: Callable[[Value], Value]) -> Complex:
        """What a function makes of each part."""
        return Complex(function(self.real), function(self.imag))

    def cast(self, b: Builder, dtype: str) -> Complex:
        """With parts of a dtype."""
        return self.each(lambda part: cast_to(b, part, dtype))


def real_of(b: Builder, x: Complex, dtype: str) -> Value:
    """A complex tensor as one of a real dtype, without the imaginary part: a bool is whether it is
    not 0.
    """
    real, imag = x.cast(b, dtype).parts
    return b.add("logical_or", real, imag) if dtype == "bool" else real


def polar(b: Builder, size: Value, angle: Value) -> Complex:
    """Numbers of a size at an angle."""
    return Complex(*(b.add("multiply", size, b.add(f, angle)) for f in ("cos", "sin")))


def conjugate(b: Builder, x: Complex) -> Complex:
    return Complex(x.real, b.add("negative", x.imag))


def _wide(b: Builder, x: Complex) -> Complex:
    """In float64, where the squares of float32 are in range."""
    return x.cast(b, "float64")


def _squares(b: Builder, x: Complex) -> Value:
    return b.add("add", *(b.add("multiply", part, part) for part in x.parts))


def size(b: Builder, x: Complex) -> Value:
    """The absolute value: by squares in float64; of float64 by the larger part."""
    dtype = x.real.dtype
    if dtype != "float64":
        return cast_to(b, b.add("sqrt", _squares(b, _wide(b, x))), dtype)
    sizes = [b.add("abs", part) for part in x.parts]
    larger, smaller = b.add("maximum", *sizes), b.add("minimum", *sizes)
    one, same = b.constant(1.0, "float64"), b.add("equal", larger, smaller)
    ratio = b.add("where", same, one, b.add("divide", smaller, larger))
    square = b.add("add", b.add("multiply", ratio, ratio), one)
    return b.add("multiply", larger, b.add("sqrt", square))


def sign(b: Builder, x: Complex) -> Complex:
    """Numbers of size 1; of 0 it is 0."""
    length = size(b, x)
    zero = b.constant(0, length.dtype)
    none = b.add("equal", length, zero)
    return x.each(lambda part: b.add("where", none, zero, b.add("divide", part, length)))


def angle(b: Builder, x: Complex) -> Value:
    return pointwise.atan2(b, x.imag, x.real)


def added(b: Builder, x: Complex, y: Complex, operator: str = "add") -> Complex:
    """The sum, or the difference of `operator="subtract"`."""
    return Complex(*(b.add(operator, *pair) for pair in zip(x.parts, y.parts, strict=True)))


def multiplied(
    b: Builder, x: Complex, y: Complex, times: Callable[[Value, Value], Value] | None = None
) -> Complex:
    """The product, where `times` multiplies parts: elements, or matrices."""
    times = times or partial(b.add, "multiply")
    return Complex(
        b.add("subtract", times(x.real, y.real), times(x.imag, y.imag)),
        b.add("add", times(x.real, y.imag), times(x.imag, y.real)),
    )


def divided(b: Builder, x: Complex, y: Complex) -> Complex:
    """The quotient; by 0 each part is divided by the real part of it."""
    found = multiplied(b, _wide(b, x), _inverse(b, y)).cast(b, x.real.dtype)
    by_zero = _is_zero(b, y)
    pairs = zip(x.parts, found.parts, strict=True)
    return Complex(*(b.add("where", by_zero, b.add("divide", u, y.real), v) for u, v in pairs))


def reciprocal(b: Builder, x: Complex) -> Complex:
    return _inverse(b, x).cast(b, x.real.dtype)


def _inverse(b: Builder, x: Complex) -> Complex:
    """In float64, by the ratio of the parts, so that no square is out of range (Smith, 1962)."""
    real, imag = _wide(b, x).parts
    steep = b.add("less", b.add("abs", real), b.add("abs", imag))
    larger, smaller = b.add("where", steep, imag, real), b.add("where", steep, real, imag)
    signs = b.add("multiply", b.add("sign", smaller), b.add("sign", larger))
    infinite = pointwise.is_infinite(b, smaller)
    ratio = b.add("where", infinite, signs, b.add("divide", smaller, larger))
    below = b.add("add", larger, b.add("multiply", smaller, ratio))
    first = b.add("divide", b.constant(1.0, "float64"), below)
    second = b.add("divide", ratio, below)
    pairs = (first, second), (second, first)
    return conjugate(b, Complex(*(b.add("where", steep, v, u) for u, v in pairs)))


def _is_zero(b: Builder, x: Complex) -> Value:
    return equal(b, x, x.each(lambda part: b.constant(0, part.dtype)))


def power(b: Builder, x: Complex, exponent: float) -> Complex:
    """To a real power."""
    if exponent == 2:
        return multiplied(b, x, x)
    length = pointwise.power(b, size(b, x), b.constant(exponent, x.real.dtype))
    return polar(b, length, times(b, angle(b, x), exponent))


def exponential(b: Builder, x: Complex) -> Complex:
    return polar(b, b.add("exp", x.real), x.imag)


def logarithm(b: Builder, x: Complex) -> Complex:
    return Complex(b.add("log", size(b, x)), angle(b, x))


def complex_power(b: Builder, x: Complex, y: Complex) -> Complex:
    """To a complex power, which of 0 is 0 for positive ones, else NaN; to that of 0 it is 1."""
    zero, one, nan = (b.constant(number, x.real.dtype) for number in (0, 1, math.nan))
    found = exponential(b, multiplied(b, y, logarithm(b, x)))
    positive = b.add("logical_and", b.add("less", zero, y.real), b.add("equal", y.imag, zero))
    of_zero, by_zero = _is_zero(b, x), _is_zero(b, y)
    found = found.each(
        lambda part: b.add("where", of_zero, b.add("where", positive, zero, nan), part)
    )
    pairs = zip((one, zero), found.parts, strict=True)
    return Complex(*(b.add("where", by_zero, *pair) for pair in pairs))


def tanh(b: Builder, x: Complex) -> Complex:
    """By the tangents of the parts, which do not overflow; of infinities it is real."""
    own = _wide(b, x)
    first, second, one = b.add("tanh", own.real), b.add("tan", own.imag), b.constant(1.0, "float64")
    a, c = (b.add("multiply", part, part) for part in (first, second))
    below = b.add("add", one, b.add("multiply", a, c))
    made = (
        b.add("multiply", first, b.add("add", one, c)),
        b.add("multiply", second, b.add("subtract", one, a)),
    )
    infinite = pointwise.is_infinite(b, own.real)
    pairs = zip((first, b.constant(0.0, "float64")), made, strict=True)
    found = (b.add("where", infinite, u, b.add("divide", v, below)) for u, v in pairs)
    return Complex(*found).cast(b, x.real.dtype)


def tan(b: Builder, x: Complex) -> Complex:
    """By `tanh(i x)`, which is `i tan(x)`."""
    turned = tanh(b, Complex(b.add("negative", x.imag), x.real))
    return Complex(turned.imag, b.add("negative", turned.real))


def equal(b: Builder, x: Complex, y: Complex) -> Value:
    parts = zip(x.parts, y.parts, strict=True)
    return b.add("logical_and", *(b.add("equal", *pair) for pair in parts))


def transformed(
    b: Builder, x: Value, axes: Sequence[int], *, inverse: bool = False, **last: Any
) -> Value:
    """Fourier transforms along some axes: of the last one first, or last if `inverse`.

    `x` has the parts, of which there may be one, as its last dimension, and so has what is
    returned. `last` are options of `signal.dft` for the last axis.
    """
    for place in range(len(axes)) if inverse else reversed(range(len(axes))):
        given = last if place == len(axes) - 1 else {}
        x = dft(b, x, axes[place], inverse=inverse, **given)
    return x


def of_real(b: Builder, x: Value, axes: Sequence[int], *, onesided: bool) -> Complex:
    """Transforms of a real tensor; `onesided` is half of the last axis."""
    length = x.shape[axes[-1]]
    parts = reshaped(b, x, (*x.shape, 1))
    return Complex.of(b, transformed(b, parts, axes, length=length, onesided=onesided))


def of_complex(b: Builder, x: Complex, axes: Sequence[int], *, inverse: bool) -> Complex:
    return Complex.of(b, transformed(b, x.pairs(b), axes, inverse=inverse))


def to_real(b: Builder, x: Complex, axes: Sequence[int], length: int) -> Value:
    """Inverse transforms of half of a spectrum, of so many elements along the last axis."""
    made = transformed(b, x.pairs(b), axes, inverse=True, length=length, onesided=True)
    return reshaped(b, made, made.shape[:-1])
