"""What factors of matrices tell: solutions, inverses, determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..builder import Builder
from ..ir import Value
from .basics import reshaped


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


def solved_by_triangle(
    b: Builder,
    a: Value,
    y: Value,
    *,
    left: bool,
    lower: bool,
    transposed: bool = False,
    unit: bool = False,
) -> Value:
    """The x (..., n, m) of `a @ x = y`, or of `x @ a = y`, of triangles, or of their transposes."""
    lead, (own, given) = alike(b, a, y if left else turned(b, y))
    found = triangle_solved(b, own, given, lower=lower, transposed=transposed == left, unit=unit)
    found = reshaped(b, found, (*lead, *found.shape[1:]))
    return found if left else turned(b, found)


def factors_solved(
    b: Builder, lu: Value, pivots: Value, y: Value, *, transposed: bool = False
) -> Value:
    """The x of `a @ x = y` (batch, n, m), or of the transpose of `a`, given the factors of `a`."""
    if transposed:
        own = triangle_solved(b, lu, y, lower=False, transposed=True)
        own = triangle_solved(b, lu, own, lower=True, transposed=True, unit=True)
        return b.add("exchange_rows", own, pivots, backwards=True)
    own = b.add("exchange_rows", y, pivots)
    own = triangle_solved(b, lu, own, lower=True, unit=True)
    return triangle_solved(b, lu, own, lower=False)


def alike(b: Builder, *values: Value) -> tuple[tuple[int, ...], list[Value]]:
    """The dims that matrices (..., n, m) have in front when these broadcast, and (batch, n, m)."""
    lead = np.broadcast_shapes(*(v.shape[:-2] for v in values))
    whole = (b.add("broadcast_to", v, shape=(*lead, *v.shape[-2:])) for v in values)
    return lead, [batched(b, v) for v in whole]


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


def root(b: Builder, x: Value, *, lower: bool) -> tuple[Value, Value]:
    """The root of matrices (..., n, n), and the row from 1 on at which there is none, or 0."""
    own = b.add("cholesky", batched(b, x if lower else turned(b, x)))
    failed = first_failure(b, b.add("is_nan", diagonal(b, own)), x.shape[:-2])
    found = reshaped(b, own, x.shape)
    return found if lower else turned(b, found), failed


def zero_pivot(b: Builder, lu: Value, lead: Sequence[int]) -> Value:
    """The row from 1 on at which the diagonal of matrices (batch, n, n) is 0, or 0."""
    return first_failure(b, b.add("equal", diagonal(b, lu), b.constant(0, lu.dtype)), lead)


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
