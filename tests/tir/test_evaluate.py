"""Columns of values: numpy code equals Python arithmetic row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import IRError
from tilewright.tir.columns import Tape
from tilewright.tir.evaluate import Columns, Expressions, evaluate
from tilewright.tir.ir import Buffer, Op, Var, binary, call, cast, ceildiv, const, select

from ..long import examples
from ..refusals import refused
from .expressions import SEEDS, Maker, value

A, B, C = Var("a"), Var("b"), Var("c")
RANGES = [(-20, 20), (-(2**62), 2**62), (2**51 - 3, 2**51 + 3), (0, 2**20), (1, 64)]


@given(SEEDS)
@settings(max_examples=examples(150))
def test_columns_equal_rows(seed: int) -> None:
    maker = Maker(seed, (A, B, C))
    exprs = [maker.expression() for _ in range(4)]
    rows = maker.rows({v: maker.pick(RANGES) for v in (A, B, C)}, 5)
    matrix = np.array([list(r.values()) for r in rows])
    bounds = {v: (min(c), max(c)) for v, c in zip((A, B, C), matrix.T.tolist(), strict=True)}
    columns = Columns(exprs, bounds)
    found, ends = columns(matrix), columns.intervals
    for r, row in enumerate(rows):
        for j, e in enumerate(exprs):
            try:
                expected = value(e, row)
            except ZeroDivisionError:
                continue
            assert int(found[r, j]) == int(expected), (e, row)
            assert ends[j][0] <= int(expected) <= ends[j][1], (e, row)


@given(st.integers(-(2**51), 2**51), st.integers(1, 2**51))
@settings(max_examples=examples(200))
def test_divisions_near_the_limit_are_exact(a: int, b: int) -> None:
    q, r = A // B, A % B
    near = [a, a // b * b, a // b * b - 1]
    columns = {A: np.array(near), B: np.array([b] * 3)}
    assert evaluate(q, columns).tolist() == [x // b for x in near]
    assert evaluate(r, columns).tolist() == [x % b for x in near]


def test_shares_equal_subexpressions() -> None:
    tape = Tape()
    numbers = Expressions(tape, dict.fromkeys((A, B, C), (1, 100)))
    once = numbers(ceildiv(A, B) * C)
    count = len(tape.known)
    assert numbers(C * ((A + (B - 1)) // B)) is once
    assert len(tape.known) == count > 0


def test_zeros_of_both_signs_are_told_apart() -> None:
    x = cast("float64", A)
    zero, negative = const(0.0, "float64"), const(-0.0, "float64")
    rows = {A: np.array([1, 2])}
    assert np.isnan(evaluate(x / zero + x / negative, rows)).all()
    assert np.isneginf(evaluate(x / negative, rows)).all()
    either = select(A > 1, zero, negative)
    assert np.signbit(evaluate(either, rows)).tolist() == [True, False]
    other = select(A > 1, negative, zero)
    assert np.isneginf(evaluate(x / either - x / other, rows)).tolist() == [True, False]


def test_a_side_of_select_that_is_not_taken_may_divide_by_zero() -> None:
    e = select(binary(Op.NE, A, 0), binary(Op.FLOORDIV, B, A), const(-1))
    assert evaluate(e, {A: np.array([0, 3]), B: np.array([7, 7])}).tolist() == [-1, 2]


def test_integers_for_columns_and_no_rows() -> None:
    assert evaluate(A * 3 + 1, {A: 4}).shape == ()
    assert int(evaluate(A * 3 + 1, {A: 4})) == 13
    assert evaluate(A // B, {A: np.arange(6), B: 4}).tolist() == [0, 0, 0, 0, 1, 1]
    assert evaluate(7, {A: np.arange(2)}).tolist() == [7, 7]
    assert evaluate(A < B, {A: np.arange(0), B: 3}).dtype == np.bool_
    assert Columns([A, A + 1], {A: (0, 9)})(np.empty((0, 1), np.int64)).shape == (0, 2)


def test_many_rows_are_done_in_slices() -> None:
    matrix = np.arange(60_000, dtype=np.int64).reshape(-1, 2)
    bounds = {A: (0, 60_000), B: (0, 60_000)}
    found = Columns([A // 7 + B % 5, binary(Op.MIN, A, 100)], bounds)(matrix)
    a, b = matrix.T
    assert np.array_equal(found, np.stack([a // 7 + b % 5, np.minimum(a, 100)], axis=1))


def test_floats() -> None:
    x = cast("float64", A)
    found = Columns([call("log", x) / 2.0, A], {A: (1, 8)})(np.array([[1], [8]]))
    assert found.dtype == np.float64
    assert np.array_equal(found, [[0.0, 1.0], [np.log(8.0) / 2, 8.0]])
    limits = cast("int64", x * const(1e300, "float64") / const(3.0, "float64"))
    assert evaluate(limits, {A: np.array([-1, 0, 1])}).tolist() == [-(2**63), 0, 2**63 - 1]
    half = cast("int64", x / const(2.0, "float64"))
    assert evaluate(half, {A: np.array([-3, 3])}).tolist() == [-1, 1]


def test_refuses_what_it_does_not_evaluate() -> None:
    with pytest.raises(IRError):
        evaluate(A + B, {A: 1})
    with refused(IRError, "float32"):
        evaluate(Buffer("x", (4,), "float32")[A], {A: 1})
    with pytest.raises(IRError):
        evaluate(Buffer("x", (4,), "int64")[A], {A: 1})
