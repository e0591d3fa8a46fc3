"""Combine what the threads of a row hold in part: by shuffles, and through shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...tir.combiners import highest, lowest
from ...tir.dependence import conflict
from ...tir.equality import flat
from ...tir.ir import (
    WARP,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    Var,
    binary,
    const,
    load,
    select,
    seq,
    store,
    warp_shuffle,
)
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction, conjuncts, key_of
from ...tir.visit import substitute, walk, with_func_body
from .launches import Launch, Use, Varying, launch_of, tells_apart, uses_of, with_code
from .owned import THREAD_SCOPES, differ
from .rewrite import map_stmts, ranges_of, statements

_COMBINING = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX})
_IN_ORDER = (ForKind.SERIAL, ForKind.UNROLL)


def collectives(func: Func) -> Func:
    """Let all threads of a row combine what they hold in part, where one of them would do it alone.

    if tx == 0:                               x = P[tx] + shuffle(P[tx], 16)
        R[0] = 0                              y = x + shuffle(x, 8)
        for r in 32: R[0] = R[0] + P[r]   ->  ..
                                              R[0] = ..

    Element `tx` of `P` has to be the thread's own; it is then held by the thread. A row are the
    threads that differ in threadIdx.x only. Those of several warps exchange the results of warps
    through shared memory. All of them then have the result, and what one thread would compute of
    results alone all of them do: these buffers become the threads' own too.
    """
    allocs = list(func.allocs)
    stmts = list[Stmt]()
    for stmt in flat(func.body):
        worker = _Collectives(launch_of(stmt), func, allocs)
        new = worker.run()
        stmts.append(stmt if new is worker.launch else new.statement())
        allocs = worker.allocs
        renamed = worker.renamed
        stmts[-1] = substitute(stmts[-1], renamed)
        allocs = [renamed.get(b, b) for b in allocs]
    if allocs == list(func.allocs) and all(
        a is b for a, b in zip(flat(func.body), stmts, strict=True)
    ):
        return func
    return replace(with_func_body(func, seq(*stmts)), allocs=tuple(allocs))


class _Partial(NamedTuple):
    """A reduction by one thread: `result[at]` is `start` combined with elements of `parts`.

    `place` are the indices of an element, in which `var` counts the parts up to `extent`. `guards`
    are the conditions under which it is combined, `outside` those of all of it.
    """

    op: Op
    result: Buffer
    at: tuple[Expr, ...]
    start: Const
    parts: Buffer
    place: tuple[Expr, ...]
    var: Var
    extent: int
    guards: tuple[Expr, ...]
    outside: tuple[Expr, ...]


class _Collectives:
    """The collectives of one launch; notes new buffers, and those that get another scope."""

    def __init__(self, launch: Launch, func: Func, allocs: Sequence[Buffer]) -> None:
        self.launch, self.func, self.allocs = launch, func, list(allocs)
        self.renamed: dict[Buffer, Buffer] = {}
        row = launch.threads[-1]
        assert isinstance(row.extent, int)
        self.lane, self.threads = row.var, row.extent
        self.others = {f.var: f.extent for f in (*launch.blocks, *launch.threads[:-1])}
        self.simplifier = Simplifier(ranges_of(launch.statement()))
        self.uses = uses_of(launch.code)
        self.varying = Varying(launch)
        self.elsewhere = {
            n
            for s in flat(func.body)
            if launch_of(s).code is not launch.code
            for n in walk(s)
            if type(n) is Buffer
        }

    def run(self) -> Launch:
        count = self.threads
        powers = count <= WARP and count & (count - 1) == 0
        if count == 1 or not (powers or count % WARP == 0):
            return self.launch
        code = self.visit(self.launch.code)
        if code is self.launch.code:
            return self.launch
        while True:
            again = self.replicated(code)
            if again is code:
                return with_code(self.launch, code)
            code = again

    def visit(self, s: Stmt) -> Stmt:
        """`s` where all threads of a row get to it at once."""
        if type(s) is If:
            rest = self.of_first_lane(s)
            if rest is not None:
                new = self.converted(s.then, rest)
                return s if new is None else new
            if self.varying(s.cond):
                return s
        return map_stmts(s, self.visit)

    def of_first_lane(self, s: If) -> tuple[Expr, ...] | None:
        """The other conditions of what only the first thread of a row runs; `None` of others."""
        conditions = conjuncts(s.cond)
        first = [c for c in conditions if self.is_first(c)]
        if not first or s.other is not None:
            return None
        return tuple(c for c in conditions if not self.is_first(c))

    def is_first(self, c: Expr) -> bool:
        if type(c) is not Binary or c.op is not Op.EQ or type(c.b) is not Const:
            return False
        return c.a is self.lane and c.b.value == 0

    # What one thread combines

    def converted(self, s: Stmt, outside: tuple[Expr, ...]) -> Stmt | None:
        """What all threads run instead of what the first one does in `s`; `None` if that is all."""
        stmts = flat(s)
        new = list[Stmt]()
        found = False
        n = 0
        while n < len(stmts):
            pair = stmts[n : n + 2]
            partial = self.partial(pair[0], pair[1], outside) if len(pair) == 2 else None
            if partial is not None and self.holds_parts(partial, stmts[n : n + 2]):
                new.append(self.combined(partial))
                self.rescope(partial.parts)
                found, n = True, n + 2
                continue
            inner = self.nested(stmts[n], outside)
            new.append(self.alone(stmts[n], outside) if inner is None else inner)
            found, n = found or inner is not None, n + 1
        return seq(*new) if found else None

    def nested(self, s: Stmt, outside: tuple[Expr, ...]) -> Stmt | None:
        """`converted` of what is in a loop or under a condition."""
        if type(s) is If and s.other is None:
            return self.converted(s.then, (*outside, *conjuncts(s.cond)))
        if type(s) is For and s.kind in _IN_ORDER:
            body = self.converted(s.body, outside)
            return None if body is None else replace(s, body=body)
        return None

    def alone(self, s: Stmt, outside: tuple[Expr, ...]) -> Stmt:
        """`s` for the first thread of a row, as before."""
        return _under((*outside, binary(Op.EQ, self.lane, const(0))), s)

    def partial(self, init: Stmt, loop: Stmt, outside: tuple[Expr, ...]) -> _Partial | None:
        """The reduction that a statement and a loop behind it are."""
        own, start = _peeled(init)
        if type(loop) is If:
            around, inner = _peeled(loop)
        else:
            around, inner = (), loop
        if type(start) is not Store or type(inner) is not For or type(start.value) is not Const:
            return None
        if inner.kind not in _IN_ORDER or not isinstance(inner.extent, int):
            return None
        guards, update = _peeled(inner.body)
        if type(update) is not Store or update.buffer is not start.buffer:
            return None
        value = update.value
        if type(value) is not Binary or value.op not in _COMBINING:
            return None
        result = key_of(Load(update.buffer, update.indices, update.buffer.dtype))
        sides = [e for e in (value.a, value.b) if key_of(e) != result]
        if len(sides) != 1 or type(sides[0]) is not Load:
            return None
        at = tuple(map(key_of, start.indices)) == tuple(map(key_of, update.indices))
        fixed = tuple(c for c in guards if not _mentions(c, inner.var))
        same = {key_of(c) for c in own} == {key_of(c) for c in (*around, *fixed)}
        part = sides[0]
        if not at or not same or inner.extent > self.threads or part.buffer is start.buffer:
            return None
        moving = tuple(c for c in guards if _mentions(c, inner.var))
        return _Partial(
            value.op,
            start.buffer,
            start.indices,
            start.value,
            part.buffer,
            part.indices,
            inner.var,
            inner.extent,
            moving,
            (*outside, *own),
        )

    def holds_parts(self, p: _Partial, own: Sequence[Stmt]) -> bool:
        """Whether the part with a thread's number is used by that thread alone otherwise."""
        dims = [d for d, i in enumerate(p.place) if _mentions(i, p.var)]
        if len(dims) != 1 or p.place[dims[0]] is not p.var:
            return False
        if p.parts not in self.func.allocs or p.parts.scope in THREAD_SCOPES:
            return False
        inside = {id(n) for s in own for n in walk(s)}
        uses = [
            n
            for n in walk(self.launch.code)
            if isinstance(n, Load | Store) and n.buffer is p.parts and id(n) not in inside
        ]
        own_place = all(n.indices[dims[0]] is self.lane for n in uses)
        return own_place and p.parts not in self.elsewhere and self.is_of_rows(p.parts)

    def combined(self, p: _Partial) -> Stmt:
        """The reduction by all threads of a row."""
        here = {p.var: self.lane}
        guards = [*p.outside, *(substitute(c, here) for c in p.guards)]
        if p.extent < self.threads:
            guards.append(binary(Op.LT, self.lane, const(p.extent)))
        part = load(p.parts, tuple(substitute(i, here) for i in p.place))
        condition = conjunction(guards)
        identity = _identity(p.op, p.parts.dtype)
        value = part if condition is None else select(condition, part, identity)
        name = p.result.name
        lets = list[tuple[Var, Expr]]()

        def named(value: Expr) -> Var:
            var = Var(name, value.dtype)
            lets.append((var, value))
            return var

        x: Expr = named(value)
        offset = min(self.threads, WARP) // 2
        while offset:
            x = named(binary(p.op, x, warp_shuffle(x, offset)))
            offset //= 2
        if self.threads <= WARP:
            return _bound(lets, self.finish(p, x))
        return self.between_warps(p, x, lets)

    def between_warps(self, p: _Partial, x: Expr, lets: list[tuple[Var, Expr]]) -> Stmt:
        """The rest of a reduction whose row has several warps, each of which has its result."""
        warps = self.threads // WARP
        outer = self.launch.threads[:-1]
        shape = (*(f.extent for f in outer), warps)
        of_warps = Buffer(f"{p.result.name}_warps", shape, p.parts.dtype, scope="shared")
        self.allocs.append(of_warps)
        place = tuple(f.var for f in outer)
        first = binary(Op.EQ, self.lane % WARP, const(0))
        stored = _bound(lets, If(first, store(of_warps, (*place, self.lane // WARP), x)))
        terms: list[Expr] = [load(of_warps, (*place, n)) for n in range(warps)]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            rest = terms[len(terms) // 2 * 2 :]
            terms = [*(binary(p.op, a, b) for a, b in pairs), *rest]
        total = Var(p.result.name, p.parts.dtype)
        return seq(stored, Let(total, terms[0], self.finish(p, total)))

    def finish(self, p: _Partial, x: Expr) -> Stmt:
        """The store of the result, by the first thread of the row until all are known to use it."""
        if key_of(p.start) != key_of(_identity(p.op, p.parts.dtype)):
            x = binary(p.op, p.start, x)
        return self.alone(store(p.result, p.at, x), p.outside)

    # What all threads of a row may compute

    def replicated(self, code: Stmt) -> Stmt:
        """`code` in which one more buffer is each thread's own, by all that the first one did."""
        written: dict[Buffer, list[Store]] = {}
        for s in statements(code):
            if type(s) is Store:
                written.setdefault(s.buffer, []).append(s)
        for s in statements(code):
            if type(s) is not If or self.of_first_lane(s) is None or type(s.then) is not Store:
                continue
            b = s.then.buffer
            if len(written[b]) == 1 and self.is_rows_own(s.then, written):
                self.rescope(b)
                return _without_first(code, s, _under(self.of_first_lane(s) or (), s.then))
        return code

    def is_rows_own(self, s: Store, written: Mapping[Buffer, Sequence[Store]]) -> bool:
        """Whether all threads of a row may store `s` for themselves, and no others read it."""
        b = s.buffer
        if b not in self.func.allocs or b in self.elsewhere or b in self.renamed:
            return False
        loads = [n.buffer for n in walk(s.value) if type(n) is Load]
        known = all(
            x not in written or x in self.renamed or x.scope in THREAD_SCOPES for x in loads
        )
        if not known or any(_mentions(i, self.lane) for i in s.indices):
            return False
        return self.is_of_rows(b)

    def is_of_rows(self, b: Buffer) -> bool:
        """Whether each element is used by the threads of one row."""
        moving = {v: n for v, n in self.others.items() if n != 1}
        uses = [u for u in self.uses if u.buffer is b]

        def apart(a: Use, u: Use) -> bool:
            if tells_apart(a, u, moving, (), self.simplifier):
                return True
            return conflict(a.access(moving), u.access(moving), {}, moving, differ).apart

        return not moving or all(apart(a, u) for a in uses if a.writes for u in uses)

    def rescope(self, b: Buffer) -> None:
        """Give each thread a buffer of its own."""
        self.renamed[b] = replace(b, scope="local")


def _peeled(s: Stmt) -> tuple[tuple[Expr, ...], Stmt]:
    """The conditions around a statement, and it."""
    conditions: tuple[Expr, ...] = ()
    while type(s) is If and s.other is None:
        conditions, s = (*conditions, *conjuncts(s.cond)), s.then
    return conditions, s


def _under(conditions: Sequence[Expr], s: Stmt) -> Stmt:
    condition = conjunction(conditions)
    return s if condition is None else If(condition, s)


def _bound(lets: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return body


def _mentions(e: Expr, var: Var) -> bool:
    return any(n is var for n in walk(e))


def _without_first(code: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if code is old:
        return new
    return map_stmts(code, lambda c: _without_first(c, old, new))


def _identity(op: Op, dtype: str) -> Const:
    """The value that changes nothing."""
    if op in (Op.ADD, Op.MUL):
        return const(0 if op is Op.ADD else 1, dtype)
    return highest(dtype) if op is Op.MIN else lowest(dtype)
