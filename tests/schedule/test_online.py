"""`online_softmax`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import ScheduleError
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func, Label, Var
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import loops

INF = float("inf")


def pieces(sch: Schedule, length: int, total: str = "Y_sum") -> tuple[Label, Label]:
    """Sum the exponentials of a softmax in pieces of `length`."""
    if total == "Y_sum":
        sch.compute_inline(sch.get_block("Y_exp"))
    outer, _ = sch.split(loops(sch, total)[-1], factors=[None, length])
    highest, part = sch.online_softmax(outer)
    return highest, part


def sums(
    value: Callable[..., Any],
    *,
    largest: Callable[..., Any] = te.max,
    shape: tuple[int, int] = (3, 10),
    dtype: str = "float64",
) -> Func:
    """S[i], the sum over k of `value(X, M, i, k)`, where M[i] is the maximum of X[i, k]."""
    n, m = shape
    x = te.placeholder(shape, dtype, name="X")
    k, r = te.reduce_axis(m, name="k"), te.reduce_axis(m, name="r")
    most = te.compute((n,), lambda i: largest(x[i, k], axis=k), name="M")
    total = te.compute((n,), lambda i: te.sum(value(x, most, i, r), axis=r), name="S")
    return te.func([x, most, total], name="sums")


def plain(x: Any, m: Any, i: Any, k: Any) -> Any:
    return te.exp(x[i, k] - m[i])


def results(func: Func, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """M and S for an input X, of the interpreter and of machine code."""
    found = []
    for module in (None, to_module(compile_func(func, "cpu -threads=1"))):
        largest, total = (np.zeros(len(x), x.dtype) for _ in range(2))
        if module is None:
            interpret(func, x.copy(), largest, total)
        else:
            module(x.copy(), largest, total)
        found += [largest, total]
    return found


def test_pieces_that_divide(golden: Golden) -> None:
    golden("online_softmax/pieces", sums(plain), lambda s: pieces(s, 5, "S"))


def test_a_row_is_read_once(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        highest, part = pieces(sch, 4)
        sch.reverse_compute_at(part, sch.get_loops(highest)[1])

    golden("online_softmax/softmax", ops.softmax_func(2, 11), script)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("columns", "length"), [(7, 3), (24, 8), (5, 9)])
def test_meaning(dtype: str, columns: int, length: int) -> None:
    func = ops.softmax_func(3, columns, dtype=dtype)
    sch = Schedule(func)
    pieces(sch, length)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_any_axis_and_order_of_loops() -> None:
    x = te.placeholder((3, 8, 4), "float64", name="X")
    func = te.func([x, ops.softmax(x, axis=1, name="Y")], name="softmax")
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("Y_exp"))
    i, j, k = loops(sch, "Y_sum")
    outer, inner = sch.split(k, factors=[2, None])
    rows = sch.fuse(i, j)
    sch.reorder(outer, rows, inner)
    sch.parallel(rows)
    highest, part = sch.online_softmax(outer)
    verify(sch.func)
    check_meaning(func, sch.func)
    assert len(sch.get_loops(highest)) == len(sch.get_loops(part)) == 3


def test_the_loops_of_the_maximum_are_replaced() -> None:
    func = sums(plain)
    sch = Schedule(func)
    sch.split(loops(sch, "M")[1], factors=[None, 3])
    pieces(sch, 4, "S")
    verify(sch.func)
    check_meaning(func, sch.func)


def test_numbers_that_are_cast_first() -> None:
    x = te.placeholder((2, 9), "int32", name="X")
    k, r = te.reduce_axis(9, name="k"), te.reduce_axis(9, name="r")
    most = te.compute((2,), lambda i: te.max(x[i, k], axis=k), name="M")

    def value(i: Any) -> Any:
        return te.exp(te.cast(x[i, r], "float64") - te.cast(most[i], "float64"))

    total = te.compute((2,), lambda i: te.sum(value(i), axis=r), name="S")
    func = te.func([x, total], name="integers")
    sch = Schedule(func)
    pieces(sch, 4, "S")
    check_meaning(func, sch.func)


def test_a_maximum_that_starts_elsewhere() -> None:
    """The row's maximum may be above that of all its pieces."""
    func = parse(str(sums(plain)).replace('T.float64("-inf")', "1.5"))
    sch = Schedule(func)
    pieces(sch, 4, "S")
    check_meaning(func, sch.func)


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 2.0, -INF, -INF, -INF, -INF, 3.0, -INF, 0.0],
        [-INF] * 9,
        [-INF, -INF, -INF, -INF, -INF, -INF, -INF, -INF, -1e300],
        [1.0, INF, 0.0, -INF, -INF, -INF, 0.0, 1.0, 2.0],
        [0.0, 1.0, 2.0, np.nan, 0.0, 0.0, -INF, -INF, -INF],
        [-700.0, -710.0, -750.0, 0.0, 1e300, 0.0, -1e300, -745.0, 0.0],
    ],
)
def test_what_is_infinite_counts_as_it_did(row: list[float]) -> None:
    func = sums(plain, shape=(1, 9))
    sch = Schedule(func)
    pieces(sch, 3, "S")
    x = np.array([row])
    expected = results(func, x)
    for found, wanted in zip(results(sch.func, x), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


SCALED = [
    lambda x, m, i, k: te.exp(x[i, k] + -m[i]),
    lambda x, m, i, k: te.exp((x[i, k] - m[i]) * 0.25),
    lambda x, m, i, k: te.exp((x[i, k] - m[i]) / 4.0 * 3.0),
    lambda x, m, i, k: te.exp(x[i, k] * 0.25 - m[i] * 0.25),
    lambda x, m, i, k: te.exp(0.5 * (x[i, k] / 2.0 - m[i] / 2.0)),
]
"""Exponentials of a scaled difference, or of the difference of scaled numbers."""


@pytest.mark.parametrize("value", SCALED)
def test_scaled_exponents(value: Callable[..., Any]) -> None:
    func = sums(value)
    sch = Schedule(func)
    pieces(sch, 5, "S")
    x = np.random.default_rng(0).normal(0, 9, (3, 10))
    x[1, :5], x[2] = -INF, -INF
    largest, total, *others = results(func, x) + results(sch.func, x)
    assert np.isfinite(total[:2]).all()
    assert np.isnan(total[2])
    for n, other in enumerate(others):
        np.testing.assert_allclose(other, (largest, total)[n % 2], rtol=1e-12)


def test_no_rows() -> None:
    func = sums(plain, shape=(0, 8))
    sch = Schedule(func)
    pieces(sch, 4, "S")
    check_meaning(func, sch.func)


def test_errors_are_those_of_other_orders_of_a_sum() -> None:
    """Also where the maximum moves with each piece."""
    x = np.sort(np.random.default_rng(0).normal(0, 8, (4, 512))).astype(np.float32)
    for values in (x, x[:, ::-1].copy(), np.random.default_rng(1).permuted(x, axis=1)):
        func = sums(plain, shape=(4, 512), dtype="float32")
        sch = Schedule(func)
        pieces(sch, 8, "S")
        wide = values.astype(np.float64)
        exact = np.exp(wide - wide.max(axis=1, keepdims=True)).sum(axis=1)
        for total in results(sch.func, values)[1::2]:
            assert np.max(np.abs(total - exact) / exact) < 16 * 2.0**-24


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (sums(lambda x, m, i, k: x[i, k] - m[i]), "must sum exp"),
        (sums(lambda x, m, i, k: te.exp(x[i, k])), "must sum exp"),
        (sums(lambda x, m, i, k: te.exp(x[i, k] + m[i])), "must sum exp"),
        (sums(lambda x, m, i, k: te.exp((x[i, k] - m[i]) * -1.0)), "must sum exp"),
        (sums(lambda x, m, i, k: te.exp(x[i, k] * 2.0 - m[i] * 3.0)), "subtracts is M in another"),
        (sums(lambda x, m, i, k: te.exp(x[i, k] - m[i] * 3.0)), "subtracts is M in another"),
        (sums(lambda x, m, i, k: te.exp(x[i, k] - m[i]) * x[i, k]), "must sum exp"),
        (
            sums(lambda x, m, i, k: te.exp(m[i] - x[i, k])),
            "subtracts X; expected a maximum",
        ),
        (sums(lambda x, m, i, k: te.exp(x[i, k] - x[i, 0])), "expected a maximum that one block"),
        (sums(plain, largest=te.min), "subtracts M; expected a maximum"),
        (sums(lambda x, m, i, k: te.exp(x[i, 9 - k] - m[i])), "is not the maximum of the elements"),
        (sums(lambda x, m, i, k: te.exp(x[i, k] * 2 - m[i])), "is not the maximum of the elements"),
        (sums(lambda x, m, i, k: te.exp(x[i, k] - m[2 - i])), "is not the maximum of the elements"),
    ],
)
def test_what_is_no_sum_of_exponentials(func: Func, message: str) -> None:
    sch = Schedule(func)
    outer, _ = sch.split(loops(sch, "S")[1], factors=[None, 5])
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        sch.online_softmax(outer)
    assert sch.func is before


