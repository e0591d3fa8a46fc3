"""Prove by affine structure that different iterations of loops touch different elements.

Index expressions are decomposed into sums of coefficient times *atom*, where an atom is a variable
or a quotient or remainder. A sum determines its atoms if each coefficient is larger than the
largest sum of all smaller terms (mixed radix). The quotient and remainder of one expression
together determine it. If the touched elements determine the loop variable, iterations are distinct.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..tir.bounds import Bounds
from ..tir.dependence import Access
from ..tir.ir import Binary, Const, Dim, Expr, For, Op, Range, Var, as_dim, as_expr
from ..tir.simplify import Simplifier, difference
from ..tir.structure import key_of
from .block_queries import Ranges, free_vars
from .facts import fact, last, under
from .require import certain, current_space


@dataclass(frozen=True, eq=False)
class Term:
    """`scale` times `atom`, with values from 0 to `span`, or any if that is `None`.

    Without an atom it is a slack of that span: the difference between accesses.
    """

    atom: Expr | None
    scale: Dim
    span: Dim | None


@dataclass(frozen=True, eq=False)
class Swept:
    """`scale` times `atom`, which loops inside an access take from 0 to `span`."""

    atom: Expr
    scale: Dim
    span: Dim


def distinct(accesses: Sequence[Access], loops: Sequence[For], ranges: Ranges) -> bool:
    """Whether no two accesses in different iterations of `loops` touch the same element.

    The loops outside of `loops` are at one iteration; `ranges` has them and `loops`.
    """
    wanted = {s.var for s in loops if not certain(s.extent == 1)}
    inner = {v: (0, last(e)) for a in accesses for v, e in a.inner.items()}
    ends = _ends({**ranges, **inner})
    telling = [
        d
        for d, r in enumerate(accesses[0].ranges)
        if not wanted.isdisjoint(free_vars(r.min))  # others do not depend on `loops`
    ]
    sums = (_common(accesses, d, ends) for d in telling)
    return _determine((s for s in sums if s is not None), wanted, ends)


class _Ends:
    """The first and last value of expressions over ranges, each of them found once."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._bounds = Bounds(ranges)
        self._simplifier = Simplifier(ranges)
        self._found: dict[object, tuple[Dim | None, Dim | None]] = {}

    def __call__(self, e: Expr) -> tuple[Dim | None, Dim | None]:
        known = self._ranges.get(e) if type(e) is Var else None
        if known is not None:
            return known
        key = key_of(e)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._bounds(e)
        return found

    def is_exact(self, comparison: Expr) -> bool:
        """Whether neither side wraps around."""
        return difference(self._simplifier, comparison) is not None


def _ends(ranges: Ranges) -> _Ends:
    return fact((_Ends, under(ranges)), lambda: _Ends(ranges))


def gapless(r: Range, inner: Mapping[Var, Dim], ranges: Ranges) -> Range | None:
    """The range that `r` covers while the loops `inner` sweep, if it has no gaps."""
    terms, rest = _terms(r.min, _ends(ranges))
    moving = [t for t in terms if t.atom is not None and not free_vars(t.atom).isdisjoint(inner)]
    low: Expr = as_expr(rest)
    for t in terms:
        if t not in moving and t.atom is not None:
            low = low + t.atom * t.scale
    reach: Dim = r.extent
    moving = [t for t in moving if t.span is None or not certain(t.span == 0)]
    while moving:
        step = next(
            (t for t in moving if certain(t.scale >= 1) and certain(t.scale <= reach)), None
        )
        if step is None or step.span is None or type(step.atom) is not Var:
            return None
        moving.remove(step)
        reach = reach + step.scale * step.span
    return Range(low, reach)


def _common(accesses: Sequence[Access], d: int, ends: _Ends) -> list[Term] | None:
    """Dimension `d` of all accesses as one sum, their differences as a slack; `None` if not one."""
    shared: dict[object, Term] | None = None
    low: Dim | None = None
    high: Dim | None = None
    for access in accesses:
        r = access.ranges[d]
        terms, rest = _terms(r.min, ends)
        outer: dict[object, Term] = {}
        up: dict[object, Swept] = {}
        down: dict[object, Swept] = {}
        for t in terms:
            assert t.atom is not None
            if free_vars(t.atom).isdisjoint(access.inner):
                outer[key_of(t.atom)] = t
            elif t.span is not None and certain(t.scale >= 0):
                up[key_of(t.atom)] = Swept(t.atom, t.scale, t.span)
            elif t.span is not None and certain(t.scale < 0):
                down[key_of(t.atom)] = Swept(t.atom, 0 - t.scale, t.span)
            else:
                return None
        least = rest - _reach(down, access.guards, ends)
        most = rest + _reach(up, access.guards, ends)
        most = most + (r.extent - 1)
        if shared is None or low is None or high is None:
            shared, low, high = outer, least, most
            continue
        if outer.keys() != shared.keys() or not all(
            certain(outer[k].scale == shared[k].scale) for k in outer
        ):
            return None
        low = least if certain(least < low) else low
        high = most if certain(most > high) else high
        if not (certain(low <= least) and certain(high >= most)):
            return None
    assert shared is not None
    assert low is not None
    assert high is not None
    return [*shared.values(), Term(None, 1, high - low)]


