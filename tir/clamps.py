"""Clamped indices: `min(max(e, low), high)` with constant ends."""

from __future__ import annotations

from typing import NamedTuple

from .ir import Binary, Const, Expr, Op


class Clamped(NamedTuple):
    """An index under clamps: at least each of `at_least`, then at most each of `at_most`.

    Its values lie in every range that contains those of `bare` and overlaps with each clamp.
    """

    bare: Expr
    at_least: tuple[int, ...]
    at_most: tuple[int, ...]


def unclamped(e: Expr) -> Clamped:
    """`e` without the clamps around it."""
    at_least: list[int] = []
    at_most: list[int] = []
    while type(e) is Binary and e.op in (Op.MIN, Op.MAX):
        inner, end = (e.a, e.b) if type(e.b) is Const else (e.b, e.a)
        if type(end) is not Const:
            break
        (at_most if e.op is Op.MIN else at_least).append(int(end.value))
        e = inner
    return Clamped(e, tuple(at_least), tuple(at_most))
