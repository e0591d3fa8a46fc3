"""Expressions that are shown not to fail: they read within buffers and do not divide by zero."""

from __future__ import annotations

from typing import Any

from ...tir.bounds import truth
from ...tir.ir import INDEX, Binary, Const, Expr, Load, Op, Select, as_expr, binary, cast, const
from ...tir.rules import negation
from ...tir.simplify import Simplifier
from ...tir.structure import conjuncts
from ...tir.visit import children, walk
from .guards import is_bound
from .rewrite import may_trap

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
