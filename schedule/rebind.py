"""Rebind blocks to other loops, as `split` and `fuse` do below a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import compress

from ..base.errors import ScheduleError
from ..tir.bounds import variables
from ..tir.ir import (
    Binary,
    Block,
    Const,
    Dim,
    Expr,
    For,
    If,
    Iter,
    IterKind,
    Op,
    Seq,
    Stmt,
    Var,
    const,
)
from ..tir.simplify import Simplifier
from ..tir.starts import may_exclude_first
from ..tir.structure import conjunction, conjuncts, size
from ..tir.visit import map_tuple, substitute, with_body
from .block_queries import Ranges
from .facts import last
from .require import require

MAX_SIZE = 1000
"""Nodes of an index, at most, once the values of its loop variables are in it."""


def rebound(
    stmt: Stmt, values: Mapping[Var, Expr], guard: Expr | None, ranges: dict[Var, tuple[Dim, Dim]]
) -> Stmt:
    """`stmt` with loop variables replaced in the bindings of blocks, and a condition added.

    `ranges` are those of the loops around `stmt`.
    """
    match stmt:
        case For():
            inner = {**ranges, stmt.var: (0, last(stmt.extent))}
            return with_body(stmt, rebound(stmt.body, values, guard, inner))
        case Block():
            s = Simplifier(ranges)
            iters = map_tuple(stmt.iters, lambda i: _rebound_iter(i, values, s))
            conditions = _conditions(stmt.predicate, values, s)
            if guard is None:
                return replace(stmt, iters=iters, predicate=conjunction(conditions))
            new = replace(stmt, iters=iters, predicate=conjunction([*conditions, guard]))
            _require_starts(new, guard, ranges)
            return new
        case Seq():
            return Seq(tuple([rebound(s, values, guard, ranges) for s in stmt.stmts]))
        case If():
            cond = rebound_value(stmt.cond, values, Simplifier(ranges))
            then = rebound(stmt.then, values, guard, ranges)
            other = None if stmt.other is None else rebound(stmt.other, values, guard, ranges)
            return If(cond, then, other)
        case _:
            raise ScheduleError("a statement outside of any block cannot be scheduled: {0}", stmt)


def _require_starts(block: Block, guard: Expr, ranges: Ranges) -> None:
    """Require that `guard`, on a loop of both reduce and other axes, leaves each init a place."""
    if block.init is None:
        return
    values = [i.value for i in block.iters]
    reduce = [i.kind is IterKind.REDUCE for i in block.iters]
    terms = variables(*compress(values, reduce))
    mixed = terms & variables(*compress(values, [not r for r in reduce]))
    if mixed.isdisjoint(variables(guard)):
        return
    require(
        not may_exclude_first(block, values, conjuncts(block.predicate), ranges),
        "it cannot be shown that the condition {0} leaves the first term of each reduction of "
        "block {1} in",
        guard,
        block.label,
        hint="split before loops of elements and of the reduction are fused",
    )


def _rebound_iter(i: Iter, values: Mapping[Var, Expr], s: Simplifier) -> Iter:
    new = rebound_value(i.value, values, s)
    return i if new is i.value else Iter(i.var, i.extent, i.kind, new)


def _conditions(predicate: Expr | None, values: Mapping[Var, Expr], s: Simplifier) -> list[Expr]:
    """`rebound_value` of the conditions of a predicate, without those that always hold.

    One that never holds stays as it is, so that it still tells what the block's values are; the
    condition `False` beside it says that it leaves out elements, not terms of a reduction.
    """
    conditions: list[Expr] = []
    never = False
    for old in conjuncts(predicate):
        new = rebound_value(old, values, s)
        if type(new) is not Const:
            conditions.append(new)
        elif not new.value:
            never = True
            conditions += [substitute(old, values)] if type(old) is not Const else []
    return [*conditions, const(False, "bool")] if never else conditions


def rebound_value(e: Expr, values: Mapping[Var, Expr], s: Simplifier) -> Expr:
    """`e` with variables replaced, and new quotients and remainders simplified."""
    new = values.get(e, e) if type(e) is Var else substitute(e, values)
    if new is not e and _has_quotient(new):
        if size(new) > MAX_SIZE:
            raise ScheduleError(
                "an index would grow to {0} terms; at most {1}", size(new), MAX_SIZE
            )
        return s(new)
    return new


def _has_quotient(e: Expr) -> bool:
    if type(e) is not Binary:
        return False
    if e.op is Op.FLOORDIV or e.op is Op.MOD:
        return True
    return _has_quotient(e.a) or _has_quotient(e.b)
