"""Digits of variables: `v // low % size`, the indices that fused loops leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .ir import Expr, Op, Var
from .polynomial import Poly, constant
from .simplify import Simplifier


class Digit(NamedTuple):
    """`var // low % size`, of a variable from zero on. It has the values 0 .. size - 1."""

    var: Var
    low: int
    size: int


def digit_of(s: Simplifier, atom: Expr) -> Digit | None:
    """The digit that an atom of `s` is; `None` if it is none of a variable of known range."""
    if type(atom) is Var:
        first, last = s.ranges.get(atom, (None, None))
        return Digit(atom, 1, last + 1) if first == 0 and isinstance(last, int) else None
    op, a, b = s.definitions.get(atom, (None, {}, {}))
    inner, n = _alone(a), constant(b)
    digit = None if inner is None else digit_of(s, inner)
    if digit is None or n is None or n < 1:
        return None
    var, low, size = digit
    whole = size * low > s.ranges[var][1]  # nothing is cut off above
    if op is Op.FLOORDIV and (whole or size % n == 0):
        return Digit(var, low * n, -(-size // n))
    if op is Op.MOD and (whole or size % n == 0 or size <= n):
        return Digit(var, low, min(size, n))
    return None


def _alone(p: Poly) -> Expr | None:
    """The atom that a polynomial is."""
    if len(p) != 1:
        return None
    ((key, c),) = p.items()
    return key if c == 1 and isinstance(key, Expr) else None


def free(digits: Sequence[Digit], extent: int) -> bool:
    """Whether digits of a variable below `extent` take all combinations of their values."""
    reached = 1
    for d in sorted(digits, key=lambda d: d.low * d.size):
        if d.size > 1:
            if d.low % reached:
                return False
            reached = d.low * d.size
    return extent % reached == 0


def telling(digits: Sequence[Digit], extent: int) -> bool:
    """Whether digits of a variable below `extent` determine it."""
    reached = 1
    for d in sorted(digits, key=lambda d: d.low):
        if d.low > reached:
            return False
        if reached % d.low == 0:
            reached = max(reached, d.low * d.size)
    return reached >= extent
