"""A condition is refuted at points only where it does not hold."""

from __future__ import annotations

import pytest

from tilewright.tir.ir import Binary, Expr, Op, Var
from tilewright.tir.polynomial import POINTS, Points
from tilewright.tir.simplify import Simplifier

X, J, N = Var("i"), Var("j"), Var("n")


def refuted(e: Expr, *facts: Expr) -> bool:
    context = Simplifier({X: (0, 9), N: (1, 64), J: (0, N - 1)}, facts)
    return Points().refute(context, context.poly(e))


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (X, False),
        (X - 1, True),
        (8 - X, True),
        (9 - X, False),
        (N - 1 - J, False),
        (N - 2 - J, True),
        (X - X // 4 * 4, False),
        (J - Binary(Op.MIN, J, X, "int64"), False),
        (Binary(Op.MAX, J, X, "int64") - J - 1, True),
    ],
)
def test_values(e: Expr, expected: bool) -> None:
    assert refuted(e) is expected


def test_points_that_facts_exclude_do_not_count() -> None:
    assert refuted(X - 5)
    assert not refuted(X - 5, X >= 5)
    assert refuted(X - 5, X <= 8)


def test_points_differ() -> None:
    context = Simplifier({X: (0, 9), J: (0, 999)})
    points = Points()
    assert sum(points.refute(context, context.poly(J - k)) for k in range(1, 1000)) == 999
    assert POINTS > 2
