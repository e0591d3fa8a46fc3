"""Shrink internal buffers to what is live at once, and allocate them where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple, TypeAlias

from ...tir.dependence import Access, beyond
from ...tir.digits import Digit, digit_of, telling
from ...tir.ir import (
    Buffer,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    Prefetch,
    Range,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    call,
    integers,
)
from ...tir.piecewise import unclamped
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
from ...tir.structure import conjuncts, key_of
from ...tir.visit import children, nested, rewrite_children, walk
from .guards import is_bound, slack
from .launches import THREAD_AXES
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
    return _compacted(func, func.allocs, on_device=False)


def compact_on_device(func: Func) -> Func:
    """`compact` of a program whose launches have one nest of threads each.

    Buffers of scope `global` stay where they are. Those of scope `shared` move out of the loops
    over threads, whatever they shrink to further in. Elements of threads' buffers that are never
    used between others are left out: of `R[i * 8]` for 4 iterations there remain 4.
    """
    own = tuple(b for b in func.allocs if b.scope != "global")
    return _compacted(func, own, on_device=True)


def _compacted(func: Func, buffers: tuple[Buffer, ...], *, on_device: bool) -> Func:
    if not buffers:
        return func
    s = simplifier_of(func)
    scalars = frozenset(p for p in func.params if isinstance(p, Var))
    accesses, hints = _accesses(func, buffers)
    plans = {
        b: _plan(b, accesses[b], hints[b], scalars, s, on_device=on_device)
        for b in buffers
        if accesses[b]
    }
    made: dict[Stmt | None, list[Buffer]] = {}
    shared: dict[Stmt, list[Buffer]] = {}
    for plan in plans.values():
        if plan.around is None:
            made.setdefault(plan.at, []).append(plan.buffer)
        else:
            shared.setdefault(plan.around, []).append(plan.buffer)

    def moved(indices: tuple[Expr, ...], plan: _Plan) -> tuple[Expr, ...]:
        return tuple(
            visit(s.build(_divided(add(s.poly(i), low, -1), step)) if low or step > 1 else i)
            for i, low, step in zip(indices, plan.low, plan.steps, strict=True)
        )

    def visit(n: Any) -> Any:
        if isinstance(n, Load | Store | Prefetch) and n.buffer in plans:
            plan = plans[n.buffer]
            new = replace(n, buffer=plan.buffer, indices=moved(n.indices, plan))
            return replace(new, value=visit(new.value)) if isinstance(new, Store) else new
        if isinstance(n, Prefetch) and n.buffer in buffers:
            return Seq(())  # it is not even read
        if not isinstance(n, Expr | Stmt):
            return n
        rewritten: Any = rewrite_children(n, visit)
        if n in made and isinstance(n, For):
            rewritten = replace(rewritten, body=allocated(made[n], rewritten.body))
        return allocated(shared[n], rewritten) if n in shared else rewritten

    body = allocated(made.get(None, []), visit(func.body))
    return replace(func, body=body, allocs=tuple(b for b in func.allocs if b not in buffers))


_Path: TypeAlias = tuple[Stmt, ...]


class _Access(NamedTuple):
    """The indices of a load or store, and the statements around it, outermost first.

    A load counts only where conditions of selections around it are as `chosen` has them; those are
    not of data, which may change.
    """

    indices: tuple[Expr, ...]
    writes: bool
    path: _Path
    chosen: tuple[tuple[Expr, bool], ...] = ()

    def conditions(self, above: int) -> Iterator[tuple[Expr, bool]]:
        """What it runs under, and whether that holds, in statements from a place of its path on."""
        for s, child in pairwise(self.path[above:]):
            if type(s) is If and s.then is not s.other:
                yield s.cond, child is s.then
        yield from self.chosen


class _Plan(NamedTuple):
    """The new buffer, the loop whose body it lives in, and the offset and step of each index.

    It lives `around` the loops over threads instead, where these share it.
    """

    buffer: Buffer
    at: For | None
    low: tuple[Poly, ...]
    steps: tuple[int, ...]
    around: For | None = None


def _accesses(
    func: Func, buffers: Sequence[Buffer]
) -> tuple[dict[Buffer, list[_Access]], dict[Buffer, list[_Path]]]:
    """The accesses of internal buffers, in the order of execution, and where their hints are."""
    found: dict[Buffer, list[_Access]] = {b: [] for b in buffers}
    hints: dict[Buffer, list[_Path]] = {b: [] for b in buffers}

    def loads(e: Any, path: _Path, chosen: tuple[tuple[Expr, bool], ...] = ()) -> None:
        if type(e) is Load and e.buffer in found:
            found[e.buffer].append(_Access(e.indices, False, path, chosen))
        if type(e) is Select:
            loads(e.cond, path, chosen)
            steady = not any(type(n) is Load for n in walk(e.cond))
            loads(e.then, path, (*chosen, (e.cond, True)) if steady else chosen)
            loads(e.other, path, (*chosen, (e.cond, False)) if steady else chosen)
            return
        for c in children(e):
            if isinstance(c, Expr):
                loads(c, path, chosen)

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
    *,
    on_device: bool,
) -> _Plan:
    around: list[For] = []
    threads: list[For] = []
    is_shared = on_device and b.scope == "shared"
    for level in zip(*(a.path for a in accesses), *hints, strict=False):
        if any(stmt is not level[0] for stmt in level):
            break
        if type(level[0]) is For:
            if level[0].kind is ForKind.VECTOR:
                break
            if is_shared and level[0].thread in THREAD_AXES:
                threads.append(level[0])
            else:
                around.append(level[0])
    while True:
        fixed = scalars | {f.var for f in around}
        dims = [_span(b, d, accesses, fixed, s) for d in range(len(b.shape))]
        depth = len(around)
        filled = _is_filled_first(b, accesses, around, dims, fixed, s) or (
            on_device and _is_covered(b, accesses, around)
        )
        if not filled:
            depth = _private_depth(around, dims, s)
        if not any(f.var in _moving(dims) for f in around[depth:]):
            break
        around.pop()
    steps = [_step(b, d, span, accesses, s) if on_device else 1 for d, span in enumerate(dims)]
    shape = tuple((d.extent - 1) // step + 1 for d, step in zip(dims, steps, strict=True))
    buffer = replace(b, shape=shape, strides=None)
    at = around[depth - 1] if depth else None
    low = tuple(d.low for d in dims)
    return _Plan(buffer, at, low, tuple(steps), threads[0] if is_shared else None)


def _step(b: Buffer, dim: int, span: _Span, accesses: Sequence[_Access], s: Simplifier) -> int:
    """The distance of the elements of a span that are used, where a thread has it for itself."""
    if b.scope == "shared" or span.extent == 0:
        return 1
    terms = [add(s.poly(a.indices[dim]), span.low, -1).values() for a in accesses]
    return max(gcd(*(c for values in terms for c in values)), 1)


def _divided(p: Poly, step: int) -> Poly:
    return {key: c // step for key, c in p.items()}


UNKNOWN = 1 << 31
"""From so many elements on, nothing is known of an index: a name, or an element of data."""


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
    if extent > whole.extent and (b.scope != "register" or extent >= UNKNOWN):
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

    Iterations of a parallel loop or an axis pass nothing on; if the spans do not move with one,
    neither does any loop outside of it. Another loop passes nothing on if an element determines
    its iteration.
    """
    moving = _moving(dims)
    apart_kinds = (ForKind.PARALLEL, ForKind.THREAD)
    private = [f.kind in apart_kinds for f in around]
    for depth, f in enumerate(around):
        if f.kind in apart_kinds and f.var not in moving:
            private[: depth + 1] = [True] * (depth + 1)
    digits: dict[Var, list[Digit]] = {}
    for d in dims:
        below = d.extent
        terms = [(abs(c), k) for k, c in d.low.items() if k is not ONE]
        for step, key in sorted(terms, key=lambda t: t[0]):
            digit = digit_of(s, key) if isinstance(key, Expr) else None
            if digit is None:  # it moves the span, and tells nothing
                low, high = s.ends(key)
                below += step * (high - low)
                continue
            if step < below:
                break
            below += step * (digit.size - 1)
            digits.setdefault(digit.var, []).append(digit)
    apart = {v for v, found in digits.items() if telling(found, s.ends(v)[1] + 1)}
    for depth, f in enumerate(around):
        if not private[depth] and f.var not in apart:
            return depth
    return len(around)


