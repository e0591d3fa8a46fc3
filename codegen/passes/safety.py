"""Expressions that are shown not to fail: they read within buffers and do not divide by zero."""

from __future__ import annotations

from typing import Any

from ...tir.conditions import conjuncts
from ...tir.ir import INDEX, Binary, Const, Expr, Load, Op, Select, as_expr, binary, cast, const
from ...tir.prove import truth
from ...tir.rules import negation
from ...tir.simplify import Simplifier
from ...tir.visit import children, walk
from .guards import is_bound
from .rewrite import may_trap

Bounds = tuple[Expr, ...]
"""Inequalities of indices that hold where an expression is evaluated."""


def bounds_of(cond: Expr) -> Bounds:
    """The inequalities of indices that hold where `cond` does."""
    return tuple(c for c in conjuncts(cond) if is_bound(c))


def bounds_of_negation(cond: Expr) -> Bounds:
    """The inequalities of indices that hold where `cond` does not."""
    opposite = negation(cond)
    return () if opposite is None else bounds_of(opposite)


def lasting(bounds: Bounds) -> Bounds:
    """The inequalities that statements below a branch cannot change: those that read no memory."""
    return tuple(c for c in bounds if not any(type(n) is Load for n in walk(c)))


class Safety:
    """Answers about expressions of one program, whose indices have one dimension.

    Each node is examined once for the same bounds, however often an expression has it.
    """

    def __init__(self, s: Simplifier) -> None:
        self._plain = s
        self._known: dict[tuple[int, ...], _Known] = {}

    def never_fails(self, e: Expr, bounds: Bounds = ()) -> bool:
        """Whether `e` is shown not to fail wherever `bounds` hold.

        The branches of a select are evaluated only where they are chosen.
        """
        return self._visit(e, self._under(bounds))

    def _under(self, bounds: Bounds) -> _Known:
        key = tuple(map(id, bounds))
        known = self._known.get(key)
        if known is None:
            s = Simplifier(self._plain.ranges, bounds) if bounds else self._plain
            known = self._known[key] = _Known(bounds, s)
        return known

    def _visit(self, e: Expr, known: _Known) -> bool:
        found = known.safe.get(e)
        if found is None:
            found = known.safe[e] = self._examine(e, known)
        return found

    def _examine(self, e: Expr, known: _Known) -> bool:
        if type(e) is Select:
            then = self._under(known.bounds + bounds_of(e.cond))
            other = self._under(known.bounds + bounds_of_negation(e.cond))
            return (
                self._visit(e.cond, known)
                and self._visit(e.then, then)
                and self._visit(e.other, other)
            )
        if type(e) is Load and not self._is_within(e, known):
            return False
        if type(e) is Binary and may_trap(e):
            nonzero = binary(Op.NE, cast(INDEX, e.b), const(0))
            if truth(known.s, nonzero) is not True:
                return False
        return all(self._visit(c, known) for c in children(e) if isinstance(c, Expr))

    def _is_within(self, e: Load, known: _Known) -> bool:
        index, size = e.indices[0], as_expr(e.buffer.shape[0])
        low, high = self._plain.interval(self._plain.poly(index))
        if low >= 0 and type(size) is Const and high < size.value:
            return True
        if not known.bounds:
            return False
        return all(
            truth(known.s, bound) is True
            for bound in (binary(Op.GE, index, const(0)), binary(Op.LT, index, size))
        )


class _Known:
    """What is known under some bounds: a simplifier that assumes them, and answers by node."""

    __slots__ = ("bounds", "s", "safe")

    def __init__(self, bounds: Bounds, s: Simplifier) -> None:
        self.bounds = bounds  # kept, because their identities are the key
        self.s = s
        self.safe: dict[Any, bool] = {}
