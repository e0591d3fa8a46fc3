"""Products of matrices without an instruction: dot products of their rows."""

from __future__ import annotations

from ... import dtypes
from ...tir.ir import (
    INDEX,
    Buffer,
    Expr,
    For,
    Matmul,
    Ramp,
    Store,
    Var,
    const,
    dot,
    load,
    matrices,
)
from .llvm_index import value
from .llvm_loop import stmt
from .llvm_matrix import Rows, in_memory, rows_of
from .llvm_text import Builder, value_type

_ALIGNMENT = 64


def by_rows(b: Builder, e: Matmul) -> str:
    """Loops over the rows and the steps, around a dot product each."""
    columns, depth = matrices(e.acc, e.x, e.y, e.rows, e.group) or (0, 0)
    total = _filled(b, e.acc)
    x, y = _matrix(b, e.x, depth * e.group), _matrix(b, e.y, columns * e.group)
    i, k = Var("row"), Var("step")
    sums = _lanes(i * columns, columns)
    product = dot(
        load(total, sums),
        load(x.buffer, _lanes(x.first + i * x.stride + k * e.group, e.group)),
        load(y.buffer, _lanes(y.first + k * y.stride, columns * e.group)),
    )
    stmt(b, For(i, e.rows, For(k, depth, Store(total, sums, product))))
    return b.op(f"load {value_type(e.dtype)}, ptr {b.pointers[total]}, align {_ALIGNMENT}")


def _matrix(b: Builder, e: Expr, size: int) -> Rows:
    """A factor in memory, with rows of `size` elements."""
    found = rows_of(e.buffer, e.indices[0], size) if in_memory(e) else None
    return Rows(_filled(b, e), const(0), size) if found is None else found


def _filled(b: Builder, e: Expr) -> Buffer:
    """A place on the stack that holds a vector."""
    facts, t = dtypes.info(e.dtype), value_type(e.dtype)
    buffer = Buffer("matrix", (facts.lanes,), facts.scalar)
    b.pointers[buffer] = b.alloca(t, 1, _ALIGNMENT)
    b.do(f"store {t} {value(b, e)}, ptr {b.pointers[buffer]}, align {_ALIGNMENT}")
    return buffer


def _lanes(first: Expr, count: int) -> tuple[Expr]:
    if count == 1:
        return (first,)
    return (Ramp(first, const(1), count, dtypes.vector(INDEX, count)),)
