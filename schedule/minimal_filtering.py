"""Winograd's minimal filtering algorithms F(m, 3) as data, and their transforms as expressions.

Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv:1509.09308).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..tir.ir import Expr, Op, binary, const, select

WINDOW = 3
"""The width of the kernels."""


class Transform(NamedTuple):
    """A matrix, and groups of columns that several rows share up to a factor.

    The sum of a group is written alike in all these rows, so that it is computed once.
    """

    rows: tuple[tuple[float, ...], ...]
    groups: tuple[tuple[int, ...], ...]


class Algorithm(NamedTuple):
    """The matrices G, B^T and A^T."""

    kernel: Transform
    input: Transform
    output: Transform


ALGORITHMS: Mapping[int, Algorithm] = {
    2: Algorithm(
        Transform(((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)), ((0, 2), (1,))),
        Transform(
            ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)), ((0, 2), (1, 3))
        ),
        Transform(((1, 1, 1, 0), (0, 1, -1, -1)), ((0,), (1, 2), (3,))),
    ),
    4: Algorithm(
        Transform(
            (
                (1 / 4, 0, 0),
                (-1 / 6, -1 / 6, -1 / 6),
                (-1 / 6, 1 / 6, -1 / 6),
                (1 / 24, 1 / 12, 1 / 6),
                (1 / 24, -1 / 12, 1 / 6),
                (0, 0, 1),
            ),
            ((0, 2), (1,)),
        ),
        Transform(
            (
                (4, 0, -5, 0, 1, 0),
                (0, -4, -4, 1, 1, 0),
                (0, 4, -4, -1, 1, 0),
                (0, -2, -1, 2, 1, 0),
                (0, 2, -1, -2, 1, 0),
                (0, 4, 0, -5, 0, 1),
            ),
            ((0, 2, 4), (1, 3, 5)),
        ),
        Transform(
            ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
            ((0,), (1, 2), (3, 4), (5,)),
        ),
    ),
}  # fmt: skip
"""By the size m of output tiles. The points of m = 4 are 0, 1, -1, 2, -2 and infinity."""


def product_row(transform: Transform, row: Expr, element: Callable[[int], Expr]) -> Expr:
    """Element `row` of a transform times the vector of `element(0)`, `element(1)`, ..

    There is one sum per row; the value of `row` selects it.
    """
    *others, chosen = [_sum(r, transform.groups, element) for r in transform.rows]
    for n, value in reversed(list(enumerate(others))):
        chosen = select(binary(Op.EQ, row, const(n)), value, chosen)
    return chosen


def _sum(
    row: Sequence[float], groups: Sequence[Sequence[int]], element: Callable[[int], Expr]
) -> Expr:
    """Sums of groups of elements, each times what its coefficients have in common."""
    total: Expr | None = None
    for group in groups:
        terms = [(row[k], element(k)) for k in group if row[k] != 0]
        if not terms:
            continue
        common = abs(terms[0][0]) if len({abs(c) for c, _ in terms}) == 1 else 1.0
        leads = total is None and any(c > 0 for c, _ in terms)
        if terms[0][0] < 0 and not leads:
            common = -common  # the group's first element is positive in all rows
        terms.sort(key=lambda t: t[0] / common < 0)
        part: Expr | None = None
        for c, e in terms:
            part = _plus(part, c / common, e)
        assert part is not None
        total = _plus(total, common, part)
    assert total is not None, "no row is zero"
    return total


def _plus(total: Expr | None, c: float, e: Expr) -> Expr:
    """`total + c * e`, without products by one."""
    if total is None:
        return e if c == 1 else const(c, e.dtype) * e
    scaled = e if abs(c) == 1 else const(abs(c), e.dtype) * e
    return total - scaled if c < 0 else total + scaled
