"""Matrices in memory: rows at equal distances."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from ...tir.ir import Buffer, Expr, Load
from ...tir.lanes import spaced


class Rows(NamedTuple):
    """A matrix in memory: its start, and the elements from one row to the next."""

    buffer: Buffer
    first: Expr
    stride: int


def rows_of(buffer: Buffer, index: Expr, size: int) -> Rows | None:
    """The access `index` as a matrix with rows of `size` elements, if it is one."""
    found = spaced(index)
    if found is None:
        return None
    first, steps = found
    stride = steps[size] - steps[0] if len(steps) > size else size
    wanted = (k // size * stride + k % size + steps[0] for k in range(len(steps)))
    if len(steps) % size or any(a != b for a, b in zip(steps, wanted, strict=True)):
        return None
    return Rows(buffer, first + steps[0], stride)


def in_memory(e: Expr) -> TypeGuard[Load]:
    return type(e) is Load and e.buffer.scope != "register" and e.mask is None
