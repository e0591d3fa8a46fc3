"""Narrow index arithmetic to 32 bits where bounds prove that nothing leaves them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...base import dtypes
from ...tir.ir import (
    COMPARISONS,
    INDEX,
    NARROW_INDEX,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Let,
    Load,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
    WarpShuffle,
    cast,
)
from ...tir.visit import rewrite_children, with_func_body
from .intervals import Intervals
from .rewrite import ranges_of, renewed

_LIMITS = dtypes.int_limits(NARROW_INDEX)


def narrow(func: Func) -> Func:
    """Use int32 for loop variables and for int64 arithmetic whose results fit it.

    for i in 8: A[i * 4] = 0   ->   for i: int32 in 8: A[int32(i * 4)] = 0

    Values that are stored keep their dtype. It is a device's lowering that ends with this: a
    register of a GPU has 32 bits.
    """
    return with_func_body(func, _Narrower(Intervals(ranges_of(func.body))).stmt(func.body))


class _Narrower:
    def __init__(self, intervals: Intervals) -> None:
        self.intervals = intervals
        self.variables: dict[Var, Var] = {}

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For() if s.var.dtype == INDEX and isinstance(s.extent, int):
                if s.extent > _LIMITS[1]:
                    return rewrite_children(s, self.child)
                var = self.variables[s.var] = renewed(s.var, dtype=NARROW_INDEX)
                return replace(s, var=var, body=self.stmt(s.body))
            case Let():
                value = self.expr(s.value)
                if value.dtype == s.var.dtype:
                    return Let(s.var, value, self.stmt(s.body))
                var = self.variables[s.var] = Var(s.var.name, value.dtype)
                self.intervals.ranges[s.var] = self.intervals(s.value)
                return Let(var, value, self.stmt(s.body))
            case Store():
                indices = tuple([self.expr(i) for i in s.indices])
                value = cast(s.value.dtype, self.expr(s.value))
                return Store(s.buffer, indices, value, s.mask)
            case _:
                return rewrite_children(s, self.child)

    def child(self, n: Any) -> Any:
        if isinstance(n, Stmt):
            return self.stmt(n)
        return self.expr(n) if isinstance(n, Expr) else n

    def expr(self, e: Expr) -> Expr:
        """`e`, of the narrow dtype if it is an index that fits it."""
        match e:
            case Var():
                return self.variables.get(e, e)
            case Const():
                return _const(e) if e.dtype == INDEX else e
            case Load():
                indices = tuple([self.expr(i) for i in e.indices])
                return Load(e.buffer, indices, e.dtype, e.mask)
            case Ramp():
                base, stride = self.expr(e.base), self.expr(e.stride)
                if base.dtype != stride.dtype:
                    base, stride = _wide(base), _wide(stride)
                return Ramp(base, stride, e.lanes, dtypes.vector(base.dtype, e.lanes))
            case Cast(dtype="int64", value=value):
                inner = self.expr(value)
                fits = not dtypes.is_float(value.dtype) and self.fits(e)
                return cast(NARROW_INDEX, inner) if fits else _wide(inner)
            case Cast():
                return cast(e.dtype, self.expr(e.value))
            case Binary():
                return self.binary(e)
            case Select():
                cond = self.expr(e.cond)
                then, other = self.alike(e.then, e.other, e)
                return Select(cond, then, other, then.dtype)
            case Call():
                args = [self.expr(a) for a in e.args]
                if e.dtype == INDEX and not self.fits(e):
                    args = [_wide(a) for a in args]
                return Call(e.fn, tuple(args), args[0].dtype)
            case WarpShuffle():
                return WarpShuffle(cast(e.dtype, self.expr(e.value)), e.xor, e.dtype)
            case _:
                return rewrite_children(e, self.child)

    def binary(self, e: Binary) -> Expr:
        if e.a.dtype != INDEX:
            return Binary(e.op, self.expr(e.a), self.expr(e.b), e.dtype)
        compares = e.op in COMPARISONS
        a, b = self.alike(e.a, e.b, None if compares else e)
        return Binary(e.op, a, b, e.dtype if compares else a.dtype)

    def alike(self, a: Expr, b: Expr, result: Expr | None) -> tuple[Expr, Expr]:
        """Both operands, narrow if both and the result are."""
        x, y = self.expr(a), self.expr(b)
        if x.dtype != y.dtype or (
            x.dtype == NARROW_INDEX and result is not None and not self.fits(result)
        ):
            return (_wide(x), _wide(y)) if a.dtype == INDEX else (x, y)
        return x, y

    def fits(self, e: Expr) -> bool:
        low, high = self.intervals(e)
        return not self.intervals.wraps(e) and _LIMITS[0] <= low and high <= _LIMITS[1]


def _wide(e: Expr) -> Expr:
    """`e` as an int64."""
    return Const(e.value, INDEX) if type(e) is Const else cast(INDEX, e)


def _const(e: Const) -> Const:
    fits = _LIMITS[0] <= e.value <= _LIMITS[1]
    return Const(e.value, NARROW_INDEX) if fits else e
