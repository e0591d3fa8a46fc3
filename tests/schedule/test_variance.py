"""`online_variance`."""

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
from tilewright.tir.ir import Func, Label
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import loops

INF = float("inf")


def pieces(sch: Schedule, length: int, squares: str = "Y_square") -> tuple[Label, Label]:
    """Sum the squares of a layer_norm in pieces of `length`."""
    outer, _ = sch.split(loops(sch, squares)[-1], factors=[None, length])
    first, part = sch.online_variance(outer)
    return first, part


def about(x: Any, m: Any, i: Any, k: Any) -> Any:
    return (x[i, k] - m[i]) * (x[i, k] - m[i])


def squares(
    value: Callable[..., Any] = about,
    *,
    total: Callable[..., Any] = te.sum,
    mean: Callable[..., Any] | None = lambda t, i: t[i] / 10.0,
    shape: tuple[int, int] = (3, 10),
    dtype: str = "float64",
) -> Func:
    """S[i], the sum over k of `value(X, M, i, k)`; M[i] is `mean` of the sum T of X[i, k], or T."""
    n, m = shape
    x = te.placeholder(shape, dtype, name="X")
    k, r = te.reduce_axis(m, name="k"), te.reduce_axis(m, name="r")
    t = te.compute((n,), lambda i: total(x[i, k], axis=k), name="T")
    middle = t if mean is None else te.compute((n,), lambda i: mean(t, i), name="M")
    s = te.compute((n,), lambda i: te.sum(value(x, middle, i, r), axis=r), name="S")
    return te.func([x, s], name="squares")


def inlined(x: Any, t: Any, i: Any, k: Any) -> Any:
    distance = x[i, k] - t[i] / 10.0
    return distance * distance


