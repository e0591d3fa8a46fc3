"""Proofs are never wrong, and find what schedules ask for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tilewright.tir.bounds import prove
from tilewright.tir.ir import Buffer, Expr, Op, Var, binary, ceildiv, const, select
from tilewright.tir.polynomial import Ranges

from ..long import examples
from .expressions import SEEDS, Maker, value

X, Y, Z, N, T, U = (Var(v) for v in "xyzntu")
SYMBOLIC: Ranges = {T: (1, 64), U: (1, 64), N: (1, 4096), X: (0, T - 1), Y: (0, U - 1)}


def decided(conditions: list[bool]) -> set[bool | None]:
    """The answers that are not wrong."""
    return {None, conditions[0]} if len(set(conditions)) == 1 else {None}


@given(SEEDS)
@settings(max_examples=examples(300))
def test_never_wrong(seed: int) -> None:
    maker = Maker(seed, (X, Y, Z))
    ranges = {v: maker.pick([(0, 7), (-5, 3), (1, 64), (0, 0), (-3, -1)]) for v in (X, Y, Z)}
    for _ in range(4):
        e = maker.condition(4)
        answer = prove(e, ranges)
        for row in maker.rows(ranges):
            try:
                assert answer in (None, value(e, row)), (e, row)
            except ZeroDivisionError:
                continue


@given(SEEDS)
@settings(max_examples=examples(300))
def test_never_wrong_with_symbolic_ranges(seed: int) -> None:
    maker = Maker(seed, (X, Y, N, T, U))
    e = maker.condition(4)
    answer = prove(e, SYMBOLIC)
    for row in maker.rows({T: (1, 64), U: (1, 64), N: (1, 4096)}):
        for v, n in ((X, row[T]), (Y, row[U])):
            row[v] = maker.pick([0, n - 1, n // 2])
        try:
            assert answer in (None, value(e, row)), (e, row)
        except ZeroDivisionError:
            continue


@given(SEEDS)
@settings(max_examples=examples(300))
def test_never_wrong_with_assumptions(seed: int) -> None:
    maker = Maker(seed, (X, Y, Z))
    ranges = dict.fromkeys((X, Y, Z), (-6, 9))
    given_, e = maker.condition(3), maker.condition(3)
    answer = prove(e, ranges, [given_])
    for row in maker.rows(ranges, 12):
        try:
            if value(given_, row):
                assert answer in (None, value(e, row)), (given_, e, row)
        except ZeroDivisionError:
            continue


TRUTHS: list[Expr] = [
    ceildiv(N, T) * T >= N,
    ceildiv(N, T) * T < N + T,
    X * U + Y < T * U,
    X + 1 <= T,
    N // T * T <= N,
    N // T * T > N - T,
    N % T < T,
    N % T <= N,
    binary(Op.EQ, (N * T) % T, const(0)),
    T * U >= T,
    T * U <= 4096,
    binary(Op.MIN, N, T) <= T,
    binary(Op.MIN, N, T) >= 1,
    binary(Op.MAX, N, T) >= T,
    (X * U + Y) // U <= T - 1,
    (X < T) & (Y >= 0),
    (X < T) | (N > 7),
    ~(X >= T),
    X * 8 + 7 < T * 8,
    binary(Op.NE, T, const(0)),
    select(N > 5, T > 0, U > 0),
]


@pytest.mark.parametrize("condition", TRUTHS, ids=[str(e) for e in TRUTHS])
def test_truths(condition: Expr) -> None:
    assert prove(condition, SYMBOLIC) is True
    assert prove(~condition, SYMBOLIC) is False


OPEN: list[Expr] = [
    T * U <= 32,
    binary(Op.EQ, N % T, const(0)),
    N <= T * U,
    X < Y,
    binary(Op.EQ, T, const(8)),
]


@pytest.mark.parametrize("condition", OPEN, ids=[str(e) for e in OPEN])
def test_what_is_open(condition: Expr) -> None:
    assert prove(condition, SYMBOLIC) is None
    assert prove(~condition, SYMBOLIC) is None


def test_assumptions_are_used() -> None:
    ranges = {X: (0, 12), Y: (0, 7)}
    assert prove(X * 8 + Y < 100, ranges) is None
    assert prove(X * 8 + Y < 100, ranges, [X * 8 + Y < 100]) is True
    assert prove(X * 8 + Y < 101, ranges, [X * 8 + Y < 100]) is True
    assert prove(X * 8 + Y < 99, ranges, [X * 8 + Y < 100]) is None
    assert prove(X * 16 + Y * 2 < 199, ranges, [X * 8 + Y < 100]) is True
    assert prove(X - 3 >= 0, ranges, [(X >= 3) & (Y < 2)]) is True
    assert prove(X >= Y, ranges, [X > 5, Y < 3]) is True
    assert prove(X < 5, ranges, [~(X >= 5)]) is True


def test_facts_bound_quotients_among_other_terms() -> None:
    ranges = {X: (0, 33), Y: (0, 4), Z: (0, 0)}
    x = X * 5 + Y
    given = [x % 8 < 2, x < 168]
    assert prove(x // 8 * 2 + x % 8 + Z <= 41, ranges, given) is True
    assert prove(x // 8 * 2 + x % 8 + Z <= 40, ranges, given) is None
    assert prove((x // 8 * 2 + x % 8 + Z) // 6 <= 6, ranges, given) is True


def test_anything_holds_where_conditions_contradict_each_other() -> None:
    ranges = {X: (0, 9), Y: (0, 9)}
    assert prove(Y < 3, ranges, [X >= 4, X < 4]) is True
    assert prove(Y < 3, ranges, [X + Y >= 4, X * 2 + Y * 2 < 7]) is True
    assert prove(Y < 3, ranges, [X >= 3, X < 4]) is None


def test_equality_is_shown_by_remainders() -> None:
    assert prove(binary(Op.EQ, X * 4, const(6)), {X: (0, 100)}) is False
    assert prove(binary(Op.NE, X * 4 + Y * 2, const(7)), {X: (0, 9), Y: (0, 9)}) is True


def test_nothing_is_known_of_what_could_wrap_around() -> None:
    assert prove(X + 1 > X) is None
    assert prove(X * 8 < 64) is None
    assert prove(binary(Op.EQ, X + 1, X + 1)) is True


def test_other_types() -> None:
    data = Buffer("data", (4,), "float32")[X]
    assert prove(data < data + 1.0) is None
    assert prove((data < 1.0) & (const(1) > const(2))) is False
    assert prove(const(True, "bool")) is True
