"""Helpers of passes: facts about programs, fresh copies, and rewriting of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from ...base import dtypes
from ...tir.ir import (
    INDEX,
    Alloc,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Op,
    Ramp,
    Seq,
    Stmt,
    Var,
    const,
    seq,
)
from ...tir.polynomial import Poly, factors
from ...tir.simplify import Simplifier
from ...tir.visit import (
    children,
    map_dim,
    map_tuple,
    nested,
    rewrite_children,
    walk,
    with_body,
)

Ranges = dict[Var, tuple[int, int]]


def statements(s: Stmt) -> Iterator[Stmt]:
    """`s` and all statements in it, blocks not entered, those around others first."""
    pending = [s]
    while pending:
        top = pending.pop()
        yield top
        pending.extend(nested(top))


def loops(s: Stmt) -> Iterator[For]:
    """All loops in `s`."""
    return (top for top in statements(s) if type(top) is For)


def expressions(s: Stmt) -> Iterator[Expr]:
    """The expressions directly in all statements in `s`."""
    return (e for top in statements(s) for e in children(top) if isinstance(e, Expr))


def ranges_of(s: Stmt) -> Ranges:
    """Inclusive ranges of the variables of all loops in `s`."""
    return {f.var: (0, f.extent - 1) for f in loops(s) if type(f.extent) is int}


def simplifier_of(func: Func) -> Simplifier:
    """A simplifier that knows the range of every loop of `func`."""
    return Simplifier(ranges_of(func.body))


def declare(s: Simplifier, new: Stmt) -> Stmt:
    """`new`; declares the ranges of its loops, whose variables are new, to the simplifier."""
    s.ranges = {**s.ranges, **ranges_of(new)}
    return new


def map_stmts(s: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """`s` with `f` applied to the statements directly below it.

    Below one of several registers is what all of them are around: a loop may have hundreds.
    """
    if type(s) is Alloc and s.buffer.scope == "register":
        registers, body = [s.buffer], s.body
        while type(body) is Alloc and body.buffer.scope == "register":
            registers.append(body.buffer)
            body = body.body
        found = f(body)
        return s if found is body else allocated(registers, found)
    return rewrite_children(s, lambda c: f(c) if isinstance(c, Stmt) else c)


def map_exprs(s: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """`s` with `f` applied to the expressions directly in all statements of it."""

    def visit(c: object) -> object:
        if isinstance(c, Expr):
            return f(c)
        return rewrite_children(c, visit) if isinstance(c, Stmt) else c

    return rewrite_children(s, visit)


def fresh(s: Stmt) -> Stmt:
    """A copy of `s` with its own loops, lets and internal buffers: each has one binder."""
    binds = any(type(n) in (For, Let, Alloc) for n in statements(s))
    return cast(Stmt, _Fresh()(s)) if binds else s


def renewed(var: Var, name: str | None = None, dtype: str | None = None) -> Var:
    """A variable of a loop over iterations of the loop of `var`: a copy or a part of that."""
    name, dtype = var.name if name is None else name, var.dtype if dtype is None else dtype
    return Var(name, dtype, origin(var))


def origin(var: Var) -> Var:
    """The variable of the scheduled loop that the loop of `var` is, or a part of which it is."""
    return var if var.origin is None else var.origin


class _Fresh:
    """Replaces what is bound; a binder is met before what it binds."""

    __slots__ = ("_new",)

    def __init__(self) -> None:
        self._new: dict[Any, Any] = {}

    def __call__(self, n: Any) -> Any:
        kind = type(n)
        if kind is Const:
            return n
        if kind is Var or kind is Buffer:
            return self._new.get(n, n)
        if kind is For or kind is Let:
            var = self._new[n.var] = renewed(n.var)
            if kind is Let:
                return Let(var, self(n.value), self(n.body))
            return with_body(n, self(n.body), var, map_dim(n.extent, self))
        if kind is Alloc:
            self._new[n.buffer] = replace(n.buffer)
        return rewrite_children(n, self)


def decided(s: Stmt) -> Stmt:
    """`s` without branches that constant conditions exclude, and without empty loops."""
    match s:
        case If(cond=Const(value=holds)):
            if holds:
                return decided(s.then)
            return Seq(()) if s.other is None else decided(s.other)
        case Seq():
            stmts = map_tuple(s.stmts, decided)
            return s if stmts is s.stmts else seq(*stmts)
        case For():
            body = decided(s.body)
            if type(body) is Seq and not body.stmts:
                return body
            return s if body is s.body else replace(s, body=body)
        case _:
            return map_stmts(s, decided)


def holds_registers(s: Stmt) -> bool:
    """Whether `s` accesses buffers in registers."""
    return any(type(n) is Buffer and n.scope == "register" for n in walk(s))


def adjacent(first: Expr, count: int) -> Expr:
    """The index of `count` elements from `first` on, which lie side by side."""
    return Ramp(first, const(1), count, dtypes.vector(INDEX, count)) if count > 1 else first


def allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """`body` with internal buffers around it, the first one outermost."""
    for buffer in reversed(buffers):
        body = Alloc(buffer, body)
    return body


def variables_of(p: Poly) -> set[Var]:
    """The variables in the atoms of a polynomial."""
    return {n for k in p for f in factors(k) for n in walk(f) if type(n) is Var}


def may_trap(e: Binary) -> bool:
    """Whether `e` divides integers by a divisor that may be zero."""
    divides = e.op in (Op.FLOORDIV, Op.MOD) and not dtypes.is_float(e.dtype)
    return divides and not (type(e.b) is Const and e.b.value != 0)
