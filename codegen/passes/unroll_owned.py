"""Unroll loops that index buffers of a thread, so that these can be held in registers."""

from __future__ import annotations

from dataclasses import replace

from ...tir.ir import For, ForKind, Func, Let, Load, Stmt, Store, Var
from ...tir.visit import nested, walk, with_func_body
from .owned import THREAD_SCOPES
from .rewrite import map_stmts, statements

LIMIT = 4096
"""Statements that unrolling makes of one."""


def unroll_owned(func: Func) -> Func:
    """Mark serial loops as unrolled whose variables index buffers of scope `local` or `register`.

    for i in 4: R[i] = 0   ->   for i in unrolled(4): R[i] = 0

    Registers have no addresses. Loops that would make more than 4096 statements stay as they are.
    """
    indexing: set[Var] = set()
    for n in walk(func.body):
        if isinstance(n, Load | Store) and n.buffer.scope in THREAD_SCOPES:
            indexing.update(v for i in n.indices for v in walk(i) if type(v) is Var)
    lets = [n for n in statements(func.body) if type(n) is Let]
    for let in reversed(lets):
        if let.var in indexing:
            indexing.update(v for v in walk(let.value) if type(v) is Var)
    if not indexing:
        return func
    return with_func_body(func, _visit(func.body, indexing))


def _visit(s: Stmt, indexing: set[Var]) -> Stmt:
    new = map_stmts(s, lambda c: _visit(c, indexing))
    if type(new) is For and new.kind is ForKind.SERIAL and new.var in indexing:
        assert isinstance(new.extent, int)
        if new.extent * _copies(new.body) <= LIMIT:
            return replace(new, kind=ForKind.UNROLL)
    return new


def _copies(s: Stmt) -> int:
    """How often unrolling repeats a statement in `s`, at most."""
    most = max(map(_copies, nested(s)), default=1)
    if type(s) is For and s.kind is ForKind.UNROLL:
        assert isinstance(s.extent, int)
        return most * s.extent
    return most
