"""Shrink loops past the point where every guard is false."""

from __future__ import annotations

from dataclasses import replace

from ...tir.ir import Buffer, For, ForKind, Func, Let, Load, Seq, Stmt, const
from ...tir.simplify import Simplifier
from ...tir.visit import substitute, walk, with_func_body
from .guards import Guarded, fails_from, guards, is_bound, stores
from .rewrite import (
    decided,
    declare,
    holds_registers,
    map_exprs,
    map_stmts,
    renewed,
    simplifier_of,
)


def trim(func: Func) -> Func:
    """Drop the last iterations of loops if no statement in them has an effect.

    for i in 4:                           for i in 2:
        for j in 8:                           for j in 8:
            if i * 8 + j < 13:       ->           if i * 8 + j < 13:
                A[i * 8 + j] = 0                      A[i * 8 + j] = 0

    Remaining statements in the dropped iterations may only repeat, word for word, what the
    iteration before them has done with the same data.
    """
    if not any(True for _ in guards(func.body)):
        return func
    return with_func_body(func, trimmed(func.body, simplifier_of(func)))


def trimmed(stmt: Stmt, s: Simplifier) -> Stmt:
    """`stmt` without iterations that have no effect.

    Vectors in registers stay whole, masked, and so do axes of devices.
    """
    if not any(True for _ in guards(stmt)):
        return stmt
    if type(stmt) is For and isinstance(stmt.extent, int):
        whole = stmt.kind is ForKind.VECTOR and holds_registers(stmt.body)
        whole = whole or stmt.kind is ForKind.THREAD
        alive = stmt.extent if whole else _alive(stmt, s)
        if alive < stmt.extent:
            return trimmed(part_of(stmt, 0, alive, stmt.body, s), s)
    return map_stmts(stmt, lambda c: trimmed(c, s))


def part_of(loop: For, start: int, extent: int, body: Stmt, s: Simplifier) -> Stmt:
    """The iterations of `loop` from `start` on with another body, as a loop from zero."""
    if extent <= 0:
        return Seq(())
    if extent == 1:
        return decided(map_exprs(substitute(body, {loop.var: const(start)}), s))
    var = renewed(loop.var, None if start == 0 else f"{loop.var.name}_tail")
    declare(s, replace(loop, var=var, extent=extent))
    body = map_exprs(substitute(body, {loop.var: var + start}), s)
    return replace(loop, var=var, extent=extent, body=decided(body))


def _alive(loop: For, s: Simplifier) -> int:
    """The iterations from zero on after which nothing new is computed."""
    assert isinstance(loop.extent, int)
    alive = 0
    ending: list[Guarded] = []
    repeating: list[Guarded] = []
    order = list(stores(loop.body))
    if not order:
        return loop.extent  # nothing but prefetches
    for guarded in order:
        ends = [fails_from(c, loop.var, s) for c in guarded.conditions if is_bound(c)]
        known = [e for e in ends if e is not None]
        if known:
            alive = max(alive, min(known))
            ending.append(guarded)
        elif any(n is loop.var for e in (guarded.store, *guarded.conditions) for n in walk(e)):
            return loop.extent
        else:
            repeating.append(guarded)
        if alive >= loop.extent:
            return loop.extent
    if not repeating:
        return alive
    if alive == 0 or not _repeats(loop, order, ending, repeating):
        return loop.extent
    return alive


def _repeats(
    loop: For, order: list[Guarded], ending: list[Guarded], repeating: list[Guarded]
) -> bool:
    """Whether the `repeating` stores compute the same again once the `ending` ones have stopped."""
    written = {g.store.buffer for g in repeating}
    if any(type(n) is Let for n in walk(loop.body)):
        return False
    if any(g.store.buffer in written for g in ending):
        return False
    # In a common loop it reads what one iteration has stored, and later what all have.
    if any(
        e.store.buffer in _reads(g) and set(e.loops) & set(g.loops)
        for g in repeating
        for e in ending
    ):
        return False
    seen: set[Buffer] = set()
    again = {id(g) for g in repeating}
    for g in order:
        if id(g) in again:
            reads = _reads(g)
            if reads & written:
                return False
            seen |= reads
        elif g.store.buffer in seen:
            return False
    return True


def _reads(g: Guarded) -> set[Buffer]:
    return {n.buffer for e in (g.store, *g.conditions) for n in walk(e) if type(n) is Load}
