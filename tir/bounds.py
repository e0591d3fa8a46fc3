"""Interval analysis of integer expressions, and conditions that it decides.

Windows: first and last values of index expressions while some variables sweep their ranges.

Other variables stay: a window is a pair of polynomials over them. Used for regions of buffers
(inner loops sweep, outer loops stay) and for symbolic bounds (loops sweep, decisions stay).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property
from typing import TypeAlias

from .divide import quotient
from .inequality import decide
from .ir import COMPARISONS, INDEX, Binary, Const, Dim, Expr, Op, Var, as_dim, binary, cast
from .polynomial import (
    HIGH,
    LOW,
    Interval,
    Key,
    Poly,
    Ranges,
    add,
    factors,
    number,
    shifted,
    times,
    without,
)
from .simplify import NO_RANGES, Simplifier
from .visit import walk


def bound(expr: Dim, ranges: Ranges = NO_RANGES) -> tuple[Dim | None, Dim | None]:
    """Inclusive bounds of an integer expression; `None` for an unknown bound.

    Variables that appear in the ranges of others are decisions: bounds are expressions over them if
    known, integers otherwise. Tight for sums in which each variable appears once.
    """
    return (expr, expr) if isinstance(expr, int) else Bounds(ranges)(expr)


class Bounds:
    """`bound` of many expressions over the same ranges, with a cache."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._decisions = {
            v for r in ranges.values() for end in r if type(end) is not int for v in variables(end)
        }

    def __call__(self, expr: Expr) -> tuple[Dim | None, Dim | None]:
        """The ends of an expression."""
        expr = cast(INDEX, expr)
        digit = None if self._decisions else _digit(expr, self._ranges)
        if digit is not None:
            return digit
        s = self._simplifier
        p = s.poly(expr)
        if not s.fits(p):
            return None, None
        window = s.window(p) if isinstance(s, Sweeper) else None
        if window is not None:
            low, high = (as_dim(s(s.build(end))) for end in window)
            return low, high
        bottom, top = s.interval(p)
        return (None if bottom == LOW else bottom), (None if top == HIGH else top)

    @cached_property
    def _simplifier(self) -> Simplifier:
        if not self._decisions:
            return Simplifier(self._ranges)
        return Sweeper(self._ranges, self._ranges.keys() - self._decisions, self._decisions)


