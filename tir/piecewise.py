"""Piecewise linear indices: clamped, reflected, wrapped, or selected by where they are."""

from __future__ import annotations

from typing import TypeGuard

from .ir import COMPARISONS, INDEX, Binary, Call, Const, Expr, Load, Op, Select
from .visit import walk


def is_piecewise(index: Expr) -> bool:
    """Whether an index is a different sum in different iterations."""
    return any(map(is_switch, walk(index)))


def is_switch(n: object) -> bool:
    """Whether a node of an index is one of several sums, by the value of another index.

    min(i, 7), max(-i, i), abs(i), i % 8, i // 8, select(i < 0, -i, i)
    """
    match n:
        case Binary(op=Op.MIN | Op.MAX):
            return n.dtype == INDEX
        case Binary(op=Op.MOD | Op.FLOORDIV):
            return n.dtype == INDEX and type(n.b) is Const
        case Select() if n.dtype == INDEX:
            # What is read from memory is no sum.
            data = any(type(x) is Load for side in (n.then, n.other) for x in walk(side))
            return not data and any(map(is_comparison, walk(n.cond)))
        case Call(fn="abs"):
            return n.dtype == INDEX
        case _:
            return False


def is_comparison(n: object) -> TypeGuard[Binary]:
    """Whether a node compares indices."""
    return type(n) is Binary and n.op in COMPARISONS and n.a.dtype == INDEX
