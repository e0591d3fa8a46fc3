"""The exponential function and its relatives: llvm_math.py tells their errors.

Range reduction follows Cody and Waite, "Software Manual for the Elementary Functions".

The logarithm and its relatives: llvm_math.py tells their errors. After W. Kahan and fdlibm.
"""

from __future__ import annotations

from typing import NamedTuple

from .llvm_text import calling, value_type
from .llvm_vector import V, fma, from_bits, polynomial, short_polynomial, two_sum, where

LN2_HIGH = {"float32": 0.693359375, "float64": 6.93147180369123816490e-01}
LN2_LOW = {"float32": -2.12194440054690583e-4, "float64": 1.90821492927058770002e-10}
EXP_RANGE = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}
_LOG2E = 1.4426950408889634
_EXP2_RANGE = {"float32": (-151.0, 129.0), "float64": (-1076.0, 1025.0)}
_TANH_ONE = {"float32": 9.5, "float64": 20.0}
_SINH_RANGE = {"float32": (0.0, 90.0), "float64": (0.0, 711.0)}


class Exponent(NamedTuple):
    """A whole number n: as a float, and n + twice the bias in the low bits of another float."""

    number: V
    shifted: V

    def power(self) -> V:
        """2**n within the range of normal numbers."""
        return self._from_exponent(self.shifted.bits() - self.shifted.bias)

    def less(self) -> Exponent:
        """n - 1"""
        return Exponent(self.number - 1.0, self.shifted - 1.0)

    def factors(self) -> tuple[V, V]:
        """Two powers of two whose product is 2**n, each within the range of normal numbers."""
        bits = self.shifted.bits()
        half = bits.lshr(1)
        return self._from_exponent(half), self._from_exponent(bits - half)

    def _from_exponent(self, biased: V) -> V:
        """The power of two whose biased exponent is in the low bits."""
        return from_bits(biased.shl(self.shifted.mantissa), self.shifted.dtype)


def _shift(x: V) -> V:
    """Adding it rounds to an integer and leaves that in the low bits, as `Exponent` has it."""
    return x.like(1.5 * 2.0**x.mantissa + 2 * x.bias)


def whole(n: V) -> Exponent:
    """A float that is a whole number."""
    return Exponent(n, n + _shift(n))


def reduced_exponent(x: V) -> tuple[Exponent, V]:
    """x = n * log(2) + r with |r| <= log(2) / 2: n and r. NaN stays in r."""
    shifted = fma(x, x.like(_LOG2E), _shift(x))
    n = shifted - _shift(x)
    r = fma(n, x.like(-LN2_HIGH[x.scalar]), x)
    r = fma(n, x.like(-LN2_LOW[x.scalar]), r)
    return Exponent(n, shifted), r


def expm1_reduced(r: V) -> V:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    square = r * r
    return fma(square, short_polynomial("EXP", r, square), r)


def scaled(x: V, n: Exponent) -> V:
    """(1 + x) * 2**n, which may overflow or be denormal: by one instruction of AVX-512, or two."""
    if "avx512f" in x.b.module.target.features and x.dtype in _SCALEF:
        return _scalef(x + 1.0, n.number)
    first, second = n.factors()
    return fma(x, first, first) * second


_SCALEF = {"float32x16": ("ps", 16), "float64x8": ("pd", 8)}


def _scalef(x: V, n: V) -> V:
    kind, lanes = _SCALEF[x.dtype]
    name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
    t = value_type(x.dtype)
    all_lanes, nearest = (f"i{lanes}", "-1"), ("i32", "4")
    operands = [(t, x.text), (t, n.text), (t, "zeroinitializer"), all_lanes, nearest]
    return V(x.b, x.b.op(calling(x.b, name, t, *operands)), x.dtype)


def clamped(x: V, low: float, high: float) -> V:
    """x within bounds; NaN stays."""
    x = where(x < low, x.like(low), x)
    return where(x > high, x.like(high), x)


def exp(x: V) -> V:
    n, r = reduced_exponent(clamped(x, *EXP_RANGE[x.scalar]))
    return scaled(expm1_reduced(r), n)


def exp2(x: V) -> V:
    """x = n + r with |r| <= 1/2: 2**n * (1 + r * P(r))."""
    x = clamped(x, *_EXP2_RANGE[x.scalar])
    shifted = x + _shift(x)
    n = shifted - _shift(x)
    r = x - n
    return scaled(r * short_polynomial("EXP2", r, r * r), Exponent(n, shifted))


def tanh(x: V) -> V:
    """By t = exp(2|x|) - 1: t / (t + 2)."""
    size = clamped(x.abs(), 0.0, _TANH_ONE[x.scalar])
    n, r = reduced_exponent(size + size)
    power = n.power()
    t = fma(power, expm1_reduced(r), power - 1.0)
    return (t / (t + 2.0)).with_sign_of(x)


