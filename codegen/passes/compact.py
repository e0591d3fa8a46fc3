"""Shrink internal buffers to what is live at once, and allocate them where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ...tir.clamps import unclamped
from ...tir.conditions import conjuncts
from ...tir.ir import (
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Var,
    integers,
)
from ...tir.polynomial import (
    HIGH,
    LOW,
    ONE,
    Poly,
    add,
    constant,
    factors,
    identity,
    negated,
    shifted,
)
from ...tir.simplify import Simplifier
from ...tir.visit import children, nested, rewrite_children, walk
from .guards import is_bound, slack
from .rewrite import allocated, simplifier_of, variables_of


def compact(func: Func) -> Func:
    """Move each internal buffer into the innermost loop around all its accesses, and shrink it.

    The new shape is what one iteration of that loop touches.

    B of 64 elements                         for i in 8:
    for i in 8:                                  alloc B of 8 elements
        for j in 8: B[i * 8 + j] = ...    ->     for j in 8: B[j] = ...
        for j in 8: C[..] = B[i * 8 + j]         for j in 8: C[..] = B[j]

    A buffer is not moved into a loop whose iterations pass elements of it on to each other, nor
    into a vectorized loop.
    """
    if not func.allocs:
        return func
    s = simplifier_of(func)
    scalars = frozenset(p for p in func.params if isinstance(p, Var))
    accesses, hints = _accesses(func)
    plans = {b: _plan(b, accesses[b], hints[b], scalars, s) for b in func.allocs if accesses[b]}
    made: dict[Stmt | None, list[Buffer]] = {}
    for plan in plans.values():
        made.setdefault(plan.at, []).append(plan.buffer)

    def moved(indices: tuple[Expr, ...], plan: _Plan) -> tuple[Expr, ...]:
        return tuple(
            visit(s.build(add(s.poly(i), low, -1)) if low else i)
            for i, low in zip(indices, plan.low, strict=True)
        )

    def visit(n: Any) -> Any:
        if isinstance(n, Load | Store | Prefetch) and n.buffer in plans:
            plan = plans[n.buffer]
            new = replace(n, buffer=plan.buffer, indices=moved(n.indices, plan))
            return replace(new, value=visit(new.value)) if isinstance(new, Store) else new
        if isinstance(n, Prefetch) and n.buffer in func.allocs:
            return Seq(())  # it is not even read
        if not isinstance(n, Expr | Stmt):
            return n
        rewritten: Any = rewrite_children(n, visit)
        if n in made and isinstance(n, For):
            return replace(rewritten, body=allocated(made[n], rewritten.body))
        return rewritten

    body = allocated(made.get(None, []), visit(func.body))
    return replace(func, body=body, allocs=())


_Path: TypeAlias = tuple[Stmt, ...]


class _Access(NamedTuple):
    """The indices of a load or store, and the statements around it, outermost first."""

    indices: tuple[Expr, ...]
    writes: bool
    path: _Path


class _Plan(NamedTuple):
    """The new buffer, the loop whose body it lives in, and the offset of each index."""

    buffer: Buffer
    at: For | None
    low: tuple[Poly, ...]


def _accesses(func: Func) -> tuple[dict[Buffer, list[_Access]], dict[Buffer, list[_Path]]]:
    """The accesses of each internal buffer, in the order of execution, and where its hints are."""
    found: dict[Buffer, list[_Access]] = {b: [] for b in func.allocs}
    hints: dict[Buffer, list[_Path]] = {b: [] for b in func.allocs}

    def loads(e: Any, path: _Path) -> None:
        for n in walk(e):
            if type(n) is Load and n.buffer in found:
                found[n.buffer].append(_Access(n.indices, False, path))

    def visit(s: Stmt, above: _Path) -> None:
        path = (*above, s)
        for e in children(s):
            if isinstance(e, Expr):
                loads(e, path)
        if type(s) is Store and s.buffer in found:
            found[s.buffer].append(_Access(s.indices, True, path))
        if type(s) is Prefetch and s.buffer in hints:
            hints[s.buffer].append(path)
        for c in nested(s):
            visit(c, path)

    visit(func.body, ())
    return found, hints


def _plan(
    b: Buffer,
    accesses: list[_Access],
    hints: list[_Path],
    scalars: frozenset[Var],
    s: Simplifier,
) -> _Plan:
    around: list[For] = []
    for level in zip(*(a.path for a in accesses), *hints, strict=False):
        if any(stmt is not level[0] for stmt in level):
            break
        if type(level[0]) is For:
            if level[0].kind is ForKind.VECTOR:
                break
            around.append(level[0])
    while True:
        fixed = scalars | {f.var for f in around}
        dims = [_span(b, d, accesses, fixed, s) for d in range(len(b.shape))]
        depth = len(around)
        if not _is_filled_first(accesses, around, dims, fixed, s):
            depth = _private_depth(around, dims, s)
        if not any(f.var in _moving(dims) for f in around[depth:]):
            break
        around.pop()
    buffer = replace(b, shape=tuple(d.extent for d in dims), strides=None)
    return _Plan(buffer, around[depth - 1] if depth else None, tuple(d.low for d in dims))


class _Span(NamedTuple):
    """The touched part of a dimension: `extent` elements from `low` on, in terms of outer loops."""

    low: Poly
    extent: int


def _span(
    b: Buffer, dim: int, accesses: Sequence[_Access], fixed: frozenset[Var], s: Simplifier
) -> _Span:
    whole = _Span({}, integers(b.shape)[dim])
    base: Poly | None = None
    low, high, least_end, most_end = HIGH, LOW, HIGH, LOW
    for access in accesses:
        free = unclamped(access.indices[dim])
        start, least, most = _reach(free.bare, fixed, s)
        if base is not None and base != start:
            return whole
        base, low, high = start, min(low, least), max(high, most)
        least_end, most_end = min((least_end, *free.at_most)), max((most_end, *free.at_least))
    assert base is not None, "only accessed buffers are planned"
    # What is clamped stays in the span if the span reaches into each clamp.
    first, last = s.interval(base)
    if first + high < most_end or last + low > least_end:
        return whole
    extent = high - low + 1
    if not base and extent == whole.extent:
        return whole
    if extent > whole.extent and b.scope != "register":
        # Guards keep the accesses inside; registers are cut into whole vectors all the same.
        return whole
    return _Span(shifted(base, low), extent)


def _reach(index: Expr, fixed: frozenset[Var], s: Simplifier) -> tuple[Poly, int, int]:
    """The fixed part of an index, and the least and most that the rest adds to it."""
    base: Poly = {}
    low = high = 0
    for key, c in s.poly(index).items():
        if key is ONE:
            low, high = low + c, high + c
        elif _is_fixed(key, fixed):
            base[key] = c
        else:
            ends = s.ends(key)
            low += c * (ends[0] if c > 0 else ends[1])
            high += c * (ends[1] if c > 0 else ends[0])
    return base, low, high


def _is_fixed(key: Any, fixed: frozenset[Var]) -> bool:
    return all(
        n in fixed for f in factors(key) for n in walk(f) if type(n) is Var or type(n) is Load
    )


def _moving(dims: Sequence[_Span]) -> set[Var]:
    """The variables that the spans start with."""
    return {v for d in dims for v in variables_of(d.low)}


def _private_depth(around: Sequence[For], dims: Sequence[_Span], s: Simplifier) -> int:
    """How many of the loops around, from outside, pass no element on to another iteration.

    Iterations of a parallel loop pass nothing on; if the spans do not move with one, neither does
    any loop outside of it. Another loop passes nothing on if an element determines its iteration.
    """
    moving = _moving(dims)
    private = [f.kind is ForKind.PARALLEL for f in around]
    for depth, f in enumerate(around):
        if f.kind is ForKind.PARALLEL and f.var not in moving:
            private[: depth + 1] = [True] * (depth + 1)
    apart: set[Var] = set()
    for d in dims:
        below = d.extent
        terms = [(abs(c), k) for k, c in d.low.items() if type(k) is Var]
        for step, var in sorted(terms, key=lambda t: t[0]):
            if step < below:
                break
            low, high = s.ends(var)
            below += step * (high - low)
            apart.add(var)
    for depth, f in enumerate(around):
        if not private[depth] and f.var not in apart:
            return depth
    return len(around)


def _is_filled_first(
    accesses: Sequence[_Access],
    around: Sequence[For],
    dims: Sequence[_Span],
    fixed: frozenset[Var],
    s: Simplifier,
) -> bool:
    """Whether each iteration of the innermost loop writes everything it reads before reading it."""
    first = accesses[0]
    if not first.writes or not around:
        return False
    for d, span in enumerate(dims):
        base, low, high = _reach(first.indices[d], fixed, s)
        if add(shifted(base, low), negated(span.low)) or high - low + 1 != span.extent:
            return False
    needed = _conditions(first, around[-1], s)
    return all(needed <= _conditions(a, around[-1], s) for a in accesses if not a.writes)


def _conditions(access: _Access, loop: For, s: Simplifier) -> frozenset[object]:
    """The conditions inside `loop` that an access runs under.

    Bounds of one of its indices are expressed by that index, so that those of a write and of a read
    are comparable.
    """
    found: set[object] = set()
    inside = access.path[access.path.index(loop) + 1 :]
    indices = [s.poly(i) for i in access.indices]
    for c in (c for n in inside if type(n) is If for c in conjuncts(n.cond)):
        if not is_bound(c):
            found.add(c)
            continue
        p = slack(c, s)
        rests = (add(p, q) for q in indices)
        bounds = [(d, end) for d, r in enumerate(rests) if (end := constant(r)) is not None]
        found.add(bounds[0] if bounds else identity(p))
    return frozenset(found)
