"""Quantised numbers: floats that are divided by a constant, rounded, kept in few bits, and scaled.

They need no division and, where they are floats again, no integers. A quotient of float32 becomes a
product and a fused multiply-add:

    x / c   ->   fma(x, high, x * low),   1 / c = high + low

Source: Brisebarre, Muller and Raina, "Accelerating Correctly Rounded Floating-Point Division When
the Divisor Is Known in Advance", IEEE Transactions on Computers 53(8), 2004.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ...base import dtypes
from ...tir.ir import ROUNDINGS, Binary, Broadcast, Call, Cast, Const, Expr, Op
from .llvm_float import limited
from .llvm_index import value
from .llvm_text import Builder
from .llvm_vector import V, fma

MAX_BITS = 16
"""Integers of so many bits are float32 exactly, all of them."""
LARGEST = 2.0**60
"""Divisors are not larger, and no smaller than its inverse."""
SMALLEST = 2.0**-60
"""Quotients that are no smaller are rounded correctly: no step underflows."""
_BITS = 24
"""Of the mantissas of float32."""
_NEAR = 16
"""How near to the middle of two floats a quotient is, in units below, if it may be rounded
otherwise: `x * low` is wrong by 2**-47 of the result at most, `high + low` by three times that."""


def held(b: Builder, e: Cast) -> str | None:
    """The operand of a float32 that was an integer of few bits, and a float32 before, without that
    integer; `None` of other casts."""
    inner = e.value
    if type(inner) is not Cast or {_scalar(e), _scalar(inner.value)} != {"float32"}:
        return None
    integer = dtypes.info(inner.dtype)
    if integer.kind not in ("int", "uint") or integer.bits > MAX_BITS:
        return None
    x = V(b, value(b, inner.value), inner.value.dtype)
    return limited(x if _is_whole(inner.value) else x.trunc(), inner.dtype)[0].text


def quotient(b: Builder, e: Expr, *, rounded: bool) -> str | None:
    """The operand of a quotient by a constant without a division; `None` where there has to be one.

    If it is `rounded` to an integer next, tiny quotients need not be exact.
    """
    if type(e) is not Binary or e.op is not Op.DIV or _scalar(e) != "float32":
        return None
    by = _constant(e.b)
    if by is None or not b.module.target.fma:
        return None  # without an instruction for it, a multiply-add takes no less than a division
    parts = reciprocal(by)
    if parts is None or not (rounded or _least(e) >= SMALLEST):
        return None
    x = V(b, value(b, e.a), e.dtype)
    if not parts.low:
        return (x * parts.high).text
    return fma(x, x.like(parts.high), x * parts.low).text


def _scalar(e: Expr) -> str:
    return dtypes.info(e.dtype).scalar


def _constant(e: Expr) -> float | None:
    number = e.value if type(e) is Broadcast else e
    return float(number.value) if type(number) is Const else None


def _is_whole(e: Expr) -> bool:
    """Whether a float is a whole number, infinite or NaN by the operations that it is made of."""
    if type(e) is Call:
        return e.fn in ROUNDINGS
    if type(e) is Binary:
        return e.op in (Op.ADD, Op.SUB) and _is_whole(e.a) and _is_whole(e.b)
    number = _constant(e)
    if number is not None:
        return number.is_integer()
    return type(e) is Cast and not dtypes.is_float(e.value.dtype)


def _least(e: Expr) -> float:
    """A number that a float is not smaller than, if it is not 0; 0 where nothing is known."""
    number = _constant(e)
    if number is not None:
        return abs(number)
    if _is_whole(e):
        return 1.0
    if type(e) is Binary and e.op is Op.MUL:
        return _least(e.a) * _least(e.b) / 2
    if type(e) is Binary and e.op is Op.DIV:
        by = _constant(e.b)
        return _least(e.a) / abs(by) / 2 if by else 0.0
    return 0.0


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