def test_a_maximum_of_exponentials() -> None:
    exps = "T.exp(X[vi, vr] - M[vi])"
    text = str(sums(plain)).replace(f"S[vi] + {exps}", f"T.maximum(S[vi], {exps})")
    sch = Schedule(parse(text.replace("S[vi] = 0.0", 'S[vi] = T.float64("-inf")')))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")


def test_a_sum_over_a_part_of_the_row() -> None:
    x = te.placeholder((3, 10), "float64", name="X")
    k, r = te.reduce_axis(10, name="k"), te.reduce_axis(8, name="r")
    most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), name="M")
    total = te.compute((3,), lambda i: te.sum(te.exp(x[i, r] - most[i]), axis=r), name="S")
    sch = Schedule(te.func([x, total], name="part"))
    with pytest.raises(ScheduleError):
        pieces(sch, 4, "S")


def test_what_changes_between_maximum_and_sum() -> None:
    x = te.placeholder((3, 10), "float64", name="X")
    k, r = te.reduce_axis(10, name="k"), te.reduce_axis(10, name="r")
    most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), name="M")
    new = te.compute((3, 10), lambda i, j: x[i, j] + most[i], name="U")
    total = te.compute((3,), lambda i: te.sum(te.exp(new[i, r] - most[i]), axis=r), name="S")
    sch = Schedule(te.func([x, total], name="late", inplace={new: x}))
    with pytest.raises(ScheduleError):
        pieces(sch, 4, "S")


