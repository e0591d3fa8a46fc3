"""Constant folding, in every dtype with the semantics of the IR.

Only results that are bit-identical on every machine are folded. Transcendental functions, floating
remainders and minima of zeros of different sign are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from .ir import COMPARISONS, FALSE, SHIFTS, TRUE, Const, Op

_EXACT: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.FLOORDIV: lambda a, b: a // b,
    Op.MOD: lambda a, b: a % b,
    Op.MIN: min,
    Op.MAX: max,
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.XOR: lambda a, b: a ^ b,
    Op.SHL: lambda a, b: a << b,
    Op.SHR: lambda a, b: a >> b,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}
_FLOAT: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
}


def integer(value: int, dtype: str) -> Const:
    """A constant of an integer dtype; `value` wraps around."""
    low, high = dtypes.int_limits(dtype)
    return Const((value - low) % (high - low + 1) + low, dtype)


def fold_binary(op: Op, a: Const, b: Const) -> Const | None:
    """`a op b`; `None` if it is undefined or not folded."""
    facts = dtypes.info(a.dtype)
    if facts.lanes != 1:
        return None
    if facts.kind == "float":
        return _fold_float(op, a, b)
    x, y = int(a.value), int(b.value)
    if op is Op.DIV or (y == 0 and op in (Op.FLOORDIV, Op.MOD)):
        return None
    if op in SHIFTS and not 0 <= y < facts.bits:
        return None
    value = _EXACT[op](x, y)
    if op in COMPARISONS or facts.kind == "bool":
        return TRUE if value else FALSE
    return integer(value, a.dtype)


def _fold_float(op: Op, a: Const, b: Const) -> Const | None:
    x, y = rounded(a), rounded(b)
    if op in COMPARISONS:
        return TRUE if _EXACT[op](x, y) else FALSE
    function = _FLOAT.get(op)
    if function is None or (op in (Op.MIN, Op.MAX) and x == 0 and y == 0):
        return None
    wide = np.float64 if a.dtype == "float64" else np.float32
    with np.errstate(all="ignore"):
        value = function(wide(x), wide(y))
    return _constant(value, a.dtype)


def rounded(c: Const) -> float:
    """The value of a floating constant, rounded to its dtype."""
    if c.dtype == "float64":
        return float(c.value)
    with np.errstate(all="ignore"):
        return float(np.float64(c.value).astype(dtypes.to_numpy(c.dtype)))


def _constant(value: Any, dtype: str) -> Const:
    with np.errstate(all="ignore"):
        return Const(float(value.astype(dtypes.to_numpy(dtype))), dtype)


def fold_call(fn: str, args: tuple[Const, ...]) -> Const | None:
    """An intrinsic function of constants; `None` if it is not exact everywhere."""
    a = args[0]
    facts = dtypes.info(a.dtype)
    if facts.lanes != 1:
        return None
    if fn == "not":
        if facts.kind == "bool":
            return FALSE if a.value else TRUE
        return integer(~int(a.value), a.dtype)
    if facts.kind == "float":
        x = rounded(a)
        if fn == "neg":
            return Const(-x, a.dtype)
        if fn == "abs":
            return Const(abs(x), a.dtype)
        if fn in ("floor", "ceil", "trunc") and math.isfinite(x):
            return Const(math.copysign(float(getattr(math, fn)(x)), x), a.dtype)
        return None
    if fn in ("neg", "abs"):
        return integer(-int(a.value) if fn == "neg" else abs(int(a.value)), a.dtype)
    return None


def fold_cast(a: Const, dtype: str) -> Const | None:
    """`a` cast to the scalar `dtype`; `None` if rounding could differ between machines."""
    source, target = dtypes.info(a.dtype), dtypes.info(dtype)
    if source.lanes != 1 or target.lanes != 1:
        return None
    value = rounded(a) if source.kind == "float" else int(a.value)
    if target.kind == "bool":
        return TRUE if value != 0 else FALSE
    if target.kind != "float":
        if isinstance(value, float):
            low, high = dtypes.int_limits(dtype)
            if math.isnan(value):
                return Const(0, dtype)
            return Const(max(low, min(high, int(value) if math.isfinite(value) else
                                      (high if value > 0 else low))), dtype)  # fmt: skip
        return integer(value, dtype)
    if isinstance(value, int):
        return Const(float(value), dtype) if abs(value) <= 1 << target.mantissa else None
    if source.mantissa <= target.mantissa and source.bits < target.bits:
        return Const(value, dtype)
    return _constant(np.float64(value), dtype) if dtype in ("float32", "float16") else None
