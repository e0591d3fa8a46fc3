"""Emit statements as LLVM instructions.

Loops that end, or begin, where loops around them say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ...base.errors import BuildError
from ...tir.bounds import variables
from ...tir.ir import (
    Alloc,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Load,
    Op,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
    seq,
)
from ...tir.polynomial import ONE
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction, conjuncts, key_of
from ...tir.visit import substitute, walk, with_body
from ..passes.guards import is_bound, slack
from .llvm_index import HERE, bits, index, value
from .llvm_load import prefetch, store
from .llvm_loop import STMT, loop, stmt
from .llvm_memory import allocate, release_slot
from .llvm_parallel import parallel
from .llvm_product import store_rows
from .llvm_text import Builder


def _seq(b: Builder, s: Seq) -> None:
    for child in s.stmts:
        stmt(b, child)


def _if(b: Builder, s: If) -> None:
    then, end = b.new_block("then"), b.new_block("endif")
    other = end if s.other is None else b.new_block("else")
    b.branch(value(b, s.cond), then, other)
    b.start(then)
    stmt(b, s.then)
    b.jump(end)
    if s.other is not None:
        b.start(other)
        stmt(b, s.other)
        b.jump(end)
    b.start(end)


def _let(b: Builder, s: Let) -> None:
    if s.var.dtype == "int64":
        found = index(b, s.value)
        size = bits(b, s.value)
        if size is not None:
            b.module.bits[s.var] = size
        b.values[s.var] = (found.text, found.depth)
    else:
        b.values[s.var] = (value(b, s.value), HERE)
    stmt(b, s.body)


def _alloc(b: Builder, s: Alloc) -> None:
    in_slot = allocate(b, s.buffer)
    stmt(b, s.body)
    if in_slot:
        release_slot(b)


def _store(b: Builder, s: Store) -> None:
    if not store_rows(b, s):
        store(b, s)


def _for(b: Builder, s: For) -> None:
    if s.kind is ForKind.THREAD:
        raise BuildError(
            "sch.bind has bound the loop {0} to {1}, an axis of GPUs; the target is a processor",
            s.var.name,
            s.thread,
            hint="for the target cpu, sch.parallel(loop) and sch.vectorize(loop)",
        )
    if s.kind is ForKind.PARALLEL and not b.in_parallel and b.module.target.threads > 1:
        parallel(b, s)
        return
    assert isinstance(s.extent, int), "lowering takes concrete programs"
    if s.extent == 1:
        b.values[s.var], b.module.bits[s.var] = ("0", 0), 0
        stmt(b, s.body)
    elif s.extent > 1:
        some = part(s, b.module.intervals.ranges)
        if some is None:
            loop(b, s, "0", str(s.extent))
        else:
            _partly(b, s, some)


def _partly(b: Builder, s: For, some: Part) -> None:
    """The iterations of a loop that do something, of which there may be none."""
    begin, end = index(b, some.begin).text, index(b, some.end).text
    then, after = b.new_block("some"), b.new_block("none")
    b.branch(b.op(f"icmp slt i64 {begin}, {end}"), then, after)
    b.start(then)
    loop(b, with_body(s, some.body), begin, end)
    b.jump(after)
    b.start(after)


class Part(NamedTuple):
    """The iterations of a loop from `begin` to before `end`, the others of which do nothing."""

    begin: Expr
    end: Expr
    body: Stmt


def part(loop: For, ranges: Mapping[Var, tuple[int, int]]) -> Part | None:
    """The part of a serial loop in which a guard of all its body holds; `None` if it is all.

        for i in 8:                            for i in 8:
            for j in 8:                ->          for j in [0, i):
                if j < i: A[i, j] = 0                  A[i, j] = 0

    Only guards that end it in the middle count, at more than one place: those of tiles are decided
    once for a tile.
    `ranges` are those of all loops.
    """
    assert isinstance(loop.extent, int)
    if loop.kind is not ForKind.SERIAL:
        return None
    conditions, body = _guarded(loop.body)
    s = Simplifier(ranges)
    begin: Expr = const(0)
    end: Expr = const(loop.extent)
    kept: list[Expr] = []
    for c in conditions:
        rest = slack(c, s)
        step = rest.pop(loop.var, 0)
        low, high = s.interval(rest)
        bound = s.build(rest)
        varies = high - low >= 2 * abs(step) and any(
            abs(m) < loop.extent * abs(step) for k, m in rest.items() if k is not ONE
        )
        if step == 0 or not varies or not variables(bound) <= ranges.keys() - {loop.var}:
            kept.append(c)
        elif step < 0:
            end = binary(Op.MIN, end, bound // -step + 1)
        else:
            begin = binary(Op.MAX, begin, -(bound // step))
    if len(kept) == len(conditions):
        return None
    return Part(s(begin), s(end), _under(kept, body))


def _guarded(stmt: Stmt) -> tuple[list[Expr], Stmt]:
    """Inequalities of indices under which all of `stmt` runs, and what is left without them."""
    match stmt:
        case If(other=None):
            asked = conjuncts(stmt.cond)
            found = [c for c in asked if is_bound(c) and not _reads(c)]
            return found, _under([c for c in asked if c not in set(found)], stmt.then)
        case For(extent=int() as extent) if extent > 0 and stmt.kind is ForKind.SERIAL:
            found, body = _guarded(stmt.body)
            stay = [c for c in found if stmt.var in variables(c)]
            moved = [c for c in found if stmt.var not in variables(c)]
            return moved, with_body(stmt, _under(stay, body)) if moved else stmt
        case Let() if stmt.value.dtype == "bool" and not _reads(stmt.value):
            found, body = _guarded(substitute(stmt.body, {stmt.var: stmt.value}))
            return found, body if found else stmt
        case Let():
            found, body = _guarded(stmt.body)
            stay = [c for c in found if stmt.var in variables(c)]
            moved = [c for c in found if stmt.var not in variables(c)]
            return moved, replace(stmt, body=_under(stay, body)) if moved else stmt
        case Seq() if stmt.stmts:
            parts = [_guarded(s) for s in stmt.stmts]
            shared = set.intersection(*({key_of(c) for c in found} for found, _ in parts))
            if not shared:
                return [], stmt
            rest = (
                _under([c for c in found if key_of(c) not in shared], body) for found, body in parts
            )
            return [c for c in parts[0][0] if key_of(c) in shared], seq(*rest)
        case _:
            return [], stmt


def _under(conditions: list[Expr], stmt: Stmt) -> Stmt:
    condition = conjunction(conditions)
    return stmt if condition is None else If(condition, stmt)


def _reads(e: Expr) -> bool:
    return any(type(n) is Load for n in walk(e))


STMT.update(
    {Seq: _seq, If: _if, Let: _let, Alloc: _alloc, For: _for, Store: _store, Prefetch: prefetch}
)
