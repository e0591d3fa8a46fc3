"""First reduce iterations: the init of a block runs there, so no predicate may exclude them.

A condition on reduce loops that does not hold at all first iterations leaves out terms of the
reduction, not elements: it is a condition on the update, in the body, after the init. Program text
may have it in `T.where`, around the block, or in the end of a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from ..base.errors import VerifyError
from .bounds import prove, variables
from .contradiction import contradict
from .ir import (
    Binary,
    Block,
    Const,
    Dim,
    Expr,
    For,
    Func,
    If,
    Iter,
    IterKind,
    Op,
    Stmt,
    Var,
    as_expr,
    binary,
    call,
    const,
)
from .polynomial import Ranges
from .simplify import Simplifier
from .structure import conjunction, conjuncts, key_of
from .survey import Survey
from .visit import rewrite_children, substitute, with_body, with_func_body


def check_starts(survey: Survey) -> None:
    """Raise `VerifyError` for an init that the predicate of its block may skip."""
    for block, place in survey.blocks:
        if block.init is None:
            continue
        kinds = {i.kind for i in block.iters if i.extent != 1}
        if IterKind.OPAQUE in kinds and IterKind.REDUCE not in {i.kind for i in block.iters}:
            raise VerifyError(
                "block {0}: it has an init, which would run again at each iteration of its opaque "
                "axes; expected a reduce axis, at whose first iteration it runs", block.label.name,
                hint="store what the block starts from in a block of its own, before",
            )  # fmt: skip
        conditions = [c for k in place.conditions for c in conjuncts(survey.resolved(k))]
        values = [survey.resolved(i.value) for i in block.iters]
        skipping = may_exclude_first(block, values, conditions, survey.ranges)
        if skipping:
            raise VerifyError(
                "block {0}: its init runs at the first iteration of {1}, where the condition {2} "
                "may not hold; expected one that holds there", block.label.name,
                ", ".join(i.var.name for i in block.iters if i.kind is IterKind.REDUCE),
                lambda c=skipping[0]: repr(c),
                hint="write the condition in the body of the block, by `if` around its update",
            )  # fmt: skip


def may_exclude_first(
    block: Block, values: Sequence[Expr], conditions: Sequence[Expr], ranges: Ranges
) -> list[Expr]:
    """Those of `conditions` on reduce loops that may be false at a first reduce iteration.

    `values` are those of the iteration variables, in terms of the loops that `ranges` are of.
    """
    ends = ((v, last) for v, (_, last) in ranges.items() if type(last) is int)
    alone: Mapping[Var, Expr] = {v: const(0) for v, last in ends if last == 0}
    s = Simplifier(ranges)
    values = [s(substitute(v, alone)) if variables(v) & alone.keys() else v for v in values]
    reduced = [v for i, v in zip(block.iters, values, strict=True) if i.kind is IterKind.REDUCE]
    loops = variables(*reduced) & ranges.keys()
    plain = [substitute(c, alone) for c in conditions]
    asked = [pair for pair in zip(conditions, plain, strict=True) if variables(pair[1]) & loops]
    if not asked:
        return []
    domain = [c for i, v in zip(block.iters, values, strict=True) for c in _first(i, v)]
    known = [*domain, *(c for c in plain if variables(c).isdisjoint(loops))]
    others = [v for i, v in zip(block.iters, values, strict=True) if i.kind is not IterKind.REDUCE]
    zero: Mapping[Var, Expr] = {}
    if loops.isdisjoint(variables(*others)) and all(_counts(v, ranges) for v in reduced):
        zero = {v: const(0) for v in loops}
    return [
        condition
        for condition, c in asked
        if prove(c, ranges) is not False
        and prove(substitute(c, zero), ranges) is not True
        and not contradict([call("not", c), *known], ranges)
        and not _is_of_elements(c, others, loops, ranges)
        and not _is_of_no_term(c, reduced, others, ranges)
    ]


def _is_of_elements(c: Expr, others: Sequence[Expr], loops: Set[Var], ranges: Ranges) -> bool:
    """Whether `c` depends on `loops` by the values `others` alone, as after a `fuse`."""
    if loops.isdisjoint(variables(*others)):
        return False
    again = {v: Var(v.name) for v in loops}
    same = [binary(Op.EQ, v, substitute(v, again)) for v in others]
    both = {**ranges, **{new: ranges[v] for v, new in again.items()}}
    return contradict([c, call("not", substitute(c, again)), *same], both)


def _is_of_no_term(
    c: Expr, reduced: Sequence[Expr], others: Sequence[Expr], ranges: Ranges
) -> bool:
    """Whether `c` is the same for all terms of an element.

    The values `reduced` are digits of loops, 0 at the first term. Other digits stay as they are,
    also those that the values `others` do not tell.
    """
    first: dict[Var, Expr] = {}
    for value in (v for v in reduced if type(v) is not Const):
        step = _step(value)
        if step is None:
            return False
        v, size = step
        first[v] = first.get(v, v) - value * size
    there = substitute(c, first)
    moved = [binary(Op.NE, v, substitute(v, first)) for v in others]
    ways = [[e] for e in moved] + [[c, call("not", there)], [there, call("not", c)]]
    return all(contradict(conditions, ranges) for conditions in ways)


def _step(value: Expr) -> tuple[Var, int] | None:
    """A loop, and by what it grows where the value, a digit of it, grows by one."""
    match value:
        case Var():
            return value, 1
        case Binary(op=Op.FLOORDIV, a=Var() as v, b=Const(value=size)):
            return v, int(size)
        case Binary(op=Op.MOD, a=a, b=Const()):
            return _step(a)
        case _:
            return None


def _first(i: Iter, value: Expr) -> tuple[Expr, ...]:
    if i.kind is IterKind.REDUCE:
        return (binary(Op.EQ, value, const(0)),)
    return value >= 0, value < as_expr(i.extent)


def _leaves_out_all(block: Block, c: Expr, ranges: Ranges) -> bool:
    """Whether `c`, on loops of reductions that are of nothing else, never holds."""
    reduce, others = (
        variables(*(i.value for i in block.iters if (i.kind is IterKind.REDUCE) is own))
        for own in (True, False)
    )
    told = variables(c) & reduce
    return bool(told) and told.isdisjoint(others) and prove(c, ranges) is False


def _counts(value: Expr, ranges: Ranges) -> bool:
    """Whether `value` is 0 where all of its loops are, and nowhere else."""
    p = Simplifier(ranges).poly(value)
    return all(isinstance(k, Var) and c > 0 for k, c in p.items())


def with_guarded_updates(func: Func) -> Func:
    """`func` with the conditions of predicates that may exclude first reduce iterations in bodies.

        T.where(k >= 5)                           with T.init(): B[vi] = 0
        with T.init(): B[vi] = 0           ->     if vk >= 5:
        B[vi] = B[vi] + A[vi, vk]                     B[vi] = B[vi] + A[vi, vk]

    Those stay that depend on loops by more than the values of iteration variables.
    """
    return with_func_body(func, _guarded(func.body, {}))


def _guarded(stmt: Stmt, ranges: dict[Var, tuple[Dim, Dim]]) -> Stmt:
    match stmt:
        case For():
            body = _guarded(stmt.body, {**ranges, stmt.var: (0, stmt.extent - 1)})
            return stmt if body is stmt.body else with_body(stmt, body)
        case Block():
            return stmt if stmt.init is None else _with_guard(stmt, ranges)
        case _:

            def inside(n: Any) -> Any:
                return _guarded(n, ranges) if isinstance(n, Stmt) else n

            return rewrite_children(stmt, inside)


def _with_guard(block: Block, ranges: Ranges) -> Block:
    conditions = conjuncts(block.predicate)
    if any(type(c) is Const for c in conditions):
        return block
    found = may_exclude_first(block, [i.value for i in block.iters], conditions, ranges)
    found += [c for c in conditions if _leaves_out_all(block, c, ranges)]
    at = {key_of(i.value): i.var for i in block.iters if type(i.value) is not Const}

    def inside(n: Any) -> Any:
        known = at.get(key_of(n)) if isinstance(n, Expr) else n
        return rewrite_children(n, inside) if known is None else known

    moved = {c: new for c in found if variables(new := inside(c)).isdisjoint(ranges)}
    guard = conjunction(list(moved.values()))
    if guard is None:
        return block
    kept = conjunction([c for c in conditions if c not in moved])
    return replace(block, predicate=kept, body=If(guard, block.body))
