"""Piecewise linear indices: clamped, reflected, wrapped, or selected by where they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

from .ir import (
    COMPARISONS,
    FALSE,
    INDEX,
    TRUE,
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    const,
)
from .polynomial import Poly, add, shifted
from .simplify import Simplifier
from .visit import rewrite_children, walk


def is_piecewise(index: Expr) -> bool:
    """Whether an index is a different sum in different iterations."""
    return any(map(is_switch, walk(index)))


def is_switch(n: object) -> bool:
    """Whether a node of an index is one of several sums, by the value of another index.

    min(i, 7), max(-i, i), abs(i), i % 8, i // 8, select(i < 0, -i, i)
    """
    match n:
        case Binary(op=Op.MIN | Op.MAX):
            return n.dtype == INDEX
        case Binary(op=Op.MOD | Op.FLOORDIV):
            return n.dtype == INDEX and type(n.b) is Const
        case Select() if n.dtype == INDEX:
            # What is read from memory is no sum.
            data = any(type(x) is Load for side in (n.then, n.other) for x in walk(side))
            return not data and any(map(is_comparison, walk(n.cond)))
        case Call(fn="abs"):
            return n.dtype == INDEX
        case _:
            return False


def is_comparison(n: object) -> TypeGuard[Binary]:
    """Whether a node compares indices."""
    return type(n) is Binary and n.op in COMPARISONS and n.a.dtype == INDEX


class Interior:
    """Indices as the sums that they are in most iterations: those of the interior.

    max(i - 1, 0)                ->   i - 1
    select(i < 1, 1 - i, i - 1)  ->   i - 1
    (i + 7) % 8                  ->   i + 7, which is the same but for a multiple of 8

    `moving` are the variables that count the iterations.
    """

    def __init__(self, moving: Collection[Var], s: Simplifier) -> None:
        self.moving, self.s = moving, s

    def __call__(self, e: Expr) -> Expr:
        """`e` without its switches, but for those of which nothing is known."""
        if not is_comparison(e) and not self._moves(e):
            return e
        if type(e) is Select:
            cond = self.s(self(e.cond))
            if type(cond) is Const:
                return self(e.then if cond.value else e.other)
        e = rewrite_children(e, lambda c: self(c) if isinstance(c, Expr) else c)
        if is_comparison(e):
            return self._comparison(e)
        found = self._switch(e) if is_switch(e) else None
        return e if found is None else found

    def holds(self, p: Poly, expected: bool) -> bool | None:
        """Whether a sum is taken for non-negative, as is `expected`; `None` if it is not known."""
        del p
        return expected

    def unwrapped(self, e: Expr, by: int) -> Expr | None:
        """A sum that is `e % by` in the interior, but for a multiple of `by`."""
        del by
        return e

    def _moves(self, e: Expr) -> bool:
        return any(type(n) is Var and n in self.moving for n in walk(e))

    def _switch(self, e: Expr) -> Expr | None:
        match e:
            case Binary(op=Op.MIN | Op.MAX, a=a, b=b):
                if not self._moves(a):
                    a, b = b, a
                p = self._difference(b, a) if e.op is Op.MIN else self._difference(a, b)
                # Of a clamp, what moves: it may be equal to the end of the clamp.
                expected = p is not None and (not self._moves(b) or self._is_rather_positive(p))
                found = None if p is None else self.holds(p, expected)
                return None if found is None else a if found else b
            case Call(fn="abs", args=(a,)):
                p = self._difference(a, const(0))
                found = None if p is None else self.holds(p, self._is_rather_positive(p))
                return None if found is None else a if found else -a
            case Binary(op=Op.MOD, a=a, b=Const(value=by)) if by > 0:
                return self.unwrapped(a, int(by))
            case _:
                return None

    def _comparison(self, e: Binary) -> Expr:
        p = self._difference(e.a, e.b)
        if p is None:
            return e
        if e.op in (Op.EQ, Op.NE):  # most indices are not equal
            above = self._is_rather_positive(p)
            known = self.holds(shifted(p, -1) if above else p, above) is not None
            holds = e.op is Op.NE if known else None
        else:
            p = shifted(p, -1) if e.op in (Op.GT, Op.LE) else p
            found = self.holds(p, self._is_rather_positive(p))
            holds = None if found is None else found is (e.op in (Op.GT, Op.GE))
        return e if holds is None else TRUE if holds else FALSE

    def _difference(self, a: Expr, b: Expr) -> Poly | None:
        """`a - b`; `None` where a side or it may wrap around: then its sign decides nothing."""
        p, q = self.s.poly(a), self.s.poly(b)
        between = add(p, q, -1)
        return between if all(map(self.s.fits, (p, q, between))) else None

    def _is_rather_positive(self, p: Poly) -> bool:
        low, high = self.s.interval(p)
        return low + high >= 0
