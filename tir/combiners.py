"""Combiners of reductions: identity elements, and how two partial results combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from ..base import dtypes
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
    results. It is associative and commutative by definition of the IR. If `numbered`, it is so with
    one more result, the first: the number of the visit that the others are of.
    """

    name: str
    arity: int
    identity: Callable[[tuple[str, ...]], tuple[Const, ...]]
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    numbered: bool = False


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


def chosen(
    op: Op,
    tie: Op = Op.LT,
    arity: int = 2,
    *,
    nan: Literal["wins", "loses", "later"] = "wins",
    numbered: bool = False,
) -> Combiner:
    """The results of the visit with the best last one, by `op`, and of equals the first, by `tie`.

    NaN wins over numbers or loses. Or the later of a number and NaN replaces the other, so that the
    order matters: comparisons with NaN are false.
    """
    worst = lowest if op is Op.GT else highest
    last = highest if tie is Op.LT else lowest

    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        x, y = (b, a) if nan == "loses" else (a, b)
        wins, equal = binary(op, x[-1], y[-1]), binary(Op.EQ, x[-1], y[-1])
        if nan == "wins" and dtypes.is_float(x[-1].dtype):
            x_nan, y_nan = (binary(Op.NE, e[-1], e[-1]) for e in (x, y))
            wins = (wins & ~y_nan) | (x_nan & ~y_nan)
            equal = equal | (x_nan & y_nan)
        wins = wins | (equal & binary(tie, x[0], y[0]))
        return tuple([select(wins, p, q) for p, q in zip(x, y, strict=True)])

    def neutral(types: tuple[str, ...]) -> tuple[Const, ...]:
        first, *carried, value = types
        return last(first), *(const(0, d) for d in carried), worst(value)

    return Combiner("argmax" if op is Op.GT else "argmin", arity, neutral, combine, numbered)


COMBINERS: dict[str, Combiner] = {
    c.name: c
    for c in (
        _simple("sum", Op.ADD, lambda d: const(0, d)),
        _simple("prod", Op.MUL, lambda d: const(1, d)),
        _simple("max", Op.MAX, lowest),
        _simple("min", Op.MIN, highest),
        chosen(Op.GT),
        chosen(Op.LT),
    )
}
