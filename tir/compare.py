"""Comparisons of int64 expressions: decided where possible, else reduced by common terms."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from .inequality import nonnegative
from .ir import COMPARISONS, FALSE, TRUE, Binary, Expr, Op
from .polynomial import ONE, Context, Poly, add, identity, negated, number, shifted
from .structure import size

if TYPE_CHECKING:
    from .simplify import Simplifier

_HOLDS_OF_EQUALS = frozenset({Op.EQ, Op.LE, Op.GE})


def decide(context: Context, op: Op, a: Poly, b: Poly) -> bool | None:
    """The truth of `a op b` for all values; `None` if it varies or is not known."""
    difference = add(b, a, -1)
    if not difference:
        return op in _HOLDS_OF_EQUALS
    if not (context.fits(a) and context.fits(b)):
        return None
    key = op, identity(difference)
    if key not in context.decided:
        context.decided[key] = _decide(context, op, difference)
    return context.decided[key]


def _decide(context: Context, op: Op, difference: Poly) -> bool | None:
    """`decide` by the difference of exact operands."""
    if op in (Op.GT, Op.GE):
        op, difference = (Op.LT if op is Op.GT else Op.LE), negated(difference)
    if op in (Op.LT, Op.LE):
        slack = shifted(difference, -1) if op is Op.LT else difference
        if nonnegative(context, slack):
            return True
        return False if nonnegative(context, shifted(negated(slack), -1)) else None
    common = gcd(*(c for k, c in difference.items() if k is not ONE))
    apart = (
        (common > 0 and difference.get(ONE, 0) % common != 0)
        or nonnegative(context, shifted(difference, -1))
        or nonnegative(context, shifted(negated(difference), -1))
    )
    if apart:
        return op is Op.NE
    if nonnegative(context, difference) and nonnegative(context, negated(difference)):
        return op is Op.EQ
    return None


def compare(s: Simplifier, op: Op, a: Expr, b: Expr, e: Binary) -> Expr:
    """`a op b` of simplified operands; returns `e` itself if it is the same."""
    assert op in COMPARISONS
    p, q = s.poly(a), s.poly(b)
    decided = decide(s, op, p, q)
    if decided is not None:
        return TRUE if decided else FALSE
    kept = e if a is e.a and b is e.b else Binary(op, a, b, e.dtype)
    if not (s.fits(p) and s.fits(q)):
        return kept
    reduced = _reduced(s, op, add(q, p, -1), _tidy(p) and _tidy(q) and p.keys().isdisjoint(q))
    if reduced is None:
        return kept
    new = Binary(*reduced, e.dtype)
    return new if size(new) < size(kept) else kept


def _tidy(p: Poly) -> bool:
    """Whether no term is subtracted."""
    return all(c > 0 or k is ONE for k, c in p.items())


def _reduced(
    s: Simplifier, op: Op, difference: Poly, is_tidy: bool
) -> tuple[Op, Expr, Expr] | None:
    """`0 op difference` with common factors taken out, positive terms on either side.

    `None` if that is no gain; `is_tidy` if terms are on either side already.
    """
    if op in (Op.GT, Op.GE):
        difference = negated(difference)
        op = Op.LT if op is Op.GT else Op.LE
    if op is Op.LT:
        difference, op = shifted(difference, -1), Op.LE
    if op is Op.LE:
        coarser = _coarser(s, difference)
        if is_tidy and coarser is difference:
            return None
        difference = coarser
    else:
        common = gcd(*difference.values())
        if is_tidy and common == 1:
            return None
        difference = {k: c // common for k, c in difference.items()}
    left = {k: -c for k, c in difference.items() if c < 0 and k is not ONE}
    right = {k: c for k, c in difference.items() if c > 0 and k is not ONE}
    offset = difference.get(ONE, 0)
    if op is Op.LE:
        if not left:
            return _checked(s, Op.GE, right, number(-offset))
        if offset == -1 or (offset > 0 and not right):
            op, offset = Op.LT, offset + 1
    if offset >= 0 or not right:
        return _checked(s, op, left, shifted(right, offset))
    return _checked(s, op, shifted(left, -offset), right)


def _checked(s: Simplifier, op: Op, left: Poly, right: Poly) -> tuple[Op, Expr, Expr] | None:
    if not (s.fits(left) and s.fits(right)):
        return None
    return op, s.build(left), s.build(right)


def _coarser(s: Simplifier, difference: Poly) -> Poly:
    """A polynomial with fewer or smaller terms that is non-negative exactly where this one is."""
    for scale in sorted({abs(c) for k, c in difference.items() if k is not ONE}, reverse=True):
        if scale == 1:
            break
        q = {k: c // scale for k, c in difference.items() if k is not ONE and c % scale == 0}
        r = {k: c for k, c in difference.items() if k is ONE or c % scale}
        low, high = s.interval(r)
        if low // scale == high // scale:
            return _coarser(s, add(q, {ONE: low // scale}) if low // scale else q)
    return difference
