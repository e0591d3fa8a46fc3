"""Move several elements at once: vectorized loops of devices."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any, NamedTuple

from ...base import dtypes
from ...tir.ir import (
    INDEX,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    Op,
    Select,
    Stmt,
    Store,
    Var,
    const,
    seq,
)
from ...tir.polynomial import ONE, Poly, factors
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction, conjuncts, key_of
from ...tir.visit import children, rewrite_children, substitute, walk, with_func_body
from .guards import is_bound, slack
from .owned import THREAD_SCOPES
from .rewrite import (
    adjacent,
    allocated,
    decided,
    fresh,
    map_exprs,
    map_stmts,
    may_trap,
    renewed,
    simplifier_of,
)

MAX_BYTES, MIN_BYTES = 16, 4
"""The bytes that a thread moves at once."""


def vectors(func: Func) -> Func:
    """Replace vectorized loops by moves of up to 16 bytes, and unrolled loops between them.

    for v in vectorized(4): C[i * 4 + v] = A[i * 4 + v] + 1.0
    ->  alloc A_vector, C_vector of 4 elements
        A_vector[ramp(0, 1, 4)] = A[ramp(i * 4, 1, 4)]
        for v in unrolled(4): C_vector[v] = A_vector[v] + 1.0
        C[ramp(i * 4, 1, 4)] = C_vector[ramp(0, 1, 4)]

    An access is moved where its elements lie side by side and start at a multiple of their bytes.
    Where a guard may hold for some lanes only, they are then taken one by one.
    """
    return with_func_body(func, _visit(func.body, simplifier_of(func)))


def _visit(s: Stmt, simplifier: Simplifier) -> Stmt:
    if type(s) is For and s.kind is ForKind.VECTOR:
        return _vector(s, simplifier)
    return map_stmts(s, lambda c: _visit(c, simplifier))


def _vector(loop: For, s: Simplifier) -> Stmt:
    """A vectorized loop as moves, or where nothing can be moved as an unrolled loop."""
    conditions: list[Expr] = []
    body = map_exprs(loop.body, lambda e: _without_carry(e, loop, s))
    loop = replace(loop, body=body)
    while type(body) is If and body.other is None:
        conditions += conjuncts(body.cond)
        body = body.then
    plain = replace(loop, kind=ForKind.UNROLL)
    if type(body) is not Store or not isinstance(loop.extent, int):
        return plain
    chosen = _chosen(loop, conditions, body, s)
    if chosen is not None:
        return chosen
    moved = _moves(loop, body, s)
    if moved is None:
        return plain
    guards = _guards(conditions, loop, s)
    if guards is None:
        return plain
    outer, each = guards
    whole = conjunction([_for_all(c, loop, s) for c in each])
    if whole is not None:
        single = _under(each, body)
        moved = If(whole, moved, fresh(replace(plain, body=single)))
    return decided(_under(outer, moved))


def _guards(
    conditions: list[Expr], loop: For, s: Simplifier
) -> tuple[list[Expr], list[Expr]] | None:
    """The conditions that are the same in all lanes, and the others; `None` if it is not known."""
    outer, each = list[Expr](), list[Expr]()
    for c in conditions:
        if not _mentions(c, loop.var):
            outer.append(c)
        elif not is_bound(c):
            return None
        elif _alike(c, loop, s):
            outer.append(s(substitute(c, {loop.var: const(0)})))
        else:
            each.append(c)
    return outer, each


def _chosen(loop: For, conditions: list[Expr], store: Store, s: Simplifier) -> Stmt | None:
    """A vectorized loop that stores elements or zeros as a choice between two loops.

    `None` unless all lanes make the same choice, and elements that are loaded can be moved. A
    choice that reads memory or divides is made where the `conditions` hold.
    """
    value = load = store.value
    while type(load) is Select:
        load = load.then
    if type(value) is not Select or type(load) is not Load:
        return None
    if _place(load.buffer, load.indices[0], loop, s) is None:
        return None
    outer = list[Expr]()
    for c in conjuncts(value.cond):
        if _mentions(c, loop.var):
            if not (is_bound(c) and _alike(c, loop, s)):
                return None
            c = s(substitute(c, {loop.var: const(0)}))
        outer.append(c)
    condition = conjunction(outer)
    assert condition is not None
    around = list[Expr]()
    if any(type(n) is Load or (type(n) is Binary and may_trap(n)) for n in walk(condition)):
        guards = _guards(conditions, loop, s)
        if guards is None or guards[1]:
            return None
        around, conditions = guards[0], []
    then, other = (
        _vector(replace(loop, body=_under(conditions, replace(store, value=x))), s)
        for x in (value.then, value.other)
    )
    return decided(_under(around, If(condition, then, fresh(other))))


def _without_carry(e: Expr, loop: For, s: Simplifier) -> Expr:
    """`e` with quotients and remainders in which the lanes do not carry taken apart.

    (t * 4 + v) // 8  ->  t // 2        (t * 4 + v) % 8  ->  t % 2 * 4 + v        for v < 4
    """

    def visit(c: Any) -> Any:
        return _without_carry(c, loop, s) if isinstance(c, Expr) else c

    if type(e) is Var or type(e) is Const or not _mentions(e, loop.var):
        return e
    e = rewrite_children(e, visit)
    if type(e) is not Binary or e.op not in (Op.FLOORDIV, Op.MOD) or type(e.b) is not Const:
        return e
    if e.dtype != INDEX or e.b.value <= 0:
        return e
    p = dict(s.poly(e.a))
    step = p.pop(loop.var, 0)
    if _moves_in(p, loop.var) or not s.fits(s.poly(e.a)):
        return e
    if not 0 <= step * (_extent(loop) - 1) < gcd(int(e.b.value), *p.values()):
        return e
    first = s(substitute(e, {loop.var: const(0)}))
    return first if e.op is Op.FLOORDIV else first + loop.var * step


def _mentions(e: Expr, var: Var) -> bool:
    return any(n is var for n in walk(e))


def _under(conditions: list[Expr], then: Stmt) -> Stmt:
    condition = conjunction(conditions)
    return then if condition is None else If(condition, then)


def _alike(c: Expr, loop: For, s: Simplifier) -> bool:
    """Whether a bound holds for all lanes or for none, since they start at a multiple of lanes."""
    p = dict(slack(c, s))
    if p.pop(loop.var, 0) != -1 or _moves_in(p, loop.var):
        return False
    p[ONE] = p.get(ONE, 0) + 1
    return all(x % _extent(loop) == 0 for x in p.values())


def _for_all(c: Expr, loop: For, s: Simplifier) -> Expr:
    """The bound of the lane that fails first."""
    p = slack(c, s)
    if _moves_in({k: x for k, x in p.items() if k is not loop.var}, loop.var):
        lanes = [substitute(c, {loop.var: const(n)}) for n in range(_extent(loop))]
        every = conjunction(lanes)
        assert every is not None
        return s(every)
    last = const(_extent(loop) - 1 if p.get(loop.var, 0) < 0 else 0)
    return s(substitute(c, {loop.var: last}))


class _Place(NamedTuple):
    """Where the elements of all lanes lie: from `base` on, `lanes` of them moved at once."""

    base: Expr
    lanes: int


def _moves(loop: For, store: Store, s: Simplifier) -> Stmt | None:
    """The store of all lanes; `None` where nothing is moved."""
    var, count = loop.var, _extent(loop)
    target = _place(store.buffer, store.indices[0], loop, s)
    value = store.value
    if type(value) is Load and target is not None:
        source = _place(value.buffer, value.indices[0], loop, s)
        if source is not None:
            lanes = min(target.lanes, source.lanes)
            return _copies(store.buffer, target.base, value.buffer, source.base, lanes, count)
    temporaries = list[Buffer]()
    before = list[Stmt]()
    held: dict[object, Load] = {}
    for load in _certain_loads(value):
        place = _place(load.buffer, load.indices[0], loop, s)
        if place is None or load.buffer.scope in THREAD_SCOPES or key_of(load) in held:
            continue
        own = _temporary(load.buffer, count)
        temporaries.append(own)
        before.append(_copies(own, const(0), load.buffer, place.base, place.lanes, count))
        held[key_of(load)] = Load(own, (var,), load.dtype)
    own_value = _with_loads(value, held)
    if target is not None and store.buffer.scope not in THREAD_SCOPES:
        own = _temporary(store.buffer, count)
        temporaries.append(own)
        inner: Stmt = Store(own, (var,), own_value)
        after = [_copies(store.buffer, target.base, own, const(0), target.lanes, count)]
    else:
        inner, after = Store(store.buffer, store.indices, own_value), []
    if not temporaries:
        return None
    lane = renewed(var)
    inner = substitute(replace(loop, kind=ForKind.UNROLL, body=inner).body, {var: lane})
    unrolled = replace(loop, var=lane, kind=ForKind.UNROLL, body=inner)
    return allocated(temporaries, seq(*before, unrolled, *after))


def _temporary(b: Buffer, count: int) -> Buffer:
    return Buffer(f"{b.name}_vector", (count,), b.dtype, scope="local")


def _place(b: Buffer, index: Expr, loop: For, s: Simplifier) -> _Place | None:
    """The place of an access whose lanes lie side by side and can be moved."""
    p = dict(s.poly(index))
    if p.pop(loop.var, 0) != 1 or _moves_in(p, loop.var):
        return None
    size = dtypes.nbytes(b.dtype)
    lanes = gcd(_extent(loop), MAX_BYTES // size, *p.values())
    lanes &= -lanes  # the largest power of two in it
    if lanes == 1 or lanes * size < MIN_BYTES:
        return None
    return _Place(s(s.build(p)), lanes)


def _moves_in(p: Poly, var: Var) -> bool:
    """Whether a polynomial depends on a variable."""
    return any(n is var for key in p for f in factors(key) for n in walk(f))


def _copies(target: Buffer, to: Expr, source: Buffer, start: Expr, lanes: int, count: int) -> Stmt:
    """Moves of `count` elements, `lanes` at once."""
    dtype = dtypes.vector(source.dtype, lanes)
    return seq(
        *(
            Store(
                target,
                (adjacent(to + n, lanes),),
                Load(source, (adjacent(start + n, lanes),), dtype),
            )
            for n in range(0, count, lanes)
        )
    )


def _certain_loads(e: Expr) -> list[Load]:
    """The loads that are evaluated whatever conditions hold."""
    if type(e) is Select:
        return _certain_loads(e.cond)
    below = [x for c in children(e) if isinstance(c, Expr) for x in _certain_loads(c)]
    return [*below, e] if type(e) is Load else below


def _with_loads(e: Expr, held: dict[object, Load]) -> Expr:
    if type(e) is Load and key_of(e) in held:
        return held[key_of(e)]
    return rewrite_children(e, lambda c: _with_loads(c, held) if isinstance(c, Expr) else c)


def _extent(loop: For) -> int:
    assert isinstance(loop.extent, int)
    return loop.extent
