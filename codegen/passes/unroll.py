"""Loops to be unrolled become sequences of copies of their bodies."""

from __future__ import annotations

from ...errors import BuildError
from ...target import Target
from ...tir.ir import For, ForKind, Func, Stmt, Store, const, seq
from ...tir.visit import substitute
from .scope import decided, map_stmts, nested, with_body

MAX_STORES = 8192


def unroll(func: Func, target: Target) -> Func:
    """Copy the body of each unrolled loop for each value of its variable.

    for i in unrolled(2): C[i] = A[i]   ->   C[0] = A[0]; C[1] = A[1]

    Raises `BuildError` where that gives more than 8192 stores.
    """
    del target
    count = _stores(func.body)
    if count > MAX_STORES and _unrolls(func.body):
        raise BuildError(
            "unrolling gives {0} stores, more than {1}", count, MAX_STORES,
            hint="unroll fewer loops, or split them first",
        )  # fmt: skip
    return with_body(func, _visit(func.body))


def _unrolls(s: Stmt) -> bool:
    if type(s) is For and s.kind is ForKind.UNROLL:
        return True
    return any(_unrolls(c) for c in nested(s))


def _stores(s: Stmt) -> int:
    """Store statements in `s` after unrolling."""
    if type(s) is Store:
        return 1
    below = sum(_stores(c) for c in nested(s))
    if type(s) is For and s.kind is ForKind.UNROLL:
        return below * s.extent  # type: ignore[return-value, operator]
    return below


def _visit(s: Stmt) -> Stmt:
    s = map_stmts(s, _visit)
    if type(s) is not For or s.kind is not ForKind.UNROLL:
        return s
    assert isinstance(s.extent, int)
    return seq(*(decided(substitute(s.body, {s.var: const(i)})) for i in range(s.extent)))
