"""Whether elements tell threads apart: never said where two threads use one element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.codegen.passes.launches import Use, tells_apart
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import Buffer, Expr, Var, const
from tilewright.tir.simplify import Simplifier

T, Y, I, J, B = (Var(v) for v in "tyijb")  # noqa: E741
RANGES = {T: (0, 11), Y: (0, 2), I: (0, 3), J: (0, 2), B: (0, 1)}
A = Buffer("A", (1000,), "float32")


def use(*indices: Expr) -> Use:
    return Use(A, True, indices, (), ())


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ((T,), (T,), True),
        ((B * 12 + T,), (B * 12 + T,), True),
        ((T * 4 + I,), (T * 4 + J,), True),
        ((T * 3 + I,), (T * 3 + I,), False),
        ((T + I,), (T + I,), False),
        ((T // 4 * 8 + I, T % 4 * 2 + 1), (T // 4 * 8 + J, T % 4 * 2 + 1), True),
        ((T // 4, T % 2), (T // 4, T % 2), False),
        ((T // 4, T // 2 % 2, T % 2), (T // 4, T // 2 % 2, T % 2), True),
        ((T % 4,), (T % 4,), False),
        ((T // 4,), (T // 4,), False),
        ((T,), (T + 1,), False),
        ((T,), (11 - T,), False),
        ((const(0),), (const(0),), False),
    ],
)
def test_digits(first: tuple[Expr, ...], second: tuple[Expr, ...], apart: bool) -> None:
    s = Simplifier(RANGES)
    assert tells_apart(use(*first), use(*second), [T], [B], s) is apart


TERMS = (
    T,
    Y,
    I,
    J,
    B,
    T // 2,
    T // 3,
    T // 4,
    T % 2,
    T % 3,
    T % 4,
    T // 2 % 2,
    T // 3 % 2,
    T // 4 % 3,
)
indices = st.lists(
    st.lists(
        st.tuples(st.sampled_from(TERMS), st.sampled_from([1, 2, 3, 4, 6, 12, 24])), max_size=3
    ),
    min_size=1,
    max_size=2,
)


def expression(terms: list[tuple[Expr, int]]) -> Expr:
    result: Expr = const(0)
    for term, factor in terms:
        result = result + term * factor
    return result


@given(indices, st.data())
def test_what_is_said_holds_for_all_values(
    terms: list[list[tuple[Expr, int]]], data: st.DataObject
) -> None:
    first = tuple(map(expression, terms))
    second = first
    if data.draw(st.booleans()):
        second = tuple(e + data.draw(st.sampled_from([0, 1, 5])) for e in first)
    crossed, fixed = [T, Y], [B]
    if not tells_apart(use(*first), use(*second), crossed, fixed, Simplifier(RANGES)):
        return
    seen: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    values = list(itertools.product(*(range(high + 1) for _, high in RANGES.values())))
    for point in values:
        at = dict(zip(RANGES, point, strict=True))
        for indices in (first, second):
            element = (at[B], *(int(np.asarray(evaluate(e, at))) for e in indices))
            seen.setdefault(element, set()).add((at[T], at[Y]))
    assert all(len(threads) == 1 for threads in seen.values())
