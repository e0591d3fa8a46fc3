"""Intervals of integer expressions."""

from __future__ import annotations

from .ir import INDEX, Dim, Expr, as_dim
from .polynomial import HIGH, LOW, ONE, Poly, Ranges, add, constant
from .simplify import NO_RANGES, Simplifier


def bound(expr: Expr, ranges: Ranges = NO_RANGES) -> tuple[Dim | None, Dim | None]:
    """Inclusive ends of the values of an integer expression; `None` where an end is not known.

    Ends are integers where the ranges are. Where a range is symbolic, its variable is eliminated,
    and the ends are expressions over the variables that are left (the decisions). Tight for sums in
    which each variable appears once.
    """
    s = Simplifier(ranges)
    if expr.dtype != INDEX:
        expr = expr.astype(INDEX)
    p = s.poly(expr)
    low, high = s.interval(p)
    if not s.symbolic:
        if low < LOW or high > HIGH:
            return None, None
        return (None if low == LOW else low), (None if high == HIGH else high)
    if not s.fits(p):
        return None, None
    return _end(s, p, -1), _end(s, p, 1)


def _end(s: Simplifier, p: Poly, side: int) -> Dim | None:
    """The lower (-1) or upper (1) end, with variables of symbolic ranges eliminated."""
    numeric = s.interval(p)[side > 0]
    for _ in range(32):
        for atom in s.atoms_of(p):
            low, high = s.symbolic_ends(atom)
            if constant(low) is not None and constant(high) is not None:
                continue
            parts = s.coefficient(p, atom)
            if parts is None:
                return _known(numeric)
            q0, q1 = s.interval(parts[0])
            if q0 < 0 < q1:
                return _known(numeric)
            end = high if (q0 >= 0) is (side > 0) else low
            p = add(parts[1], s.times(parts[0], end))
            break
        else:
            break
    value = constant(p)
    if value is not None:
        return value
    if not any(_decision(s, a) for a in s.atoms_of(p)):
        return _known(numeric)
    return as_dim(s(s.build(p)))


def _decision(s: Simplifier, atom: Expr) -> bool:
    return True


def _known(end: int) -> int | None:
    return None if end in (LOW, HIGH) else end


__all__ = ["ONE", "bound"]