def _is_filled_first(
    b: Buffer,
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
    for d, (span, whole) in enumerate(zip(dims, integers(b.shape), strict=True)):
        base, low, high = _reach(first.indices[d], fixed, s)
        # Vectors that a guard cuts off reach beyond the buffer, where nothing is read.
        needed = span.extent if span.low else min(span.extent, whole)
        if add(shifted(base, low), negated(span.low)) or high - low + 1 < needed:
            return False
    held = _conditions(first, around[-1], s)
    return all(held <= _conditions(a, around[-1], s) for a in accesses if not a.writes)


def _is_covered(b: Buffer, accesses: Sequence[_Access], around: Sequence[For]) -> bool:
    """`_is_filled_first`, decided exactly: by the elements that are read and written."""
    first, reads = accesses[0], [a for a in accesses if not a.writes]
    if not first.writes or not around:
        return False
    depth = first.path.index(around[-1]) + 1
    for a in reads:
        together = zip(first.path[depth:], a.path[depth:], strict=False)
        if any(type(x) is For and x is y for x, y in together):
            return False
    shared = {f.var: f.extent for f in around}
    written = [_touched(first, shared)]
    return all(beyond(_touched(a, shared), written, b.shape, shared).apart for a in reads)


def _touched(access: _Access, shared: Mapping[Var, Dim]) -> Access:
    """What an access touches at an iteration of the loops in `shared`."""
    path = access.path
    inner = {f.var: f.extent for f in path if type(f) is For and f.var not in shared}
    guards = list[Expr]()
    for cond, holds in access.conditions(0):
        guards += conjuncts(cond) if holds else [call("not", cond)]
    return Access([Range(i, 1) for i in access.indices], inner, guards)


def _conditions(access: _Access, loop: For, s: Simplifier) -> frozenset[object]:
    """The conditions inside `loop` that an access runs under.

    Bounds of one of its indices are expressed by that index, so that those of a write and of a read
    are comparable.
    """
    found: set[object] = set()
    indices = [s.poly(i) for i in access.indices]
    held = list[Expr]()
    for cond, holds in access.conditions(access.path.index(loop) + 1):
        if holds:
            held += conjuncts(cond)
        else:
            found.add(("not", key_of(cond)))
    for c in held:
        if not is_bound(c):
            found.add(c)
            continue
        p = slack(c, s)
        rests = (add(p, q) for q in indices)
        bounds = [(d, end) for d, r in enumerate(rests) if (end := constant(r)) is not None]
        found.add(bounds[0] if bounds else identity(p))
    return frozenset(found)
