"""Bounds contain all values, and are tight for sums of distinct variables."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.tir.bounds import bound
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Buffer, Const, Expr, Op, Var, binary, cast, ceildiv, const
from tilewright.tir.piecewise import linear
from tilewright.tir.polynomial import Ranges

from ..long import examples
from .expressions import SEEDS, Maker, value

X, Y, Z, T, U = (Var(v) for v in "xyztu")
VARS = (X, Y, Z)


@given(SEEDS)
@settings(max_examples=examples(300))
def test_contain_all_values(seed: int) -> None:
    maker = Maker(seed, VARS)
    ranges = {v: maker.pick([(0, 7), (-5, 3), (1, 64), (0, 2**40), (-3, -1)]) for v in VARS}
    for _ in range(3):
        e = maker.integer(4)
        low, high = bound(e, ranges)
        for row in maker.rows(ranges):
            try:
                found = value(e, row)
            except ZeroDivisionError:
                continue
            assert low is None or low <= found, (e, row)
            assert high is None or found <= high, (e, row)


@given(SEEDS)
@settings(max_examples=examples(200))
def test_symbolic_ends_contain_all_values(seed: int) -> None:
    maker = Maker(seed, (X, Y, T, U))
    ranges: Ranges = {T: (1, 64), U: (1, 16), X: (0, T - 1), Y: (T, T * U)}
    e = maker.integer(4)
    low, high = bound(e, ranges)
    for row in maker.rows({T: (1, 64), U: (1, 16)}, 12):
        t, u = row[T], row[U]
        row[X], row[Y] = maker.pick([0, t - 1, t // 2]), maker.pick([t, t * u])
        try:
            found = value(e, row)
            ends = [None if d is None else value(as_expr(d), row) for d in (low, high)]
        except ZeroDivisionError:
            continue
        assert ends[0] is None or ends[0] <= found, (e, low, row)
        assert ends[1] is None or found <= ends[1], (e, high, row)


def as_expr(d: int | Expr) -> Expr:
    return const(d) if isinstance(d, int) else d


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 9)), max_size=3),
    st.integers(-9, 9),
)
def test_sums_are_tight(terms: list[tuple[int, int, int]], offset: int) -> None:
    e: Expr = const(offset)
    low = high = offset
    ranges = {}
    for v, (c, start, length) in zip(VARS, terms, strict=False):
        e = v * c + e
        ranges[v] = (start, start + length)
        low += min(c * start, c * (start + length))
        high += max(c * start, c * (start + length))
    assert bound(e, ranges) == (low, high)


def test_like_terms_are_collected_first() -> None:
    assert bound(X * 8 - X * 7 + Y - X, {X: (0, 100), Y: (0, 3)}) == (0, 3)


def test_symbolic_ends() -> None:
    ranges: Ranges = {T: (1, 64), U: (1, 64), X: (0, T - 1), Y: (0, U - 1)}
    low, high = bound(X * U + Y, ranges)
    assert low == 0
    assert isinstance(high, Expr)
    assert structural_equal(high, T * U - 1)
    assert all(structural_equal(as_expr(d), T * 2) for d in bound(T * 2, ranges) if d is not None)
    assert bound(ceildiv(T, 4), {T: (1, 64)}) == (1, 16)


def test_what_is_not_known() -> None:
    assert bound(X + 1, {}) == (None, None)
    assert bound(X, {}) == (None, None)
    assert bound(binary(Op.MAX, X, 0), {}) == (0, None)
    assert bound(X % 8, {}) == (0, 7)
    assert bound((X * Y + 3) % 8, {}) == (0, 7)  # also where the sum wraps around
    assert bound((X + 3) // (1 << 60), {}) == (-8, 7)
    assert bound(5) == (5, 5)


def test_values_in_buffers() -> None:
    table = Buffer("table", (8,), "int32", value_range=(0, 100))
    plain = Buffer("plain", (8,), "uint8")
    assert bound(cast("int64", table[X]) * 2, {X: (0, 7)}) == (0, 198)
    assert bound(cast("int64", plain[X]), {X: (0, 7)}) == (0, 255)
    assert bound(cast("int64", Var("flag", "uint8")), {}) == (0, 255)


def test_linear_functions() -> None:
    parts = linear(X * 8 + Y * T - X + Z // 2 + 3, (X, Y))
    assert parts is not None
    assert parts.coefficients[X] == 7
    assert parts.coefficients[Y] is T
    assert list(parts.coefficients) == [X, Y]
    assert structural_equal(parts.constant, Z // 2 + 3)
    assert linear(X * Y, (X, Y)) is None
    assert linear(X // 2 + Y, (X, Y)) is None
    assert linear(X * X, (X,)) is None
    none = linear(Z * 2, (X,))
    assert none is not None
    assert not none.coefficients
    assert isinstance(linear(X * 4 - X * 4, (X,)).constant, Const)  # type: ignore[union-attr]
