"""The condition that a vector mask puts on its first lane."""

from __future__ import annotations

from ... import dtypes
from ...tir.ir import (
    COMPARISONS,
    INDEX,
    Binary,
    Broadcast,
    Call,
    Expr,
    Op,
    Ramp,
    binary,
    call,
    cast,
)


def first_lane(mask: Expr) -> Expr | None:
    """The condition that a mask holds for the first lane, if it only compares signed integers.

    ramp(0, 1, 8) < broadcast(n - j)  ->  0 < n - j
    """
    match mask:
        case Binary(op=Op.AND | Op.OR, a=a, b=b):
            left, right = first_lane(a), first_lane(b)
            return None if left is None or right is None else binary(mask.op, left, right)
        case Call(fn="not", args=(a,)):
            inner = first_lane(a)
            return None if inner is None else call("not", inner)
        case Binary(op=op, a=Ramp() | Broadcast() as a, b=Ramp() | Broadcast() as b):
            if op not in COMPARISONS or dtypes.info(a.dtype).kind != "int":
                return None  # an index holds all values of signed integers alone
            return binary(op, cast(INDEX, _first(a)), cast(INDEX, _first(b)))
        case _:
            return None


def _first(e: Ramp | Broadcast) -> Expr:
    return e.base if isinstance(e, Ramp) else e.value
