"""Loops that a condition cuts short get a version without the condition, for most iterations."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from ...target import Target
from ...tir.ir import (
    Binary,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Op,
    Seq,
    Stmt,
    Var,
    const,
    seq,
)
from ...tir.polynomial import ONE, Poly, factors
from ...tir.simplify import Simplifier
from ...tir.visit import substitute, walk
from .guards import conjuncts, guards, is_bound, slack
from .scope import Ranges, decided, fresh, loops, map_exprs, map_stmts, nested, ranges_of, with_body
from .trim import trimmed
from .vectorize import native_lanes

MAX_COPIED_STORES = 1536
"""A loop whose body has more stores than this, once unrolled, is not copied."""


def tails(func: Func, target: Target) -> Func:
    """Decide conditions outside of the tile that they cut.

    for i in 4:                                for i in 3:
        for j in unrolled(8):                      for j in unrolled(8): A[i * 8 + j] = 0
            if i * 8 + j < 29:          ->     for j in unrolled(5): A[j + 24] = 0
                A[i * 8 + j] = 0

    A tile is what is unrolled or vectorized, or else the innermost loop. Where its place depends on
    several loops, a branch in the innermost of them chooses between the two versions.
    """
    if not any(True for _ in guards(func.body)):
        return func
    return with_body(func, _visit(func.body, ranges_of(func.body), target))


class _Cut(NamedTuple):
    """The condition `outer + inner < full + rest`, of a tile at `outer` that is `size` wide.

    `outer` and `full` are multiples of `size`, and `inner` and `rest` are less than it: tiles
    before `full` are whole, the one at `full` has `rest` elements, later ones are empty.
    """

    outer: Poly
    full: int
    rest: int
    size: int


def _visit(s: Stmt, ranges: Ranges, target: Target) -> Stmt:
    if type(s) is For and isinstance(s.extent, int):
        cut = _cut(s, Simplifier(ranges))
        if cut is not None and _size(s.body, target) <= MAX_COPIED_STORES:
            return _versions(s, cut, ranges, target)
    return map_stmts(s, lambda c: _visit(c, ranges, target))


def _versions(loop: For, cut: _Cut, ranges: Ranges, target: Target) -> Stmt:
    """The loop with both versions of its body, in each of which further conditions are decided."""
    copy = fresh(loop.body)
    ranges |= ranges_of(copy)
    whole = _decide(loop.body, cut, True, ranges)
    part = _decide(copy, cut, False, ranges)
    if cut.outer.keys() <= {loop.var} and loop.kind is ForKind.SERIAL:
        at = cut.full // cut.size
        parts = []
        if at:
            parts.append(_visit(_first(loop, at, whole, ranges), ranges, target))
        if cut.rest:
            last = _simplified(substitute(part, {loop.var: const(at)}), ranges)
            parts.append(_visit(last, ranges, target))
        return decided(seq(*parts))
    s = Simplifier(ranges)
    place = s.build(cut.outer)
    end = If(s(place < cut.full + cut.size), part) if cut.rest else Seq(())
    body = decided(If(s(place < cut.full), whole, end)) if cut.full else end
    return _visit(replace(loop, body=body), ranges, target)


def _first(loop: For, extent: int, body: Stmt, ranges: Ranges) -> Stmt:
    """The iterations before `extent`."""
    if extent == 1:
        return _simplified(substitute(body, {loop.var: const(0)}), ranges)
    var = Var(loop.var.name)
    ranges[var] = (0, extent - 1)
    body = _simplified(substitute(body, {loop.var: var}), ranges)
    return replace(loop, var=var, extent=extent, body=body)


def _cut(loop: For, s: Simplifier) -> _Cut | None:
    """A condition below `loop` that is to be decided in its body."""
    inside = {f.var: f.kind for f in loops(loop.body)}
    for guard in guards(loop.body):
        p = slack(guard, s)
        variables = _variables(p)
        below = [inside[v] for v in variables if v in inside]
        serial = sum(kind not in (ForKind.UNROLL, ForKind.VECTOR) for kind in below)
        if loop.var not in variables or not below or serial > (len(below) == 1):
            continue
        cut = _split(p, inside.keys(), s)
        if cut is not None:
            return cut
    return None


def _split(p: Poly, inside: Collection[Var], s: Simplifier) -> _Cut | None:
    """The slack of a condition as a cut of tiles, with the variables of `inside` within a tile."""
    outer: Poly = {}
    reach = 0
    for key, c in p.items():
        if key is ONE:
            continue
        if c > 0 or s.ends(key)[0] < 0:
            return None
        if any(v in inside for v in _variables({key: c})):
            reach -= c * s.ends(key)[1]
        else:
            outer[key] = -c
    size = math.gcd(*outer.values())
    end = p.get(ONE, 0) + 1
    if not outer or reach >= size or end <= 0:
        return None
    return _Cut(outer, end // size * size, end % size, size)


def _variables(p: Poly) -> set[Var]:
    return {n for k in p if k is not ONE for f in factors(k) for n in walk(f) if type(n) is Var}


def _decide(body: Stmt, cut: _Cut, whole: bool, ranges: Ranges) -> Stmt:
    """`body` for whole tiles, or for the last one, which then ends at a constant."""
    s = Simplifier(ranges)
    inside = {f.var for f in loops(body)}

    def condition(c: Expr) -> Expr | None:
        if not is_bound(c):
            return c
        p = slack(c, s)
        if _split(p, inside, s) != cut:
            return c
        if whole:
            return None
        inner = {k: -v for k, v in p.items() if k is not ONE and k not in cut.outer}
        return s(s.build(inner) < cut.rest)

    def visit(n: Stmt) -> Stmt:
        if type(n) is not If:
            return map_stmts(n, visit)
        kept = [k for k in map(condition, conjuncts(n.cond)) if k is not None]
        then = visit(n.then)
        if not kept:
            return then
        other = None if n.other is None else visit(n.other)
        return If(_all(kept), then, other)

    return trimmed(decided(visit(body)), ranges)


def _all(conditions: list[Expr]) -> Expr:
    total = conditions[0]
    for c in conditions[1:]:
        total = Binary(Op.AND, total, c, "bool")
    return total


def _simplified(s: Stmt, ranges: Ranges) -> Stmt:
    return decided(map_exprs(s, Simplifier(ranges)))


def _size(s: Stmt, target: Target) -> int:
    """Store statements in `s` once loops in it are unrolled and vectorized."""
    below = nested(s)
    if not below:
        return 0 if type(s) is Seq else 1
    size = sum(_size(c, target) for c in below)
    if type(s) is For and isinstance(s.extent, int):
        if s.kind is ForKind.UNROLL:
            return size * s.extent
        if s.kind is ForKind.VECTOR:
            return size * max(s.extent // native_lanes(s.body, target), 1)
    return size
