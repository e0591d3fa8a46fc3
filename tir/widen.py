"""A program in wider arithmetic: how far rounding moves the results of the program shows beside it.

All floats become float64. Explicit casts to a narrower float still round: they are a part of what
the program computes.

A program that has float64 already sums up in another order instead: from the middle of each sum on,
then its first half. In reversed order, the partial sums of a sum that cancels would be the same but
for their sign.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from ..base import dtypes
from ..base.errors import IRError
from .ir import (
    Block,
    Buffer,
    Cast,
    Const,
    Dot,
    Expr,
    Func,
    Iter,
    IterKind,
    Let,
    Matmul,
)
from .visit import map_region, rewrite_children, substitute, walk

WIDEST = "float64"
T = TypeVar("T")


def widened(func: Func) -> Func:
    """`func` with floats of float64, parameters included.

    If `func` has float64 itself, its reductions begin in the middle.

        C[i] = C[i] + A[i, k]   ->   C[i] = C[i] + A[i, (k + 32) % 64]

    Raises `IRError` for products of instructions (`Dot`, `Matmul`), whose dtypes are fixed.
    """
    old = {n.dtype for n in walk(func) if isinstance(n, (Expr, Buffer))}
    result = _Widening().func(func)
    return _rotated(result) if WIDEST in old else result


class _Widening:
    """The rewrite; a variable or buffer becomes the same new one wherever it occurs."""

    def __init__(self) -> None:
        self._new: dict[Any, Any] = {}

    def func(self, func: Func) -> Func:
        def buffers(old: tuple[T, ...]) -> tuple[T, ...]:
            return tuple(map(self, old))

        return Func(
            func.name,
            buffers(func.params),
            buffers(func.allocs),
            self(func.body),
            buffers(func.inplace),
            func.annotations,
        )

    def __call__(self, n: T) -> T:
        new = self._new.get(n)
        if new is None:
            new = self._new[n] = self._widened(n)
        return new  # type: ignore[no-any-return]

    def _widened(self, n: Any) -> Any:
        if isinstance(n, (Expr, Buffer)) and dtypes.is_float(n.dtype):
            wide = dtypes.vector(WIDEST, dtypes.info(n.dtype).lanes)
            if isinstance(n, (Dot, Matmul)):
                raise IRError("{0} has no form in {1}", type(n).__name__, wide)
            if isinstance(n, Const):
                return Const(float(dtypes.to_numpy(n.dtype).type(n.value)), wide)
            if isinstance(n, Cast):
                return self._cast(n, wide)
            new: Any = rewrite_children(n, self)
            return replace(new, dtype=wide)
        if type(n) is Let:  # the name is none of its children
            return Let(self(n.var), self(n.value), self(n.body))
        return rewrite_children(n, self)

    def _cast(self, n: Cast, wide: str) -> Expr:
        value: Expr = self(n.value)
        old = n.value.dtype
        if not dtypes.is_float(old):
            return Cast(value, wide)
        if dtypes.info(n.dtype).mantissa < dtypes.info(old).mantissa:
            return Cast(Cast(value, n.dtype), wide)
        return value


def _rotated(func: Func) -> Func:
    """`func` with the iterations of reductions in rotated order."""

    def turned(n: Any) -> Any:
        new = rewrite_children(n, turned)
        return _turned(new) if type(new) is Block else new

    return replace(func, body=turned(func.body))


def _turned(block: Block) -> Block:
    places = {i.var: _from_middle(i) for i in block.iters if i.kind is IterKind.REDUCE}
    if not places:
        return block

    def rotated(n: Any) -> Any:
        return substitute(n, places)

    reads, writes = (
        tuple(map_region(r, rotated) for r in regions) for regions in (block.reads, block.writes)
    )
    return replace(block, reads=reads, writes=writes, body=rotated(block.body))


def _from_middle(i: Iter) -> Expr:
    assert isinstance(i.extent, int), "a program to run has sizes"
    return (i.var + i.extent // 2) % max(i.extent, 1)
