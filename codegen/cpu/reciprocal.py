"""Divisions of float32 by constants as a product and a fused multiply-add.

    x / c   ->   fma(x, high, x * low),   1 / c = high + low

Source: Brisebarre, Muller and Raina, "Accelerating Correctly Rounded Floating-Point Division When
the Divisor Is Known in Advance", IEEE Transactions on Computers 53(8), 2004.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

LARGEST = 2.0**60
"""Divisors are not larger, and no smaller than its inverse."""
SMALLEST = 2.0**-60
"""Quotients that are no smaller are rounded correctly: no step underflows."""
_BITS = 24
"""Of the mantissas of float32."""
_NEAR = 16
"""How near to the middle of two floats a quotient is, in units below, if it may be rounded
otherwise: `x * low` is wrong by 2**-47 of the result at most, `high + low` by three times that."""


class Reciprocal(NamedTuple):
    """Two floats of one sign, or 0 as the second one, of which the first is the reciprocal."""

    high: float
    low: float


@cache
def reciprocal(by: float) -> Reciprocal | None:
    """The parts of 1 / `by`, if all quotients by it are rounded correctly, but for tiny ones.

    As both have the sign of `by`, infinities, NaN and the signs of zeros are those of a division,
    and tiny quotients have the right sign.
    """
    size = abs(float(np.float32(by)))
    if not 1 / LARGEST <= size <= LARGEST:
        return None
    fraction, exponent = math.frexp(size)
    c = int(math.ldexp(fraction, _BITS))
    high, rest = divmod(1 << (2 * _BITS - 1), c)
    scale = math.copysign(math.ldexp(1.0, 1 - _BITS - exponent), by)
    middles, nearest = _near_middles(c), np.float32(rest / c)
    beside = (np.nextafter(nearest, np.float32(to)) for to in (0, 1))
    for low in map(float, (nearest, *(beside if rest else ()))):
        if all(_is_rounded(high, low, *middle) for middle in middles):
            return Reciprocal(high * scale, low * scale)
    return None


def _near_middles(c: int) -> list[tuple[int, int, int, int]]:
    """(a, m, k, r) for all quotients a / c of mantissas within `_NEAR` of m / 2**k, the middle of
    two floats: r = a * 2**k - m * c, which is not 0."""
    twos = (c & -c).bit_length() - 1
    found = list[tuple[int, int, int, int]]()
    for k in (_BITS, _BITS + 1):
        modulus = 1 << (k - twos)
        inverse = pow(c >> twos, -1, modulus)
        for r in range(-_NEAR, _NEAR + 1):
            if not r or r % (1 << twos):
                continue
            first = (-(r >> twos) * inverse) % modulus
            for m in range(first, 1 << (_BITS + 1), modulus):
                a = (m * c + r) >> k
                if m >> _BITS and m % 2 and a >> (_BITS - 1) == 1:
                    found.append((a, m, k, r))
    return found


def _is_rounded(high: int, low: float, a: int, m: int, k: int, r: int) -> bool:
    """Whether the sum lies on the same side of the middle m / 2**k as a / c, both in units of
    2**(1 - 2 * 24)."""
    beside = a * high - (m << (2 * _BITS - 1 - k))
    return (beside + float(np.float32(a * low))) * r > 0
