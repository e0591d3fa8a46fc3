"""Put barriers where threads depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ...base.errors import BuildError
from ...tir.dependence import conflict
from ...tir.equality import flat
from ...tir.ir import (
    WARP,
    Alloc,
    Barrier,
    BarrierScope,
    Expr,
    For,
    Func,
    If,
    Let,
    Op,
    Seq,
    Stmt,
    Var,
    as_expr,
    binary,
    seq,
)
from ...tir.simplify import Simplifier
from ...tir.visit import nested, stored_buffers
from .arena import overlaid
from .launches import (
    TOP,
    Launch,
    Scope,
    Use,
    Varying,
    map_launches,
    tells_apart,
    uses_of,
    with_code,
)
from .owned import THREAD_SCOPES
from .rewrite import map_stmts, ranges_of, statements


def barriers(func: Func) -> Func:
    """Put a barrier before what needs an element as other threads have left it.

    for k in 4:                          for k in 4:
        S[tx] = A[k, tx]                     barrier("block")
        C[tx] = C[tx] + S[63 - tx]   ->      S[tx] = A[k, tx]
                                             barrier("block")
                                             C[tx] = C[tx] + S[63 - tx]

    Where the threads that depend on each other are all in one warp, it is a barrier of the warp.
    Raises `BuildError` for a barrier that not all threads would reach.
    """
    return map_launches(func, lambda launch: with_code(launch, _Synchroniser(launch).code()))


class _Level(IntEnum):
    """Which threads have to wait."""

    NONE = 0
    WARP = 1
    BLOCK = 2


_SCOPES = {_Level.WARP: BarrierScope.WARP, _Level.BLOCK: BarrierScope.BLOCK}

_COSTS = {BarrierScope.WARP: 1, BarrierScope.BLOCK: 4}

SAME, NEXT, LATER = "same", "next", "later"


class _Pending(NamedTuple):
    """A use that what comes next may depend on.

    `loops` relates their iterations of loops to those of what comes: it is at the same iteration,
    at the next one or at any later one. Threads of one warp have waited for it if it is `synced`.
    """

    use: Use
    loops: Mapping[Var, str]
    synced: bool = False


class _Synchroniser:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.overlaid = overlaid(launch)
        self.blocks = {f.var: f.extent for f in launch.blocks}
        self.threads = {f.var: f.extent for f in launch.threads if f.extent != 1}
        self.varying = Varying(launch)
        self.several_warps = launch.thread_count > WARP
        self.simplifier = Simplifier(ranges_of(launch.statement()))
        self.known: dict[object, _Level] = {}
        self.parts: dict[object, tuple[Stmt, list[_Pending]]] = {}
        stored = stored_buffers(launch.code)
        self.crossing = {b for b in stored if b.scope not in THREAD_SCOPES}
        """The buffers through which threads may depend on each other."""

    def code(self) -> Stmt:
        if not self.threads:
            return self.launch.code
        return self.fewer(self.visit(self.launch.code, TOP, [])[0])

    def fewer(self, code: Stmt) -> Stmt:
        """`code` without barriers that others, at other places, make unnecessary.

        One of a block may serve for what one of a warp before it and one of a block behind it do.
        """
        found = [s for s in statements(code) if type(s) is Barrier]
        by_all = set(self.by_all(code))
        for old in found:
            wider = Barrier(BarrierScope.BLOCK)
            changes: list[dict[Stmt, Barrier | None]] = [{old: None}]
            if old.scope is BarrierScope.WARP and old in by_all:
                changes += [{old: wider, b: None} for b in found if b.scope is BarrierScope.BLOCK]
            for change in changes:
                new, _ = self.visit(_exchanged(code, change), TOP, [])
                if _cost(new) < _cost(code):
                    return self.fewer(new)
        return code

    def by_all(self, s: Stmt) -> Iterator[Stmt]:
        """The barriers that all threads of a block reach."""
        if type(s) is Barrier:
            yield s
        elif not self.diverges(s):
            for child in nested(s):
                yield from self.by_all(child)

    # The code from the first statement on, with what is pending before and after

    def visit(self, s: Stmt, scope: Scope, pending: list[_Pending]) -> tuple[Stmt, list[_Pending]]:
        """`s` with barriers in it, or before it where it needs none inside."""
        if type(s) is Barrier:
            return s, _after(s.scope, pending)
        opened = isinstance(s, Seq | Let | Alloc)
        inside, found = (s, []) if opened else self.by_itself(s, scope)
        if opened or _cost(inside):
            self.require_uniform(s, inside)
            level = self.level(pending, list(self.own(s, scope)))
            if self.diverges(s) and self.level(pending, self.uses(s, scope)) > _Level.WARP:
                level = _Level.BLOCK  # all threads of the block wait before it, not inside
            before, pending = _waited(level, pending)
            new, pending = self.inside(s, scope, pending)
            return seq(*before, new), pending
        level = self.level(pending, [p.use for p in found])
        before, pending = _waited(level, pending)
        return seq(*before, s), [*pending, *found]

    def by_itself(self, s: Stmt, scope: Scope) -> tuple[Stmt, list[_Pending]]:
        """`s` with the barriers that it needs inside, whatever is before, and what is pending then.

        Where it needs none, others are put before all of it.
        """
        key = (s, *map(id, scope.loops), None, *map(id, scope.conditions))
        if key not in self.parts:
            uses = self.uses(s, scope)
            if any(u.writes for u in uses):
                self.parts[key] = self.inside(s, scope, [])
            else:
                self.parts[key] = s, _after_loops(uses, scope)
        return self.parts[key]

    def inside(self, s: Stmt, scope: Scope, pending: list[_Pending]) -> tuple[Stmt, list[_Pending]]:
        """`s` with barriers between the statements below it."""
        pending = [*pending, *_after_loops(self.own(s, scope), scope)]
        if type(s) is For:
            return self.loop(s, scope, pending)
        if type(s) is If:
            new = []
            ends: dict[int, _Pending] = {}
            for branch in nested(s):
                stmt, after = self.visit(branch, scope.below(s, branch), pending)
                new.append(stmt)
                ends |= {id(p): p for p in after}
            if s.other is None:
                ends |= {id(p): p for p in pending}
            same = all(a is b for a, b in zip(new, nested(s), strict=True))
            return (s if same else If(s.cond, *new)), list(ends.values())

        def child(c: Stmt) -> Stmt:
            nonlocal pending
            new, pending = self.visit(c, scope.below(s, c), pending)
            return new

        result = map_stmts(s, child)
        return (s if result is s else seq(*flat(result))), pending

    def loop(self, s: For, scope: Scope, pending: list[_Pending]) -> tuple[Stmt, list[_Pending]]:
        """A loop: what its first iteration needs of before it, and the others of the former one."""
        inner = scope.below(s, s.body)
        body, after = self.visit(s.body, inner, pending)
        if s.extent != 1:
            distance = NEXT if _waits(body) else LATER
            carried = [_carried(p, s.var, distance) for p in after if s.var in p.loops]
            before = [p for p in after if s.var not in p.loops]
            body, after = self.visit(body, inner, carried)
            after = [*before, *after] if not _waits(body) else after
        ended = [_without(p, s.var) for p in after]
        return (s if body is s.body else map_stmts(s, lambda _: body)), _distinct(ended)

    def own(self, s: Stmt, scope: Scope) -> Iterable[Use]:
        """The uses by `s` itself of memory that threads share."""
        return (u for u in scope.own_uses(s) if u.buffer in self.crossing)

    def uses(self, s: Stmt, scope: Scope) -> list[Use]:
        """The uses by all of `s` of memory that threads share."""
        return [u for u in uses_of(s, scope) if u.buffer in self.crossing]

    # What depends on what

    def level(self, pending: Sequence[_Pending], uses: Sequence[Use]) -> _Level:
        """The threads that have to wait between what is pending and `uses`."""
        level = _Level.NONE
        for p in pending:
            for use in uses:
                level = max(level, self.between(p, use))
                if level is _Level.BLOCK:
                    return level
        return level

    def between(self, p: _Pending, use: Use) -> _Level:
        first = p.use
        if not (first.writes or use.writes):
            return _Level.NONE
        if first.buffer is not use.buffer:
            both = frozenset((first.buffer, use.buffer))
            return _Level.BLOCK if both in self.overlaid else _Level.NONE
        relation = tuple(sorted((id(v), r) for v, r in p.loops.items()))
        key = (first.key, use.key, relation, p.synced)
        if key not in self.known:
            self.known[key] = self.decide(p, use)
        return self.known[key]

    def decide(self, p: _Pending, use: Use) -> _Level:
        if self.clash(p, use, self.warps_differ):
            return _Level.BLOCK
        if p.synced or not self.clash(p, use, _any):
            return _Level.NONE
        return _Level.WARP

    def clash(self, p: _Pending, use: Use, apart: Callable[[list[Expr], list[Expr]], Expr]) -> bool:
        """Whether two threads that are `apart` use one element, as far as is known."""
        extents = {f.var: f.extent for f in use.loops}
        outer = {**self.blocks, **{v: extents[v] for v, r in p.loops.items() if r == SAME}}
        if tells_apart(p.use, use, self.threads, outer, self.simplifier):
            return False
        carried = {v: r for v, r in p.loops.items() if r != SAME}
        loops = {**self.threads, **{v: extents[v] for v in carried}}
        count = len(self.threads)

        def order(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
            result: Expr = as_expr(False)
            for x, y in zip(a[:count], b[:count], strict=True):
                result = binary(Op.OR, result, binary(Op.NE, x, y))
            result = binary(Op.AND, result, apart(list(a[:count]), list(b[:count])))
            steps = zip(a[count:], b[count:], carried.values(), strict=True)
            for x, y, relation in steps:
                later = binary(Op.LT, x, y) if relation == LATER else binary(Op.EQ, x + 1, y)
                result = binary(Op.AND, result, later)
            return result

        shared = {*outer, *loops}
        found = conflict(p.use.access(shared), use.access(shared), outer, loops, order)
        return not found.apart

    def warps_differ(self, a: list[Expr], b: list[Expr]) -> Expr:
        if not self.several_warps:
            return as_expr(False)
        x, y = self.number(a), self.number(b)
        return binary(Op.NE, x // WARP, y // WARP)

    def number(self, places: list[Expr]) -> Expr:
        """The number of a thread in its block."""
        result: Expr = as_expr(0)
        for place, extent in zip(places, self.threads.values(), strict=True):
            result = result * extent + place
        return result

    # Where a barrier may stand

    def require_uniform(self, s: Stmt, inside: Stmt) -> None:
        """Require that all threads that wait in `inside` take the same branches of `s`."""
        if type(s) is not If:
            return
        added = {n.scope for n in statements(inside) if type(n) is Barrier}
        if any(self.varying(s.cond, scope) for scope in added):
            raise BuildError(
                "threads wait for each other where {0}, which does not hold for all of them",
                s.cond,
                hint="choose tiles that divide the loop, so that it needs no condition, or bind it "
                "so that the condition stands inside of each phase",
            )

    def diverges(self, s: Stmt) -> bool:
        """Whether threads of a block may take different branches of `s`."""
        return type(s) is If and self.varying(s.cond)


def _exchanged(s: Stmt, change: Mapping[Stmt, Barrier | None]) -> Stmt:
    """`s` with some barriers exchanged, or left out."""
    if type(s) is Barrier and s in change:
        new = change[s]
        return Seq(()) if new is None else new
    if type(s) is Seq:
        return seq(*[_exchanged(c, change) for c in s.stmts])
    return map_stmts(s, lambda c: _exchanged(c, change))


def _cost(s: Stmt) -> int:
    """How often a thread waits, where all of a block count as several of its warp."""
    if type(s) is Barrier:
        return _COSTS[s.scope]
    times = s.extent if type(s) is For and isinstance(s.extent, int) else 1
    return times * sum(map(_cost, nested(s)))


def _any(_a: list[Expr], _b: list[Expr]) -> Expr:
    return as_expr(True)


def _after_loops(uses: Iterable[Use], scope: Scope) -> list[_Pending]:
    """Uses by a statement in a scope, for what comes after that statement."""
    loops = {f.var: SAME for f in scope.loops}
    return [_Pending(use, loops) for use in uses]


def _waited(level: _Level, pending: list[_Pending]) -> tuple[list[Stmt], list[_Pending]]:
    """The barrier of a level, and what is pending behind it."""
    if level is _Level.NONE:
        return [], pending
    scope = _SCOPES[level]
    return [Barrier(scope)], _after(scope, pending)


def _after(scope: BarrierScope, pending: list[_Pending]) -> list[_Pending]:
    if scope is BarrierScope.BLOCK:
        return []
    return [p._replace(synced=True) for p in pending]


def _carried(p: _Pending, var: Var, distance: str) -> _Pending:
    return p._replace(loops={v: distance if v is var else r for v, r in p.loops.items()})


def _without(p: _Pending, var: Var) -> _Pending:
    return p._replace(loops={v: r for v, r in p.loops.items() if v is not var})


def _waits(s: Stmt) -> bool:
    """Whether all threads wait for each other whenever `s` runs."""
    if type(s) is Barrier:
        return s.scope is BarrierScope.BLOCK
    return type(s) is not If and any(map(_waits, nested(s)))


def _distinct(pending: list[_Pending]) -> list[_Pending]:
    found: dict[object, _Pending] = {}
    for p in pending:
        relation = tuple(sorted((id(v), r) for v, r in p.loops.items()))
        found.setdefault((p.use.key, relation, p.synced), p)
    return list(found.values())