def shared_nests(sch: Schedule) -> Var:
    outer, _ = sch.split(loops(sch, "S")[1], factors=[None, 5])
    sch.merge(loops(sch, "M")[0], loops(sch, "S")[0])
    return outer


EMPTY = parse(str(sums(plain)).replace("10", "0"))


@pytest.mark.parametrize(
    ("func", "choose", "message"),
    [
        (EMPTY, lambda sch: sch.split(loops(sch, "S")[1], factors=[2, None])[0], "has no terms"),
        (sums(plain), lambda sch: loops(sch, "S")[1], "have one element each"),
        (sums(plain), shared_nests, "block M shares a nest with others"),
        (sums(plain), lambda sch: loops(sch, "S")[0], "is no loop of the reduction"),
    ],
    ids=["no elements", "pieces of one element", "shared nests", "a loop of rows"],
)
def test_what_is_no_loop_of_pieces(
    func: Func, choose: Callable[[Schedule], Var], message: str
) -> None:
    sch = Schedule(func)
    loop = choose(sch)
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        sch.online_softmax(loop)
    assert sch.func is before


def test_pieces_of_sampled_length() -> None:
    func = sums(plain, shape=(2, 24))
    sch = Schedule(func, symbolic=True)
    length = sch.sample_categorical([2, 4, 5, 8])
    outer, _ = sch.split(loops(sch, "S")[-1], factors=[None, length])
    sch.online_softmax(outer)
    for size in (2, 4, 5, 8):
        check_meaning(func, sch.trace.with_row([size]).apply(func).func)


def test_pieces_that_do_not_divide_move_into_rows() -> None:
    """Each piece has a result, though the last one is short."""
    func = ops.softmax_func(3, 11)
    sch = Schedule(func)
    highest, part = pieces(sch, 4)
    row = loops(sch, "Y")[0]
    for label in (sch.get_block("Y_sum"), part, sch.get_block("Y_max"), highest):
        sch.compute_at(label, row)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_a_piece_that_is_guarded_off_has_no_result() -> None:
    sch = Schedule(ops.softmax_func(3, 11))
    pieces(sch, 4)
    short = Schedule(parse(str(sch.func).replace("r_0 * 4 + r_1 < 11", "r_0 < 2")))
    with pytest.raises(ScheduleError):
        short.compute_at(short.get_block("Y_sum"), loops(short, "Y")[0])


def test_numbers_without_infinity() -> None:
    """Of a piece whose maximum is the least number nothing says that it is one of its elements."""
    text = str(sums(plain)).replace("float64", "float8_e4m3fn").replace(
        'T.float8_e4m3fn("-inf")', "-448.0"
    )  # fmt: skip
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")


def test_exponentials_that_are_cast_before_they_are_summed() -> None:
    """Their precision is not that of the sum, which would be scaled with it."""
    sch = Schedule(sums(plain, dtype="float16"))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")
