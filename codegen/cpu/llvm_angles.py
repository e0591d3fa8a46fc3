"""The inverse functions of sine, cosine and tangent: llvm_math.py tells their errors."""

from __future__ import annotations

from .llvm_vector import V, fma, polynomial, where

_QUARTER = {
    "float32": (0.785398006439209, 1.5695823932524066e-07),
    "float64": (0.7853981633974483, 3.061616997868383e-17),
}
"""pi/4 as a number whose products with 0 to 4 are exact, and the rest."""
_STEEP = 0.41421356237309503
"""tan(pi/8)"""


def asin(x: V) -> V:
    """The angle below 1/2, else pi/2 - 2 * asin(sqrt((1 - |x|) / 2))."""
    large, angle = _arcsine(x)
    return where(large, _turned(2.0, -(angle + angle)), angle).with_sign_of(x)


def acos(x: V) -> V:
    large, angle = _arcsine(x)
    double = angle + angle
    beyond = where(x < 0.0, _turned(4.0, -double), double)
    return where(large, beyond, _turned(2.0, -angle.with_sign_of(x)))


def _arcsine(x: V) -> tuple[V, V]:
    """Whether |x| > 1/2; asin(|x|), there asin(sqrt((1 - |x|) / 2))."""
    size = x.abs()
    large = size > 0.5
    z = where(large, (x.like(1.0) - size) * 0.5, size * size)
    s = where(large, z.sqrt(), size)
    return large, fma(s * z, polynomial("ASIN", z), s)


def atan(x: V) -> V:
    size, one = x.abs(), x.like(1.0)
    swapped = size > 1.0
    eighths, angle = _of_ratio(where(swapped, one, size), where(swapped, size, one))
    return _reflected(swapped, 2.0, eighths, angle).with_sign_of(x)


def atan2(y: V, x: V) -> V:
    """The angle of (x, y), in all four quadrants; of zeros and infinities as C has it."""
    one = x.like(1.0)
    a, b = y.abs(), x.abs()
    swapped = a > b
    n, m = where(swapped, b, a), where(swapped, a, b)
    both = n.equals(float("inf"))
    n = where(both, one, n)
    m = where(both | m.equals(0.0), one, m)
    eighths, angle = _of_ratio(n, m)
    eighths, angle = _reflect(swapped, 2.0, eighths, angle)
    left = one.with_sign_of(x) < 0.0
    result = _reflected(left, 4.0, eighths, angle).with_sign_of(y)
    return where(x.is_nan() | y.is_nan(), x.like(float("nan")), result)


def _of_ratio(n: V, m: V) -> tuple[V, V]:
    """atan(n / m) for 0 <= n <= m, as a number of eighths of a turn (0 or 1) and an angle."""
    steep = n > m * _STEEP
    half = where(m > 1.0, m.like(0.5), m.like(1.0))  # lest the sum overflow
    p, q = n * half, m * half
    t = where(steep, p - q, n) / where(steep, p + q, m)
    square = t * t
    angle = fma(t * square, polynomial("ATAN", square), t)
    return where(steep, m.like(1.0), m.like(0.0)), angle


def _reflect(where_: V, total: float, eighths: V, angle: V) -> tuple[V, V]:
    """`total` eighths of a turn minus the angle, where the condition holds."""
    return where(where_, eighths.like(total) - eighths, eighths), where(where_, -angle, angle)


def _reflected(where_: V, total: float, eighths: V, angle: V) -> V:
    eighths, angle = _reflect(where_, total, eighths, angle)
    high, low = _QUARTER[angle.scalar]
    return eighths * high + fma(eighths, eighths.like(low), angle)


def _turned(eighths: float, angle: V) -> V:
    """`angle` and a number of eighths of a turn."""
    high, low = _QUARTER[angle.scalar]
    return angle.like(eighths * high) + (angle + eighths * low)
