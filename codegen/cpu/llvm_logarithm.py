"""The logarithm and its relatives: llvm_math.py tells their errors. After W. Kahan and fdlibm."""

from __future__ import annotations

from .llvm_exponential import LN2_HIGH, LN2_LOW
from .llvm_vector import V, fma, from_bits, polynomial, two_sum, where

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
