"""Peel the ends of loops where indices are clamped, reflected or wrapped, or masks hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, NamedTuple

from ...tir.ir import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    const,
    seq,
)
from ...tir.piecewise import is_comparison, is_switch
from ...tir.polynomial import ONE, Poly, add, constant, factors, negated, shifted
from ...tir.simplify import Simplifier
from ...tir.structure import key_of
from ...tir.visit import nested, rewrite_children, substitute, walk, with_func_body
from .guards import guards, is_bound, slack
from .rewrite import (
    decided,
    declare,
    expressions,
    fresh,
    holds_registers,
    loops,
    map_exprs,
    map_stmts,
    renewed,
    simplifier_of,
)
from .trim import trimmed
from .vectorize import native_lanes

MAX_PEELED = 32
"""Iterations at one end of a loop beyond which it is not peeled: they run without vectors."""
MAX_WRAPS = 2
"""An index that is wrapped more often is taken for a digit of another."""
MIN_KEPT = 4
"""A loop is peeled if it keeps this many times the iterations that it loses."""


def peel(func: Func, vector_bits: int, masked: bool) -> Func:
    """Split loops over rows where their innermost index is clamped, reflected or wrapped.

    for j in 64: B[j] = A[max(j - 1, 0)]   ->   B[0] = A[0]
                                                for j in 64: if j < 63: B[j + 1] = A[j]

    A row may be tiled: its index is then a sum of loop variables, one of which is a vector or an
    innermost loop. The iterations of a row must be independent. Whole vectors are split off rows of
    vectors: the places that their lanes read are known then, and the others stay aligned. The
    remaining loops keep their extents and get a guard. With `masked` vectors, selects between
    elements are no reason to split.
    """
    if not any(_is_reason(n, masked) for n in walk(func.body)):
        return func
    unit = _Unit(vector_bits, masked)
    return with_func_body(func, _visit(func.body, unit, simplifier_of(func)))


class _Unit(NamedTuple):
    """The width of vectors, and whether they may have masks."""

    vector_bits: int
    masked: bool


def _reasons(stmt: Stmt, unit: _Unit) -> int:
    return sum(_is_reason(n, unit.masked) for n in walk(stmt))


def _is_reason(n: object, masked: bool) -> bool:
    """Whether vectors of a node are expensive, although it rarely changes within a row."""
    return is_switch(n) or (not masked and type(n) is Select and any(map(is_bound, walk(n.cond))))


def _visit(stmt: Stmt, unit: _Unit, s: Simplifier) -> Stmt:
    if type(stmt) is For and any(_is_reason(n, unit.masked) for n in walk(stmt.body)):
        for row in _rows(stmt, unit, s):
            peeled = _peeled(stmt, row, unit, s)
            if peeled is not None:
                return peeled
    return map_stmts(stmt, lambda c: _visit(c, unit, s))


@dataclass(frozen=True)
class _Row:
    """The index of a row: the digits that add up to it, and the iterations that are kept.

    `digits` are loops and the steps that their variables count in, the smallest first. The others
    are split off in vectors of `lanes`.
    """

    digits: tuple[tuple[For, int], ...]
    start: int
    end: int
    lanes: int

    @property
    def extent(self) -> int:
        return _extent(self.digits)

    @property
    def variables(self) -> set[Var]:
        return {loop.var for loop, _ in self.digits}

    def index(self) -> Expr:
        total: Expr = const(0)
        for loop, step in self.digits:
            total = total + loop.var * step
        return total


def _extent(digits: tuple[tuple[For, int], ...]) -> int:
    loop, step = digits[-1]
    return _count(loop) * step


def _count(loop: For) -> int:
    assert isinstance(loop.extent, int)
    return loop.extent


def _rows(outer: For, unit: _Unit, s: Simplifier) -> Iterator[_Row]:
    """The rows whose outermost loop is `outer`."""
    inside = {f.var: f for f in loops(outer)}
    found: dict[tuple[tuple[For, int], ...], _Places] = {}
    conditions = {id(c): c for c in guards(outer.body)}
    selecting: dict[int, Expr] = {
        id(c): c
        for n in walk(outer.body)
        if type(n) is Select and is_switch(n)
        for c in walk(n.cond)
        if is_comparison(c)
    }
    for n in walk(outer.body):
        is_reason = is_switch(n) or id(n) in selecting
        if not is_reason and not (isinstance(n, Expr) and is_bound(n)):
            continue
        for moving, place in _changes(n, s):
            digits = _digits(moving, outer, inside)
            if digits is not None:
                places = found.setdefault(digits, _Places(set(), set(), set()))
                if is_reason:
                    places.switches.add(place)
                elif unit.masked or id(n) in conditions:
                    places.masks.add(place)
                else:
                    places.selects.add(place)
    for digits, (switches, selects, masks) in found.items():
        extent = _extent(digits)
        for changes, comparisons in ((switches, selecting), (masks, conditions)):
            ends = (_end(c, digits, s) for c in comparisons.values())
            changes.update(end.place for end in ends if end is not None)
        room = min(MAX_PEELED, extent // (2 + MIN_KEPT))
        inner = {p for p in switches | selects | masks if 0 < p < extent}
        start = max((p for p in inner if p <= room), default=0)
        last = min((p for p in masks if p > start), default=extent)
        end = min((p for p in inner if p >= last - room), default=extent)
        if start < end and not (switches | selects).isdisjoint({start, end} - {0, extent}):
            # Without masks, vectors of selects load lane by lane what may not exist.
            lanes = 1 if selects else _lanes(digits[0][0], unit.vector_bits)
            start, end = -(-start // lanes) * lanes, end // lanes * lanes
            yield _Row(digits, start, max(start, end), lanes)


class _Places(NamedTuple):
    """Where a row changes: switches of indices, selects, and what masks take care of."""

    switches: set[int]
    selects: set[int]
    masks: set[int]


def _lanes(innermost: For, vector_bits: int) -> int:
    """The lanes of the vectors that a row is computed in; 1 if it is not, or not in whole ones."""
    if innermost.kind is not ForKind.VECTOR or holds_registers(innermost.body):
        return 1
    lanes = min(native_lanes(innermost.body, vector_bits), _count(innermost))
    return 1 if _count(innermost) % lanes else lanes


def _changes(n: Expr, s: Simplifier) -> Iterator[tuple[Poly, int]]:
    """Sums of variables, and for each the index from which the value of `n` may change."""
    for rising in _breakpoints(n, s):
        for p in (rising, shifted(negated(rising), -1)):
            moving = _of_quotient(p, s)
            offset = moving.pop(ONE, 0)
            if moving and all(type(k) is Var and c > 0 for k, c in moving.items()):
                scale = gcd(*moving.values())
                yield {k: c // scale for k, c in moving.items()}, -(offset // scale)


def _breakpoints(n: Expr, s: Simplifier) -> Iterator[Poly]:
    """Breakpoints: polynomials whose sign change may change `n`."""
    match n:
        case Binary(op=Op.EQ | Op.NE):
            apart = add(s.poly(n.a), s.poly(n.b), -1)
            yield from (apart, shifted(apart, -1))
        case Binary() if is_bound(n):
            yield slack(n, s)
        case Binary(op=Op.MIN | Op.MAX):
            yield shifted(add(s.poly(n.a), s.poly(n.b), -1), -(n.op is Op.MIN))
        case Call(fn="abs", args=(a,)):
            yield s.poly(a)
        case Binary(b=Const(value=divisor)) if divisor > 0:
            by, p = int(divisor), s.poly(n.a)
            low, high = s.interval(p)
            if high // by - low // by <= MAX_WRAPS:
                yield from (shifted(p, -k * by) for k in range(low // by + 1, high // by + 1))


def _of_quotient(p: Poly, s: Simplifier) -> Poly:
    """A sum that becomes non-negative where `p` does, without a quotient `x // n` in it."""
    for k, c in p.items():
        if c == 1 and isinstance(k, Expr):
            match s.definitions.get(k):
                case (Op.FLOORDIV, inner, divisor) if (by := constant(divisor) or 0) > 0:
                    return dict(add(inner, {j: c for j, c in p.items() if j is not k}, by))
    return dict(p)


def _digits(
    moving: Poly, outer: For, inside: Mapping[Var, For]
) -> tuple[tuple[For, int], ...] | None:
    """The loops whose variables add up to `moving` as the digits of a number, up to `outer`."""
    if outer.var not in moving or not all(v in inside for v in moving):
        return None
    ordered = sorted(((inside[v], c) for v, c in moving.items()), key=lambda d: d[1])  # type: ignore[index]
    step = 1
    for loop, c in ordered:
        if c != step or not isinstance(loop.extent, int) or loop.kind is ForKind.THREAD:
            return None
        step *= loop.extent
    lanes = ordered[0][0]
    if lanes.kind is not ForKind.VECTOR and any(True for _ in loops(lanes.body)):
        return None
    return tuple(ordered)


def _peeled(outer: For, row: _Row, unit: _Unit, s: Simplifier) -> Stmt | None:
    """The row in parts; `None` if its iterations may depend on each other.

    In the iterations kept a switch within another one is known, which shows where that changes:
    `max(min(i, n), 0)` is peeled at its end, and then at its start.

    Nor is a row peeled whose loops would do nothing in those kept, as no guard holds there, or in
    which nothing becomes known: `i % 8` of 16 iterations is no simpler for a guard `i < 16`. Nor is
    one that is held in registers.
    """
    if any(f.annotations for f in loops(outer)) or not _in_row(outer, row):
        return None
    if _in_registers(outer, row):
        return None
    index = renewed(outer.var, outer.var.name.partition("_")[0])
    s.ranges = {**s.ranges, index: (0, row.extent - 1)}
    if not _independent(_indexed(outer, row, index, s), row, index, s):
        return None
    kept = _kept(outer, row, s) if row.start < row.end else Seq(())
    if kept is None or _reasons(kept, unit) >= _reasons(outer, unit):
        return None
    kept = _visit(kept, unit, s)
    before, after = _edge(outer, row, 0, row.start, s), _edge(outer, row, row.end, row.extent, s)
    return decided(seq(before, kept, after))


def _in_registers(stmt: Stmt, row: _Row) -> bool:
    """Whether the row is one of registers: those of an edge would be numbered by a loop."""
    return any(
        isinstance(n, Load | Store)
        and n.buffer.scope == "register"
        and any(v in row.variables for i in n.indices for v in walk(i))
        for n in walk(stmt)
    )


def _in_row(stmt: Stmt, row: _Row) -> bool:
    """Whether `stmt` stores and allocates inside all loops of the row alone."""

    def visit(n: Stmt, missing: frozenset[Var]) -> bool:
        if type(n) is Store or type(n) is Alloc:
            return not missing
        missing = missing - {n.var} if type(n) is For else missing
        return all(visit(c, missing) for c in nested(n))

    return visit(stmt, frozenset(row.variables))


class _End(NamedTuple):
    """The index of a row from which on a condition holds; or before which, if it is `below`."""

    place: int
    below: bool


def _end(condition: Expr, digits: tuple[tuple[For, int], ...], s: Simplifier) -> _End | None:
    """Where a condition changes that asks for the last digits but the first ones."""
    if not is_bound(condition):
        return None
    p = slack(condition, s)
    for first in range(1, len(digits)):
        unit = digits[first][1]
        scale = p.get(digits[first][0].var, 0)
        if scale and {k: c for k, c in p.items() if k is not ONE} == {
            loop.var: scale * step // unit for loop, step in digits[first:]
        }:
            last = p.get(ONE, 0) // abs(scale)
            return _End((last + 1) * unit, True) if scale < 0 else _End(-last * unit, False)
    return None


def _indexed(stmt: Stmt, row: _Row, index: Expr, s: Simplifier) -> Stmt:
    """`stmt` in terms of the index of the row."""
    lanes = row.digits[0][0].var
    rest = replace(row, digits=row.digits[1:]).index() if len(row.digits) > 1 else const(0)

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        end = _end(n, row.digits, s) if isinstance(n, Expr) else None
        if end is not None:
            return index < const(end.place) if end.below else index >= const(end.place)
        return rewrite_children(n, visit)

    return decided(map_exprs(substitute(visit(stmt), {lanes: index - rest}), s))


def _independent(stmt: Stmt, row: _Row, index: Var, s: Simplifier) -> bool:
    """Whether iterations of a row share nothing, and depend on the row's index alone."""
    inner = {f.var for f in loops(stmt)} - row.variables
    if any(type(n) is Var and n in row.variables for e in expressions(stmt) for n in walk(e)):
        return False
    nodes: list[Any] = list(walk(stmt))
    private = {n.buffer for n in nodes if type(n) is Alloc}
    places: dict[Buffer, set[object]] = {}
    written: dict[Buffer, Store] = {}
    for n in nodes:
        if isinstance(n, Load | Store) and n.buffer not in private:
            places.setdefault(n.buffer, set()).add(tuple(map(key_of, n.indices)))
            if isinstance(n, Store):
                written[n.buffer] = n
    return all(
        len(places[buffer]) == 1 and any(_is_injective(i, index, inner, s) for i in store.indices)
        for buffer, store in written.items()
    )


