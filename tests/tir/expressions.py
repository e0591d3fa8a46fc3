"""Random index expressions, and their values by Python integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tilewright.tir.ir import INDEX, Binary, Call, Const, Expr, Op, Select, Var, const, select

T = TypeVar("T")

ARITHMETIC = (Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX)
COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
CONSTANTS = (*range(-9, 10), 12, 16, 32, 48, 64, -16, 1 << 40, -(1 << 63))


DIVISORS = (1, 2, 3, 4, 6, 8, 16, 64, -2)


def raw(op: Op, a: Expr, b: Expr) -> Expr:
    """The node as it is, without any folding."""
    return Binary(op, a, b, "bool" if op in COMPARISONS else a.dtype)


class Maker:
    """Makes expressions by a seed: much faster than a recursive strategy."""

    def __init__(self, seed: int, variables: Sequence[Var]) -> None:
        self.rng = np.random.default_rng(seed)
        self.variables = variables

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def integer(self, depth: int) -> Expr:
        """An int64 expression of at most this depth."""
        if depth == 0 or self.rng.random() < 0.1:
            if self.rng.random() < 0.7:
                return self.pick(self.variables)
            return const(self.pick(CONSTANTS))
        kind = self.rng.random()
        if kind < 0.55:
            a, b = self.integer(depth - 1), self.integer(depth - 1)
            return raw(self.pick(ARITHMETIC), a, b)
        a = self.integer(depth - 1)
        if kind < 0.75:
            return raw(self.pick((Op.FLOORDIV, Op.MOD)), a, const(self.pick(DIVISORS)))
        if kind < 0.9:
            return raw(Op.MUL, a, const(self.pick(CONSTANTS)))
        if kind < 0.95:
            return Call(self.pick(("neg", "abs")), (a,), INDEX)
        return select(self.condition(depth - 1), a, self.integer(depth - 1))

    def condition(self, depth: int) -> Expr:
        """A bool expression."""
        kind = self.rng.random()
        if depth <= 1 or kind < 0.6:
            inner = max(depth - 1, 0)
            return raw(self.pick(COMPARISONS), self.integer(inner), self.integer(inner))
        if kind < 0.9:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return raw(self.pick((Op.AND, Op.OR)), a, b)
        return Call("not", (self.condition(depth - 1),), "bool")

    def expression(self) -> Expr:
        """An int64 or bool expression."""
        depth = int(self.rng.integers(1, 6))
        return self.condition(depth) if self.rng.random() < 0.3 else self.integer(depth)

    def rows(self, ranges: Mapping[Var, tuple[int, int]], count: int = 8) -> list[dict[Var, int]]:
        """Assignments within the ranges, corners among them."""
        corners = [{v: r[k] for v, r in ranges.items()} for k in (0, 1)]
        return corners + [
            {
                v: int(self.rng.integers(low, high, endpoint=True))
                for v, (low, high) in ranges.items()
            }
            for _ in range(count)
        ]


SEEDS = st.integers(0, 2**32 - 1)
"""Seeds of makers."""


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
