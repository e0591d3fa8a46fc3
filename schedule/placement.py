"""Place a block in new loops: bind its iteration variables, and move its predicate along.

While decisions are open, the new loops may have more iterations than when they are taken: then an
index such as `(i * t + j) % 8` may be simpler, and what it sweeps known to be less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..tir.bounds import prove
from ..tir.ir import (
    Binary,
    Block,
    Expr,
    For,
    Iter,
    Op,
    Range,
    Region,
    Stmt,
    Var,
    as_expr,
    binary,
    const,
)
from ..tir.polynomial import ONE, add, factors
from ..tir.simplify import Simplifier, difference
from ..tir.structure import conjunction, conjuncts, key_of
from ..tir.visit import substitute, walk
from .block_queries import Ranges, domain_conditions, free_vars, nest
from .facts import last
from .find import blocks_in
from .loop_names import loop_names
from .require import current_space, is_provisional, require, require_some


def may_shrink(regions: Sequence[Region], inner: Collection[Var], ranges: Ranges) -> bool:
    """Whether fewer elements may be in the hull of `regions` once the open decisions are taken.

    That is so where decisions affect quotients, remainders, minima and maxima that the loops
    `inner` move: with numbers these may be simpler. `ranges` are those of all loops.
    """
    space = current_space()
    decisions: Collection[Var] = () if space is None else space.bounds.keys()
    starts = [x.min for r in regions for x in r.ranges if any(map(_is_bent, walk(x.min)))]
    if not decisions or not starts:
        return False
    s = Simplifier(ranges)
    return any(
        _is_bent(n)
        and any(v in inner for v in free_vars(n))
        and any(v in decisions for v in _with_ends(free_vars(n), ranges))
        for start in starts
        for n in walk(s(start))
    )


def _is_bent(n: Any) -> bool:
    return type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX)


def _with_ends(used: Collection[Var], ranges: Ranges) -> set[Var]:
    """Variables, and those in the ends of their ranges."""
    ends = [free_vars(as_expr(end)) for v in used for end in ranges.get(v, ())]
    return set(used).union(*ends)


def require_settled(loop: For) -> None:
    """Require that a loop has as many iterations now as when the open decisions are taken."""
    blocks = [b.label for b in blocks_in(loop)]
    require(
        not blocks or not all(map(is_provisional, blocks)),
        "loop {0} has {1} iterations while decisions are open, and may have fewer once they are "
        "taken",
        loop.var,
        loop.extent,
        hint="do this before the block is moved there, or in a schedule that is not symbolic",
    )


def placed(
    block: Block,
    needed: Mapping[Var, Range],
    outer: Ranges,
    old: Ranges,
    limits: Sequence[Expr] = (),
) -> Stmt:
    """`block` in new loops over `needed`, and over the domains of its other iteration variables.

    `outer` are the ranges of the loops that will be around it, `old` of those around it so far. It
    runs only where `limits` hold, conditions on its iteration variables and the loops `outer`.
    Raises `ScheduleError` if its predicate cannot be expressed by iteration variables.
    """
    extents = [needed[i.var].extent if i.var in needed else i.extent for i in block.iters]
    named = zip(loop_names(block), extents, strict=True)
    loops = [(Var(name), extent) for name, extent in named]
    s = Simplifier({**outer, **{var: (0, last(extent)) for var, extent in loops}})
    iters: list[Iter] = []
    conditions: list[Expr] = []
    for i, (var, _) in zip(block.iters, loops, strict=True):
        r = needed.get(i.var)
        value = var if r is None else s(r.min + var)
        iters.append(replace(i, value=value))
        if r is not None:
            conditions += domain_conditions(value, i.extent, s)
    conditions += _kept_conditions(block, iters, old)
    values = {i.var: i.value for i in iters}
    for c in (substitute(c, values) for c in limits):
        if prove(c, s.ranges, conditions) is not True:
            simple = s(c)
            alike = type(simple) is Binary and type(c) is Binary and simple.op is c.op
            conditions.append(simple if alike else c)
    moved = replace(block, iters=tuple(iters), predicate=conjunction(conditions))
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
    left = difference(s, condition)
    if left is None:
        return None
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
