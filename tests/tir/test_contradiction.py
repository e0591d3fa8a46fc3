"""Conditions that are shown to contradict each other are so, in integers that wrap around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.tir import affine, arithmetic, contradiction
from tilewright.tir.contradiction import contradict
from tilewright.tir.ir import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Op,
    Select,
    Var,
    binary,
    cast,
    const,
    select,
)

X, Y = Var("x", "int8"), Var("y", "uint8")
ARITHMETIC = (
    Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR,
)  # fmt: skip
COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
THROUGH = ("int8", "uint8", "int16", "int64", "uint64")


class Conditions:
    """Random conditions on `X` and `Y`, by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def constant(self, dtype: str) -> Expr:
        low, high = dtypes.int_limits(dtype)
        values = [v for v in (-3, -1, 0, 1, 2, 3, 7, 8, low, high, high - 1) if low <= v <= high]
        return const(int(self.pick(values)), dtype)

    def integer(self, dtype: str, depth: int) -> Expr:
        if depth == 0 or self.rng.random() < 0.15:
            return (
                (X if dtype == "int8" else Y) if self.rng.random() < 0.7 else self.constant(dtype)
            )
        a, kind = self.integer(dtype, depth - 1), self.rng.random()
        if kind < 0.5:
            b = self.constant(dtype) if self.rng.random() < 0.5 else self.integer(dtype, depth - 1)
            return Binary(self.pick(ARITHMETIC), a, b, dtype)
        if kind < 0.6:
            by = const(int(self.pick((0, 1, 2, 7, 8, 9, 100, -(dtype == "int8")))), dtype)
            return Binary(self.pick((Op.SHL, Op.SHR)), a, by, dtype)
        if kind < 0.7:
            return Call(self.pick(("neg", "abs", "not")), (a,), dtype)
        if kind < 0.75:
            return Cast(self.condition(depth - 1), dtype)
        if kind < 0.85:
            source = self.pick(("int8", "uint8"))
            return cast(dtype, cast(self.pick(THROUGH), self.integer(source, depth - 1)))
        return Select(self.condition(depth - 1), a, self.integer(dtype, depth - 1), dtype)

    def condition(self, depth: int) -> Expr:
        kind = self.rng.random()
        dtype, below = self.pick(("int8", "uint8")), max(depth - 1, 0)
        if depth == 0 or kind < 0.6:
            sides = self.integer(dtype, below), self.integer(dtype, below)
            return Binary(self.pick(COMPARISONS), *sides, "bool")
        if kind < 0.75:
            op = self.pick((Op.AND, Op.OR, Op.XOR))
            return Binary(op, self.condition(below), self.condition(below), "bool")
        if kind < 0.85:
            return Call("not", (self.condition(below),), "bool")
        if kind < 0.93:
            return Cast(self.integer(dtype, below), "bool")
        a, b, c = (self.condition(below) for _ in range(3))
        return Select(a, b, c, "bool")


def value(e: Expr, at: Mapping[Var, int]) -> Any:
    match e:
        case Var():
            return at[e]
        case Const():
            return e.value
        case Select():
            return value(e.then if value(e.cond, at) else e.other, at)
        case Binary():
            return arithmetic.binary(e.op, e.a.dtype)(value(e.a, at), value(e.b, at))
        case Call():
            return arithmetic.call(e.fn, e.dtype)(value(e.args[0], at))
        case Cast():
            return arithmetic.cast(e.value.dtype, e.dtype)(value(e.value, at))
        case _:
            raise AssertionError(type(e))


POINTS = [
    {X: x, Y: y}
    for x in (-128, -127, -64, -3, -2, -1, 0, 1, 2, 3, 7, 8, 64, 126, 127)
    for y in (0, 1, 2, 3, 4, 7, 8, 9, 64, 127, 128, 200, 254, 255)
]