def _is_injective(e: Expr, index: Var, inner: set[Var], s: Simplifier) -> bool:
    """Whether `e` is injective in the row index."""
    p = dict(s.poly(e))
    return p.pop(index, 0) != 0 and not any(
        type(n) is Var and (n in inner or n is index)
        for k in p
        if k is not ONE
        for a in factors(k)
        for n in walk(a)
    )


def _kept(outer: For, row: _Row, s: Simplifier) -> Stmt | None:
    """The loops of the row, from its start on, up to its end; `None` if they do nothing there."""
    count = row.end - row.start
    index = renewed(outer.var)
    s.ranges = {**s.ranges, index: (row.start, row.end - 1)}
    new = _indexed(outer, row, index, s)
    kept = [f.var for f in loops(new) if f.var in row.variables]
    if not kept:
        return None
    deepest, place = kept[-1], row.index()

    def guarded(n: Stmt) -> Stmt:
        if type(n) is For and n.var is deepest:
            return replace(n, body=If(place < const(count), n.body))
        return map_stmts(n, guarded)

    new = guarded(new) if count < row.extent else new
    new = substitute(new, {index: place + row.start})
    return trimmed(map_exprs(declare(s, fresh(new)), s), s)


def _edge(outer: For, row: _Row, start: int, end: int, s: Simplifier) -> Stmt:
    """The iterations of the row from `start` on, before `end`: in vectors, or one by one."""
    if row.lanes > 1:
        return seq(*(_vector(outer, row, first, s) for first in range(start, end, row.lanes)))
    count = end - start
    if count == 0:
        return Seq(())
    if count == 1:
        return declare(s, fresh(_stripped(_indexed(outer, row, const(start), s), row)))
    index = renewed(outer.var)
    s.ranges = {**s.ranges, index: (0, count - 1)}
    edge = For(index, count, _stripped(_indexed(outer, row, index + start, s), row))
    return trimmed(declare(s, fresh(edge)), s)


def _stripped(stmt: Stmt, row: _Row) -> Stmt:
    """`stmt` without the loops of the row."""
    while type(stmt) is For and stmt.var in row.variables:
        stmt = stmt.body
    return map_stmts(stmt, lambda n: _stripped(n, row))


def _vector(outer: For, row: _Row, first: int, s: Simplifier) -> Stmt:
    """The iterations of the row that make the vector from `first` on."""
    lane = renewed(row.digits[0][0].var)
    at = {loop.var: const(first // step % _count(loop)) for loop, step in row.digits}
    lowest = row.digits[0][0].var

    def visit(n: Stmt) -> Stmt:
        if type(n) is For and n.var in row.variables:
            body = visit(n.body)
            return For(lane, row.lanes, body, ForKind.VECTOR) if n.var is lowest else body
        return map_stmts(n, visit)

    new = substitute(visit(outer), {**at, lowest: lane + at[lowest]})
    return trimmed(decided(map_exprs(declare(s, fresh(new)), s)), s)
