"""Decide conditions over ranges of variables."""

from __future__ import annotations

from collections.abc import Sequence

from .compare import decide
from .ir import COMPARISONS, INDEX, Binary, Const, Expr
from .polynomial import Ranges
from .simplify import NO_RANGES, Simplifier


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
