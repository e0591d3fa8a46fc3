"""Combiners of reductions: identity elements, and how two partial results combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import dtypes
from .ir import (
    Buffer,
    Const,
    Expr,
    Let,
    Op,
    Stmt,
    Var,
    binary,
    const,
    select,
    seq,
    store,
)


class Combiner(NamedTuple):
    """`arity` results are reduced together; `identity` and `combine` take and return that many.

    `identity(dtypes)` returns the neutral constants. `combine(left, right)` combines two partial
    results. It is associative and commutative by definition of the IR.
    """

    name: str
    arity: int
    identity: Callable[[tuple[str, ...]], tuple[Const, ...]]
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]


class Place(NamedTuple):
    """An element of a buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]


def update(
    combiner: Combiner,
    places: Sequence[Place],
    old: Sequence[Expr],
    values: Sequence[Expr],
    unique: Callable[[str], str] = str,
) -> Stmt:
    """Store at `places` the combination of `old` and `values`.

    Several results are all computed before the first of them is stored. `unique` returns the names
    of the temporaries.
    """
    if combiner.arity == 1:
        (total,) = combiner.combine(tuple(old), tuple(values))
        return store(*places[0], total)
    names = [p.buffer.name for p in places]
    held, new, best = (
        [
            Var(unique(f"{what}_{name}"), p.buffer.dtype)
            for name, p in zip(names, places, strict=True)
        ]
        for what in ("old", "new", "best")
    )
    combined = combiner.combine(tuple(held), tuple(new))
    stmt = seq(*(store(*p, v) for p, v in zip(places, best, strict=True)))
    bindings = zip(held + new + best, [*old, *values, *combined], strict=True)
    for var, value in reversed(list(bindings)):
        stmt = Let(var, value, stmt)
    return stmt


def lowest(dtype: str) -> Const:
    """The identity of `max`."""
    if dtypes.is_float(dtype):
        return const(float("-inf") if dtype != "float8_e4m3fn" else -448.0, dtype)
    return const(dtypes.int_limits(dtype)[0], dtype)


def highest(dtype: str) -> Const:
    """The identity of `min`."""
    if dtypes.is_float(dtype):
        return const(float("inf") if dtype != "float8_e4m3fn" else 448.0, dtype)
    return const(dtypes.int_limits(dtype)[1], dtype)


def _simple(name: str, op: Op, identity: Callable[[str], Const]) -> Combiner:
    return Combiner(
        name,
        1,
        lambda types: (identity(types[0]),),
        lambda a, b: (binary(op, a[0], b[0]),),
    )


def _arg(name: str, op: Op, identity: Callable[[str], Const]) -> Combiner:
    """Results are (index, value). The first index wins among equals; NaN wins over numbers."""

    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        left = binary(op, a[1], b[1])
        if dtypes.is_float(a[1].dtype):
            a_nan, b_nan = binary(Op.NE, a[1], a[1]), binary(Op.NE, b[1], b[1])
            left = (left & ~b_nan) | (a_nan & ~b_nan)
            tie = binary(Op.EQ, a[1], b[1]) | (a_nan & b_nan)
        else:
            tie = binary(Op.EQ, a[1], b[1])
        left = left | (tie & binary(Op.LT, a[0], b[0]))
        return select(left, a[0], b[0]), select(left, a[1], b[1])

    def neutral(types: tuple[str, ...]) -> tuple[Const, ...]:
        return const(dtypes.int_limits(types[0])[1], types[0]), identity(types[1])

    return Combiner(name, 2, neutral, combine)


COMBINERS: dict[str, Combiner] = {
    c.name: c
    for c in (
        _simple("sum", Op.ADD, lambda d: const(0, d)),
        _simple("prod", Op.MUL, lambda d: const(1, d)),
        _simple("max", Op.MAX, lowest),
        _simple("min", Op.MIN, highest),
        _arg("argmax", Op.GT, lowest),
        _arg("argmin", Op.LT, highest),
    )
}
