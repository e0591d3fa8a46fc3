"""Operators and functions on single values: the semantics of `ir` as Python functions.

A value of an integer dtype is a Python integer, of bool a Python bool, of a float dtype a numpy
(or ml_dtypes) scalar of that dtype. Callers silence numpy's floating-point warnings.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..base import dtypes
from .ir import BITWISE, COMPARISONS, ON_NUMBERS, SHIFTS, Op

Function = Callable[..., Any]


@cache
def binary(op: Op, dtype: str) -> Function:
    """`op` on two values of `dtype`.

    The function raises `ZeroDivisionError` for an integer divided by zero.
    """
    facts = dtypes.info(dtype)
    plain = ON_NUMBERS[op]
    if op in COMPARISONS or op in BITWISE or facts.kind == "bool":
        return plain
    if facts.kind == "float":
        return _EXTREMA.get(op, plain)
    if op in (Op.MIN, Op.MAX):
        return plain
    if op in SHIFTS:
        return _shift(op, dtype)
    low, high = dtypes.int_limits(dtype)
    wrap = wrapping(dtype)

    def wrapped(a: int, b: int) -> int:
        r = plain(a, b)
        return r if low <= r <= high else wrap(r)

    return wrapped


@cache
def call(fn: str, dtype: str) -> Function:
    """The intrinsic `fn` on values of `dtype`; floats are computed in float64 and rounded."""
    facts = dtypes.info(dtype)
    if facts.kind == "float":
        if fn in ("neg", "abs"):
            return _SIGN[fn]
        return _rounded(fn, dtype)
    if facts.kind == "bool":
        return operator.not_
    wrap = wrapping(dtype)
    plain = _SIGN[fn]
    return lambda a: wrap(plain(a))


@cache
def cast(source: str, target: str) -> Function:
    """Conversion from one scalar dtype to another."""
    x, y = dtypes.info(source), dtypes.info(target)
    if y.kind == "float":
        number = dtypes.to_numpy(target).type
        if x.bits == 64 and x.kind != "float":  # rounded once, not by way of a double
            wide = np.int64 if x.kind == "int" else np.uint64
            if y.bits == 64:
                return lambda a: number(wide(a))
            return lambda a: number(wide(a).astype(np.float32))
        if source in dtypes.ML_DTYPES and target in dtypes.ML_DTYPES:
            return lambda a: number(np.float32(a))  # ml_dtypes before 0.6 does not know its kin
        return rounding(target) if source == "float64" else number
    if y.kind == "bool":
        return lambda a: bool(a != 0)
    if x.kind == "float":
        return _saturating(target)
    return wrapping(target)


def constant(value: float | bool, dtype: str) -> Any:
    """The value of a `Const` node."""
    if dtypes.is_float(dtype):
        return rounding(dtype)(value)
    return bool(value) if dtypes.is_bool(dtype) else int(value)


@cache
def rounding(dtype: str) -> Function:
    """Conversion of a float64 (or a Python float) to a float dtype, rounded once."""
    number = dtypes.to_numpy(dtype).type
    if dtype not in dtypes.ML_DTYPES:
        return number
    return lambda a: number(_to_odd(float(a)))  # ml_dtypes would round to float32 and again


def _to_odd(value: float) -> np.float32:
    """The float32 of `value`; of two neighbours the one with an odd last bit.

    That bit tells a later rounding to fewer digits on which side of a tie the value was.
    """
    near = np.float32(value)
    if float(near) == value or not math.isfinite(value):
        return near
    inner = np.nextafter(near, np.float32(0)) if abs(float(near)) > abs(value) else near
    return (inner.view(np.uint32) | np.uint32(1)).view(np.float32)


@cache
def wrapping(dtype: str) -> Callable[[int], int]:
    """Reduction of any integer to an integer dtype, in two's complement."""
    low, high = dtypes.int_limits(dtype)
    mask = high - low
    return lambda a: ((a - low) & mask) + low


def _saturating(dtype: str) -> Function:
    low, high = dtypes.int_limits(dtype)

    def convert(a: Any) -> int:
        number = float(a)
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return high if number > 0 else low
        return min(max(int(number), low), high)

    return convert


def _shift(op: Op, dtype: str) -> Function:
    bits = dtypes.info(dtype).bits
    wrap = wrapping(dtype)

    def shift(a: int, b: int) -> int:
        if 0 <= b < bits:
            return wrap(a << b) if op is Op.SHL else a >> b
        return -1 if op is Op.SHR and a < 0 else 0

    return shift


def _minimum(a: Any, b: Any) -> Any:
    return a if a <= b or math.isnan(a) else b


def _maximum(a: Any, b: Any) -> Any:
    return a if a >= b or math.isnan(a) else b


_SIGN: dict[str, Function] = {"neg": operator.neg, "abs": operator.abs, "not": operator.invert}
_EXTREMA: dict[Op, Function] = {Op.MIN: _minimum, Op.MAX: _maximum}
"""Of floats, where NaN wins."""


def _c(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function of `math` as in C: infinite where it is too large, NaN outside its domain."""

    def total(a: float) -> float:
        try:
            return function(a)
        except OverflowError:
            return -math.inf if a < 0 and function is math.sinh else math.inf
        except ValueError:
            return math.nan

    return total


_exp = _c(math.exp)


def _log(a: float) -> float:
    if a > 0:
        return math.log(a)
    return -math.inf if a == 0 else math.nan


def _log1p(a: float) -> float:
    if a > -1:
        return math.log1p(a)
    return -math.inf if a == -1 else math.nan


def _atanh(a: float) -> float:
    if abs(a) == 1:
        return math.copysign(math.inf, a)
    return math.nan if abs(a) > 1 else math.atanh(a)


def _rsqrt(a: float) -> float:
    if a == 0:
        return math.copysign(math.inf, a)
    return math.nan if a < 0 else 1 / math.sqrt(a)


def _sigmoid(a: float) -> float:
    return 1 / (1 + _exp(-a)) if a >= -700 else _exp(a)


def _pow(a: float, b: float) -> float:
    """C's: numpy's power of a scalar exponent is another function of some bases."""
    odd = b % 2 == 1 if math.isfinite(b) else False
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        if a != 0:
            return math.nan
        return math.copysign(math.inf, a) if odd else math.inf


REAL_FUNCTIONS: dict[str, Callable[..., float]] = {
    **{
        name: _c(getattr(math, name))
        for name in (
            "exp2",
            "expm1",
            "sqrt",
            "cbrt",
            "sin",
            "cos",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
        )
    },
    "exp": _exp,
    "log": _log,
    "log1p": _log1p,
    "rsqrt": _rsqrt,
    "atanh": _atanh,
    "atan2": math.atan2,
    "hypot": math.hypot,
    "erf": math.erf,
    "sigmoid": _sigmoid,
    "floor": lambda a: float(np.floor(a)),
    "ceil": lambda a: float(np.ceil(a)),
    "trunc": lambda a: float(np.trunc(a)),
    "round": lambda a: float(np.rint(a)),
    "pow": _pow,
}
"""The intrinsics on floats as functions of Python floats, which are not rounded yet."""


def _rounded(fn: str, dtype: str) -> Function:
    function, number = REAL_FUNCTIONS[fn], rounding(dtype)
    return lambda *args: number(function(*[float(a) for a in args]))
