"""Numpy's answer, with a bound of what rounding may make of it.

A `Bounded` array has the exact values of integers and bools. Floats are computed in float64, and
`error` bounds by how much another order of sums, contraction and the rounding of each operation in
its dtype may differ from that; infinite where nothing is known, after an overflow for instance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base import dtypes

from ..guard_pages import Array


@dataclass(frozen=True)
class Bounded:
    """Values of `dtype`; those of floats are float64, known up to `error`."""

    dtype: str
    value: Array
    error: Array | None = None

    @property
    def is_float(self) -> bool:
        return dtypes.is_float(self.dtype)

    @property
    def exact(self) -> bool:
        return self.error is None or not self.error.any()


def exactly(array: Array) -> Bounded:
    """An array as it is."""
    dtype = dtypes.from_numpy(array.dtype)
    if not dtypes.is_float(dtype):
        return Bounded(dtype, array)
    return Bounded(dtype, array.astype(np.float64), np.zeros(array.shape))


def rounded(dtype: str, value: Array, error: Array, steps: float = 1.0) -> Bounded:
    """The result of an operation that is rounded `steps` times."""
    unit, tiny, largest = _facts(dtype)
    error = error + steps * (unit * np.abs(value) + tiny)
    known = np.abs(value) + error < largest / 2
    return Bounded(dtype, value, np.where(known, error, np.inf))


def _holds(dtype: str, other: str) -> bool:
    """Whether a float dtype has all numbers of another one."""
    wide, narrow = _facts(dtype), _facts(other)
    return wide[0] <= narrow[0] and wide[1] <= narrow[1] and wide[2] >= narrow[2]


def _facts(dtype: str) -> tuple[float, float, float]:
    """The unit in the last place of 1, the smallest and the largest number of a dtype."""
    bits, mantissa = dtypes.info(dtype).bits, dtypes.info(dtype).mantissa
    exponent = {64: 1023, 32: 127, 16: 127 if mantissa == 7 else 15, 8: 8 if mantissa == 3 else 15}
    top = exponent[bits]
    return 2.0**-mantissa, 2.0 ** max(-1074, 1 - top - mantissa), 2.0**top


def cast(dtype: str, a: Bounded) -> Bounded:
    """Floats to integers saturate, integers to narrower ones wrap."""
    if a.dtype == dtype:
        return a
    target = dtypes.to_numpy(dtype)
    if dtypes.is_float(dtype):
        wide = a.value.astype(np.float64)
        error = np.zeros(wide.shape) if a.error is None else a.error
        if a.is_float and _holds(dtype, a.dtype):
            return Bounded(dtype, wide, error)
        return rounded(dtype, wide, error)
    if not a.is_float:
        return Bounded(dtype, a.value.astype(target))
    assert a.exact, "a float that is not known exactly has no integer"
    if dtypes.is_bool(dtype):
        return Bounded(dtype, a.value != 0)
    low, high = dtypes.int_limits(dtype)
    clipped = [
        0 if math.isnan(x) else int(min(max(x, low), high)) for x in a.value.reshape(-1).tolist()
    ]
    return Bounded(dtype, np.array(clipped, object).reshape(a.value.shape).astype(target))


def binary(op: str, a: Bounded, b: Bounded) -> Bounded:
    """An operator on two of one dtype."""
    if op in _COMPARE:
        return Bounded("bool", np.asarray(_COMPARE[op](a.value, b.value)))
    if not a.is_float:
        return Bounded(a.dtype, np.asarray(_WHOLE[op](a.value, b.value)))
    assert a.error is not None
    assert b.error is not None
    x, y = a.value, b.value
    if op in ("min", "max"):
        value = (np.minimum if op == "min" else np.maximum)(x, y)
        return Bounded(a.dtype, value, np.maximum(a.error, b.error))
    if op in ("+", "-"):
        return rounded(a.dtype, x + y if op == "+" else x - y, a.error + b.error)
    if op == "*":
        error = np.abs(x) * b.error + np.abs(y) * a.error + a.error * b.error
        return rounded(a.dtype, x * y, error)
    assert op == "/"
    room = np.abs(y) - b.error
    error = np.where(room > 0, (a.error + np.abs(x / y) * b.error) / room, np.inf)
    return rounded(a.dtype, x / y, error)


def function(name: str, a: Bounded) -> Bounded:
    """A monotone function of floats, or the sign's `abs` and `neg`."""
    if not a.is_float:
        return Bounded(a.dtype, np.asarray({"abs": np.abs, "neg": np.negative}[name](a.value)))
    assert a.error is not None
    if name in ("abs", "neg"):
        return Bounded(a.dtype, np.abs(a.value) if name == "abs" else -a.value, a.error)
    f = _FUNCTIONS[name]
    value = f(a.value)
    if name in ("floor", "ceil", "trunc", "round"):
        assert a.exact, "a float that is not known exactly has no whole part"
        return Bounded(a.dtype, value, np.zeros(value.shape))
    if name in ("sin", "cos"):
        return rounded(a.dtype, value, np.minimum(a.error, 2.0), 8.0)
    below, above = f(a.value - a.error), f(a.value + a.error)
    error = np.maximum(np.abs(above - value), np.abs(below - value))
    return rounded(a.dtype, value, np.where(np.isnan(error), np.inf, error), 8.0)