def _digit(e: Expr, ranges: Ranges) -> Interval | None:
    """The bounds of `v // m % n` or a part of it, for a variable with integer bounds; else `None`.

    Fused loops create little else, and this is decided without polynomials.
    """
    if type(e) is Var:
        low, high = ranges.get(e, (0, -1))
        return (
            (low, high) if isinstance(low, int) and isinstance(high, int) and low <= high else None
        )
    if type(e) is not Binary or type(e.b) is not Const or e.b.dtype != INDEX or e.b.value < 1:
        return None
    n = int(e.b.value)
    ends = _digit(e.a, ranges) if e.op is Op.FLOORDIV or e.op is Op.MOD else None
    if ends is None or e.op is Op.FLOORDIV:
        return None if ends is None else (ends[0] // n, ends[1] // n)
    if ends[0] // n == ends[1] // n:
        return ends[0] % n, ends[1] % n
    return None if ends[1] - ends[0] < n - 1 else (0, n - 1)


def prove(
    condition: Expr, ranges: Ranges = NO_RANGES, assuming: Sequence[Expr] = ()
) -> bool | None:
    """True or False if `condition` is so for all values in the ranges, `None` if it is not known.

    `assuming` are conditions that are known to hold.
    """
    if type(condition) is Const:
        return bool(condition.value)
    return truth(Simplifier(ranges, assuming), condition)


def truth(s: Simplifier, condition: Expr) -> bool | None:
    """`prove` within a simplifier that is kept."""
    if type(condition) is Const:
        return bool(condition.value)
    if type(condition) is Binary:
        op, a, b = condition.op, condition.a, condition.b
        if op in COMPARISONS and a.dtype == INDEX:
            return decide(s, op, s.poly(a), s.poly(b))
    simple = s(condition)
    return bool(simple.value) if type(simple) is Const else None


LARGEST = 1 << 40
"""What decisions of unknown range and the ends of windows are at most: far beyond any index."""

Window: TypeAlias = tuple[Poly, Poly]
"""First and last value."""


class Sweeper(Simplifier):
    """A simplifier in which some variables are swept. Extents may be over `decisions` only."""

    def __init__(self, ranges: Ranges, swept: Container[Var], decisions: Container[Var]) -> None:
        super().__init__(ranges)
        self.swept = swept
        self.decisions = decisions

    def is_extent(self, p: Poly) -> bool:
        """Whether `p` is over decisions only."""
        return all(v in self.decisions for a in self.atoms_of(p) for v in variables(a))

    def moves(self, e: Expr) -> bool:
        """Whether `e` depends on a variable that is swept."""
        return any(v in self.swept for v in variables(e))

    def window(self, p: Poly) -> Window | None:
        """The first and last value of `p` over the sweep, or `None` if they are not known."""
        low: Poly = {}
        high: Poly = {}
        for k, c in p.items():
            ends = self._term(k, c)
            if ends is None:
                return None
            low, high = add(low, ends[0]), add(high, ends[1])
        return low, high

    def _term(self, k: Key, c: int) -> Window | None:
        moving = [a for a in factors(k) if self.moves(a)]
        if not moving:
            return {k: c}, {k: c}
        rest = without(k, moving[0])
        assert rest is not None
        scale = {rest: c}
        bottom, top = self.interval(scale)
        one_sign = bottom >= 0 or top <= 0
        ends = self._ends_of(moving[0]) if len(moving) == 1 and one_sign else None
        if ends is None:
            low, high = self.interval({k: c})
            return (number(low), number(high)) if low > -LARGEST and high < LARGEST else None
        first, last = (times(scale, e) for e in ends)
        return (first, last) if bottom >= 0 else (last, first)

    def _ends_of(self, atom: Expr) -> Window | None:
        if type(atom) is Var:
            bottom, top = self.symbolic_ends(atom)
            first, last = self.window(bottom), self.window(top)
            return None if first is None or last is None else (first[0], last[1])
        definition = self.definitions.get(atom)
        if definition is None:
            return None
        op, a, b = definition
        over = self.window(a)
        if over is None:
            return None
        if op in (Op.MIN, Op.MAX):
            other = self.window(b)
            if other is None:
                return None
            low, high = (self.extremum(op, x, y) for x, y in zip(over, other, strict=True))
            if not self.is_extent(add(high, low, -1)):
                widths = [add(w[1], w[0], -1) for w in (over, other)]
                high = add(low, self.extremum(Op.MAX, *widths))
            return low, high
        if any(self.moves(x) for x in self.atoms_of(b)):
            return None
        if op is Op.MOD:
            return {}, shifted(b, -1)
        low, high = quotient(self, over[0], b), quotient(self, over[1], b)
        if not self.is_extent(add(high, low, -1)):
            width = add(over[1], over[0], -1)
            high = add(low, quotient(self, shifted(add(width, b), -1), b))
        return low, high

    def extremum(self, op: Op, a: Poly, b: Poly) -> Poly:
        """The polynomial of a minimum or maximum."""
        return self.poly(binary(op, self.build(a), self.build(b)))


def variables(*dims: Dim) -> set[Var]:
    """The variables in expressions or dimensions. What these have in common is looked at once."""
    if len(dims) == 1 and type(dims[0]) is Var:
        return {dims[0]}
    found: set[Var] = set()
    seen: set[Expr] = set()
    left = [e for e in dims if not isinstance(e, int)]
    while left:
        e = left.pop()
        kind = type(e)
        if kind is Var:
            found.add(e)  # type: ignore[arg-type]
        elif kind is Binary:
            if e not in seen:
                seen.add(e)
                left += (e.a, e.b)  # type: ignore[attr-defined]
        elif kind is not Const:
            found.update(n for n in walk(e) if type(n) is Var)
    return found
