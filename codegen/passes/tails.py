"""Split guarded loops: a version without the guard for most iterations, and a guarded tail."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from ...tir.ir import (
    Expr,
    For,
    ForKind,
    Func,
    If,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from ...tir.polynomial import ONE, Poly
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction, conjuncts
from ...tir.visit import nested, with_func_body
from .guards import guards, is_bound, slack
from .rewrite import (
    decided,
    declare,
    fresh,
    loops,
    map_stmts,
    simplifier_of,
    statements,
    variables_of,
)
from .trim import part_of, trimmed
from .vectorize import native_lanes

MAX_COPIED_STORES = 1536
"""A loop whose body has more stores than this, once unrolled, is not copied."""


def tails(func: Func, vector_bits: int) -> Func:
    """Split loops at tile boundaries so that conditions are decided outside of the tile.

    for i in 4:                                for i in 3:
        for j in unrolled(8):                      for j in unrolled(8): A[i * 8 + j] = 0
            if i * 8 + j < 29:          ->     for j in unrolled(5): A[j + 24] = 0
                A[i * 8 + j] = 0

    A tile is what is unrolled or vectorized, or else the innermost loop. If its position depends on
    several loops, a branch in the innermost of them selects one of the two versions.
    """
    if not any(True for _ in guards(func.body)):
        return func
    return with_func_body(func, _visit(func.body, simplifier_of(func), vector_bits))


class _Cut(NamedTuple):
    """The condition `outer + inner < full + rest`, of a tile at `outer` that is `size` wide.

    `outer` and `full` are multiples of `size`, and `inner` and `rest` are less than it: tiles
    before `full` are whole, the one at `full` has `rest` elements (or is empty), as later ones are.
    """

    outer: Poly
    full: int
    rest: int
    size: int


def _visit(stmt: Stmt, s: Simplifier, vector_bits: int) -> Stmt:
    if type(stmt) is For and isinstance(stmt.extent, int):
        cut = _cut(stmt, s)
        if cut is not None and _size(stmt.body, vector_bits) <= MAX_COPIED_STORES:
            return _versions(stmt, cut, s, vector_bits)
    return map_stmts(stmt, lambda c: _visit(c, s, vector_bits))


def _versions(loop: For, cut: _Cut, s: Simplifier, vector_bits: int) -> Stmt:
    """The loop with versions of its body, in each of which further conditions are decided."""
    assert isinstance(loop.extent, int)
    whole = _decide(loop.body, cut, cut.size, s)
    part = _decide(declare(s, fresh(loop.body)), cut, cut.rest, s) if cut.rest else Seq(())
    reach = s.interval(cut.outer)[1]
    beyond = reach >= cut.full + (cut.size if cut.rest else 0)
    empty = _effective(_decide(loop.body, cut, 0, s)) if beyond else Seq(())
    empty = declare(s, fresh(empty))
    if cut.outer.keys() <= {loop.var} and loop.kind is ForKind.SERIAL:
        at = min(cut.full // cut.size, loop.extent)
        after = min(at + (cut.rest > 0), loop.extent)
        parts = [
            part_of(loop, 0, at, whole, s),
            part_of(loop, at, after - at, part, s),
            part_of(loop, after, loop.extent - after, empty, s),
        ]
        return decided(seq(*(_visit(p, s, vector_bits) for p in parts)))
    place = s.build(cut.outer)
    body = empty
    if cut.rest:
        body = _choice(s(place < cut.full + cut.size), part, body)
    body = decided(_choice(s(place < cut.full), whole, body))
    return _visit(replace(loop, body=body), s, vector_bits)


def _effective(body: Stmt) -> Stmt:
    """`body`, or nothing if it stores nothing: then it asks ahead for data of no iteration."""
    return body if any(type(n) is Store for n in statements(body)) else Seq(())


def _choice(cond: Expr, then: Stmt, other: Stmt) -> Stmt:
    return If(cond, then, None if type(other) is Seq and not other.stmts else other)


def _cut(loop: For, s: Simplifier) -> _Cut | None:
    """A condition below `loop` that is to be decided in its body."""
    inside = {f.var: f for f in loops(loop.body)}
    for guard in guards(loop.body, in_loops=True):
        p = slack(guard, s)
        variables = variables_of(p)
        if loop.var not in variables:
            continue
        below = [inside[v] for v in variables if v in inside]
        tile = [f for f in below if f.kind in (ForKind.UNROLL, ForKind.VECTOR)]
        if len(tile) < len(below) and not (len(below) == 1 and _is_tight(below[0])):
            continue
        if not below and _is_tight(loop):
            continue
        cut = _split(p, inside.keys(), s)
        if cut is not None:
            return cut
    return None


def _is_tight(loop: For) -> bool:
    """Whether a branch in each iteration is too expensive: the body has no loops."""
    return loop.kind is ForKind.SERIAL and not any(True for _ in loops(loop.body))


def _split(p: Poly, inside: Collection[Var], s: Simplifier) -> _Cut | None:
    """The slack of a condition as a cut of tiles, with the variables of `inside` within a tile."""
    outer: Poly = {}
    reach = 0
    for key, c in p.items():
        if key is ONE:
            continue
        if c > 0 or s.ends(key)[0] < 0:
            return None
        if any(v in inside for v in variables_of({key: c})):
            reach -= c * s.ends(key)[1]
        else:
            outer[key] = -c
    size = math.gcd(*outer.values())
    end = p.get(ONE, 0) + 1
    if not outer or reach >= size or end <= 0:
        return None
    full, rest = end // size * size, end % size
    if rest > reach:
        full, rest = full + size, 0
    return _Cut(outer, full, rest, size)


def _decide(body: Stmt, cut: _Cut, end: int, s: Simplifier) -> Stmt:
    """`body` for tiles with `end` elements: `cut.size` for whole ones, 0 for empty ones."""
    inside = {f.var for f in loops(body)}

    def condition(c: Expr) -> Expr:
        if not is_bound(c):
            return c
        p = slack(c, s)
        if _split(p, inside, s) != cut:
            return c
        inner = {k: -v for k, v in p.items() if k is not ONE and k not in cut.outer}
        return s(s.build(inner) < end)

    def visit(n: Stmt) -> Stmt:
        if type(n) is not If:
            return map_stmts(n, visit)
        cond = conjunction([condition(c) for c in conjuncts(n.cond)])
        assert cond is not None, "a condition has conjuncts"
        return If(s(cond), visit(n.then), None if n.other is None else visit(n.other))

    return trimmed(decided(visit(body)), s)


def _size(s: Stmt, vector_bits: int) -> int:
    """Store statements in `s` once loops in it are unrolled and vectorized."""
    below = nested(s)
    if not below:
        return 0 if type(s) is Seq else 1
    size = sum(_size(c, vector_bits) for c in below)
    if type(s) is For and isinstance(s.extent, int):
        if s.kind is ForKind.UNROLL:
            return size * s.extent
        if s.kind is ForKind.VECTOR:
            return size * max(s.extent // native_lanes(s.body, vector_bits), 1)
    return size
