"""What factors of matrices tell: solutions, inverses, determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..builder import Builder
from ..ir import TensorType, Value
from .basics import cast_to, reshaped


def batched(b: Builder, x: Value) -> Value:
    """Matrices (..., n, m) as (batch, n, m)."""
    return reshaped(b, x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def turned(b: Builder, x: Value) -> Value:
    """Matrices with rows and columns exchanged."""
    rank = x.type.rank
    return b.add("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def triangle_solved(
    b: Builder, a: Value, y: Value, *, lower: bool, transposed: bool = False, unit: bool = False
) -> Value:
    """The x of `a @ x = y` of a triangle (batch, n, n), or of its transpose."""
    own = turned(b, a) if transposed else a
    return b.add("solve_triangular", own, y, lower=lower != transposed, unit=unit)


def factors_solved(
    b: Builder, lu: Value, order: Value, y: Value, *, transposed: bool = False
) -> Value:
    """The x of `a @ x = y` (batch, n, m), of the factors of `a` and the order of its rows.

    With `transposed` that of the transposed `a`.
    """
    if not y.type.size:
        return y
    places = b.add("broadcast_to", reshaped(b, order, (*order.shape, 1)), shape=y.shape)
    if transposed:
        own = triangle_solved(b, lu, y, lower=False, transposed=True)
        own = triangle_solved(b, lu, own, lower=True, transposed=True, unit=True)
        return b.add("scatter", own, places, own, axis=1, reduction="none")
    own = b.add("take_along", y, places, axis=1)
    own = triangle_solved(b, lu, own, lower=True, unit=True)
    return triangle_solved(b, lu, own, lower=False)


def order_of(b: Builder, pivots: Value) -> Value:
    """The order of rows (batch, n) after each has changed places with that of its pivot, from 1."""
    batch, n = pivots.shape
    every = b.constant(np.arange(n).reshape(1, n), "int64")
    step = Builder("step")
    order = step.input("order", TensorType("int64", (batch, n)))
    place = step.input("place", TensorType("int64", (1, 1)))
    pivot = step.input("pivot", TensorType("int64", (batch, 1)))
    columns = step.input("columns", every.type)
    here, there = (step.add("equal", columns, at) for at in (place, pivot))
    none = step.constant(0, "int64")
    row, other = (
        step.add("sum", step.add("where", at, order, none), axes=(1,), keepdims=True)
        for at in (here, there)
    )
    moved = step.add("where", here, other, step.add("where", there, row, order))
    initial = b.add("broadcast_to", every, shape=(batch, n))
    rows = reshaped(b, every, (n, 1, 1))
    last = b.add("subtract", cast_to(b, pivots, "int64"), b.constant(1, "int64"))
    given = reshaped(b, b.add("transpose", last, axes=(1, 0)), (n, batch, 1))
    body = str(step.graph({"order": moved}))
    return b.add("loop", initial, rows, given, every, body=body, count=n, carried=1, sliced=2)


def identity(b: Builder, x: Value) -> Value:
    """The matrices that are 1, as many as `x` has."""
    one = b.constant(np.eye(x.shape[-1]), x.dtype)
    return b.add("broadcast_to", one, shape=x.shape)


def diagonal(b: Builder, x: Value) -> Value:
    """The diagonals (batch, n) of (batch, n, n)."""
    batch, n, _ = x.shape
    if not n:
        return reshaped(b, x, (batch, 0))
    flat = reshaped(b, x, (batch, n * n))
    return b.add("slice", flat, starts=(0, 0), steps=(1, n + 1), shape=(batch, n))


def sign_of_order(b: Builder, pivots: Value, dtype: str) -> Value:
    """1, or -1 where an odd number of rows was exchanged (batch)."""
    own = b.constant(np.arange(1, pivots.shape[1] + 1), pivots.dtype)
    signs = b.constant(1, dtype), b.constant(-1, dtype)
    factors = b.add("where", b.add("equal", pivots, own), *signs)
    return b.add("prod", factors, axes=(1,))


def determinant(b: Builder, lu: Value, pivots: Value) -> Value:
    """The determinants (batch) of matrices, given their factors."""
    product = b.add("prod", diagonal(b, lu), axes=(1,))
    return b.add("multiply", product, sign_of_order(b, pivots, lu.dtype))


def first_failure(b: Builder, bad: Value, lead: Sequence[int]) -> Value:
    """The first row, from 1 on, where a condition of (batch, n) holds; 0 without one, as LAPACK."""
    n = bad.shape[1]
    if not n:
        return b.add("broadcast_to", b.constant(0, "int32"), shape=tuple(lead))
    rows = b.constant([range(n, 0, -1)], "int32")
    last = b.add("max", b.add("where", bad, rows, b.constant(0, "int32")), axes=(1,))
    first = b.add("subtract", b.constant(n + 1, "int32"), last)
    zero = b.constant(0, "int32")
    return reshaped(b, b.add("where", b.add("equal", last, zero), zero, first), lead)