def sigmoid(x: V) -> V:
    """By e = exp(-|x|), which does not overflow: 1 / (1 + e) or e / (1 + e)."""
    e = exp(-x.abs())
    return where(x < 0.0, e, x.like(1.0)) / (e + 1.0)


def expm1(x: V) -> V:
    """exp(x) - 1 by k = 2**n: k * (exp(r) - 1) + (k - 1). Beyond 40 it is exp(x)."""
    n, r = reduced_exponent(clamped(x, -40.0, EXP_RANGE[x.scalar][1]))
    power, part = n.power(), expm1_reduced(r)
    near = fma(power, part, power - 1.0)
    return where(x > 40.0, scaled(part, n), near).with_sign_of(x)


def sinh(x: V) -> V:
    """By t = (exp(|x|) - 1) / 2: t + t / (2t + 1). Beyond 20 it is exp(|x|) / 2."""
    size = x.abs()
    n, r = reduced_exponent(clamped(size, *_SINH_RANGE[x.scalar]))
    half, part = n.less(), expm1_reduced(r)
    power = half.power()
    t = fma(power, part, power - 0.5)
    near = t + t / (t + t + 1.0)
    return where(size > 20.0, scaled(part, half), near).with_sign_of(x)


def cosh(x: V) -> V:
    """By e = exp(|x|) / 2: e + 1 / 4e."""
    n, r = reduced_exponent(clamped(x.abs(), *_SINH_RANGE[x.scalar]))
    e = scaled(expm1_reduced(r), n.less())
    return e + e.like(0.25) / e


_HALF_ROOT_BITS = {"float32": 0x3F3504F3, "float64": 0x3FE6A09E667F3BCD}
_SMALLEST_NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}


def split(x: V) -> tuple[V, V]:
    """x = m * 2**e with sqrt(1/2) <= m < sqrt(2), for positive finite x: m, and e as a float."""
    tiny = x < _SMALLEST_NORMAL[x.scalar]
    x = where(tiny, x * 2.0**x.mantissa, x)
    bits = x.bits()
    e = (bits - _HALF_ROOT_BITS[x.scalar]).ashr(x.mantissa)
    m = from_bits(bits - e.shl(x.mantissa), x.dtype)
    exponent = e.to_float(x.dtype)
    return m, where(tiny, exponent - float(x.mantissa), exponent)


def log(x: V) -> V:
    return _special(x, _of_parts(*split(x)))


def log1p(x: V) -> V:
    """log(1 + x): that of the rounded sum, and what rounding lost in proportion to it."""
    total, lost = two_sum(x, x.like(1.0))
    result = _of_parts(*split(total), lost / total)
    return _special(total, result).with_sign_of(x)


def asinh(x: V) -> V:
    """log1p(|x| + x**2 / (1 + sqrt(x**2 + 1)))"""
    size = x.abs()
    square = size * size
    return _log1p_or_log(size, size + square / ((square + 1.0).sqrt() + 1.0)).with_sign_of(x)


def acosh(x: V) -> V:
    """log1p(t + sqrt(2t + t**2)) with t = x - 1"""
    t = x - 1.0
    result = _log1p_or_log(x, t + fma(t, t, t + t).sqrt())
    return where(x < 1.0, x.like(float("nan")), result)


def atanh(x: V) -> V:
    """log1p(2|x| / (1 - |x|)) / 2"""
    size = x.abs()
    return (log1p((size + size) / (x.like(1.0) - size)) * 0.5).with_sign_of(x)


def _log1p_or_log(x: V, beyond: V) -> V:
    """log1p(beyond), or log(2 * x) where x is so large that its square may overflow."""
    large = x > 2.0**60
    result = log1p(where(large, x, beyond))
    return result + where(large, x.like(LN2_HIGH["float64"] + LN2_LOW["float64"]), x.like(0.0))


def _of_parts(m: V, e: V, rest: V | None = None) -> V:
    """log(m * 2**e) + rest with m as of `split`."""
    f = m - 1.0
    s = f / (f + 2.0)
    w = s * s
    half_square = f * f * 0.5
    tail = s * fma(w, polynomial("LOG", w), half_square)
    tail = fma(e, m.like(LN2_LOW[m.scalar]), tail)
    if rest is not None:
        tail = tail + rest
    return fma(e, m.like(LN2_HIGH[m.scalar]), f - (half_square - tail))


def _special(x: V, result: V) -> V:
    """`result`, or the logarithm of what is not positive and finite."""
    result = where(x.equals(float("inf")), x, result)
    special = where(x.equals(0.0), x.like(float("-inf")), x.like(float("nan")))
    return where(x > 0.0, result, special)
