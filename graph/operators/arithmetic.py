"""Division, remainders and powers: pointwise, and of any operands, so they never trap."""

from __future__ import annotations

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...tir import te
from ...tir.te import Expr, Operand
from ..ir import TensorType
from ..operator import Array
from .pointwise import pointwise

_EXPONENTS = 64
"""Powers of integers are exact up to this exponent; of 2 it leaves no bit."""


def _nonzero(b: Expr) -> Expr:
    return te.select(b == 0, te.const(1, b.dtype), b)


def _towards_zero(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Quotient and remainder, of a floor division that leaves some."""
    whole, rest = a // b, a % b
    if dtypes.info(a.dtype).kind == "uint":
        return whole, rest
    up = (rest != 0) & ((a < 0) != (b < 0))
    return te.select(up, whole + 1, whole), te.select(up, rest - b, rest)


def _divide(a: Expr, b: Expr) -> Operand:
    """Of integers towards zero; of a division by 0, the dividend."""
    return a / b if dtypes.is_float(a.dtype) else _towards_zero(a, _nonzero(b))[0]


def _divided(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    divisor = np.where(b == 0, np.ones_like(b), b)
    whole = a // divisor
    up = (a - whole * divisor != 0) & ((a < 0) != (divisor < 0))
    return np.asarray(whole + up.astype(a.dtype))


def _remainder(a: Expr, b: Expr) -> Operand:
    """With the sign of `b`; 0 of an integer by 0."""
    return a % b if dtypes.is_float(a.dtype) else a % _nonzero(b)


def _remains(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.mod(a, b))
    return np.asarray(np.mod(a, np.where(b == 0, np.ones_like(b), b)))


def _truncated_remainder(a: Expr, b: Expr) -> Operand:
    """With the sign of `a`; 0 of an integer by 0."""
    if not dtypes.is_float(a.dtype):
        return _towards_zero(a, _nonzero(b))[1]
    return te.copysign(te.abs(a) % te.abs(b), a)


def _truncated_remains(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.fmod(a, b))
    return np.asarray(np.fmod(a, np.where(b == 0, np.ones_like(b), b)))


def _power(x: Expr, exponent: Expr) -> Operand:
    """Of floats as in C. Of integers exact up to 2**64, and 0 where a fraction or more is due."""
    if dtypes.is_float(x.dtype):
        return te.pow(x, exponent)
    one, zero = te.const(1, x.dtype), te.const(0, x.dtype)
    odd = (exponent & 1) != 0
    square: Expr = x
    product: Expr = one
    for bit in range(6):
        product = te.select((exponent & (1 << bit)) != 0, product * square, product)
        square = square * square
    unit = te.select(x == 1, one, zero)
    if dtypes.info(x.dtype).kind == "int":
        alternating = te.select(odd, te.const(-1, x.dtype), one)
        unit = te.select(x == -1, alternating, unit)
    return te.select((exponent >= 0) & (exponent < _EXPONENTS), product, unit)


def _powers(x: Array, exponent: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.asarray(np.power(x, exponent))
    inside = (exponent >= 0) & (exponent < _EXPONENTS)
    product = np.power(x, np.where(inside, exponent, 0).astype(x.dtype))
    alternating = np.where(exponent & 1, -np.ones_like(x), np.ones_like(x))
    unit = np.where(x == 1, 1, np.where((x == -1) & (x < 0), alternating, 0))
    return np.where(inside, product, unit)


pointwise("divide", _divide, _divided)
pointwise("remainder", _remainder, _remains)
pointwise("fmod", _truncated_remainder, _truncated_remains)
pointwise("power", _power, _powers)


def _limits(x: TensorType, *, low: float, high: float) -> TensorType:
    if not dtypes.is_float(x.dtype):
        least, most = dtypes.int_limits(x.dtype)
        if not all(least <= limit <= most and limit == int(limit) for limit in (low, high)):
            raise IRError("clip: {0} and {1} are no limits of {2}", low, high, x.dtype)
    return x


pointwise(
    "clip",
    lambda x, *, low, high: te.minimum(
        te.maximum(x, te.const(low, x.dtype)), te.const(high, x.dtype)
    ),
    lambda x, *, low, high: np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)),
    infer=_limits,
)