def _reach(terms: Mapping[object, Swept], guards: Sequence[Expr], ends: _Ends) -> Dim:
    """The largest sum of `terms`, which a guard may limit."""
    free = sum((t.scale * t.span for t in terms.values()), start=0)
    variables = {v for t in terms.values() for v in free_vars(t.atom)}
    for guard in guards if len(terms) > 1 else ():
        if (
            type(guard) is not Binary
            or guard.op is not Op.LT
            or any(v not in variables and not _is_size(v) for v in free_vars(guard))
            or not ends.is_exact(guard)
        ):
            continue
        held, rest = _terms(guard.a - guard.b, ends)
        keys = [key_of(h.atom) for h in held]
        times = next((terms[k].scale for k, h in zip(keys, held, strict=True)
                      if k in terms and certain(h.scale == 1)), None)  # fmt: skip
        if times is None or not all(
            k in terms and certain(terms[k].scale == h.scale * times)
            for k, h in zip(keys, held, strict=True)
        ):
            continue
        others = [t for k, t in terms.items() if k not in set(keys)]
        kept = times * (0 - rest - 1) + sum((t.scale * t.span for t in others), start=0)
        if not certain(kept >= free):
            free = kept
    return free


def _terms(e: Expr, ends: _Ends) -> tuple[list[Term], Dim]:
    """`e` as a sum of terms whose atoms start at zero, and a constant."""
    scales: dict[object, tuple[Expr, Dim]] = {}
    rest = _collect(e, 1, scales)
    terms = []
    for atom, scale in scales.values():
        low, high = ends(atom)
        known = low is not None and certain(low == 0)
        terms.append(Term(atom, scale, high if known else None))
    return terms, rest


def _collect(e: Expr, scale: Dim, into: dict[object, tuple[Expr, Dim]]) -> Dim:
    if _is_size(e):
        return scale * as_dim(e)
    if type(e) is Binary:
        if e.op is Op.ADD:
            return _collect(e.a, scale, into) + _collect(e.b, scale, into)
        if e.op is Op.SUB:
            return _collect(e.a, scale, into) + _collect(e.b, 0 - scale, into)
        if e.op is Op.MUL and _is_size(e.b):
            return _collect(e.a, scale * as_dim(e.b), into)
        if e.op is Op.MUL and _is_size(e.a):
            return _collect(e.b, scale * as_dim(e.a), into)
    key = key_of(e)
    old = into[key][1] if key in into else 0
    into[key] = (e, old + scale)
    return 0


def _is_size(e: Expr) -> bool:
    """Whether `e` is a number, or depends on decisions only."""
    space = current_space()
    return type(e) is Const if space is None else _is_over(e, space.bounds)


def _is_over(e: Expr, decisions: Container[Var]) -> bool:
    """Whether `e` depends on nothing but `decisions`."""
    if type(e) is Var:
        return e in decisions
    if type(e) is Binary:
        return _is_over(e.a, decisions) and _is_over(e.b, decisions)
    if type(e) is Const:
        return True
    return all(v in decisions for v in free_vars(e))


def _determine(sums: Iterable[list[Term]], wanted: set[Var], ends: _Ends) -> bool:
    """Whether the values of `sums` determine `wanted`; no more sums are built than needed."""
    missing = set(wanted)
    quotients: dict[object, tuple[Expr, list[tuple[Dim, Dim | None]]]] = {}
    if not missing:
        return True
    for first in sums:
        pending = [first]
        while pending:
            for atom in _mixed_radix(pending.pop(), wanted):
                if type(atom) is Var:
                    missing.discard(atom)
                    continue
                whole, low, size = _digit(atom)
                digits = quotients.setdefault(key_of(whole), (whole, []))[1]
                digits.append((low, size))
                if _complete(digits, whole, ends):
                    digits.clear()
                    pending.append(_terms(whole, ends)[0])
        if not missing:
            return True
    return False


def _mixed_radix(terms: list[Term], wanted: set[Var]) -> list[Expr]:
    """The atoms that the sum of `terms` determines; those free of `wanted` are known anyway.

    Descending terms determine as much as ascending ones.
    """
    moving = [
        replace(t, scale=0 - t.scale) if certain(t.scale < 0) else t
        for t in terms
        if t.atom is not None and free_vars(t.atom) & wanted
    ]
    span: Dim | None = next((t.span for t in terms if t.atom is None), 0)
    atoms: list[Expr] = []
    while moving:
        least = next(
            (t for t in moving if all(t is u or certain(t.scale <= u.scale) for u in moving)), None
        )
        if least is None or least.atom is None:
            return []
        if span is None or not certain(least.scale > span):
            return []
        moving.remove(least)
        span = None if least.span is None else span + least.scale * least.span
        atoms.append(least.atom)
    return atoms


def _digit(atom: Expr) -> tuple[Expr, Dim, Dim | None]:
    """`atom` as `whole // low % size`; no size means that nothing is cut off above."""
    whole: Expr = atom
    low: Dim = 1
    size: Dim | None = None
    if type(whole) is Binary and whole.op is Op.MOD:
        size = as_dim(whole.b)
        whole = whole.a
    if type(whole) is Binary and whole.op is Op.FLOORDIV:
        low = as_dim(whole.b)
        whole = whole.a
    return whole, low, size


def _complete(digits: list[tuple[Dim, Dim | None]], whole: Expr, ends: _Ends) -> bool:
    """Whether the digits of `whole` determine it."""
    if all(size is None and certain(low == 1) for low, size in digits):
        return False
    high = ends(whole)[1]
    reached: Dim = 1
    while True:
        step = next((d for d in digits if certain(d[0] == reached)), None)
        if step is None:
            return high is not None and certain(high < reached)
        if step[1] is None:
            return True
        reached = reached * step[1]
        digits = [d for d in digits if d is not step]
