"""Integer polynomials over atoms: the normal form of index arithmetic.

An atom is a variable or an expression that is no sum or product (a quotient, a load, ...). A
polynomial maps products of atoms to their integer coefficients. Structurally equal atoms are one
object within a `Context`, which also knows an interval for each of them.

Arithmetic here is exact. int64 arithmetic is the same as long as the interval of the polynomial
lies within int64 (`Context.fits`); rules that are not valid modulo 2**64 check this.

Test points at which a polynomial may refute a claim before a proof is searched for.

Most claims that are tried do not hold, and a search for a proof that does not exist is long. A
counterexample at one of a few points settles the question at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

from ..base import dtypes
from .ir import INDEX, ON_NUMBERS, Binary, Call, Dim, Expr, Op, Var, const

Key: TypeAlias = Expr | tuple[Expr, ...]
"""An atom, or a product of several in order of `id`; the empty product is `ONE`."""
Poly: TypeAlias = dict[Key, int]
"""Coefficients, none of them zero."""
Interval: TypeAlias = tuple[int, int]
Ranges: TypeAlias = Mapping[Var, tuple[Dim, Dim]]
"""Inclusive ends of the values of variables."""

ONE: Key = ()
LOW, HIGH = -(1 << 63), (1 << 63) - 1


def number(value: int) -> Poly:
    """The polynomial of a constant."""
    return {ONE: value} if value else {}


def constant(p: Poly) -> int | None:
    """The value of a polynomial without atoms, else `None`."""
    if not p:
        return 0
    return p.get(ONE) if len(p) == 1 else None


def add(p: Poly, q: Poly, scale: int = 1) -> Poly:
    """`p + q * scale`."""
    result = dict(p)
    merge(result, q, scale)
    return result


def merge(into: Poly, q: Poly, scale: int = 1) -> None:
    """Add `q * scale` to `into`."""
    for k, c in q.items():
        total = into.get(k, 0) + c * scale
        if total:
            into[k] = total
        else:
            into.pop(k, None)


def shifted(p: Poly, offset: int) -> Poly:
    """`p + offset`."""
    return add(p, {ONE: offset}) if offset else p


def negated(p: Poly) -> Poly:
    """`-p`."""
    return {k: -c for k, c in p.items()}


def factors(k: Key) -> tuple[Expr, ...]:
    """The atoms of a product."""
    return k if isinstance(k, tuple) else (k,)


def multiplied(a: Key, b: Key) -> Key:
    """The product of two products."""
    if a is ONE:
        return b
    return a if b is ONE else tuple(sorted(factors(a) + factors(b), key=id))


def times(p: Poly, q: Poly) -> Poly:
    """`p * q`."""
    result: Poly = {}
    for k, c in p.items():
        for m, d in q.items():
            key = multiplied(k, m)
            total = result.get(key, 0) + c * d
            if total:
                result[key] = total
            else:
                del result[key]
    return result


def without(k: Key, part: Key) -> Key | None:
    """`k` with the factors in `part` taken out once; `None` if they are not all in it."""
    if part is ONE:
        return k
    if k is part:
        return ONE
    rest = list(factors(k))
    for atom in factors(part):
        for i, x in enumerate(rest):
            if x is atom:
                del rest[i]
                break
        else:
            return None
    return tuple(rest) if len(rest) > 1 else rest[0] if rest else ONE


def identity(p: Poly) -> frozenset[tuple[Key, int]]:
    """A key under which equal polynomials of one context are found."""
    return frozenset(p.items())


class Context(ABC):
    """The atoms met so far, their intervals, and polynomials known to be non-negative."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.facts: list[Poly] = []
        self.impossible = False
        self.symbolic = any(
            type(low) is not int or type(high) is not int for low, high in ranges.values()
        )
        self.atoms: dict[object, Expr] = {}
        self.definitions: dict[Expr, tuple[Op, Poly, Poly]] = {}
        self.intervals: dict[Key, Interval] = {}
        self.points: Points | None = None
        self.decided: dict[tuple[Op, frozenset[tuple[Key, int]]], bool | None] = {}
        """Comparisons of zero with a polynomial; the facts that are known decide them."""

    @abstractmethod
    def poly(self, e: Expr) -> Poly:
        """The polynomial of an int64 expression."""

    def interval(self, p: Poly) -> Interval:
        """An interval that contains the exact value of `p`."""
        low = high = 0
        known = self.intervals
        for k, c in p.items():
            if k is ONE:
                low += c
                high += c
                continue
            ends = known.get(k) or self.ends(k)
            if c > 0:
                low += c * ends[0]
                high += c * ends[1]
            else:
                low += c * ends[1]
                high += c * ends[0]
        return low, high

    def fits(self, p: Poly) -> bool:
        """Whether `p` stays within int64, so that wrapping arithmetic is exact."""
        low, high = self.interval(p)
        return low >= LOW and high <= HIGH

    def ends(self, k: Key) -> Interval:
        """The interval of an atom or product."""
        found = self.intervals.get(k)
        if found is not None:
            return found
        if isinstance(k, tuple):
            low = high = 1
            for atom in k:
                a, b = self.ends(atom)
                corners = (low * a, low * b, high * a, high * b)
                low, high = min(corners), max(corners)
            if len(k) == 2 and k[0] is k[1]:
                low = max(low, 0)
        elif type(k) is Var and k in self.ranges:
            bottom, top = self.ranges[k]
            low = bottom if isinstance(bottom, int) else self.interval(self.poly(bottom))[0]
            high = top if isinstance(top, int) else self.interval(self.poly(top))[1]
        else:
            low, high = dtypes.int_limits(k.dtype)
        self.intervals[k] = low, high
        return low, high

    def bounded_symbolically(self, v: Var) -> bool:
        """Whether an end of the variable's range is an expression."""
        given = self.ranges.get(v)
        return given is not None and not (type(given[0]) is int and type(given[1]) is int)

    def symbolic_ends(self, atom: Expr) -> tuple[Poly, Poly]:
        """Ends of an atom as polynomials, themselves free of it."""
        if type(atom) is Var and self.bounded_symbolically(atom):
            bottom, top = self.ranges[atom]
            return (
                number(bottom) if isinstance(bottom, int) else self.poly(bottom),
                number(top) if isinstance(top, int) else self.poly(top),
            )
        low, high = self.ends(atom)
        return number(low), number(high)

    def atom(self, key: object, e: Expr, ends: Interval | None = None) -> Expr:
        """The expression that represents `key`: the first one met."""
        found = self.atoms.get(key)
        if found is None:
            self.atoms[key] = found = e
            if ends is not None:
                self.intervals[e] = ends
        return found

    def coefficient(self, p: Poly, atom: Expr) -> tuple[Poly, Poly] | None:
        """(q, r) with `p == q * atom + r` and no `atom` in either; `None` if there is none."""
        q: Poly = {}
        r: Poly = {}
        for k, c in p.items():
            if k is atom:
                q[ONE] = c
            elif type(k) is tuple and any(x is atom for x in k):
                rest = without(k, atom)
                if rest is None or rest is atom:
                    return None
                if type(rest) is tuple and any(x is atom for x in rest):
                    return None
                q[rest] = c
            else:
                r[k] = c
        return q, r

    def atoms_of(self, p: Poly) -> list[Expr]:
        """The atoms of `p` in the order in which they appear."""
        return list(dict.fromkeys(a for k in p for a in factors(k)))

    def build(self, p: Poly) -> Expr:
        """`p` as an expression: terms in order, the first positive one first, the constant last."""
        offset = wrapped(p.get(ONE, 0))
        terms = [(k, c) for k, c in p.items() if k is not ONE]
        if not terms:
            return const(offset)
        result: Expr | None = None
        if terms[0][1] < 0:
            first = next((i for i, term in enumerate(terms) if term[1] > 0), -1)
            if first < 0 and offset:
                result, offset = const(offset), 0
            elif first < 0:
                first = next((i for i, term in enumerate(terms) if term[1] != -1), 0)
            terms.insert(0, terms.pop(max(first, 0)))
        for k, c in terms:
            e = written(k) if isinstance(k, tuple) else k
            if result is None:
                if c == 1:
                    result = e
                elif c == -1:
                    result = Call("neg", (e,), INDEX)
                else:
                    result = Binary(Op.MUL, e, const(wrapped(c)), INDEX)
                continue
            op = Op.ADD
            if c < 0 and c != LOW:
                op, c = Op.SUB, -c
            if c != 1:
                e = Binary(Op.MUL, e, const(wrapped(c)), INDEX)
            result = Binary(op, result, e, INDEX)
        assert result is not None
        if offset > 0 or offset == LOW:
            return Binary(Op.ADD, result, const(offset), INDEX)
        return result if offset == 0 else Binary(Op.SUB, result, const(-offset), INDEX)


def wrapped(value: int) -> int:
    """The int64 that is congruent to `value`."""
    return value if LOW <= value <= HIGH else (value - LOW) % (1 << 64) + LOW


def written(k: tuple[Expr, ...]) -> Expr:
    """A product as an expression: variables in order of name, then other atoms."""
    others = [e for e in k if type(e) is not Var]
    if len(others) > 1:
        others.sort(key=repr)
    ordered = [*sorted([e for e in k if type(e) is Var], key=lambda v: v.name), *others]
    result = ordered[0]
    for atom in ordered[1:]:
        result = Binary(Op.MUL, result, atom, INDEX)
    return result


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
