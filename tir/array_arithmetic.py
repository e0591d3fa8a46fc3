"""Operators and functions on arrays: what `arithmetic.py` does with single values.

An array of a dtype is a numpy array of `dtypes.to_numpy` of it. Callers silence numpy's
floating-point warnings. Integer divisions by zero have results without a meaning: callers report
these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..base import dtypes
from . import arithmetic
from .ir import NUMPY_OPERATORS, Op

Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Array]


@cache
def binary(op: Op, dtype: str) -> Function:
    """`op` on two arrays of `dtype`."""
    if op in (Op.MIN, Op.MAX):
        return _EXTREMA[op] if dtypes.is_float(dtype) else _INTEGER_EXTREMA[op]
    return _UFUNCS[op]


@cache
def call(fn: str, dtype: str) -> Function:
    """The intrinsic `fn` on arrays of `dtype`; floats are computed in float64 and rounded."""
    if fn in _SIGN:
        return _SIGN[fn]
    function, rounded = _REAL.get(fn) or _by_element(fn), rounding(dtype)
    return lambda *args: rounded(function(*[a.astype(np.float64) for a in args]))


@cache
def cast(source: str, target: str) -> Function:
    """Conversion of arrays from one scalar dtype to another."""
    x, y = dtypes.info(source), dtypes.info(target)
    number = dtypes.to_numpy(target)
    if y.kind == "bool":
        return lambda a: np.not_equal(a, np.zeros((), a.dtype))
    if y.kind == "float":
        if x.bits == 64 and x.kind != "float" and y.bits < 64:  # by way of float32, as its scalars
            return lambda a: a.astype(np.float32).astype(number)
        if source in dtypes.ML_DTYPES and target in dtypes.ML_DTYPES:
            return lambda a: a.astype(np.float32).astype(number)
        return rounding(target) if source == "float64" else lambda a: a.astype(number)
    if x.kind == "float":
        return _saturating(target)
    return lambda a: a.astype(number)


def constant(value: float | bool, dtype: str) -> Array:
    """The value of a `Const` node, as an array of one element."""
    return np.array([arithmetic.constant(value, dtype)], dtypes.to_numpy(dtype))


@cache
def rounding(dtype: str) -> Function:
    """Conversion of arrays of float64 to a float dtype, rounded once."""
    number = dtypes.to_numpy(dtype)
    if dtype not in dtypes.ML_DTYPES:
        return lambda a: a.astype(number)
    return lambda a: _to_odd(a).astype(number)  # ml_dtypes would round to float32 and again


def _to_odd(value: Array) -> Array:
    """The float32 of each value; of two neighbours the one with an odd last bit."""
    near = value.astype(np.float32)
    exact = (near == value) | ~np.isfinite(value)
    inner = np.where(np.abs(near) > np.abs(value), np.nextafter(near, np.float32(0)), near)
    odd = (inner.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where(exact, near, odd)


def _saturating(dtype: str) -> Function:
    low, high = dtypes.int_limits(dtype)
    number = dtypes.to_numpy(dtype)
    beyond = float(high) if dtypes.info(dtype).bits < 64 else float(high + 1)
    last = float(high) if dtypes.info(dtype).bits < 64 else float(np.nextafter(beyond, 0.0))

    def convert(a: Array) -> Array:
        wide = a.astype(np.float64)
        wide = np.where(np.isnan(wide), 0.0, wide)
        inside = np.clip(wide, float(low), last).astype(number)
        return np.where(wide >= beyond, number.type(high), inside)

    return convert


def _minimum(a: Array, b: Array) -> Array:
    return np.where((a <= b) | np.isnan(a), a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.where((a >= b) | np.isnan(a), a, b)


def _rsqrt(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


def _by_element(fn: str) -> Function:
    """A function of reals that numpy lacks or does not round as Python does."""
    function = arithmetic.REAL_FUNCTIONS[fn]

    def run(*args: Array) -> Array:
        args = tuple(np.broadcast_arrays(*args))
        return np.array(list(map(function, *[a.tolist() for a in args])), np.float64)

    return run


_UFUNCS: dict[Op, Function] = {op: getattr(np, name) for name, op in NUMPY_OPERATORS.items()}
_EXTREMA: dict[Op, Function] = {Op.MIN: _minimum, Op.MAX: _maximum}
"""Of floats, where NaN wins, and of zeros with different signs the first."""
_INTEGER_EXTREMA: dict[Op, Function] = {Op.MIN: np.minimum, Op.MAX: np.maximum}
_SIGN: dict[str, Function] = {"neg": np.negative, "abs": np.absolute, "not": np.invert}
_REAL: dict[str, Function] = {
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
}
"""Functions of reals that are exact, or rounded correctly."""
