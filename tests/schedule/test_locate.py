"""`locate_extremum`: an argmax from the maximum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import matmul


def best(
    length: int = 10,
    dtype: str = "float32",
    *,
    smallest: bool = False,
    index: str = "int64",
    value: bool = False,
) -> Func:
    """I = argmax of the rows of A, and V the largest values."""
    a = te.placeholder((5, length), dtype, name="A")
    r = te.reduce_axis(length, "r")
    find = te.argmin if smallest else te.argmax
    i, v = te.compute((5,), lambda i: find(a[i, r], axis=r, dtype=index), name=("I", "V"))
    return te.func([a, i, v] if value else [a, i], name="best")


def located(func: Func, piece: int | None) -> Schedule:
    sch = Schedule(func)
    sch.locate_extremum(sch.get_block(0), piece)
    verify(sch.func)
    return sch


def test_a_row_that_is_one_piece(golden: Golden) -> None:
    func = best(21, value=True)
    golden("locate_extremum/row", func, lambda s: s.locate_extremum(s.get_block("I")))


def test_rows_in_pieces_that_overlap(golden: Golden) -> None:
    func = best(21, value=True)
    golden("locate_extremum/pieces", func, lambda s: s.locate_extremum(s.get_block("I"), 8))


def ties(length: int, dtype: str) -> np.ndarray[Any, Any]:
    """Rows of few values: zeros of both signs, infinities and NaN among them, or only one value."""
    rng = np.random.default_rng(length)
    kind = dtypes.to_numpy(dtype)
    if kind.kind != "f":
        limits = np.iinfo(kind)
        values = np.array([limits.min, 0, limits.max], kind)
        x = values[rng.integers(0, 3, (5, length))]
        x[1], x[2] = limits.min, limits.max
        return x
    numbers = np.array([-0.0, 0.0, 1.0, -1.0, math.inf, -math.inf, math.nan], kind)
    x = np.stack([numbers[rng.integers(0, n, length)] for n in (2, 4, 6, 7, 7)])
    x[2] = -math.inf if length % 2 else math.inf
    return x


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize(("length", "piece"), [(1, None), (1, 1), (13, None), (13, 1), (13, 4),
                                               (12, 4), (13, 13)])  # fmt: skip
def test_the_first_of_equals(dtype: str, smallest: bool, length: int, piece: int | None) -> None:
    sch = located(best(length, dtype, smallest=smallest, value=True), piece)
    x = ties(length, dtype)
    index, value = np.empty(5, np.int64), np.empty(5, x.dtype)
    interpret(sch.func, x, index, value)
    wanted = x.argmin(1) if smallest else x.argmax(1)
    np.testing.assert_array_equal(index, wanted)
    picked = x[np.arange(5), wanted]
    np.testing.assert_array_equal(value, picked)
    np.testing.assert_array_equal(np.signbit(value), np.signbit(picked))


@pytest.mark.parametrize("piece", [None, 7])
@pytest.mark.parametrize("index", ["int8", "uint8", "int32", "uint64"])
def test_numbers_of_other_dtypes(piece: int | None, index: str) -> None:
    func = best(20, index=index, value=True)
    sch = located(func, piece)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)
    check_replays(func, sch)


@pytest.mark.parametrize("piece", [None, 3])
def test_several_variables_of_an_expression(piece: int | None) -> None:
    a = te.placeholder((2, 3, 4, 5), name="A")
    r, s = te.reduce_axis(3, "r"), te.reduce_axis(5, "s")
    i = te.compute(
        (2, 4), lambda b, c: te.argmax(a[b, r, c, s] * a[1 - b, r, c, 4 - s], axis=(r, s))[0]
    )
    func = te.func([a, i], name="several")
    sch = located(func, piece)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_a_value_that_nothing_reads_is_left_out() -> None:
    assert "V" not in [b.name for b in located(best(), 4).func.allocs]
    x = te.placeholder((5, 10), name="A")
    r = te.reduce_axis(10, "r")
    i, v = te.compute((5,), lambda i: te.argmax(x[i, r], axis=r), name=("I", "V"))
    twice = te.compute((5,), lambda i: v[i] * 2.0, name="W")
    func = te.func([x, i, twice], name="twice")
    sch = located(func, 4)
    check_meaning(func, sch.func)


@pytest.mark.parametrize("piece", [0, 11, -1])
def test_no_size_of_a_piece(piece: int) -> None:
    sch = Schedule(best())
    with pytest.raises(ScheduleError):
        sch.locate_extremum(sch.get_block("I"), piece)


WRITTEN = str(best(value=True))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("new_I = vr", "new_I = vr * 2", "row-major order"),
        ("new_I = vr", "new_I = vr + 1", "row-major order"),
        ("new_I = vr", "new_I = 9 - vr", "row-major order"),
        ('T.float32("-inf")', "0.0", "start from the identity"),
        ("I[vi] = 9223372036854775807", "I[vi] = 5", "start from the identity"),
        ("for i, r in T.grid(5, 10)", "for i in T.parallel(5):\n        for r in range(10)",
         "nest of its own"),
    ],
)  # fmt: skip
def test_other_programs(old: str, new: str, message: str) -> None:
    assert old in WRITTEN
    text = WRITTEN.replace(old, new)
    if "parallel" in new:
        head, tail = text.split("for r in range(10):\n")
        text = head + "for r in range(10):\n" + "\n".join("    " + s for s in tail.splitlines())
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match=message):
        sch.locate_extremum(sch.get_block("I"))


def test_no_argmax() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.locate_extremum(sch.get_block("C"))


def test_a_nest_that_is_guarded() -> None:
    sch = Schedule(best())
    sch.split(sch.get_loops(sch.get_block("I"))[1], factors=[None, 4])
    with pytest.raises(ScheduleError):
        sch.locate_extremum(sch.get_block("I"))
