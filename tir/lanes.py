"""Arithmetic on vectors that are ramps or broadcasts, as lowering creates them."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from ..base import dtypes
from . import ir
from .ir import COMPARISONS, INDEX, ON_NUMBERS, TRUE, Binary, Broadcast, Expr, Op, Ramp
from .polynomial import ONE, Poly, constant

if TYPE_CHECKING:
    from .simplify import Simplifier


def spaced(e: Expr) -> tuple[Expr, tuple[int, ...]] | None:
    """An index as one expression plus a number per lane; `None` if it has no such form."""
    match e:
        case Ramp(base=base, stride=ir.Const(value=step), lanes=lanes):
            return base, tuple([int(step) * k for k in range(lanes)])
        case Broadcast(value=value, lanes=lanes):
            return value, (0,) * lanes
        case Binary(op=op, a=a, b=b) if op in _SPACED:
            x, y = spaced(a), spaced(b)
            if x is None or y is None:
                return None
            if op is Op.ADD:
                return x[0] + y[0], tuple([m + n for m, n in zip(x[1], y[1], strict=True)])
            if type(x[0]) is not ir.Const or type(y[0]) is not ir.Const:
                return None
            p, q = int(x[0].value), int(y[0].value)
            function, pairs = ON_NUMBERS[op], zip(x[1], y[1], strict=True)
            return ir.const(0), tuple([function(p + m, q + n) for m, n in pairs])
    return None


_SPACED = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD})


def binary(s: Simplifier, op: Op, a: Expr, b: Expr, dtype: str) -> Expr | None:
    """`a op b` as one ramp or broadcast, if it is one; `None` if it is not."""
    lanes = dtypes.info(dtype).lanes
    if type(a) is Broadcast and type(b) is Broadcast:
        scalar = s.visit(Binary(op, a.value, b.value, dtypes.vector(dtype, 1)))
        return Broadcast(scalar, lanes, dtype)
    if dtypes.info(a.dtype).scalar != INDEX:
        return None
    if op in (Op.ADD, Op.SUB, Op.MUL):
        return _ramp(s, op, a, b, lanes, dtype)
    if type(a) is Ramp and type(b) is Broadcast and op in (Op.FLOORDIV, Op.MOD):
        return _divided(s, op, a, b, dtype)
    if op in COMPARISONS and _uniform(s, op, a, b, lanes):
        return Broadcast(TRUE, lanes, dtype)
    return None


def _ramp(s: Simplifier, op: Op, a: Expr, b: Expr, lanes: int, dtype: str) -> Expr | None:
    if op is Op.MUL:
        if type(a) is Broadcast:
            a, b = b, a
        if type(a) is not Ramp or type(b) is not Broadcast or type(b.value) is not ir.Const:
            return None
        return _make(s, a.base * b.value, a.stride * b.value, lanes, dtype)
    parts = [
        (e.value, ir.const(0)) if type(e) is Broadcast
        else (e.base, e.stride) if type(e) is Ramp else None
        for e in (a, b)
    ]  # fmt: skip
    left, right = parts
    if left is None or right is None:
        return None
    base, stride = (ir.binary(op, x, y) for x, y in zip(left, right, strict=True))
    return _make(s, base, stride, lanes, dtype)


def _make(s: Simplifier, base: Expr, stride: Expr, lanes: int, dtype: str) -> Expr:
    base, stride = s.visit(base), s.visit(stride)
    if type(stride) is ir.Const and stride.value == 0:
        return Broadcast(base, lanes, dtype)
    return Ramp(base, stride, lanes, dtype)


def _divided(s: Simplifier, op: Op, a: Ramp, b: Broadcast, dtype: str) -> Expr | None:
    """A quotient that is the same in all lanes, and the corresponding remainder."""
    base, stride = s.poly(a.base), constant(s.poly(a.stride))
    scale = constant(s.poly(b.value))
    if stride is None or scale is None or scale <= 0 or not s.fits(base):
        return None
    last = stride * (a.lanes - 1)
    if not (_aligned(base, last, scale) or _within(s, base, last, scale)):
        return None
    whole = {**base, ONE: base.get(ONE, 0) + last}
    if not s.fits(whole):
        return None
    if op is Op.FLOORDIV:
        return Broadcast(s.visit(Binary(op, a.base, b.value, INDEX)), a.lanes, dtype)
    return _make(s, Binary(op, a.base, b.value, INDEX), a.stride, a.lanes, dtype)


def _aligned(base: Poly, last: int, scale: int) -> bool:
    """Whether all lanes lie between two multiples of a number that divides `scale`."""
    step = gcd(scale, *(c for k, c in base.items() if k is not ONE))
    return last >= 0 and base.get(ONE, 0) % step + last < step


def _within(s: Simplifier, base: Poly, last: int, scale: int) -> bool:
    """Whether all lanes lie between two multiples of `scale` by the interval of `base`."""
    low, high = s.interval({k: c for k, c in base.items() if c % scale})
    return min(low, low + last) // scale == max(high, high + last) // scale


def _uniform(s: Simplifier, op: Op, a: Expr, b: Expr, lanes: int) -> bool:
    """Whether a comparison holds in the first and in the last lane, and so in all."""
    if op in (Op.EQ, Op.NE):
        return False
    for lane in (0, lanes - 1):
        x, y = _lane(a, lane), _lane(b, lane)
        if x is None or y is None or s.visit(Binary(op, x, y, "bool")) is not TRUE:
            return False
    return True


def _lane(e: Expr, lane: int) -> Expr | None:
    if type(e) is Broadcast:
        return e.value
    return e.base + e.stride * lane if type(e) is Ramp else None