@pytest.mark.part(2)
@pytest.mark.parametrize("large", [contradiction.LARGE, 4])
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_what_is_contradicted_holds_nowhere(
    first: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only the surface of most conditions is looked at first."""
    monkeypatch.setattr(contradiction, "LARGE", large)
    monkeypatch.setattr(contradiction, "DEPTHS", (1, 2))
    shown = 0
    for seed in range(first, first + 100):
        draw = Conditions(seed)
        conditions = [draw.condition(draw.pick((1, 2, 3))) for _ in range(draw.pick((1, 2, 3)))]
        if contradict(conditions, {}):
            shown += 1
            assert not any(_hold(conditions, at) for at in POINTS), conditions
    assert shown > 20


def _hold(conditions: Sequence[Expr], at: Mapping[Var, int]) -> bool:
    try:
        return all(value(c, at) for c in conditions)
    except ZeroDivisionError:
        return False


def test_every_formula_is_one_that_the_library_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A formula that it does not read would count as not shown."""

    def read(names: Sequence[str], facts: Sequence[str]) -> bool:
        isl, context = affine._library()
        context.reset_operations()
        text = f"{{ [{', '.join(names)}] : {' and '.join(facts)} }}"
        isl.Set.read_from_str(context, text)
        return False

    monkeypatch.setattr(affine, "unsatisfiable", read)
    for seed in range(200):
        draw = Conditions(seed)
        assert not contradict([draw.condition(2), draw.condition(3)], {})


I, U = Var("i"), Var("u", "uint64")  # noqa: E741
D, R = Buffer("D", (8,), "uint64"), Buffer("R", (8,), "int16", value_range=(1, 5))
F = Buffer("F", (8,), "float32")


@pytest.mark.parametrize(
    "conditions",
    [
        [I > 3, I < 4],
        [D[I] > 3, binary(Op.EQ, D[I], 0)],
        [D[I] > (1 << 63), cast("int64", D[I]) > 0],
        [binary(Op.EQ, R[I], 0)],
        [R[I] * 3 > 12],
        [binary(Op.EQ, D[I] - U, 0), D[I] < U],
        [binary(Op.NE, D[I] & 3, 0), D[I] < 1],
        [F[I] > 0.0, ~(F[I] > 0.0)],
        [I % 4 > 2, binary(Op.EQ, I, 8)],
        [binary(Op.EQ, select(I > 2, I, 3), 2)],
        [I % X.astype("int64") > X.astype("int64"), X > 0],
    ],
)
def test_contradictions(conditions: list[Expr]) -> None:
    assert contradict(conditions, {I: (0, 7)})


def test_a_large_part_of_a_condition_is_not_looked_into() -> None:
    least: Expr = const(32767, "int16")
    for k in range(16):
        least = binary(Op.MIN, least, Buffer(f"B{k}", (8,), "int16")[I] + cast("int16", I))
    guard = binary(Op.MIN, least, R[I] - 3) > 0
    assert contradict([guard, R[I] < 3], {I: (0, 7)})
    assert not contradict([guard, R[I] < 5], {I: (0, 7)})


def test_what_two_conditions_share_is_not_looked_into_first() -> None:
    p, a = Buffer("P", (8,), "int64"), Buffer("A", (8,), "int64")
    u = Buffer("U", (8,), "uint64")

    def chosen(at: Expr) -> Expr:
        negative = a[at] < 0
        return select(~negative & binary(Op.EQ, cast("uint64", a[at]), u[at]), a[at], a[at] ^ 5)

    shared = (chosen(I) * 3 + chosen(I % 4)) * 2 + 1
    assert contradict([binary(Op.EQ, p[I] - shared, 0), shared > p[I]], {I: (0, 7)})
    assert not contradict([binary(Op.EQ, p[I] - shared, 1), shared < p[I]], {I: (0, 7)})


def test_shifts_by_the_width_or_more_leave_the_sign() -> None:
    for count in (8, 100, -1):
        by = const(count, "int8")
        assert contradict([binary(Op.NE, X << by, 0)], {})
        assert contradict([X >= 0, binary(Op.NE, X >> by, 0)], {})
        assert contradict([X < 0, binary(Op.NE, X >> by, -1)], {})


@pytest.mark.parametrize(
    "conditions",
    [
        [I > 3, I < 5],
        [X + 1 < X],
        [binary(Op.NE, X, 0), binary(Op.EQ, X * 2, 0)],
        [cast("int64", D[I]) < 0],
        [binary(Op.EQ, Y + 1, 0)],
        [F[I] > 0.0, ~(F[I] > 1.0)],
        [binary(Op.EQ, abs(X), -128)],
        [binary(Op.EQ, I << const(1 << 40, "int64"), 0), I > 3],
        [binary(Op.EQ, X >> const(-1, "int8"), -1)],
    ],
)
def test_what_may_hold_is_not_contradicted(conditions: list[Expr]) -> None:
    assert not contradict(conditions, {I: (0, 7)})
