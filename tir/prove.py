"""Decide conditions over ranges of variables."""

from __future__ import annotations

from collections.abc import Sequence

from .compare import decide
from .ir import COMPARISONS, INDEX, Binary, Call, Const, Expr, Op, Select
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
        if op in (Op.AND, Op.OR) and condition.dtype == "bool":
            left = truth(s, a)
            short = op is Op.OR
            if left is short:
                return short
            right = truth(s, b)
            if right is short:
                return short
            return None if left is None or right is None else not short
    if type(condition) is Call and condition.fn == "not":
        inner = truth(s, condition.args[0])
        return None if inner is None else not inner
    if type(condition) is Select:
        return _select(s, condition)
    simple = s(condition)
    return bool(simple.value) if type(simple) is Const else None


def _select(s: Simplifier, e: Select) -> bool | None:
    chosen = truth(s, e.cond)
    if chosen is not None:
        return truth(s, e.then if chosen else e.other)
    then = truth(s, e.then)
    return then if then is truth(s, e.other) else None
