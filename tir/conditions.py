"""Split conditions into conjuncts, and combine them."""

from __future__ import annotations

from collections.abc import Sequence

from .ir import Binary, Expr, Op, binary


def conjuncts(predicate: Expr | None) -> list[Expr]:
    """The conditions whose conjunction is `predicate`."""
    if predicate is None:
        return []
    if type(predicate) is Binary and predicate.op is Op.AND and predicate.dtype == "bool":
        return conjuncts(predicate.a) + conjuncts(predicate.b)
    return [predicate]


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """The predicate that requires all `conditions`; `None` of none."""
    result: Expr | None = None
    for c in conditions:
        result = c if result is None else binary(Op.AND, result, c)
    return result
