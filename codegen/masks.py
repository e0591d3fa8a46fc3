"""What masks of vectors tell of their lanes."""

from __future__ import annotations

from ..tir.ir import Binary, Broadcast, Call, Const, Expr, Load, Op, Ramp
from ..tir.visit import walk


def first_lane_is_on(mask: Expr) -> bool:
    """Whether a mask is a comparison of lane numbers that holds for the first lane."""
    match mask:
        case Binary(
            op=Op.LT, a=Ramp(base=Const(value=first)), b=Broadcast(value=Const(value=limit))
        ):
            return first < limit
        case _:
            return False


def counts_lanes(mask: Expr) -> bool:
    """Whether a mask is made of comparisons of lane numbers alone.

    Such a mask ends a loop. Others may be off in all lanes where what the lanes share is guarded.
    """
    match mask:
        case Binary(op=Op.AND | Op.OR, a=a, b=b):
            return counts_lanes(a) and counts_lanes(b)
        case Call(fn="not", args=(a,)):
            return counts_lanes(a)
        case Binary(a=Ramp() | Broadcast(), b=Ramp() | Broadcast()):
            return not any(type(n) is Load for n in walk(mask))
        case _:
            return False
