"""Vectors of piecewise linear indices whose pieces change at places known only when they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...tir.conditions import conjunction
from ...tir.ir import (
    FALSE,
    TRUE,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    Let,
    Load,
    Op,
    Select,
    Stmt,
    Var,
)
from ...tir.piecewise import is_comparison, is_switch
from ...tir.polynomial import ONE, Poly, negated, shifted
from ...tir.prove import truth
from ...tir.simplify import Simplifier, difference
from ...tir.visit import rewrite_children, substitute, walk
from .guards import is_bound, slack
from .rewrite import statements, variables_of


class Unbent(NamedTuple):
    """A statement whose loads lie in rows, and the condition for which it may stand for another."""

    condition: Expr
    stmt: Stmt


def unbent(
    stmt: Stmt, var: Var, base: Expr, enabled: int, wanted: Callable[[Load], bool], s: Simplifier
) -> Unbent | None:
    """The body of a loop over `var`, for `enabled` iterations from `base` on, in one piece of it.

    B[j] = A[max(j - 1, 0)]   ->   if base - 1 >= 0: B[j] = A[j - 1]

    Only loads that are `wanted` are looked at. Returns `None` if none of them gets an index that
    lies in a row, or if the condition never holds.
    """
    bound = {n.var for n in statements(stmt) if isinstance(n, For | Let)}
    ends = _Ends(var, base, enabled, s)

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        if type(n) is Load and wanted(n):
            return ends.straight(n, bound)
        return rewrite_children(n, visit)

    new = visit(stmt)
    if new is stmt:
        return None
    conditions = [s(s.build(p) >= 0) for p in ends.conditions()]
    open_ones = [c for c in conditions if truth(s, c) is not True]
    if any(truth(s, c) is False for c in open_ones):
        return None
    condition = conjunction(open_ones)
    return None if condition is None else Unbent(condition, new)


@dataclass
class _Ends:
    """Indices in the first and the last of some iterations, and what has to hold there.

    `least` has of sums that differ by numbers alone the one that has to be non-negative.
    """

    var: Var
    base: Expr
    enabled: int
    s: Simplifier
    least: dict[object, Poly] = field(default_factory=dict)

    def conditions(self) -> list[Poly]:
        """The sums that have to be non-negative."""
        return list(self.least.values())

    def straight(self, load: Load, bound: set[Var]) -> Load:
        """The load at an index that is linear, whose conditions are noted; itself if it is not."""
        needed: list[Poly] = []
        (index,) = load.indices
        new = self._without(index, needed)
        if new is index or self._step(new) != 1:
            return load
        if any(not bound.isdisjoint(variables_of(p)) for p in needed):
            return load
        for p in needed:
            key = frozenset((k, c) for k, c in p.items() if k is not ONE)
            known = self.least.get(key)
            if known is None or p.get(ONE, 0) < known.get(ONE, 0):
                self.least[key] = p
        return Load(load.buffer, (new,), load.dtype)

    def _without(self, e: Expr, needed: list[Poly]) -> Expr:
        """`e` without its switches: it is one of their sums if what is `needed` holds."""
        if not is_comparison(e) and not any(n is self.var for n in walk(e)):
            return e
        if type(e) is Select:  # of iterations, or of sums for all of them
            cond = self.s(self._without(e.cond, needed))
            if type(cond) is Const:
                return self._without(e.then if cond.value else e.other, needed)
        e = rewrite_children(e, lambda c: self._without(c, needed) if isinstance(c, Expr) else c)
        if is_comparison(e):
            return self._compared(e, needed)
        if not is_switch(e):
            return e
        match e:
            case Binary(op=Op.MOD, b=Const(value=by)) if by > 0:
                return self._wrapped(e, int(by), needed)
            case Binary(op=Op.MIN | Op.MAX, a=a, b=b):
                if self._ends(a) is None or self._ends(b) is None:
                    return e
                a, b = (b, a) if self._step(a) == 0 else (a, b)
                kept = True if self._step(b) == 0 else None
                holds = self._holds(b - a if e.op is Op.MIN else a - b, needed, kept)
                return e if holds is None else a if holds else b
            case Call(fn="abs", args=(a,)):
                holds = self._holds(a, needed)
                return e if holds is None else a if holds else -a
            case _:
                return e

    def _compared(self, e: Binary, needed: list[Poly]) -> Expr:
        """A comparison, or what it is if what is `needed` holds."""
        apart = difference(self.s, e)
        if apart is None or not self.s.fits(apart):
            return e
        if is_bound(e):
            holds = self._holds(self.s.build(slack(e, self.s)), needed)
        else:  # most indices are not equal
            above = self._is_rather_positive(apart)
            equal = self._holds(self.s.build(shifted(apart, -above)), needed, above)
            holds = None if equal is None else e.op is Op.NE
        return e if holds is None else TRUE if holds else FALSE

    def _wrapped(self, e: Binary, by: int, needed: list[Poly]) -> Expr:
        """A remainder, or the sum that it is if the iterations do not wrap around."""
        ends, step = self._ends(e.a), self._step(e.a)
        if ends is None or not step:
            return e
        start = self.s(self.s.build(ends[0]) % by)
        reach = step * (self.enabled - 1)
        rest = dict(self.s.poly(start))
        needed.append(shifted(negated(rest), by - 1 - max(reach, 0)))
        if reach < 0:
            needed.append(shifted(rest, reach))
        return start + (self.var - self.base) * step

    def _holds(self, e: Expr, needed: list[Poly], wanted: bool | None = None) -> bool | None:
        """Whether `e` is not negative if what is `needed` holds, which is extended for that.

        It is what is `wanted`, or else what holds in most iterations. `None` if `e` is not linear.
        """
        ends, step = self._ends(e), self._step(e)
        if ends is None or step is None:
            return None
        low, high = ends if step > 0 else ends[::-1]
        holds = self._is_rather_positive(self.s.poly(e)) if wanted is None else wanted
        needed.append(low if holds else shifted(negated(high), -1))
        return holds

    def _is_rather_positive(self, p: Poly) -> bool:
        low, high = self.s.interval(p)
        return low + high >= 0

    def _ends(self, e: Expr) -> tuple[Poly, Poly] | None:
        """A linear index in the first and the last iteration.

        `None` if it is not linear, or wraps around: then nothing follows from its ends.
        """
        if self._step(e) is None:
            return None
        first, last = self._at(e, 0), self._at(e, self.enabled - 1)
        return (first, last) if self.s.fits(first) and self.s.fits(last) else None

    def _at(self, e: Expr, number: int) -> Poly:
        return dict(self.s.poly(substitute(e, {self.var: self.base + number})))

    def _step(self, e: Expr) -> int | None:
        """By how much an iteration moves an index; `None` if that is not always the same."""
        p = dict(self.s.poly(e))
        step = p.pop(self.var, 0)
        return None if self.var in variables_of(p) else step