def results(func: Func, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """S for an input X, of the interpreter and of machine code."""
    found = [np.zeros(len(x), x.dtype) for _ in range(2)]
    interpret(func, x.copy(), found[0])
    to_module(compile_func(func, "cpu -threads=1"))(x.copy(), found[1])
    return found


def test_pieces_that_divide(golden: Golden) -> None:
    golden("online_variance/pieces", squares(), lambda s: pieces(s, 5, "S"))


def test_a_row_is_read_once(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        first, part = pieces(sch, 4)
        sch.reverse_compute_at(part, sch.get_loops(first)[1])

    golden("online_variance/layer_norm", ops.layer_norm_func(2, 11), script)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("columns", "length"), [(7, 3), (24, 8), (5, 9)])
def test_meaning(dtype: str, columns: int, length: int) -> None:
    func = ops.layer_norm_func(3, columns, dtype=dtype)
    sch = Schedule(func)
    pieces(sch, length)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_a_mean_within_the_squares() -> None:
    func = squares(inlined, mean=None)
    sch = Schedule(func)
    pieces(sch, 4, "S")
    verify(sch.func)
    check_meaning(func, sch.func)


def test_any_order_of_loops() -> None:
    func = squares(shape=(4, 10))
    sch = Schedule(func)
    i, k = loops(sch, "S")
    outer, inner = sch.split(k, factors=[2, None])
    sch.reorder(outer, i, inner)
    sch.parallel(i)
    sch.online_variance(outer)
    verify(sch.func)
    check_meaning(func, sch.func)


def image(*splits: tuple[int, int]) -> Schedule:
    """Squares over two dimensions, which are split by factors; those of the first are pieces."""
    x = te.placeholder((2, 5, 6), "float64", name="X")
    k, j, r, q = (te.reduce_axis(n, name=c) for n, c in zip((5, 6, 5, 6), "kjrq", strict=True))
    t = te.compute((2,), lambda i: te.sum(x[i, k, j], axis=[k, j]), name="T")
    m = te.compute((2,), lambda i: t[i] / 30.0, name="M")

    def value(i: Any) -> Any:
        return (x[i, r, q] - m[i]) * (x[i, r, q] - m[i])

    s = te.compute((2,), lambda i: te.sum(value(i), axis=[r, q]), name="S")
    sch = Schedule(te.func([x, s], name="image"))
    _, *dimensions = loops(sch, "S")
    for dimension, factor in splits:
        dimensions[dimension], _ = sch.split(dimensions[dimension], factors=[None, factor])
    sch.online_variance(dimensions[0])
    return sch


@pytest.mark.parametrize("splits", [[], [(0, 3)], [(1, 3)], [(0, 5), (1, 2)], [(0, 3), (1, 2)]])
def test_rows_of_several_dimensions(splits: list[tuple[int, int]]) -> None:
    sch = image(*splits)
    verify(sch.func)
    check_meaning(sch.original, sch.func)


@pytest.mark.parametrize("splits", [[(1, 4)], [(0, 3), (1, 4)], [(1, 4), (0, 3)]])
def test_pieces_of_unknown_length(splits: list[tuple[int, int]]) -> None:
    with pytest.raises(ScheduleError):
        image(*splits)


def test_short_pieces_that_are_strided() -> None:
    sch = Schedule(squares())
    outer, inner = sch.split(loops(sch, "S")[1], factors=[None, 4])
    sch.reorder(inner, outer)
    with pytest.raises(ScheduleError):
        sch.online_variance(inner)


def test_a_loop_of_rows() -> None:
    sch = Schedule(squares())
    row, column = loops(sch, "S")
    sch.split(column, factors=[None, 4])
    with pytest.raises(ScheduleError):
        sch.online_variance(row)


def test_pieces_that_take_every_other_element() -> None:
    sch = Schedule(squares())
    _, inner = sch.split(loops(sch, "S")[1], factors=[None, 5])
    sch.online_variance(inner)
    check_meaning(sch.original, sch.func)


@pytest.mark.parametrize(
    "func",
    [
        squares(mean=lambda t, i: t[i] * 0.1, dtype="float32"),
        squares(mean=lambda t, i: 0.1 * t[i]),
        squares(lambda x, m, i, k: (m[i] - x[i, k]) * (m[i] - x[i, k])),
        squares(lambda x, m, i, k: (m[i] * 0.1 - x[i, k]) * (m[i] * 0.1 - x[i, k]), mean=None),
    ],
)
def test_other_spellings_of_distances_from_a_mean(func: Func) -> None:
    sch = Schedule(func)
    pieces(sch, 4, "S")
    check_meaning(sch.original, sch.func)


@pytest.mark.parametrize("row", [[1.0, 2.0, np.nan, 0.0], [0.0, INF, 1.0, 2.0], [-INF, 1, 2, INF]])
def test_what_is_no_number_makes_the_row_none(row: list[float]) -> None:
    func = squares(mean=lambda t, i: t[i] / 4.0, shape=(1, 4))
    sch = Schedule(func)
    pieces(sch, 2, "S")
    for total in (*results(func, np.array([row])), *results(sch.func, np.array([row]))):
        assert np.isnan(total).all()


def test_errors_are_those_of_sums_in_pieces() -> None:
    """Also far from zero, and where the means of pieces differ by more than their spread."""
    rng = np.random.default_rng(0)
    near = rng.normal(0, 1, (4, 512))
    for values in (near, near + 1e4, np.sort(near * 8, axis=1), near + np.arange(512.0) * 4):
        x = values.astype(np.float32)
        func = squares(mean=lambda t, i: t[i] / 512.0, shape=x.shape, dtype="float32")
        sch = Schedule(func)
        pieces(sch, 32, "S")
        wide = x.astype(np.float64)
        exact = ((wide - wide.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        means = np.abs(wide.mean(axis=1)) * 32 * 2.0**-24  # how far they are off, in pieces
        bound = 64 * 2.0**-24 + 2 * 512 * means**2 / exact
        for total in results(sch.func, x):
            assert (np.abs(total - exact) / exact < bound).all()


def test_no_rows() -> None:
    func = squares(shape=(0, 10))
    sch = Schedule(func)
    pieces(sch, 5, "S")
    check_meaning(func, sch.func)


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (squares(lambda x, m, i, k: x[i, k] - m[i]), "must sum"),
        (squares(lambda x, m, i, k: (x[i, k] - m[i]) * x[i, k]), "must sum"),
        (squares(lambda x, m, i, k: (x[i, k] + m[i]) * (x[i, k] + m[i])), "must sum"),
        (squares(mean=None), "must sum"),
        (squares(mean=lambda t, i: t[i] * 0.3), "must sum"),
        (squares(mean=lambda t, i: t[i] * 0.5), "is a sum over 2.0, of 10 terms"),
        (squares(mean=lambda t, i: t[i] / t[0]), "must sum"),
        (squares(mean=lambda t, i: te.exp(t[i]) / 10.0), "must sum"),
        (squares(mean=lambda t, i: t[i] / 9.0), "is a sum over 9.0, of 10 terms"),
        (squares(total=te.max), "T, whose mean block S subtracts, is no sum"),
        (squares(lambda x, m, i, k: about(x, m, i, 9 - k)), "is not the sum of the elements"),
        (squares(mean=lambda t, i: t[2 - i] / 10.0), "is not the sum of the elements"),
    ],
)
def test_what_is_no_sum_of_squares(func: Func, message: str) -> None:
    sch = Schedule(func)
    outer, _ = sch.split(loops(sch, "S")[1], factors=[None, 5])
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        sch.online_variance(outer)
    assert sch.func is before


def test_a_maximum_of_squares() -> None:
    text = str(squares())
    value = "(X[vi, vr] - M[vi]) * (X[vi, vr] - M[vi])"
    text = text.replace(f"S[vi] + {value}", f"T.maximum(S[vi], {value})")
    sch = Schedule(parse(text.replace("S[vi] = 0.0", 'S[vi] = T.float64("-inf")')))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")


def test_a_mean_of_what_is_no_sum() -> None:
    x = te.placeholder((3, 10), "float64", name="X")
    r = te.reduce_axis(10, name="r")
    t = te.compute((3,), lambda i: x[i, 0] * 10.0, name="T")
    m = te.compute((3,), lambda i: t[i] / 10.0, name="M")
    s = te.compute((3,), lambda i: te.sum(about(x, m, i, r), axis=r), name="S")
    sch = Schedule(te.func([x, s], name="first"))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")


def test_squares_that_come_before_their_mean() -> None:
    text = str(squares())
    head, total, mean, last = text.split("\n    for ")
    sch = Schedule(parse("\n    for ".join([head, total, last.rstrip(), mean])))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")


def test_a_mean_that_is_a_reduction_itself() -> None:
    x = te.placeholder((3, 10), "float64", name="X")
    k, r, one = te.reduce_axis(10, name="k"), te.reduce_axis(10, name="r"), te.reduce_axis(1, "o")
    t = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="T")
    m = te.compute((3,), lambda i: te.sum(t[i] / 10.0 + one, axis=one), name="M")
    s = te.compute((3,), lambda i: te.sum(about(x, m, i, r), axis=r), name="S")
    sch = Schedule(te.func([x, s], name="again"))
    with pytest.raises(ScheduleError):
        pieces(sch, 5, "S")


def test_pieces_of_sampled_length() -> None:
    func = squares(mean=lambda t, i: t[i] / 24.0, shape=(2, 24))
    sch = Schedule(func, symbolic=True)
    length = sch.sample_categorical([2, 4, 5, 8])
    outer, _ = sch.split(loops(sch, "S")[-1], factors=[None, length])
    sch.online_variance(outer)
    for size in (2, 4, 5, 8):
        check_meaning(func, sch.trace.with_row([size]).apply(func).func)


def test_pieces_that_do_not_divide_move_into_rows() -> None:
    """Each piece has a result, though the last one is short."""
    func = ops.layer_norm_func(3, 11)
    sch = Schedule(func)
    first, part = pieces(sch, 4)
    row = loops(sch, "Y")[0]
    blocks = [sch.get_block(f"Y_{name}") for name in ("scale", "square", "mean", "sum")]
    for label in (*blocks[:2], part, *blocks[2:], first):
        sch.compute_at(label, row)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)
