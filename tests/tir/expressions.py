"""Random index expressions, and their values by Python integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tilewright.tir.ir import INDEX, Binary, Call, Const, Expr, Op, Select, Var, const, select

ARITHMETIC = (Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX)
COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
CONSTANTS = st.one_of(
    st.integers(-9, 9), st.sampled_from([12, 16, 32, 48, 64, -16, 1 << 40, -(1 << 63)])
)


def raw(op: Op, a: Expr, b: Expr) -> Expr:
    """The node as it is, without any folding."""
    return Binary(op, a, b, "bool" if op in COMPARISONS else a.dtype)


def integers(variables: Sequence[Var], depth: int = 4) -> st.SearchStrategy[Expr]:
    """int64 expressions over `variables`."""
    leaves = st.one_of(st.sampled_from(list(variables)), st.builds(const, CONSTANTS))

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(raw, st.sampled_from(ARITHMETIC), inner, inner),
            st.builds(raw, st.sampled_from((Op.FLOORDIV, Op.MOD)), inner, st.builds(
                const, st.sampled_from([1, 2, 3, 4, 6, 8, 16, 64, -2]))),
            st.builds(raw, st.just(Op.MUL), inner, st.builds(const, CONSTANTS)),
            st.builds(lambda e: Call("neg", (e,), INDEX), inner),
            st.builds(lambda e: Call("abs", (e,), INDEX), inner),
            st.builds(
                lambda op, a, b, x, y: select(raw(op, a, b), x, y),
                st.sampled_from(COMPARISONS), inner, inner, inner, inner,
            ),
        )  # fmt: skip

    return st.recursive(leaves, extend, max_leaves=2 * depth)


def conditions(variables: Sequence[Var]) -> st.SearchStrategy[Expr]:
    """bool expressions over `variables`."""
    terms = integers(variables, 3)
    leaves = st.builds(raw, st.sampled_from(COMPARISONS), terms, terms)

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(raw, st.sampled_from((Op.AND, Op.OR)), inner, inner),
            st.builds(lambda e: Call("not", (e,), "bool"), inner),
        )

    return st.recursive(leaves, extend, max_leaves=4)


def wrap(value: int) -> int:
    """int64 arithmetic."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


_PYTHON: dict[Op, Any] = {
    Op.ADD: lambda a, b: wrap(a + b),
    Op.SUB: lambda a, b: wrap(a - b),
    Op.MUL: lambda a, b: wrap(a * b),
    Op.FLOORDIV: lambda a, b: wrap(a // b),
    Op.MOD: lambda a, b: a % b,
    Op.MIN: min,
    Op.MAX: max,
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}


def value(e: Expr, assignment: Mapping[Var, int]) -> Any:
    """The value of `e`. Raises ZeroDivisionError where a division by zero is evaluated."""
    match e:
        case Var():
            return assignment[e]
        case Const():
            return e.value
        case Binary():
            return _PYTHON[e.op](value(e.a, assignment), value(e.b, assignment))
        case Select():
            return value(e.then if value(e.cond, assignment) else e.other, assignment)
        case Call(fn="neg", args=(a,)):
            return wrap(-value(a, assignment))
        case Call(fn="abs", args=(a,)):
            return wrap(abs(value(a, assignment)))
        case Call(fn="not", args=(a,)):
            return not value(a, assignment)
        case _:
            raise AssertionError(type(e))
