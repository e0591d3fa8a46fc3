"""The simplifier keeps values, is idempotent, keeps identity and never grows expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base import dtypes
from tilewright.tir import structure
from tilewright.tir.equality import structural_equal
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import (
    FALSE,
    INDEX,
    TRUE,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Op,
    Ramp,
    Select,
    Var,
    binary,
    call,
    cast,
    const,
    select,
)
from tilewright.tir.simplify import Simplifier, simplify, simplify_dim
from tilewright.tir.structure import same, size
from tilewright.tir.visit import children

from ..long import examples
from .expressions import SEEDS, Maker, raw, value

I, J, K, N, T, U = (Var(x) for x in "ijkntu")  # noqa: E741
VARS = (I, J, K)
CONCRETE = {I: (0, 15), J: (0, 7), K: (0, 63)}
SYMBOLIC: Mapping[Var, tuple[Dim, Dim]] = {
    T: (1, 64), U: (1, 64), N: (1, 4096), I: (0, T - 1), J: (0, U - 1)
}  # fmt: skip


def check(e: Expr, ranges: Mapping[Var, tuple[Dim, Dim]], rows: list[dict[Var, int]]) -> None:
    new = simplify(e, ranges)
    assert new.dtype == e.dtype
    assert size(new) <= size(e), (e, new)
    assert simplify(new, ranges) is new, (e, new, simplify(new, ranges))
    for row in rows:
        try:
            expected = value(e, row)
        except ZeroDivisionError:
            continue
        assert value(new, row) == expected, (e, new, row)


@given(SEEDS)
@settings(max_examples=examples(300))
def test_keeps_values(seed: int) -> None:
    maker = Maker(seed, VARS)
    lows = maker.rng.integers(-20, 20, len(VARS)).tolist()
    spans = maker.rng.integers(0, 40, len(VARS)).tolist()
    ranges = {v: (a, a + n) for v, a, n in zip(VARS, lows, spans, strict=True)}
    for _ in range(4):
        check(maker.expression(), ranges, maker.rows(ranges))


@given(SEEDS)
@settings(max_examples=examples(100))
def test_keeps_values_that_wrap_around(seed: int) -> None:
    maker = Maker(seed, VARS)
    ranges = dict.fromkeys(VARS, (-(1 << 63), (1 << 63) - 1))
    e = maker.expression()
    check(e, {}, maker.rows(ranges))
    check(e, ranges, maker.rows(ranges))


def digits(maker: Maker) -> Expr:
    """Index expressions as splits, fusions and layouts make them."""
    c, d = maker.pick([2, 4, 8, 16]), maker.pick([2, 3, 4, 8])
    e = maker.pick([K, I * 8 + J, I * 4 + J, K + I * 64, (I * 8 + J) * 64 + K])
    parts = [e // c, e % c, e // c * c, e // c % d, e % (c * d) // c, e % (c * d), e // (c * d), J]
    total: Expr = const(maker.pick(range(-9, 10)))
    for _ in range(maker.pick([1, 2, 3])):
        total = total + maker.pick(parts) * maker.pick([1, c, d, c * d, -1])
    again = const(maker.pick([1, c, d, c * d]))
    return maker.pick(
        [
            total,
            raw(Op.FLOORDIV, total, again),
            raw(Op.MOD, total, again),
            raw(Op.LT, total, const(c * d * 3)),
        ]
    )


@given(SEEDS)
@settings(max_examples=examples(300))
def test_digits(seed: int) -> None:
    maker = Maker(seed, VARS)
    for _ in range(3):
        check(digits(maker), CONCRETE, maker.rows(CONCRETE))


@given(SEEDS)
@settings(max_examples=examples(200))
def test_keeps_values_with_symbolic_ranges(seed: int) -> None:
    maker = Maker(seed, (I, J, T, U, N))
    rows = maker.rows({T: (1, 64), U: (1, 64), N: (1, 4096)})
    for row in rows:
        for v, n in ((I, row[T]), (J, row[U])):
            row[v] = maker.pick([0, n - 1, n // 2])
    check(maker.expression(), SYMBOLIC, rows)


M = binary(Op.MIN, K, 40)
EXAMPLES: list[tuple[Expr, Expr]] = [
    ((I * 8 + J) * 64 + K, I * 512 + J * 64 + K),
    ((I * 8 + J) // 8, I),
    ((I * 8 + J) % 8, J),
    ((I * 8 + J) // 4, I * 2 + J // 4),
    ((I * 64 + J * 8) // 16, I * 4 + J // 2),
    (K // 8 * 8 + K % 8, K),
    (K // 8 // 4, K // 32),
    (K % 32 % 8, K % 8),
    (K // 32 * 32 + K % 32 // 8 * 8 + K % 8, K),
    (K // 8 % 4 * 8 + K % 8, K % 32),
    ((K + 64) % 64, K),
    ((K * 6) % 4, K % 2 * 2),
    ((K * 16 + J) % 7, (K * 16 + J) % 7),  # what (K * 16 + J) // 7 is of
    (I + J - I, J),
    (binary(Op.MIN, K, 100), K),
    (binary(Op.MAX, J, const(-1)), J),
    (binary(Op.MIN, binary(Op.MIN, K, 50), 40), M),
    (I * 8 + J < 128, TRUE),
    (I * 8 + J < 96, I < 12),
    (I * 8 + J >= 128, FALSE),
    (I * 8 + J < I * 8 + K, J < K),
    (binary(Op.EQ, I * 4, const(6)), FALSE),
    (select(K < 64, I, J), I),
    (~(~(I < J)), I < J),
    (~(I < J), I >= J),
    ((I < J) & (K >= 0), I < J),
    ((I < J) | (K >= 0), TRUE),
    (((I < J) & (K < 9)) & (I < J), (I < J) & (K < 9)),
    (abs(K), K),
    (abs(K - 63), 63 - K),
    (abs(K - 62), abs(K - 62)),
    (cast(INDEX, cast("int32", K)), K),
]


@pytest.mark.parametrize(("e", "expected"), EXAMPLES, ids=[str(e) for e, _ in EXAMPLES])
def test_examples(e: Expr, expected: Expr) -> None:
    assert structural_equal(simplify(e, CONCRETE), expected)


SYMBOLIC_EXAMPLES: list[tuple[Expr, Expr]] = [
    ((I * U + J) // U, I),
    ((I * U + J) % U, J),
    (N * T // T, N),
    (N * T % T, const(0)),
    (N // T * T + N % T, N),
    (N // T // U, N // (T * U)),
    (I * U + J < T * U, TRUE),
    ((N + T - 1) // T * T >= N, TRUE),
    (binary(Op.MIN, T * U, 4096), T * U),
    ((binary(Op.MIN, T * 16, 36) + 15) // 16, binary(Op.MIN, T, 3)),
    (binary(Op.MAX, T * 8, 36) // 4, binary(Op.MAX, T * 2, 9)),
    ((binary(Op.MIN, T * 12, 36) + 7) // 8, (binary(Op.MIN, T * 12, 36) + 7) // 8),
    ((T * 4 + I) // (T * 2), const(2)),
]


@pytest.mark.parametrize(
    ("e", "expected"), SYMBOLIC_EXAMPLES, ids=[str(e) for e, _ in SYMBOLIC_EXAMPLES]
)
def test_symbolic_examples(e: Expr, expected: Expr) -> None:
    assert structural_equal(simplify(e, SYMBOLIC), expected)


def test_same_object_when_nothing_changes() -> None:
    x = Buffer("x", (16, 8), "float32")
    for e in (
        I * 8 + J,
        x[I, J] * x[I, J // 2] + 1.0,
        select(I * 8 + J < 100, x[I, J], 0.0),
        call("exp", x[I, 0]),
        -3 - I,
        5 - I - J,
        (I + J) * 64,
        cast("int32", I),
        (I < J) & (J < K),
    ):
        assert simplify(e, CONCRETE) is e


def test_ranges_are_needed_for_what_could_wrap_around() -> None:
    e = (I * 8 + J) // 8
    assert simplify(e) is e
    assert structural_equal(simplify(raw(Op.SUB, I + J, I)), J)


def test_products_of_many_sums_are_not_multiplied_out() -> None:
    """They have 2**12 terms."""
    product: Expr = I + 1
    for k in range(2, 13):
        product = product * (J * k + I)
    s = Simplifier()
    assert len(s.poly(product)) < 64
    assert s(product) is product
    assert structural_equal(s((I + J) * (I - J) + J * J), I * I)


def test_assumptions() -> None:
    n = 100
    assert simplify(binary(Op.MIN, I * 8 + J, n - 1), CONCRETE, [n > I * 8 + J]) is not None
    assert structural_equal(
        simplify(binary(Op.MIN, I * 8 + J, n - 1), CONCRETE, [n > I * 8 + J]), I * 8 + J
    )


def test_simplifier_remembers() -> None:
    s = Simplifier(CONCRETE)
    e = (I * 8 + J) // 8
    assert s(e) is s(e)
    assert s(e) is I


def test_dimensions() -> None:
    assert simplify_dim(7) == 7
    assert simplify_dim(T * 4 // T, SYMBOLIC) == 4


NUMBERS = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint64")


@pytest.mark.parametrize("dtype", NUMBERS)
@given(data=st.data())
@settings(max_examples=examples(60))
def test_constants_fold_as_numpy_computes(dtype: str, data: st.DataObject) -> None:
    scalar = dtypes.to_numpy(dtype).type
    if dtypes.is_float(dtype):
        numbers = st.floats(width=16) | st.sampled_from([0.0, -0.0, 0.1, 1e-30, math.inf])
        ops = [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.LT, Op.EQ, Op.NE]
    else:
        numbers = st.integers(*dtypes.int_limits(dtype))
        ops = [Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.XOR, Op.LT, Op.EQ]
    a, b, op = data.draw(numbers), data.draw(numbers), data.draw(st.sampled_from(ops))
    x, y = Const(a, dtype), Const(b, dtype)
    if op in (Op.FLOORDIV, Op.MOD) and b == 0:
        return
    folded = simplify(raw(op, x, y))
    assert type(folded) is Const
    functions = {
        Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide,
        Op.LT: np.less, Op.EQ: np.equal, Op.NE: np.not_equal, Op.FLOORDIV: np.floor_divide,
        Op.MOD: np.mod, Op.MIN: np.minimum, Op.XOR: np.bitwise_xor,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        expected = functions[op](
            np.array([a]).astype(scalar) if dtypes.is_float(dtype) else np.array([a], scalar),
            np.array([b]).astype(scalar) if dtypes.is_float(dtype) else np.array([b], scalar),
        )[0]
    assert repr(float(folded.value)) == repr(float(expected)) or folded.value == int(expected)


def test_floats_are_left_alone_where_a_bit_could_change() -> None:
    x = Buffer("x", (16,), "float32")[I]
    zero, minus_zero, one = (const(v, "float32") for v in (0.0, -0.0, 1.0))
    for e in (x + zero, x * zero, x - x, x / x, x - minus_zero, minus_zero - x):
        assert simplify(e) is e
    for e in (
        x - zero,
        x + minus_zero,
        x * one,
        one * x,
        x / one,
        call("neg", -x),
        binary(Op.MAX, x, x),
    ):
        assert simplify(e) is x
    assert simplify(~(x < one)).fn == "not"  # type: ignore[attr-defined]
    not_equal = simplify(~binary(Op.EQ, x, one))
    assert type(not_equal) is Binary
    assert not_equal.op is Op.NE


def test_division_by_zero_stays() -> None:
    for op in (Op.FLOORDIV, Op.MOD):
        e = raw(op, const(7), const(0))
        assert simplify(e) is e


def test_casts_of_constants_saturate() -> None:
    big = Const(1e30, "float32")
    assert simplify(Cast(big, "int8")).value == 127  # type: ignore[attr-defined]
    assert simplify(Cast(Const(math.nan, "float32"), "int64")).value == 0  # type: ignore[attr-defined]
    assert simplify(Cast(Const(300, "int64"), "int8")).value == 44  # type: ignore[attr-defined]


def vector(e: Expr, lanes: int = 8) -> Expr:
    return Broadcast(e, lanes, dtypes.vector(e.dtype, lanes))


def ramp(base: Expr, stride: int = 1, lanes: int = 8) -> Expr:
    return Ramp(base, const(stride), lanes, dtypes.vector(INDEX, lanes))


VECTORS: list[tuple[Expr, Expr]] = [
    (ramp(I * 8) + vector(J), ramp(I * 8 + J)),
    (ramp(I * 8) * vector(const(4)), ramp(I * 32, 4)),
    (vector(const(4)) * ramp(I * 8), ramp(I * 32, 4)),
    (ramp(I * 8) - ramp(I * 8), vector(const(0))),
    (ramp(I * 8) // vector(const(8)), vector(I)),
    (ramp(I * 8) % vector(const(8)), ramp(const(0))),
    (ramp(I * 8) % vector(const(16)), ramp(I % 2 * 8)),
    (vector(I) + vector(J), vector(I + J)),
    (ramp(I * 8) < vector(const(128)), vector(TRUE)),
    (vector(I) < vector(J), vector(I < J)),
    (ramp(I, 0), vector(I)),
]


@pytest.mark.parametrize(("e", "expected"), VECTORS, ids=[str(i) for i in range(len(VECTORS))])
def test_vectors(e: Expr, expected: Expr) -> None:
    new = simplify(e, CONCRETE)
    assert structural_equal(new, expected)
    assert simplify(new, CONCRETE) is new


def test_masks_that_differ_between_lanes_stay() -> None:
    e = ramp(I * 8) < vector(const(100))
    assert simplify(e, CONCRETE) is e
    chosen = Select(vector(TRUE), ramp(I), ramp(J), "int64x8")
    assert structural_equal(simplify(chosen, CONCRETE), ramp(I))


def test_same_is_structural() -> None:
    assert same(I * 8 + J, I * 8 + J)
    assert not same(I * 8 + J, I * 8 + K)
    assert not same(Call("neg", (I,), INDEX), Call("abs", (I,), INDEX))


def test_quotient_and_a_reduced_remainder_are_one_number() -> None:
    x, y = Var("x"), Var("y")
    ranges = {x: (0, 9), y: (0, 15)}
    number = x * 320 + y
    assert str(simplify(number // 56 * 56 + number % 56, ranges)) == "x * 320 + y"
    assert str(simplify(number // 56 * 56 + (x * 40 + y) % 56, ranges)) == "x * 320 + y"
    other = simplify(number // 56 * 56 + (x * 41 + y) % 56, ranges)
    for i in range(10):
        for j in range(16):
            wanted = (i * 320 + j) // 56 * 56 + (i * 41 + j) % 56
            assert evaluate(other, {x: i, y: j}) == wanted


def test_sizes_of_a_long_sum_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []

    def counting(n: object) -> list[object]:
        counted.append(n)
        return [*children(n)]

    monkeypatch.setattr(structure, "children", counting)
    terms = 100
    total: Expr = Cast(I, "float32")
    for _ in range(terms):
        term = Cast(Binary(Op.ADD, I, const(0), INDEX), "float32")
        total = Binary(Op.ADD, total, term, "float32")
    Simplifier()(total)
    assert len(counted) <= 16 * terms
