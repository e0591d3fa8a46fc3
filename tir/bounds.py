"""Interval analysis of integer expressions.

Decide conditions over ranges of variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from .inequality import decide
from .ir import COMPARISONS, INDEX, Binary, Const, Dim, Expr, Op, Var, as_dim, cast
from .polynomial import HIGH, LOW, Interval, Ranges
from .simplify import NO_RANGES, Simplifier
from .windows import Sweeper, variables


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
