"""Place a block in new loops: bind its iteration variables, and move its predicate along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as _replace

from ..tir.conditions import conjunction, conjuncts
from ..tir.ir import Binary, Block, Expr, Iter, Op, Range, Stmt, Var, as_expr, binary, const
from ..tir.polynomial import ONE, add, factors
from ..tir.prove import prove
from ..tir.simplify import Simplifier
from ..tir.structure import key_of
from ..tir.visit import substitute
from .block_queries import (
    Ranges,
    domain_conditions,
    free_vars,
    nest,
)
from .require import current_space, require_some


def placed(block: Block, needed: Mapping[Var, Range], outer: Ranges, old: Ranges) -> Stmt:
    """`block` in new loops over `needed`, and over the domains of its other iteration variables.

    `outer` are the ranges of the loops that will be around it, `old` of those around it so far.
    Raises `ScheduleError` if its predicate cannot be expressed by iteration variables.
    """
    extents = [needed[i.var].extent if i.var in needed else i.extent for i in block.iters]
    loops = [(Var(f"ax{n}"), extent) for n, extent in enumerate(extents)]
    s = Simplifier({**outer, **{var: (0, extent - 1) for var, extent in loops}})
    iters: list[Iter] = []
    conditions: list[Expr] = []
    for i, (var, _) in zip(block.iters, loops, strict=True):
        r = needed.get(i.var)
        value = var if r is None else s(r.min + var)
        iters.append(_replace(i, value=value))
        if r is not None:
            conditions += domain_conditions(value, i.extent, s)
    conditions += _kept_conditions(block, iters, old)
    moved = _replace(block, iters=tuple(iters), predicate=conjunction(conditions))
    return nest(loops, moved)


def _kept_conditions(block: Block, moved: Sequence[Iter], old: Ranges) -> list[Expr]:
    """The conditions of `block`'s predicate beyond the extents of its iterations, moved along.

    `moved` are the iterations with their new values.
    """
    kept: list[Expr] = []
    domain = [c for i in block.iters for c in (i.value < as_expr(i.extent), i.value >= as_expr(0))]
    known = {key_of(c) for c in domain}
    for c in conjuncts(block.predicate):
        if key_of(c) in known or prove(c, old, domain) is True:
            continue
        new = _by_loops(c, block, moved)
        kept.append(require_some(
            _by_values(c, block, moved, old) if new is None else new,
            "block {0} runs only where {1}, and this condition cannot move with it",
            block.label,
            lambda c=c: repr(c),
        ))  # fmt: skip
    return kept


def _by_loops(condition: Expr, block: Block, moved: Sequence[Iter]) -> Expr | None:
    """`condition` if all its loops are iteration variables by themselves, at their new values."""
    space = current_space()
    decisions: set[Var] = set() if space is None else set(space.bounds)
    values = {
        i.value: new.value
        for i, new in zip(block.iters, moved, strict=True)
        if type(i.value) is Var
    }
    if not free_vars(condition) <= values.keys() | decisions:
        return None
    return substitute(condition, values)


def _by_values(condition: Expr, block: Block, moved: Sequence[Iter], old: Ranges) -> Expr | None:
    """`condition`, some `x < n` or `x >= n`, where `x` is a sum of multiples of iterations."""
    if type(condition) is not Binary or condition.op not in (Op.LT, Op.GE):
        return None
    s = Simplifier(old)
    left = add(s.poly(condition.a), s.poly(condition.b), -1)
    values = [s.poly(i.value) for i in block.iters]
    total: Expr = const(0)
    for n, (value, new) in enumerate(zip(values, moved, strict=True)):
        others = [v for m, v in enumerate(values) if m != n]
        own = next((k for k in value if k is not ONE and not any(k in v for v in others)), None)
        if own is None or left.get(own, 0) % value[own] != 0:
            continue
        times = left.get(own, 0) // value[own]
        left = add(left, value, -times)
        total = total + new.value * times
    if any(factors(k) for k in left):
        return None
    return binary(condition.op, total, const(-left.get(ONE, 0)))
