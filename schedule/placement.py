"""Place a block in new loops: bind its iteration variables, and move its predicate along.

While decisions are open, the new loops may have more iterations than when they are taken: then an
index such as `(i * t + j) % 8` may be simpler, and what it sweeps known to be less.

Names of the loops that steps make, of the names of the program: for people alone.

Programs call the iteration variable of a loop `n` `vn`. What has no such name has a number.

Rebind blocks to other loops, as `split` and `fuse` do below a loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from dataclasses import replace as _replace
from itertools import compress
from keyword import iskeyword
from typing import Any

from ..base.errors import ScheduleError
from ..tir.bounds import prove, variables
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
    Range,
    Region,
    Seq,
    Stmt,
    Var,
    as_expr,
    binary,
    const,
)
from ..tir.polynomial import ONE, add, factors
from ..tir.simplify import Simplifier, difference
from ..tir.starts import may_exclude_first
from ..tir.structure import conjunction, conjuncts, key_of, size
from ..tir.visit import map_tuple, substitute, walk, with_body
from .block_queries import (
    Ranges,
    domain_conditions,
    free_vars,
    nest,
)
from .facts import last
from .find import blocks_in
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
        iters.append(_replace(i, value=value))
        if r is not None:
            conditions += domain_conditions(value, i.extent, s)
    conditions += _kept_conditions(block, iters, old)
    values = {i.var: i.value for i in iters}
    for c in (substitute(c, values) for c in limits):
        if prove(c, s.ranges, conditions) is not True:
            simple = s(c)
            alike = type(simple) is Binary and type(c) is Binary and simple.op is c.op
            conditions.append(simple if alike else c)
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


_LONGEST = 32
"""Characters of a name of joined names; of longer ones the first and the last remain."""
_FUSED = "_fused"


def iteration_names(block: Block) -> list[str | None]:
    """The names of the loops that a block was written for, `None` for those that have a number."""
    if not all(i.var.name.startswith("v") for i in block.iters):
        return [None] * len(block.iters)
    bare = [i.var.name[1:] for i in block.iters]
    return [name if name.isidentifier() and not iskeyword(name) else None for name in bare]


def loop_names(block: Block) -> list[str]:
    """Names of new loops, one for each iteration variable of a block."""
    return [name or f"ax{n}" for n, name in enumerate(iteration_names(block))]


def joined(names: Sequence[str]) -> str:
    """The name of what stands for several loops: `n_oc` of `n` and `oc`, each of them once."""
    parts = list(dict.fromkeys(name.removesuffix(_FUSED) for name in names))
    whole = "_".join(parts)
    return whole if len(whole) <= _LONGEST else f"{parts[0]}_to_{parts[-1]}"[:_LONGEST]


def fused(names: Sequence[str]) -> str:
    """The name of the loop that `fuse` makes of loops of these names."""
    return f"{joined(names)}{_FUSED}"


def mapped(block: Block, used: Sequence[Sequence[int]]) -> list[str]:
    """Names of new loops over maps of a block's iteration variables, each of these (numbers)."""
    given = iteration_names(block)
    parts = [[given[n] for n in numbers] for numbers in used]
    names = [
        joined([name for name in some if name is not None]) if some and all(some) else f"ax{k}"
        for k, some in enumerate(parts)
    ]
    return [
        f"{name}_{names[:k].count(name)}" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


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
