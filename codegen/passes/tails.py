"""Loops that a condition cuts short are peeled, so that most iterations run without it."""

from __future__ import annotations

from dataclasses import replace

from ...target import Target
from ...tir.ir import Buffer, For, ForKind, Func, If, Op, Seq, Stmt, Var, binary, const, seq
from ...tir.simplify import Simplifier
from ...tir.visit import substitute, walk
from .guards import guards, holds_before
from .scope import (
    Ranges,
    decided,
    fresh,
    map_exprs,
    map_stmts,
    nested,
    ranges_of,
    with_body,
)
from .vectorize import native_lanes

MAX_COPIED_STORES = 1536
"""A loop whose body has more stores than this, once unrolled, is not copied."""


def tails(func: Func, target: Target) -> Func:
    """Split loops where a condition in them stops being true for all that is inside.

    for i in 4:                                for i in 3:
        for j in 8:                                for j in 8: A[i * 8 + j] = 0
            if i * 8 + j < 29:          ->     for j in 5: A[j + 24] = 0
                A[i * 8 + j] = 0

    A parallel loop is not split but gets both versions, to choose from in each iteration.
    """
    if not any(True for _ in guards(func.body)):
        return func
    return with_body(func, _visit(func.body, ranges_of(func.body), target))


def _visit(s: Stmt, ranges: Ranges, target: Target) -> Stmt:
    if type(s) is For and isinstance(s.extent, int):
        cut = s.extent if _is_register_vector(s) else _cut(s, ranges)
        if 0 < cut < s.extent and _size(s.body, target) <= MAX_COPIED_STORES:
            return _peel(s, cut, ranges, target)
    return map_stmts(s, lambda c: _visit(c, ranges, target))


def _is_register_vector(s: For) -> bool:
    """Vectors in registers stay whole and are masked."""
    return s.kind is ForKind.VECTOR and any(
        type(n) is Buffer and n.scope == "register" for n in walk(s.body)
    )


def _cut(loop: For, ranges: Ranges) -> int:
    """The first iteration at which a condition in the loop may fail, or the extent."""
    s = Simplifier(ranges)
    cuts = (holds_before(g, loop.var, s) for g in guards(loop.body))
    return min((c for c in cuts if c > 0), default=loop.extent)  # type: ignore[arg-type, return-value]


def _peel(loop: For, cut: int, ranges: Ranges, target: Target) -> Stmt:
    """The iterations before `cut`, and those from it on, each without what is decided in it."""
    assert isinstance(loop.extent, int)
    copy = fresh(loop.body)
    ranges |= ranges_of(copy)
    if loop.kind is ForKind.PARALLEL:
        ranges[loop.var] = (0, cut - 1)
        main = _visit(_simplified(loop.body, ranges), ranges, target)
        ranges[loop.var] = (cut, loop.extent - 1)
        end = _visit(_simplified(copy, ranges), ranges, target)
        ranges[loop.var] = (0, loop.extent - 1)
        return replace(loop, body=If(binary(Op.LT, loop.var, const(cut)), main, end))
    parts = []
    for start, extent, body in ((0, cut, loop.body), (cut, loop.extent - cut, copy)):
        part = _part(loop, start, extent, body, ranges)
        parts.append(_visit(part, ranges, target))
    return decided(seq(*parts))


def _part(loop: For, start: int, extent: int, body: Stmt, ranges: Ranges) -> Stmt:
    """The iterations of `loop` from `start` on, as a loop from zero."""
    if extent == 1:
        return _simplified(substitute(body, {loop.var: const(start)}), ranges)
    var = Var(loop.var.name if start == 0 else f"{loop.var.name}_tail")
    ranges[var] = (0, extent - 1)
    body = _simplified(substitute(body, {loop.var: var + start}), ranges)
    return replace(loop, var=var, extent=extent, body=body)


def _simplified(s: Stmt, ranges: Ranges) -> Stmt:
    return decided(map_exprs(s, Simplifier(ranges)))


def _size(s: Stmt, target: Target) -> int:
    """Store statements in `s` once loops in it are unrolled and vectorized."""
    below = nested(s)
    if not below:
        return 0 if type(s) is Seq else 1
    size = sum(_size(c, target) for c in below)
    if type(s) is For and isinstance(s.extent, int):
        if s.kind is ForKind.UNROLL:
            return size * s.extent
        if s.kind is ForKind.VECTOR:
            return size * max(s.extent // native_lanes(s.body, target), 1)
    return size
