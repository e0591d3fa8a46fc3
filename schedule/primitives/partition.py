"""Loop partitioning: `loop_partition`."""

from __future__ import annotations

from dataclasses import replace as _replace
from typing import Any

from ...base.errors import ScheduleError
from ...tir.bounds import bound, prove
from ...tir.ir import (
    Binary,
    Block,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Label,
    Let,
    Op,
    Seq,
    Stmt,
    Var,
    as_expr,
    binary,
    seq,
)
from ...tir.piecewise import linear
from ...tir.simplify import Simplifier, difference
from ...tir.structure import conjunction, conjuncts
from ...tir.visit import map_tuple, rewrite_children, substitute, with_body
from ..block_queries import Ranges, loop_ranges
from ..find import blocks_in, find_path, loop_path, rebuild
from ..legality import own_buffers
from ..places import copied
from ..primitive import primitive
from ..require import certain, require

MAX_BLOCKS = 256


@primitive
def loop_partition(
    fn: Func, loop: Var, at: Dim | None = None
) -> tuple[Func, tuple[Var, tuple[Label, ...]]]:
    """Cut a loop in two at iteration `at`, and drop the predicates that always hold in each part.

        for i in 13: for j in 8:           ->   for i in 12: for j in 8: A[i * 8 + j]
          where i * 8 + j < 100: A[..]          for i_tail in 1: for j_tail in 8:
                                                    where j_tail < 4: A[96 + j_tail]

    By default `at` is where the first predicate begins to fail. The first part keeps the loop's
    variable and the labels of its blocks. The tail gets its own copies of buffers that hold nothing
    between iterations. Loops inside the tail keep their extents, which may be decisions; lowering
    trims them to their predicates. Returns the tail's loop and the labels of its blocks.
    """
    path, old = loop_path(fn, loop)
    require(old.kind is not ForKind.THREAD, "loop {0} is bound to a thread axis", loop)
    blocks = sum(1 for _ in blocks_in(fn.body)) + sum(1 for _ in blocks_in(old))
    require(blocks <= MAX_BLOCKS, "the program would have {0} blocks", blocks, at=loop)
    if at is None:
        at = _first_failure(path, old)
    require(at >= 1, "the first part, [0, {0}), is empty", at, at=loop)
    require(
        at < old.extent,
        "nothing is left for the tail: the loop has {0} iterations",
        old.extent,
        at=loop,
    )
    outer = loop_ranges(path[:-1])
    main = with_body(old, tidied(old.body, {**outer, loop: (0, at - 1)}), extent=at)
    tail_var = Var(f"{loop.name}_tail")
    rest = old.extent - at
    labels: list[Label] = []
    copies = {b: _replace(b, name=f"{b.name}_tail") for b in own_buffers(fn, path)}
    body = substitute(fresh_copy(old.body, {loop: tail_var + at}, labels, "tail"), copies)
    body = tidied(body, {**outer, tail_var: (0, rest - 1)})
    tail = with_body(old, body, tail_var, rest)
    fn = _replace(fn, allocs=(*fn.allocs, *copies.values()))
    return rebuild(fn, path, seq(main, tail)), (tail_var, tuple(labels))


def tidied(stmt: Stmt, ranges: dict[Var, tuple[Dim, Dim]]) -> Stmt:
    """`stmt` without the predicates that hold for all of `ranges`, those of the loops around it."""
    match stmt:
        case For():
            inner = {**ranges, stmt.var: (0, stmt.extent - 1)}
            body = tidied(stmt.body, inner)
            return stmt if body is stmt.body else with_body(stmt, body)
        case Block() if stmt.predicate is not None:
            old = conjuncts(stmt.predicate)
            kept = [c for c in old if prove(c, ranges) is not True]
            if len(kept) == len(old):
                return stmt
            return _replace(stmt, predicate=conjunction(kept))
        case Seq():
            stmts = map_tuple(stmt.stmts, lambda s: tidied(s, ranges))
            return stmt if stmts is stmt.stmts else Seq(stmts)
        case _:
            return stmt


def fresh_copy(stmt: Stmt, values: dict[Var, Expr], labels: list[Label], suffix: str) -> Stmt:
    """A copy of `stmt` with loops and blocks of its own, and variables replaced.

    Their names get `suffix`; the new labels are added to `labels`.
    """
    match stmt:
        case For():
            var = Var(f"{stmt.var.name}_{suffix}")
            body = fresh_copy(stmt.body, {**values, stmt.var: var}, labels, suffix)
            return with_body(stmt, body, var)
        case Block():
            label = Label(f"{stmt.label.name}_{suffix}")
            labels.append(label)
            init = None if stmt.init is None else _fresh_inside(stmt.init)
            inside = _replace(stmt, body=_fresh_inside(stmt.body), init=init)
            return copied(inside, label, values)
        case Seq():
            return Seq(tuple(fresh_copy(s, values, labels, suffix) for s in stmt.stmts))
        case If():
            other = None if stmt.other is None else fresh_copy(stmt.other, values, labels, suffix)
            return If(
                substitute(stmt.cond, values), fresh_copy(stmt.then, values, labels, suffix), other
            )
        case _:
            raise ScheduleError("a statement outside of any block cannot be scheduled: {0}", stmt)


def _fresh_inside(n: Any) -> Any:
    """A block's body with variables of its own in the place of those that it binds."""
    match n:
        case Let():
            var = Var(n.var.name, n.var.dtype)
            return Let(var, n.value, _fresh_inside(substitute(n.body, {n.var: var})))
        case For():
            var = Var(n.var.name)
            return _replace(n, var=var, body=_fresh_inside(substitute(n.body, {n.var: var})))
        case Seq() | If():
            return rewrite_children(n, _fresh_inside)
        case _:
            return n


def _first_failure(path: tuple[Stmt, ...], loop: For) -> Dim:
    """The first iteration in which a predicate of a block below may fail."""
    found: Dim | None = None
    outer = loop_ranges(path[:-1])
    for block in blocks_in(loop.body):
        below = find_path(loop.body, block.label) or ()
        ranges = {**outer, **loop_ranges(below)}
        for c in conjuncts(block.predicate):
            limit = _limit(c, loop, ranges)
            if limit is not None:
                found = limit if found is None else _least(found, limit)
    if found is None:
        raise ScheduleError(
            "no block below loop {0} has a predicate of the form index < size to peel",
            loop.var.name,
            at=loop.var,
            hint="say where to cut: loop_partition(loop, at=...)",
        )
    return found


def _least(a: Dim, b: Dim) -> Dim:
    """The smaller one, an expression where decisions say which it is."""
    if certain(a <= b):
        return a
    if certain(b <= a):
        return b
    return binary(Op.MIN, as_expr(a), as_expr(b))


def _limit(condition: Expr, loop: For, ranges: Ranges) -> Dim | None:
    """The number of first iterations for which `condition`, some `x < n`, is sure to hold.

    `ranges` are those of the other loops.
    """
    if type(condition) is not Binary or condition.op is not Op.LT:
        return None
    if difference(Simplifier({**ranges, **loop_ranges([loop])}), condition) is None:
        return None
    parts = linear(condition.a - condition.b, (loop.var,))
    if parts is None or loop.var not in parts.coefficients:
        return None
    scale = parts.coefficients[loop.var]
    most = bound(parts.constant, ranges)[1]
    if most is None or not certain(scale >= 1):
        return None
    return (scale - 1 - most) // scale
