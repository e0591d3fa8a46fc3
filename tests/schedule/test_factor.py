"""`hoist_factor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning, inputs, run
from .programs import loops


def weighted(value: Callable[..., Any], dtype: str = "float64", terms: int = 5) -> Func:
    """C[i, j], the sum over k of `value(A, B, W, i, j, k)`."""
    a = te.placeholder((3, terms), dtype, name="A")
    b = te.placeholder((terms, 4), dtype, name="B")
    w = te.placeholder((3,), dtype, name="W")
    k = te.reduce_axis(terms, name="k")
    c = te.compute((3, 4), lambda i, j: te.sum(value(a, b, w, i, j, k), axis=k), name="C")
    return te.func([a, b, w, c], name="weighted")


def plain(a: Any, b: Any, w: Any, i: Any, j: Any, k: Any) -> Any:
    return a[i, k] * w[i] * b[k, j]


def hoisted(func: Func) -> Schedule:
    sch = Schedule(func)
    sch.hoist_factor(sch.get_block("C"))
    return sch


def test_a_factor_of_rows(golden: Golden) -> None:
    golden("hoist_factor/rows", weighted(plain), lambda s: s.hoist_factor(s.get_block("C")))


def test_attention_divides_what_it_summed(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.compute_inline(sch.get_block("Y_masked"))
        sch.compute_inline(sch.get_block("Y_weights"))
        sch.reverse_compute_at(sch.hoist_factor(sch.get_block("Y")), loops(sch, "Y")[2])

    golden("hoist_factor/attention", ops.attention_func(1, 2, 5, 3), script)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (lambda a, b, w, i, j, k: w[i] * (b[k, j] * a[i, k]), "B[vk, vj] * A[vi, vk]"),
        (lambda a, b, w, i, j, k: a[i, k] / w[i] * b[k, j], "A[vi, vk] * B[vk, vj]"),
        (lambda a, b, w, i, j, k: a[i, k] * b[k, j] / w[i], "A[vi, vk] * B[vk, vj]"),
        (lambda a, b, w, i, j, k: (w[i] / 2 * a[i, k]) / b[k, j], "A[vi, vk] / B[vk, vj]"),
        (lambda a, b, w, i, j, k: (a[i, k] - b[k, j]) * w[i], "A[vi, vk] - B[vk, vj]"),
        (lambda a, b, w, i, j, k: 2 * (w[i] * (a[i, k] + b[k, j])), "A[vi, vk] + B[vk, vj]"),
    ],
)
def test_what_is_a_factor(value: Callable[..., Any], left: str) -> None:
    func = weighted(value)
    sch = hoisted(func)
    assert f"C_sum[vi, vj] + {left}\n" in str(sch.func).replace("(", "").replace(")", "")
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_float32() -> None:
    func = weighted(plain, "float32")
    check_compiled(func, hoisted(func).func)


def test_a_factor_of_zero_or_none() -> None:
    """An infinite factor counts where the sum is zero; else nothing changes."""
    func = weighted(lambda a, b, w, i, j, k: a[i, k] * b[k, j] / w[i])
    after = hoisted(func).func
    a = np.array([[1.0, 0, 2, 3, 4], [1, 2, 3, 4, 5], [0] * 5])
    b, w = np.ones((5, 4)), np.array([0.0, np.inf, np.nan])
    found, wanted = np.zeros((3, 4)), np.zeros((3, 4))
    interpret(func, a.copy(), b, w, wanted)
    interpret(after, a.copy(), b, w, found)
    assert np.isnan(wanted[0]).all()
    assert np.isinf(found[0]).all()
    np.testing.assert_array_equal(found[1:], wanted[1:])
    a[0] = 1
    interpret(func, a.copy(), b, w, wanted)
    interpret(after, a.copy(), b, w, found)
    np.testing.assert_array_equal(found, wanted)


def test_a_nest_that_is_scheduled() -> None:
    func = weighted(plain)
    sch = Schedule(func)
    i, j, _ = loops(sch, "C")
    outer, _ = sch.split(i, factors=[None, 2])
    sch.reorder(j, outer)
    sch.parallel(j)
    sch.hoist_factor(sch.get_block("C"))
    check_meaning(func, sch.func)
    assert len(loops(sch, "C")) == 4


def test_a_sum_that_is_joined_to_others() -> None:
    x = te.placeholder((3, 5), "float64", name="X")
    k, r = te.reduce_axis(5, name="k"), te.reduce_axis(5, name="r")
    w = te.compute((3,), lambda i: te.sum(x[i, r], axis=r), name="W")
    c = te.compute((3,), lambda i: te.sum(x[i, k] * w[i], axis=k), name="C")
    func = te.func([x, c], name="shared")
    sch = Schedule(func)
    sch.compute_at(sch.get_block("W"), loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.hoist_factor(sch.get_block("C"))
    check_meaning(func, hoisted(func).func)


def test_what_reads_the_result_in_the_same_nest() -> None:
    a = te.placeholder((3, 5), "float64", name="A")
    k = te.reduce_axis(5, name="k")
    c = te.compute((3,), lambda i: te.sum(a[i, k] * 2, axis=k), name="C")
    d = te.compute((3,), lambda i: c[i] + 1, name="D")
    sch = Schedule(te.func([a, d], name="read"))
    sch.compute_at(sch.get_block("C"), loops(sch, "D")[0])
    with pytest.raises(ScheduleError):
        sch.hoist_factor(sch.get_block("C"))


def test_a_result_that_is_updated_in_place() -> None:
    text = str(weighted(plain)).replace("):\n    for", "):\n    T.inplace(C)\n    for")
    with pytest.raises(ScheduleError):
        hoisted(parse(text))


@pytest.mark.parametrize(
    "value",
    [
        lambda a, b, w, i, j, k: a[i, k] * b[k, j] + w[i],
        lambda a, b, w, i, j, k: a[i, k] + b[k, j] * w[i],
        lambda a, b, w, i, j, k: w[i] / (a[i, k] * b[k, j]),
        lambda a, b, w, i, j, k: te.exp(a[i, k] * w[i] * b[k, j]),
    ],
)
def test_what_has_no_factor(value: Callable[..., Any]) -> None:
    with pytest.raises(ScheduleError):
        hoisted(weighted(value))


def test_terms_that_are_all_alike() -> None:
    w = te.placeholder((3,), "float64", name="W")
    k = te.reduce_axis(4, name="k")
    c = te.compute((3,), lambda i: te.sum(w[i] * 2, axis=k), name="C")
    with pytest.raises(ScheduleError):
        hoisted(te.func([w, c], name="alike"))


def test_sums_that_are_others() -> None:
    text = str(weighted(plain))
    most = text.replace("C[vi, vj] + ", "T.maximum(C[vi, vj], ").replace("B[vk, vj]", "B[vk, vj])")
    starts = [text.replace("C[vi, vj] = 0.0", f"C[vi, vj] = {start}") for start in ("1.0", "W[vi]")]
    for program in (most, *starts):
        with pytest.raises(ScheduleError):
            hoisted(parse(program))
    sch = Schedule(weighted(plain))
    sch.decompose_reduction(sch.get_block("C"), loops(sch, "C")[2])
    with refused(ScheduleError, "C_init"):
        sch.hoist_factor(sch.get_block("C"))


@pytest.mark.parametrize("dtype", ["int32", "float16", "bfloat16"])
def test_other_numbers(dtype: str) -> None:
    with refused(ScheduleError, "float32 or float64", dtype):
        hoisted(parse(str(weighted(plain)).replace("float64", dtype)))


def test_a_sum_without_terms() -> None:
    with refused(ScheduleError, "C"):
        hoisted(parse(str(weighted(plain)).replace("5", "0")))


def test_a_factor_that_moves_with_more_than_the_result() -> None:
    text = str(weighted(plain)).replace("C[vi, vj]", "C[vi, 0]")
    with pytest.raises(ScheduleError):
        hoisted(parse(text.replace("W[vi]", "W[vj % 3]")))


def test_terms_of_sampled_pieces() -> None:
    func = weighted(plain)
    sch = Schedule(func, symbolic=True)
    length = sch.sample_categorical([2, 3, 5])
    sch.split(loops(sch, "C")[2], factors=[None, length])
    sch.hoist_factor(sch.get_block("C"))
    for size in (2, 3, 5):
        check_meaning(func, sch.trace.with_row([size]).apply(func).func)


def test_variables_that_are_numbered() -> None:
    """Without its letter, the name of one is none."""
    text = str(weighted(plain)).replace("vi", "v0").replace("vj", "v1")
    sch = hoisted(parse(text))
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_the_error_is_one_rounding() -> None:
    func = weighted(lambda a, b, w, i, j, k: a[i, k] / w[i] * b[k, j], "float32", terms=400)
    for seed in range(3):
        found = run(hoisted(func).func, seed)["C"]
        a, b, w, _ = (x.astype(np.float64) for x in inputs(func, seed)[0])
        exact = (a / w[:, None]) @ b
        size = np.abs(a / w[:, None]) @ np.abs(b)
        assert np.max(np.abs(found - exact) / size) < 16 * 2.0**-24
