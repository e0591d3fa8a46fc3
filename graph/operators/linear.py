"""Factors of matrices, and what is solved by them, as programs of loops over rows."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np

from ...base.errors import IRError
from ...tir.ir import Func
from ...tir.parser import parse
from ..ir import TensorType
from ..operator import Array, Kind, Limits, one_float, programmed


def _square(name: str, x: TensorType) -> int:
    """The rows of matrices (batch, n, n) of float32 or float64."""
    if x.rank != 3 or x.shape[1] != x.shape[2] or x.dtype not in ("float32", "float64"):
        raise IRError("{0}: {1} is no batch of square matrices of float32 or float64", name, x)
    return x.shape[1]


def _program(name: str, buffers: dict[str, TensorType], body: str) -> Func:
    parameters = ", ".join(f'{k}: T.Buffer({t.shape}, "{t.dtype}")' for k, t in buffers.items())
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return parse(f"@tw.script\ndef {name}({parameters}):\n{lines}\n")


def _exchange(first: str) -> tuple[str, ...]:
    """Lines that exchange a column of two rows, `row` and another."""
    return (
        f"upper = Y[b, {first}, {{j}}]",
        "lower = Y[b, row, {j}]",
        f"Y[b, {first}, {{j}}] = lower",
        "Y[b, row, {j}] = upper",
    )


_LANES = 16
"""Columns of a vector."""


def _columns(count: int, first: str, depth: int, *lines: str) -> str:
    """Loops in which lines, within `depth` others, run for columns `{j}` from `first` on.

    They are vectors, the first of which may begin before.
    """
    whole, rest = divmod(count, _LANES)
    found = []
    if not count:
        found += ["for c in range(0):", *(f"    {line.replace('{j}', 'c')}" for line in lines)]
    if whole:
        place = f"(c * {_LANES} + q)"
        found += [
            f"for c in range(({first}) // {_LANES}, {whole}):",
            f"    for q in T.vectorized({_LANES}):",
            *(f"        {line.replace('{j}', place)}" for line in lines),
        ]
    if rest:
        place = f"({whole * _LANES} + q)"
        found += [
            f"for q in T.vectorized({rest}):",
            *(f"    {line.replace('{j}', place)}" for line in lines),
        ]
    return indent("\n".join(found), "    " * depth)


def _factored(x: Array) -> tuple[Array, Array]:
    batch, n, _ = x.shape
    lu, rows = x.astype(np.float64), np.arange(batch)
    pivots = np.zeros((batch, n), np.int32)
    for k in range(n):
        row = k + np.argmax(np.abs(lu[:, k:, k]), 1)
        pivots[:, k] = row + 1
        lu[rows, k], lu[rows, row] = lu[rows, row].copy(), lu[rows, k].copy()
        pivot = lu[:, k, k, None]
        lu[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, None, k, k + 1 :]
    return lu.astype(x.dtype), pivots


def _factors(x: TensorType) -> tuple[TensorType, TensorType]:
    n = _square("lu", x)
    return x, TensorType("int32", (x.shape[0], n))


@programmed(Kind.OPAQUE, reference=_factored, infer=_factors)
def lu(x: TensorType) -> Func:
    """Triangular factors of matrices (batch, n, n) whose rows are exchanged, in one matrix.

    Below the diagonal is the lower one, whose diagonal is 1. The second result has the rows, from 1
    on, with which each row was exchanged (int32, as LAPACK). The pivot is the largest number of its
    column.
    """
    n = _square("lu", x)
    exchange = _exchange("k")
    before = "Y[b, i, {j}]"
    eliminated = f"{before} = T.select({{j}} > k, {before} - factor * R[{{j}}], {before})"
    buffers = dict(zip("XYP", (x, *_factors(x)), strict=True))
    return _program(
        "lu",
        buffers,
        f"""
R = T.alloc(({n},), "{x.dtype}")
at = T.alloc((1,), "int64", scope="local")
best = T.alloc((1,), "{x.dtype}", scope="local")
for b in range({x.shape[0]}):
    for i in range({n}):
{_columns(n, "0", 2, "Y[b, i, {j}] = X[b, i, {j}]")}
    for k in range({n}):
        at[0] = T.cast("int64", k)
        best[0] = T.abs(Y[b, k, k])
        for i in range(k + 1, {n}):
            if T.abs(Y[b, i, k]) > best[0]:
                best[0] = T.abs(Y[b, i, k])
                at[0] = T.cast("int64", i)
        row = T.minimum(T.maximum(at[0], 0), {n - 1})
        P[b, k] = T.cast("int32", row + 1)
{_columns(n, "0", 2, *exchange, "R[{j}] = lower")}
        for i in range(k + 1, {n}):
            pivot = R[k]
            factor = T.select(pivot == 0.0, Y[b, i, k], Y[b, i, k] / pivot)
            Y[b, i, k] = factor
{_columns(n, "k + 1", 3, eliminated)}
""",
    )


def _exchanged(x: Array, pivots: Array, *, backwards: bool) -> Array:
    found, batch = x.copy(), np.arange(x.shape[0])
    steps = range(x.shape[1])
    for k in reversed(steps) if backwards else steps:
        row = pivots[:, k] - 1
        found[batch, k], found[batch, row] = found[batch, row].copy(), found[batch, k].copy()
    return found


def _rows(x: TensorType, pivots: TensorType, **_: Any) -> TensorType:
    if x.rank != 3 or pivots != TensorType("int32", x.shape[:2]):
        raise IRError("exchange_rows: {0} by {1}", x, pivots)
    return x


def _from_one(x: TensorType, *_: TensorType, **__: Any) -> list[Limits]:
    return [Limits(1, 1, x.shape[1])]


@programmed(Kind.OPAQUE, reference=_exchanged, infer=_rows, limits=_from_one)
def exchange_rows(x: TensorType, pivots: TensorType, *, backwards: bool = False) -> Func:
    """Matrices (batch, n, m) whose rows are exchanged as those of `lu` were, one after the other.

    The `pivots` (batch, n) are the second result of `lu`. `backwards` undoes it.
    """
    n, columns = x.shape[1:]
    return _program(
        "exchange_rows",
        {"X": x, "P": pivots, "Y": x},
        f"""
