"""Test points at which a polynomial may refute a claim before a proof is searched for.

Most claims that are tried do not hold, and a search for a proof that does not exist is long. A
counterexample at one of a few points settles the question at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ir import ON_NUMBERS, Expr, Op, Var
from .polynomial import Poly

if TYPE_CHECKING:
    from .polynomial import Context

POINTS = 8
"""One of the lowest values, one of the highest, others mixed."""


class _NoPoint(Exception):
    """The chosen values are inconsistent with every value of an atom."""


class Points:
    """Values for the atoms of a context that are consistent with its facts, chosen on demand.


    The context, which keeps them, comes with each question.
    """

    def __init__(self) -> None:
        self._points: list[tuple[int, dict[Expr, int]]] = [(n, {}) for n in range(POINTS)]
        self._facts = 0

    def refute(self, context: Context, p: Poly) -> bool:
        """Whether `p` is negative at one of the points."""
        facts = context.facts
        for fact in facts[self._facts :]:
            self._points = [at for at in self._points if (_at(context, fact, at) or 0) >= 0]
        self._facts = len(facts)
        values = (_at(context, p, at) for at in self._points)
        return any(value is not None and value < 0 for value in values)


def _at(context: Context, p: Poly, at: tuple[int, dict[Expr, int]]) -> int | None:
    """The value of `p` at a point; `None` if there is none."""
    try:
        return _value(context, p, *at)
    except _NoPoint:
        return None


def _value(context: Context, p: Poly, n: int, point: dict[Expr, int]) -> int:
    total = 0
    for k, c in p.items():
        for atom in k if isinstance(k, tuple) else (k,):
            known = point.get(atom)
            c *= _atom(context, atom, n, point) if known is None else known
        total += c
    return total


def _atom(context: Context, atom: Expr, n: int, point: dict[Expr, int]) -> int:
    definition = context.definitions.get(atom)
    if definition is not None:
        op, x, y = definition[0], *(_value(context, p, n, point) for p in definition[1:])
        if y == 0 and op in (Op.FLOORDIV, Op.MOD):
            raise _NoPoint
        value: int = ON_NUMBERS[op](x, y)
    else:
        if type(atom) is Var and context.bounded_symbolically(atom):
            low, high = (_value(context, p, n, point) for p in context.symbolic_ends(atom))
        else:
            low, high = context.ends(atom)
        if low > high:
            raise _NoPoint
        value = low + _place(n, len(point), high - low)
    point[atom] = value
    return value


def _place(n: int, number: int, span: int) -> int:
    """The position of an atom between 0 and `span` at point `n`: at an end for most numbers."""
    if n < 2:
        return n * span
    mixed = (n * 0x9E3779B1 + number * 0x85EBCA6B) >> 4
    return (0, span, mixed % (span + 1), min(1, span))[mixed >> 20 & 3]
