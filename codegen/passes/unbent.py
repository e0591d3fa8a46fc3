"""Vectors whose indices are clamped or wrapped at places that are known only when they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...tir.conditions import conjunction
from ...tir.ir import INDEX, Binary, Buffer, Const, Expr, For, Let, Load, Op, Stmt, Var
from ...tir.polynomial import ONE, Poly, shifted
from ...tir.prove import truth
from ...tir.simplify import Simplifier
from ...tir.visit import rewrite_children, substitute, walk
from .rewrite import statements, variables_of


class Unbent(NamedTuple):
    """A statement whose loads lie in rows, and the condition for which it may stand for another."""

    condition: Expr
    stmt: Stmt


def unbent(
    stmt: Stmt, var: Var, base: Expr, enabled: int, wanted: Callable[[Load], bool], s: Simplifier
) -> Unbent | None:
    """The body of a loop over `var`, for `enabled` iterations from `base` on, none of them bent.

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
        """`e` without its clamps and wraps, which do nothing if what is `needed` holds."""
        if not any(n is self.var for n in walk(e)):
            return e
        e = rewrite_children(e, lambda c: self._without(c, needed) if isinstance(c, Expr) else c)
        if type(e) is not Binary or e.dtype != INDEX or type(e.b) is not Const:
            return e
        step, by = self._step(e.a), int(e.b.value)
        first, last = self._at(e.a, 0), self._at(e.a, self.enabled - 1)
        # What wraps around is no sum: nothing follows from its ends.
        if not step or not (self.s.fits(first) and self.s.fits(last)):
            return e
        low, high = (first, last) if step > 0 else (last, first)
        if e.op is Op.MIN:
            needed.append(shifted({k: -c for k, c in high.items()}, by))
            return e.a
        if e.op is Op.MAX:
            needed.append(shifted(low, -by))
            return e.a
        if e.op is Op.MOD and by > 0:
            start = self.s(self.s.build(first) % by)
            reach = step * (self.enabled - 1)
            rest = dict(self.s.poly(start))
            needed.append(shifted({k: -c for k, c in rest.items()}, by - 1 - max(reach, 0)))
            if reach < 0:
                needed.append(shifted(rest, reach))
            return start + (self.var - self.base) * step
        return e

    def _at(self, e: Expr, number: int) -> Poly:
        return dict(self.s.poly(substitute(e, {self.var: self.base + number})))

    def _step(self, e: Expr) -> int | None:
        """By how much an iteration moves an index; `None` if that is not always the same."""
        p = dict(self.s.poly(e))
        step = p.pop(self.var, 0)
        return None if self.var in variables_of(p) else step
