"""Constant folding: the arithmetic of the interpreter, on constants.

Only results that are bit-identical on every machine are folded. Transcendental functions, floating
remainders and minima of zeros of different sign are left alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base import dtypes
from . import arithmetic
from .ir import COMPARISONS, ROUNDINGS, Const, Op, const

_EXACT_ON_FLOATS = COMPARISONS | {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MIN, Op.MAX}
_EXACT_FUNCTIONS = ROUNDINGS | {"neg", "abs", "not"}


def fold_binary(op: Op, a: Const, b: Const) -> Const | None:
    """`a op b`; `None` if it is undefined or not folded."""
    facts = dtypes.info(a.dtype)
    if facts.lanes != 1:
        return None
    x, y = _value(a), _value(b)
    if facts.kind != "float":
        folds = op is not Op.DIV
    else:
        folds = op in _EXACT_ON_FLOATS and not (op in (Op.MIN, Op.MAX) and x == 0 and y == 0)
    if not folds:
        return None
    try:
        with np.errstate(all="ignore"):
            value = arithmetic.binary(op, a.dtype)(x, y)
    except ZeroDivisionError:
        return None
    return const(value, "bool" if op in COMPARISONS else a.dtype)


def fold_call(fn: str, args: tuple[Const, ...]) -> Const | None:
    """An intrinsic function of constants; `None` if it is not exact everywhere."""
    a = args[0]
    if fn not in _EXACT_FUNCTIONS or dtypes.info(a.dtype).lanes != 1:
        return None
    x = _value(a)
    if fn in ROUNDINGS and not math.isfinite(x):
        return None
    return const(arithmetic.call(fn, a.dtype)(x), a.dtype)


def fold_cast(a: Const, dtype: str) -> Const | None:
    """`a` cast to the scalar `dtype`; `None` if rounding could differ between machines."""
    source, target = dtypes.info(a.dtype), dtypes.info(dtype)
    if source.lanes != 1 or target.lanes != 1:
        return None
    value = _value(a)
    if target.kind != "float":
        folds = True
    elif source.kind != "float":
        folds = abs(value) <= 1 << target.mantissa
    else:
        wider = source.mantissa <= target.mantissa and source.bits < target.bits
        folds = wider or dtype in ("float32", "float16")
    if not folds:
        return None
    with np.errstate(all="ignore"):
        return const(arithmetic.cast(a.dtype, dtype)(value), dtype)


def _value(c: Const) -> Any:
    with np.errstate(all="ignore"):
        return arithmetic.constant(c.value, c.dtype)
