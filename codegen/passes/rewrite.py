"""Helpers of passes: ranges of loop variables, fresh copies, and rewriting of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...tir.ir import Alloc, Const, Expr, For, Func, If, Let, Seq, Stmt, Var, seq
from ...tir.simplify import Simplifier
from ...tir.visit import children, nested, rewrite_children, substitute

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
    """`s` with `f` applied to the statements directly below it."""
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
    match s:
        case For() | Let():
            var = Var(s.var.name, s.var.dtype)
            return replace(s, var=var, body=substitute(fresh(s.body), {s.var: var}))
        case Alloc():
            buffer = replace(s.buffer)
            return Alloc(buffer, substitute(fresh(s.body), {s.buffer: buffer}))
        case _:
            return map_stmts(s, fresh)


def decided(s: Stmt) -> Stmt:
    """`s` without branches that constant conditions exclude, and without empty loops."""
    match s:
        case If(cond=Const(value=holds)):
            if holds:
                return decided(s.then)
            return Seq(()) if s.other is None else decided(s.other)
        case Seq():
            return seq_of([decided(c) for c in s.stmts], s)
        case For():
            body = decided(s.body)
            if type(body) is Seq and not body.stmts:
                return body
            return s if body is s.body else replace(s, body=body)
        case _:
            return map_stmts(s, decided)


def seq_of(stmts: list[Stmt], old: Seq | None = None) -> Stmt:
    """The statements in order; `old` if they are those of it."""
    if old is not None and all(a is b for a, b in zip(stmts, old.stmts, strict=True)):
        return old
    return seq(*stmts)
