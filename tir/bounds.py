"""Intervals of integer expressions."""

from __future__ import annotations

from .ir import INDEX, Dim, as_dim, cast
from .polynomial import HIGH, LOW, Interval, Poly, Ranges
from .simplify import NO_RANGES, Simplifier
from .windows import Sweeper, variables


def bound(expr: Dim, ranges: Ranges = NO_RANGES) -> tuple[Dim | None, Dim | None]:
    """Inclusive ends of the values of an integer expression; `None` where an end is not known.

    Variables that appear in the ranges of others are decisions: ends are expressions over them
    where that is known, integers otherwise. Tight for sums in which each variable appears once.
    """
    if isinstance(expr, int):
        return expr, expr
    expr = cast(INDEX, expr)
    decisions = {v for r in ranges.values() for end in r for v in variables(end)}
    if not decisions:
        s = Simplifier(ranges)
        p = s.poly(expr)
        return _known(s.interval(p), s.fits(p))
    sweeper = Sweeper(ranges, ranges.keys() - decisions, decisions)
    p = sweeper.poly(expr)
    window = sweeper.window(p) if sweeper.fits(p) else None
    if window is None:
        return _known(sweeper.interval(p), sweeper.fits(p))
    low, high = (_dim(sweeper, end) for end in window)
    return low, high


def _dim(s: Simplifier, p: Poly) -> Dim:
    return as_dim(s(s.build(p)))


def _known(ends: Interval, exact: bool) -> tuple[int | None, int | None]:
    if not exact:
        return None, None
    low, high = ends
    return (None if low == LOW else low), (None if high == HIGH else high)
