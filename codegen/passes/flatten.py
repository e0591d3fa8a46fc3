"""Flatten accesses to one index: the offset in elements from the start of the buffer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...tir.ir import Alloc, Buffer, Const, Expr, Func, Load, Prefetch, Stmt, Store, const, integers
from ...tir.simplify import Simplifier
from ...tir.visit import rewrite_children
from .rewrite import simplifier_of


def flatten(func: Func) -> Func:
    """Give all buffers one dimension.

    C[i, j] = A[j, i]  ->  C[i * 16 + j] = A[j * 8 + i]
    """
    s = simplifier_of(func)
    flat: dict[Buffer, Buffer] = {}

    def buffer(b: Buffer) -> Buffer:
        if b not in flat:
            flat[b] = replace(b, shape=(stored_elements(b),), strides=None, align=(), swizzle=None)
        return flat[b]

    def visit(n: Any) -> Any:
        match n:
            case Load() | Store() | Prefetch():
                new: Any = rewrite_children(n, visit)
                offset = _offset(n.buffer, new.indices, s)
                return replace(new, buffer=buffer(n.buffer), indices=(offset,))
            case Alloc():
                return Alloc(buffer(n.buffer), visit(n.body))
            case Expr() | Stmt():
                return rewrite_children(n, visit)
            case _:
                return n

    body = visit(func.body)
    params = tuple(buffer(p) if type(p) is Buffer else p for p in func.params)
    inplace = tuple(buffer(p) for p in func.inplace)
    allocs = tuple(buffer(p) for p in func.allocs)
    return replace(func, params=params, body=body, inplace=inplace, allocs=allocs)


def strides_of(b: Buffer) -> tuple[int, ...]:
    """Strides in elements of a buffer whose shape is known."""
    if b.strides is not None:
        return b.strides
    return _aligned_strides(_stored_shape(b), b.align)


def _stored_shape(b: Buffer) -> tuple[int, ...]:
    """The shape of `b`, wide enough for the places that a swizzle puts elements in."""
    shape = list(integers(b.shape))
    if b.swizzle is not None:
        axis, _, rows, width = b.swizzle
        shape[axis] = -(-shape[axis] // (rows * width)) * rows * width
    return tuple(shape)


def _placed(b: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The position along each dimension at which the element at `indices` is stored."""
    if b.swizzle is None:
        return indices
    axis, by, rows, width = b.swizzle
    a = indices[axis]
    place = (a // width ^ indices[by] % rows) * width + a % width
    return (*indices[:axis], place, *indices[axis + 1 :])


def _aligned_strides(
    shape: tuple[int, ...], align: tuple[tuple[int, int, int], ...]
) -> tuple[int, ...]:
    """Row-major strides, widened by the `align` of each axis."""
    wanted = {axis: (factor, offset) for axis, factor, offset in align}
    strides: list[int] = []
    step = 1
    for axis in reversed(range(len(shape))):
        factor, offset = wanted.get(axis, (1, 0))
        step += (offset - step) % factor
        strides.append(step)
        step *= shape[axis]
    return tuple(reversed(strides))


def stored_elements(b: Buffer) -> int:
    """Elements from the first to the last, those between rows included."""
    if 0 in b.shape:
        return 0
    steps = zip(_stored_shape(b), strides_of(b), strict=True)
    return 1 + sum((n - 1) * step for n, step in steps)


def _offset(b: Buffer, indices: tuple[Expr, ...], s: Simplifier) -> Expr:
    total: Expr = const(0)
    for i, step in zip(_placed(b, indices), strides_of(b), strict=True):
        if not (type(i) is Const and i.value == 0):
            total = total + i * step
    return s(total)
