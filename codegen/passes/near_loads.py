"""Vectors whose lanes are read from known places near each other."""

from __future__ import annotations

from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import Expr, Load, Shuffle, Var
from ...tir.polynomial import add, constant
from ...tir.simplify import Simplifier
from ...tir.visit import substitute
from .rewrite import adjacent


class Lanes(NamedTuple):
    """The lanes of a vector, of which the first `enabled` are used."""

    total: int
    enabled: int


def near_load(e: Load, var: Var, base: Expr, lanes: Lanes, s: Simplifier) -> Expr | None:
    """A load for `var` from `base` on, one lane each, picked from two vectors in memory.

    A[(j + 1) // 2]     ->   A[ramp(0, 1, 8)] and A[ramp(1, 1, 8)], of 16 lanes 0 1 1 2 2 ... 7 8
    A[max(j - 1, 0)]    ->   A[ramp(0, 1, 8)] and A[ramp(7, 1, 8)], of 16 lanes 0 0 1 2 3 ... 14

    Both vectors lie between the first and the last element that is read. If all lanes read one
    element, the load is that of a scalar. Returns `None` where the places are not known, or are
    further apart. Of an index that is not piecewise, lanes lie in a row or at equal steps: it is
    not for those.
    """
    (index,) = e.indices
    first = s.poly(substitute(index, {var: base}))
    order: list[int] = []
    for n in range(lanes.enabled):
        step = constant(add(s.poly(substitute(index, {var: base + n})), first, -1))
        if step is None:
            return None
        order.append(step)
    start, span = min(order), max(order) - min(order) + 1
    width = min(1 << (span.bit_length() - 1), lanes.total)
    last = span - width
    if any(width <= n - start < last for n in order):
        return None
    at = s.build(first) + start
    if width == 1:
        return Load(e.buffer, (s(at),), e.dtype)
    dtype = dtypes.vector(e.dtype, width)
    a = Load(e.buffer, (adjacent(s(at), width),), dtype)
    b = Load(e.buffer, (adjacent(s(at + last), width),), dtype) if last else a
    picked = [n - start if n - start < width else width + n - start - last for n in order]
    picked += picked[-1:] * (lanes.total - lanes.enabled)
    return Shuffle(a, b, tuple(picked), dtypes.vector(e.dtype, lanes.total))
