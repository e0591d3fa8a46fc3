"""Simplification rules for non-polynomial expressions: logic, floats, casts, vectors, loads.

Constant folding: the arithmetic of the interpreter, on constants.

Only results that are bit-identical on every machine are folded. Transcendental functions, floating
remainders and minima of zeros of different sign are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import dtypes
from . import arithmetic, lanes
from .inequality import compare
from .ir import (
    COMPARISONS,
    FALSE,
    INDEX,
    ROUNDINGS,
    TRUE,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dot,
    Expr,
    Load,
    Matmul,
    Op,
    Ramp,
    Reduce,
    Select,
    Shuffle,
    WarpShuffle,
    const,
)
from .polynomial import LOW, negated
from .structure import same
from .visit import map_tuple, rewrite_children

if TYPE_CHECKING:
    from .simplify import Simplifier


def _binary(s: Simplifier, e: Binary) -> Expr:
    op = e.op
    a, b = s.visit(e.a), s.visit(e.b)
    if op in COMPARISONS and a.dtype == INDEX:
        return compare(s, op, a, b, e)
    if type(a) is Const and type(b) is Const:
        folded = fold_binary(op, a, b)
        if folded is not None:
            return folded
    kind = dtypes.info(a.dtype)
    if kind.lanes > 1:
        vector = lanes.binary(s, op, a, b, e.dtype)
        if vector is not None:
            return vector
    elif kind.kind == "bool":
        decided = _logic(op, a, b)
        if decided is not None:
            return decided
    short = _neutral(op, a, b)
    if short is not None:
        return short
    return e if a is e.a and b is e.b else Binary(op, a, b, e.dtype)


def _logic(op: Op, a: Expr, b: Expr) -> Expr | None:
    if type(a) is Const:
        a, b = b, a
    if type(b) is Const and op in (Op.AND, Op.OR, Op.MIN, Op.MAX, Op.XOR, Op.EQ, Op.NE):
        if op in (Op.AND, Op.MIN):
            return a if b.value else FALSE
        if op in (Op.OR, Op.MAX):
            return TRUE if b.value else a
        if bool(b.value) is (op is Op.EQ):
            return a
    if same(a, b):
        if op in (Op.AND, Op.OR, Op.MIN, Op.MAX):
            return a
        if op in COMPARISONS:
            return TRUE if op in (Op.EQ, Op.LE, Op.GE) else FALSE
        if op is Op.XOR:
            return FALSE
    if op in (Op.AND, Op.OR) and _among(op, a, b):
        return b
    return a if op in (Op.AND, Op.OR) and _among(op, b, a) else None


def _among(op: Op, a: Expr, chain: Expr) -> bool:
    """Whether `a` is one of the operands of a chain of `op`."""
    if type(chain) is not Binary or chain.op is not op:
        return same(a, chain)
    return _among(op, a, chain.a) or _among(op, a, chain.b)


def _neutral(op: Op, a: Expr, b: Expr) -> Expr | None:
    """x + 0, x * 1 and the like in any dtype but int64, where they keep every bit."""
    is_float = dtypes.is_float(a.dtype)
    x, y = _value(a), _value(b)
    if y is not None:
        if op is Op.MUL and y == 1:
            return a
        if y == 1 and (op is Op.DIV or (op is Op.FLOORDIV and not is_float)):
            return a
        if op is Op.SUB and y == 0 and (not is_float or str(y) == "0.0"):
            return a
        if op is Op.ADD and y == 0 and (not is_float or str(y) == "-0.0"):
            return a
        if not is_float and op is Op.MUL and y == 0:
            return b
    if x is not None:
        if op is Op.MUL and x == 1:
            return b
        if op is Op.ADD and x == 0 and (not is_float or str(x) == "-0.0"):
            return b
        if not is_float and op is Op.MUL and x == 0:
            return a
    if op in (Op.MIN, Op.MAX) and same(a, b):
        return a
    return None


def _value(e: Expr) -> Any:
    """The number that all lanes of `e` hold, if it is a constant."""
    if type(e) is Broadcast:
        e = e.value
    return e.value if type(e) is Const else None


def _call(s: Simplifier, e: Call) -> Expr:
    if e.fn == "neg" and e.dtype == INDEX:
        return s.build(s.poly(e))
    args = map_tuple(e.args, s.visit)
    if all(type(a) is Const for a in args):
        folded = fold_call(e.fn, args)  # type: ignore[arg-type]
        if folded is not None:
            return folded
    a = args[0]
    if e.fn == "not":
        flipped = negation(a)
        if flipped is not None:
            return flipped
    elif e.fn == "neg" and type(a) is Call and a.fn == "neg":
        return a.args[0]
    elif e.fn == "abs":
        if type(a) is Call and a.fn == "abs":
            return a
        if a.dtype == INDEX and s.fits(s.poly(a)):
            low, high = s.interval(s.poly(a))
            if low >= 0:
                return a
            if high <= 0 and low > LOW:
                return s.build(negated(s.poly(a)))
    if len(args) == 1 and type(a) is Broadcast:
        inner = s.visit(Call(e.fn, (a.value,), dtypes.vector(e.dtype, 1)))
        return Broadcast(inner, a.lanes, e.dtype)
    return e if args is e.args else Call(e.fn, args, e.dtype)


_OPPOSITE = {Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT, Op.EQ: Op.NE, Op.NE: Op.EQ}


def negation(a: Expr) -> Expr | None:
    """`not a` without the `not`; order of floats is kept for the sake of NaN."""
    if type(a) is Call and a.fn == "not":
        return a.args[0]
    if type(a) is not Binary or a.op not in _OPPOSITE:
        return None
    if not dtypes.is_float(a.a.dtype) or a.op in (Op.EQ, Op.NE):
        return Binary(_OPPOSITE[a.op], a.a, a.b, a.dtype)
    return None


def _cast(s: Simplifier, e: Cast) -> Expr:
    value = s.visit(e.value)
    if value.dtype == e.dtype:
        return value
    if type(value) is Const:
        folded = fold_cast(value, e.dtype)
        if folded is not None:
            return folded
    if type(value) is Cast and e.dtype == value.value.dtype == INDEX:
        inner = s.poly(value.value)
        if dtypes.is_integer(value.dtype) and s.fits(inner):
            low, high = s.interval(inner)
            least, most = dtypes.int_limits(value.dtype)
            if least <= low and high <= most:
                return value.value
    elif type(value) is Cast and value.value.dtype == e.dtype and _lossless(e.dtype, value.dtype):
        return value.value
    if type(value) is Broadcast:
        inner_value = s.visit(Cast(value.value, dtypes.vector(e.dtype, 1)))
        return Broadcast(inner_value, value.lanes, e.dtype)
    return e if value is e.value else Cast(value, e.dtype)


def _lossless(a: str, b: str) -> bool:
    """Whether every value of integer dtype `a` is one of integer dtype `b`."""
    if not (dtypes.is_integer(a) and dtypes.is_integer(b)):
        return False
    (low, high), (least, most) = dtypes.int_limits(a), dtypes.int_limits(b)
    return least <= low and high <= most


def _select(s: Simplifier, e: Select) -> Expr:
    cond = s.visit(e.cond)
    chosen = _value(cond)
    if chosen is not None:
        return s.visit(e.then if chosen else e.other)
    then, other = s.visit(e.then), s.visit(e.other)
    if same(then, other):
        return then
    if type(cond) is Call and cond.fn == "not":
        return Select(cond.args[0], other, then, e.dtype)
    if cond is e.cond and then is e.then and other is e.other:
        return e
    return Select(cond, then, other, e.dtype)


def _children(s: Simplifier, e: Expr) -> Expr:
    return rewrite_children(e, s.visit)


def _buffer(_s: Simplifier, b: Buffer) -> Any:
    return b


def _ramp(s: Simplifier, e: Ramp) -> Expr:
    base, stride = s.visit(e.base), s.visit(e.stride)
    if type(stride) is Const and stride.value == 0:
        return Broadcast(base, e.lanes, e.dtype)
    return e if base is e.base and stride is e.stride else Ramp(base, stride, e.lanes, e.dtype)


RULES: dict[type, Callable[[Simplifier, Any], Expr]] = {
    Binary: _binary,
    Call: _call,
    Cast: _cast,
    Select: _select,
    Load: _children,
    Ramp: _ramp,
    Broadcast: _children,
    Dot: _children,
    Matmul: _children,
    Shuffle: _children,
    WarpShuffle: _children,
    Reduce: _children,
    Buffer: _buffer,
}
"""How each type of expression is simplified, int64 sums, quotients and extrema apart."""


_EXACT_ON_FLOATS = COMPARISONS | {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MIN, Op.MAX}
_EXACT_FUNCTIONS = ROUNDINGS | {"neg", "abs", "not"}


def fold_binary(op: Op, a: Const, b: Const) -> Const | None:
    """`a op b`; `None` if it is undefined or not folded."""
    facts = dtypes.info(a.dtype)
    if facts.lanes != 1:
        return None
    x, y = _typed(a), _typed(b)
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
    x = _typed(a)
    if fn in ROUNDINGS and not math.isfinite(x):
        return None
    return const(arithmetic.call(fn, a.dtype)(x), a.dtype)


def fold_cast(a: Const, dtype: str) -> Const | None:
    """`a` cast to the scalar `dtype`; `None` if rounding could differ between machines."""
    source, target = dtypes.info(a.dtype), dtypes.info(dtype)
    if source.lanes != 1 or target.lanes != 1:
        return None
    value = _typed(a)
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


def _typed(c: Const) -> Any:
    with np.errstate(all="ignore"):
        return arithmetic.constant(c.value, c.dtype)
