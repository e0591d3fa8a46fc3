"""What is known of an index without the data that a program runs on.

Indices may depend on elements that are read (gathers), on parameters, on floats, and on integers
of any dtype. Patterns of addresses are counted from int64 arithmetic over loops and decisions.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ....base import dtypes
from ....tir.columns import HIGH, LOW
from ....tir.ir import (
    TRUE,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    as_expr,
    binary,
    const,
    select,
)
from ....tir.windows import variables as variables_of
from .spans import ZERO, depends_on_data, place, strides_of


def known(e: Expr, variables: AbstractSet[Var]) -> Expr:
    """An index or condition as int64 arithmetic over `variables`.

    An integer that is read counts as its place in its array: other elements have other values.
    Integers of other dtypes do not wrap around. Floats and other variables count as 0, conditions
    that are read as true.
    """
    if variables_of(e) <= variables and not depends_on_data(e):
        return e
    if dtypes.is_float(e.dtype):
        return ZERO

    def visit(n: Expr) -> Expr:
        return known(n, variables)

    match e:
        case Const(value=bool()):
            return e
        case Const(value=value):
            return const(min(max(int(value), LOW), HIGH))
        case Var():
            return e if e in variables else ZERO
        case Load() if dtypes.is_bool(e.dtype):
            return TRUE
        case Load(buffer=buffer):
            indices = [visit(i) for i in e.indices]
            return as_expr(place(buffer, indices, strides_of(buffer.shape, buffer)))
        case Cast(value=value):
            inner = visit(value)
            if dtypes.is_bool(e.dtype) == dtypes.is_bool(inner.dtype):
                return inner
            return binary(Op.NE, inner, ZERO) if dtypes.is_bool(e.dtype) else select(inner, 1, ZERO)
        case Binary(op=op):
            a, b = visit(e.a), visit(e.b)
            divides = op is Op.FLOORDIV or op is Op.MOD
            return a if divides and b is ZERO else binary(op, a, b)
        case Select():
            return select(visit(e.cond), visit(e.then), visit(e.other))
        case Call(fn="neg"):
            return ZERO - visit(e.args[0])
        case Call(fn="not"):
            return ~visit(e.args[0])
        case _:
            return ZERO
