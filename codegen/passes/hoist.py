"""Hoist loop-invariant computations out of loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...base import dtypes
from ...tir.ir import (
    INDEX,
    Alloc,
    Binary,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Select,
    Stmt,
    Store,
    Var,
)
from ...tir.structure import key_of
from ...tir.visit import rewrite_children, walk, with_func_body
from .rewrite import map_stmts, statements

_WORTH: frozenset[type] = frozenset({Load, Binary, Call, Cast, Select})


def hoist(func: Func) -> Func:
    """Hoist expressions out of serial loops whose iterations all compute the same value.

    for j in 64: C[j] = A[j] * sqrt(S[0])   ->   s = sqrt(S[0])
                                                 for j in 64: C[j] = A[j] * s

    A condition that all of a body is under is asked before the loop. Conditional expressions stay
    in place: they may read out of bounds or divide by zero. Indices stay as well; code generation
    places their parts.
    """
    return with_func_body(func, _visit(_asked_first(func.body)))


def _asked_first(stmt: Stmt) -> Stmt:
    """for k in 64: if c: ...   ->   if c: for k in 64: ...   where `c` is the same for all `k`."""
    stmt = map_stmts(stmt, _asked_first)
    if type(stmt) is For and stmt.kind is ForKind.SERIAL and _runs(stmt):
        body = stmt.body
        if (
            type(body) is If
            and body.other is None
            and set(_bound(stmt)).isdisjoint(walk(body.cond))
        ):
            return replace(body, then=replace(stmt, body=body.then))
    return stmt


def _visit(stmt: Stmt) -> Stmt:
    if type(stmt) is not For or stmt.kind is not ForKind.SERIAL or not _runs(stmt):
        return map_stmts(stmt, _visit)
    changing = set(_bound(stmt))
    found: dict[object, tuple[Var, Expr]] = {}
    body = _named(stmt.body, changing, found)
    result = map_stmts(stmt if body is stmt.body else replace(stmt, body=body), _visit)
    for var, value in reversed(found.values()):
        result = Let(var, value, result)
    return result


def _runs(loop: For) -> bool:
    return isinstance(loop.extent, int) and loop.extent > 0


def _bound(s: Stmt) -> Iterator[Var | Buffer]:
    """The variables and buffers that have other values from one iteration to the next."""
    for below in statements(s):
        if isinstance(below, For | Let):
            yield below.var
        elif isinstance(below, Alloc | Store):
            yield below.buffer


def _named(stmt: Stmt, changing: set[Var | Buffer], found: dict[object, tuple[Var, Expr]]) -> Stmt:
    """`stmt` with variables for what is independent of `changing`, which are added to `found`."""

    def expr(e: Expr) -> Expr:
        if e.dtype == INDEX or dtypes.info(e.dtype).lanes > 1:
            return e
        if type(e) in _WORTH and not any(
            n in changing for n in walk(e) if type(n) in (Var, Buffer)
        ):
            key = key_of(e)
            if key not in found:
                name = next((n.buffer.name for n in walk(e) if type(n) is Load), "value")
                found[key] = Var(f"{name}_same", e.dtype), e
            return found[key][0]
        if type(e) is Select:
            return rewrite_children(e, lambda c: expr(c) if c is e.cond else c)
        if type(e) is Load:
            return e
        return rewrite_children(e, lambda c: expr(c) if isinstance(c, Expr) else c)

    def visit(s: Stmt) -> Stmt:
        if type(s) is If:
            return rewrite_children(s, lambda c: expr(c) if c is s.cond else c)
        if type(s) is For and not _runs(s):
            return s
        if type(s) is Store:
            if s.mask is not None:
                return s
            value = expr(s.value)
            return s if value is s.value else Store(s.buffer, s.indices, value)
        if type(s) is Let:
            value, body = expr(s.value), visit(s.body)
            return s if value is s.value and body is s.body else Let(s.var, value, body)
        return map_stmts(s, visit)

    return visit(stmt)
