"""Rebind blocks to other loops, as `split` and `fuse` do below a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..base.errors import ScheduleError
from ..tir.ir import Binary, Block, Const, Dim, Expr, For, If, Iter, Op, Seq, Stmt, Var
from ..tir.simplify import Simplifier
from ..tir.structure import conjunction, conjuncts, size
from ..tir.visit import map_tuple, substitute, with_body
from .facts import last

MAX_SIZE = 1000


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
            conditions = [
                c
                for old in conjuncts(stmt.predicate)
                if (c := _condition(old, values, s)) is not None
            ]
            if guard is not None:
                conditions.append(guard)
            return replace(stmt, iters=iters, predicate=conjunction(conditions))
        case Seq():
            return Seq(tuple([rebound(s, values, guard, ranges) for s in stmt.stmts]))
        case If():
            cond = rebound_value(stmt.cond, values, Simplifier(ranges))
            then = rebound(stmt.then, values, guard, ranges)
            other = None if stmt.other is None else rebound(stmt.other, values, guard, ranges)
            return If(cond, then, other)
        case _:
            raise ScheduleError("a statement outside of any block cannot be scheduled: {0}", stmt)


def _rebound_iter(i: Iter, values: Mapping[Var, Expr], s: Simplifier) -> Iter:
    new = rebound_value(i.value, values, s)
    return i if new is i.value else Iter(i.var, i.extent, i.kind, new)


def _condition(e: Expr, values: Mapping[Var, Expr], s: Simplifier) -> Expr | None:
    """`rebound_value` of a condition; `None` if it always holds.

    One that never holds stays as it is, so that it still tells what the block's values are.
    """
    new = rebound_value(e, values, s)
    if type(new) is not Const:
        return new
    return None if new.value else substitute(e, values)


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
