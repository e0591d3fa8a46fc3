"""Expressions that are shown not to fail: they read within buffers and do not divide by zero.

Vectors whose lanes are read from known places near each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...base import dtypes
from ...tir.bounds import truth
from ...tir.ir import (
    INDEX,
    Binary,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Shuffle,
    Var,
    as_expr,
    binary,
    cast,
    const,
)
from ...tir.polynomial import add, constant
from ...tir.rules import negation
from ...tir.simplify import Simplifier
from ...tir.structure import conjuncts
from ...tir.visit import children, substitute, walk
from .guards import is_bound
from .rewrite import adjacent, may_trap

Inequalities = tuple[Expr, ...]
"""Inequalities of indices that hold where an expression is evaluated."""


def inequalities_of(cond: Expr) -> Inequalities:
    """The inequalities of indices that hold where `cond` does."""
    return tuple(c for c in conjuncts(cond) if is_bound(c))


def inequalities_of_negation(cond: Expr) -> Inequalities:
    """The inequalities of indices that hold where `cond` does not."""
    opposite = negation(cond)
    return () if opposite is None else inequalities_of(opposite)


def lasting(inequalities: Inequalities) -> Inequalities:
    """The inequalities that statements below a branch cannot change: those that read no memory."""
    return tuple(c for c in inequalities if not any(type(n) is Load for n in walk(c)))


class Safety:
    """Answers about expressions of one program, whose indices have one dimension.

    Each node is examined once for the same inequalities, however often an expression has it.
    """

    def __init__(self, s: Simplifier) -> None:
        self._plain = s
        self._answers: dict[tuple[int, ...], _Answers] = {}

    def never_fails(self, e: Expr, inequalities: Inequalities = ()) -> bool:
        """Whether `e` is shown not to fail wherever `inequalities` hold.

        The branches of a select are evaluated only where they are chosen.
        """
        return self._visit(e, self._under(inequalities))

    def _under(self, inequalities: Inequalities) -> _Answers:
        key = tuple(map(id, inequalities))
        answers = self._answers.get(key)
        if answers is None:
            s = Simplifier(self._plain.ranges, inequalities) if inequalities else self._plain
            answers = self._answers[key] = _Answers(inequalities, s)
        return answers

    def _visit(self, e: Expr, answers: _Answers) -> bool:
        found = answers.safe.get(e)
        if found is None:
            found = answers.safe[e] = self._examine(e, answers)
        return found

    def _examine(self, e: Expr, answers: _Answers) -> bool:
        if type(e) is Select:
            then = self._under(answers.inequalities + inequalities_of(e.cond))
            other = self._under(answers.inequalities + inequalities_of_negation(e.cond))
            return (
                self._visit(e.cond, answers)
                and self._visit(e.then, then)
                and self._visit(e.other, other)
            )
        if type(e) is Load and not self._is_within(e, answers):
            return False
        if type(e) is Binary and may_trap(e):
            nonzero = binary(Op.NE, cast(INDEX, e.b), const(0))
            if truth(answers.simplifier, nonzero) is not True:
                return False
        return all(self._visit(c, answers) for c in children(e) if isinstance(c, Expr))

    def _is_within(self, e: Load, answers: _Answers) -> bool:
        index, size = e.indices[0], as_expr(e.buffer.shape[0])
        low, high = self._plain.interval(self._plain.poly(index))
        if low >= 0 and type(size) is Const and high < size.value:
            return True
        if not answers.inequalities:
            return False
        return all(
            truth(answers.simplifier, bound) is True
            for bound in (binary(Op.GE, index, const(0)), binary(Op.LT, index, size))
        )


class _Answers:
    """A simplifier that assumes some inequalities, and the answers under them by node."""

    __slots__ = ("inequalities", "safe", "simplifier")

    def __init__(self, inequalities: Inequalities, s: Simplifier) -> None:
        self.inequalities = inequalities  # kept, because their identities are the key
        self.simplifier = s
        self.safe: dict[Any, bool] = {}


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
