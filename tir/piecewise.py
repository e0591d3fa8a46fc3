"""Piecewise linear indices: clamped, reflected, wrapped, or selected by where they are.

Clamped indices: `min(max(e, low), high)` with constant ends.

Linear forms: expressions as linear functions of some of their variables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeGuard

from .ir import (
    COMPARISONS,
    FALSE,
    INDEX,
    TRUE,
    Binary,
    Call,
    Const,
    Dim,
    Expr,
    Load,
    Op,
    Select,
    Var,
    as_dim,
    const,
)
from .polynomial import Poly, Ranges, add, factors, shifted, without
from .simplify import NO_RANGES, Simplifier
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


class Clamped(NamedTuple):
    """An index under clamps: at least each of `at_least`, then at most each of `at_most`.

    Its values lie in every range that contains those of `bare` and overlaps with each clamp.
    """

    bare: Expr
    at_least: tuple[int, ...]
    at_most: tuple[int, ...]


def unclamped(e: Expr) -> Clamped:
    """`e` without the clamps around it."""
    at_least: list[int] = []
    at_most: list[int] = []
    while type(e) is Binary and e.op in (Op.MIN, Op.MAX):
        inner, end = (e.a, e.b) if type(e.b) is Const else (e.b, e.a)
        if type(end) is not Const:
            break
        (at_most if e.op is Op.MIN else at_least).append(int(end.value))
        e = inner
    return Clamped(e, tuple(at_least), tuple(at_most))


class Linear(NamedTuple):
    """`sum(variable * coefficient) + constant`; neither part has any of the variables.

    `coefficients` has the variables that appear, in order of appearance.
    """

    coefficients: Mapping[Var, Dim]
    constant: Expr


def linear(expr: Expr, variables: Collection[Var], ranges: Ranges = NO_RANGES) -> Linear | None:
    """`expr` (int64) as a linear function of `variables`; `None` if it is not one.

    Coefficients are integers, or expressions where they are products of other variables.
    """
    s = Simplifier(ranges)
    wanted = dict.fromkeys(variables)
    parts: dict[Var, Poly] = {}
    rest: Poly = {}
    for k, c in s.poly(expr).items():
        inside = [a for a in factors(k) if _mentions(a, wanted)]
        if not inside:
            rest[k] = c
            continue
        atom = inside[0]
        if len(inside) > 1 or type(atom) is not Var:
            return None
        remaining = without(k, atom)
        assert remaining is not None
        parts.setdefault(atom, {})[remaining] = c
    return Linear({v: as_dim(s.build(p)) for v, p in parts.items()}, s.build(rest))


def _mentions(e: Expr, variables: Mapping[Var, None]) -> bool:
    if type(e) is Var:
        return e in variables
    return any(type(n) is Var and n in variables for n in walk(e))