for b in range({x.shape[0]}):
    for i in range({n}):
{_columns(columns, "0", 2, "Y[b, i, {j}] = X[b, i, {j}]")}
    for k in range({n}):
        own = {f"{n - 1} - k" if backwards else "k"}
        row = T.minimum(T.maximum(T.cast("int64", P[b, own]) - 1, 0), {n - 1})
{_columns(columns, "0", 2, *_exchange("own"))}
""",
    )


def _root(x: Array) -> Array:
    own = x.astype(np.float64)
    found = np.zeros_like(own)
    for k in range(own.shape[1]):
        found[:, k:, k] = own[:, k:, k] / np.sqrt(own[:, k, k, None])
        column = found[:, k + 1 :, k]
        own[:, k + 1 :, k + 1 :] -= column[:, :, None] * column[:, None, :]
    return found.astype(x.dtype)


@programmed(Kind.OPAQUE, reference=_root, infer=lambda x: (_square("cholesky", x), x)[1])
def cholesky(x: TensorType) -> Func:
    """The lower triangular root of matrices (batch, n, n), of which the lower half is read.

    It has NaN from the row on whose matrix is not positive definite.
    """
    n = _square("cholesky", x)
    return _program(
        "cholesky",
        {"X": x, "Y": x},
        f"""
U = T.alloc(({n}, {n}), "{x.dtype}")
for b in range({x.shape[0]}):
    for i, j in T.grid({n}, {n}):
        U[i, j] = X[b, T.maximum(i, j), T.minimum(i, j)]
    for k in range({n}):
        root = T.sqrt(U[k, k])
{_columns(n, "k", 2, "U[k, {j}] = U[k, {j}] / root")}
        for i in range(k + 1, {n}):
            factor = U[k, i]
{_columns(n, "i", 3, "U[i, {j}] = U[i, {j}] - factor * U[k, {j}]")}
    for i, j in T.grid({n}, {n}):
        Y[b, i, j] = T.select(j > i, 0.0, U[j, i])
""",
    )


def _triangles(a: TensorType, y: TensorType, **_: Any) -> TensorType:
    n = _square("solve_triangular", a)
    one_float("solve_triangular", a, y)
    if y.rank != 3 or y.shape[:2] != (a.shape[0], n):
        raise IRError("solve_triangular: {0} and {1}", a, y)
    return y


def _solved(a: Array, y: Array, *, lower: bool, unit: bool) -> Array:
    wide, found = a.astype(np.float64), y.astype(np.float64)
    n = a.shape[1]
    for i in range(n) if lower else reversed(range(n)):
        done = slice(0, i) if lower else slice(i + 1, n)
        found[:, i] -= np.einsum("bk,bkj->bj", wide[:, i, done], found[:, done])
        if not unit:
            found[:, i] /= wide[:, i, i, None]
    return found.astype(y.dtype)


@programmed(Kind.OPAQUE, reference=_solved, infer=_triangles)
def solve_triangular(
    a: TensorType, y: TensorType, *, lower: bool = False, unit: bool = False
) -> Func:
    """The x (batch, n, m) of `a @ x = y`, for triangles `a` (batch, n, n) whose other half is not
    read. The diagonal of one that is `unit` is 1.
    """
    n, columns = y.shape[1:]
    row = "k" if lower else f"{n - 1} - k"
    after = "p" if lower else f"{n - 1} - p"
    own, other = f"Y[b, {row}, {{j}}]", f"Y[b, {after}, {{j}}]"
    whole = (
        ""
        if unit
        else f"""
{_columns(columns, "0", 2, f"{own} = {own} / A[b, {row}, {row}]")}"""
    )
    return _program(
        "solve_triangular",
        {"A": a, "X": y, "Y": y},
        f"""
for b in range({a.shape[0]}):
    for i in range({n}):
{_columns(columns, "0", 2, "Y[b, i, {j}] = X[b, i, {j}]")}
    for k in range({n}):{whole}
        for p in range(k + 1, {n}):
            factor = A[b, {after}, {row}]
{_columns(columns, "0", 3, f"{other} = {other} - factor * {own}")}
""",
    )