def select(condition: Bounded, a: Bounded, b: Bounded) -> Bounded:
    value = np.where(condition.value, a.value, b.value)
    if a.error is None or b.error is None:
        return Bounded(a.dtype, value)
    return Bounded(a.dtype, value, np.where(condition.value, a.error, b.error))


def reduce(name: str, a: Bounded, count: int) -> Bounded:
    """The last `count` dimensions reduced; sums and products are of the dtype of `a`."""
    axes = tuple(range(a.value.ndim - count, a.value.ndim))
    length = math.prod(a.value.shape[i] for i in axes)
    if not a.is_float:
        low, high = dtypes.int_limits(a.dtype)
        start = {"sum": 0, "prod": 1, "max": low, "min": high}[name]
        ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
        first = np.array(start, dtypes.to_numpy(a.dtype))
        return Bounded(
            a.dtype, np.asarray(ufunc.reduce(a.value, axes, a.value.dtype, initial=first))
        )
    assert a.error is not None
    if name == "sum":
        error = a.error.sum(axes) + (length + 2) * _facts(a.dtype)[0] * np.abs(a.value).sum(axes)
        return rounded(a.dtype, np.asarray(a.value.sum(axes)), error)
    worst = np.inf if name == "min" else -np.inf
    value = (np.minimum if name == "min" else np.maximum).reduce(a.value, axes, initial=worst)
    return Bounded(a.dtype, np.asarray(value), np.asarray(a.error.max(axes, initial=0.0)))


def arg(name: str, a: Bounded, count: int) -> tuple[Bounded, Bounded]:
    """Index and value of the largest (`argmax`) or smallest over the last dimensions."""
    assert a.exact, "only of what is known exactly the largest is known"
    shape = a.value.shape[: a.value.ndim - count]
    flat = a.value.reshape(*shape, math.prod(a.value.shape[a.value.ndim - count :]))
    place = (np.argmax if name == "argmax" else np.argmin)(flat, axis=-1)
    value = np.take_along_axis(flat, place[..., None], -1)[..., 0]
    error = None if a.error is None else np.zeros(value.shape)
    return Bounded("int64", np.asarray(place.astype(np.int64))), Bounded(a.dtype, value, error)


def mismatch(found: Array, want: Bounded) -> str | None:
    """The difference of an array from what it should hold, in words, or `None`."""
    if want.error is None:
        wrong = found != want.value
        if found.dtype == np.bool_:  # a byte that is neither 0 nor 1 is wrong too
            wrong = found.view(np.uint8) != want.value.view(np.uint8)
        bound = np.zeros(found.shape)
    else:
        number = found.astype(np.float64)
        bound = 2 * want.error
        same = (number == want.value) | (np.isnan(number) & np.isnan(want.value))
        known = np.isfinite(bound) & ~np.isnan(want.value)
        wrong = known & ~same & ~(np.abs(number - want.value) <= bound)
    if not wrong.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(wrong))
    count = int(np.count_nonzero(wrong))
    return (
        f"{count} of {wrong.size} elements, the first at {list(at)}: found {found[at]}, "
        f"expected {want.value[at]} within {bound[at]:.3g}"
    )


_erf = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "atan": np.arctan,
    "sinh": np.sinh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": lambda x: _erf(x) if x.size else x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": lambda a, b: np.floor_divide(a, np.where(b == 0, 1, b).astype(b.dtype)),
    "%": lambda a, b: np.mod(a, np.where(b == 0, 1, b).astype(b.dtype)),
    "min": np.minimum,
    "max": np.maximum,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
}
