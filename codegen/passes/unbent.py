"""Vectors of piecewise linear indices whose pieces change at places known only when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...tir.bounds import truth
from ...tir.ir import Buffer, Expr, For, Let, Load, Stmt, Var
from ...tir.piecewise import Interior
from ...tir.polynomial import ONE, Poly, negated, shifted
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction
from ...tir.visit import rewrite_children, substitute
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
    row = _Row(var, base, enabled, s)

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        if type(n) is Load and wanted(n):
            return row.straight(n, bound)
        return rewrite_children(n, visit)

    new = visit(stmt)
    if new is stmt:
        return None
    conditions = [s(s.build(p) >= 0) for p in row.conditions()]
    open_ones = [c for c in conditions if truth(s, c) is not True]
    if any(truth(s, c) is False for c in open_ones):
        return None
    condition = conjunction(open_ones)
    return None if condition is None else Unbent(condition, new)


class _Row(Interior):
    """Indices in some iterations, and what has to hold for them to lie in a row.

    `least` has of sums that differ by numbers alone the one that has to be non-negative.
    """

    def __init__(self, var: Var, base: Expr, enabled: int, s: Simplifier) -> None:
        super().__init__({var}, s)
        self._var, self._base, self._enabled = var, base, enabled
        self._needed: list[Poly] = []
        self._least: dict[object, Poly] = {}

    def conditions(self) -> list[Poly]:
        """The sums that have to be non-negative."""
        return list(self._least.values())

    def straight(self, load: Load, bound: set[Var]) -> Load:
        """The load at an index that is linear, whose conditions are noted; itself if it is not."""
        self._needed = []
        (index,) = load.indices
        new = self(index)
        if new is index or self._step(new) != 1:
            return load
        if any(not bound.isdisjoint(variables_of(p)) for p in self._needed):
            return load
        for p in self._needed:
            key = frozenset((k, c) for k, c in p.items() if k is not ONE)
            known = self._least.get(key)
            if known is None or p.get(ONE, 0) < known.get(ONE, 0):
                self._least[key] = p
        return Load(load.buffer, (new,), load.dtype)

    def holds(self, p: Poly, expected: bool) -> bool | None:
        """What is `expected` of a linear sum; that all iterations have to meet that is noted."""
        e = self.s.build(p)
        ends, step = self._ends(e), self._step(e)
        if ends is None or step is None:
            return None
        low, high = ends if step > 0 else ends[::-1]
        self._needed.append(low if expected else shifted(negated(high), -1))
        return expected

    def unwrapped(self, e: Expr, by: int) -> Expr | None:
        """A remainder as the sum that it is where no iteration wraps around, which is noted."""
        ends, step = self._ends(e), self._step(e)
        if ends is None or not step:
            return None
        start = self.s(self.s.build(ends[0]) % by)
        reach = step * (self._enabled - 1)
        rest = dict(self.s.poly(start))
        self._needed.append(shifted(negated(rest), by - 1 - max(reach, 0)))
        if reach < 0:
            self._needed.append(shifted(rest, reach))
        return start + (self._var - self._base) * step

    def _ends(self, e: Expr) -> tuple[Poly, Poly] | None:
        """A linear index in the first and the last iteration.

        `None` if it is not linear, or wraps around: then nothing follows from its ends.
        """
        if self._step(e) is None:
            return None
        first, last = self._at(e, 0), self._at(e, self._enabled - 1)
        return (first, last) if self.s.fits(first) and self.s.fits(last) else None

    def _at(self, e: Expr, number: int) -> Poly:
        return dict(self.s.poly(substitute(e, {self._var: self._base + number})))

    def _step(self, e: Expr) -> int | None:
        """By how much an iteration moves an index; `None` if that is not always the same."""
        p = dict(self.s.poly(e))
        step = p.pop(self._var, 0)
        return None if self._var in variables_of(p) else step
