"""Joined dimensions: which are, and that they name the same elements."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from tilewright.tir.digits import joined
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import Buffer, Expr, Var, const
from tilewright.tir.simplify import Simplifier

E, V = Var("e"), Var("i")


def dims(shape: tuple[int, ...], *indices: Expr, **more: object) -> tuple[tuple[int, ...], ...]:
    return joined(Buffer("A", shape, "float32", **more), indices).dims  # type: ignore[arg-type]


def test_quotient_and_remainder_are_one_index() -> None:
    shape, indices, of = joined(Buffer("A", (4, 6, 8), "float32"), (V, E // 8, E % 8))
    assert shape == (4, 48)
    assert indices[0] is V
    assert indices[1] is E
    assert of == ((0,), (1, 2))


def test_digits_of_a_sum_and_of_three_are_one_index() -> None:
    assert dims((4, 6), (E * 3 + V) // 6, (E * 3 + V) % 6) == ((0, 1),)
    assert dims((4, 5, 6), E // 30, E // 6 % 5, E % 6) == ((0, 1, 2),)
    assert dims((4, 5, 6), V, E // 6 % 5, E % 6) == ((0,), (1, 2))


def test_multiples_may_be_left_out_of_quotients_and_remainders() -> None:
    whole = E * 16 + V
    assert dims((9, 4, 8), whole // 32, (E * 2 + V // 8) % 4, V % 8) == ((0, 1, 2),)
    assert dims((9, 4, 16), whole // 64, E % 4, V) == ((0, 1, 2),)
    assert dims((9, 4, 16), whole // 32, E % 4, V) == ((0,), (1,), (2,)), "not by the size"
    assert dims((9, 4, 16), whole // 64, E % 2, V) == ((0,), (1,), (2,))


def test_others_stay() -> None:
    apart = ((0,), (1,))
    assert dims((4, 6), E // 5, E % 5) == apart, "the remainder is not by the size"
    assert dims((4, 6), E // 6, V % 6) == apart
    assert dims((4, 6), E // 3, E % 6) == apart
    assert dims((4, 6), E % 6, E // 6) == apart
    assert dims((4, 6), const(0), E % 6) == apart
    assert dims((4, 6), E // 6, E % 6, strides=(8, 1)) == apart


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 700))
def test_the_element_is_the_same(shape: list[int], value: int) -> None:
    scales = [1]
    for n in reversed(shape[1:]):
        scales.insert(0, scales[0] * n)
    digits: list[Expr] = [
        E // s % n if s > 1 else E % n for s, n in zip(scales, shape, strict=True)
    ]
    buffer = Buffer("A", tuple(shape), "float32")
    found = joined(buffer, tuple(digits))
    columns = {E: value}

    def offset(sizes: tuple[object, ...], indices: tuple[Expr, ...]) -> int:
        total = 0
        for n, e in zip(sizes, indices, strict=True):
            assert isinstance(n, int)
            total = total * n + int(evaluate(e, columns))
        return total

    assert offset(found.shape, found.indices) == offset(buffer.shape, tuple(digits))
    assert [d for run in found.dims for d in run] == list(range(len(shape)))
    assert all(a[-1] < b[0] for a, b in pairwise(found.dims))


@given(
    st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=2, max_size=4),
    st.sampled_from([2, 4, 8, 16, 32]),
    st.integers(0, 40),
    st.integers(0, 31),
)
def test_the_element_of_split_loops_is_the_same(
    shape: list[int], factor: int, outer: int, inner: int
) -> None:
    """Digits of `E * factor + V`, as they are simplified, within the buffer."""
    size, inner = math.prod(shape), inner % factor
    value = outer * factor + inner
    assume(value < size)
    simplify = Simplifier({E: (0, (size - 1) // factor), V: (0, factor - 1)})
    digits: list[Expr] = []
    low = 1
    for n in reversed(shape):
        digits.insert(0, simplify((E * factor + V) // low % n))
        low *= n
    found = joined(Buffer("A", tuple(shape), "float32"), tuple(digits))
    offset = 0
    for extent, e in zip(found.shape, found.indices, strict=True):
        assert isinstance(extent, int)
        offset = offset * extent + int(evaluate(e, {E: outer, V: inner}))
    assert offset == value
