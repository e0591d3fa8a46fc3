"""`expand_reduction`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning, run
from .programs import loops


def pooled(
    combine: Callable[..., Any], dtype: str = "float32", terms: tuple[int, int] = (2, 3)
) -> Func:
    """Windows of a plane, clamped at its end."""
    x = te.placeholder((6, 9), dtype, name="X")
    r, q = (te.reduce_axis(n, name=v) for n, v in zip(terms, ("r", "q"), strict=True))
    y = te.compute(
        (6, 9),
        lambda i, j: combine(x[te.minimum(i + r, 5), te.minimum(j + q, 8)], axis=(r, q)),
        name="Y",
    )
    return te.func([x, y], name="pooled")


def expanded(func: Func) -> Schedule:
    sch = Schedule(func)
    sch.expand_reduction(sch.get_block("Y"))
    return sch


def test_a_sum_over_a_window(golden: Golden) -> None:
    golden("expand_reduction/sum", pooled(te.sum), lambda s: s.expand_reduction(s.get_block("Y")))


def test_a_maximum_in_loops_of_another_order(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j, r, q = loops(sch, "Y")
        sch.reorder(i, q, r, j)
        sch.expand_reduction(sch.get_block("Y"))
        sch.vectorize(sch.get_loops(sch.get_block("Y"))[-1])

    sch = golden("expand_reduction/max", pooled(te.max), script)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("combine", [te.sum, te.prod, te.min, te.max])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint32"])
def test_the_result_is_the_same_to_the_bit(combine: Callable[..., Any], dtype: str) -> None:
    sch = expanded(pooled(combine, dtype))
    before, after = run(sch.original), run(sch.func)
    assert np.array_equal(before["Y"], after["Y"], equal_nan=before["Y"].dtype.kind == "f")
    check_compiled(sch.original, sch.func)


def test_an_expanded_stage_is_inlined() -> None:
    x = te.placeholder((8,), name="X")
    r = te.reduce_axis(3, name="r")
    y = te.compute((8,), lambda i: te.sum(x[te.minimum(i + r, 7)], axis=r), name="Y")
    sch = expanded(te.func([x, te.compute((8,), lambda i: y[i] / 3.0, name="Z")]))
    sch.compute_inline(sch.get_block("Y"))
    check_meaning(sch.original, sch.func)


def test_what_is_refused() -> None:
    with pytest.raises(ScheduleError):
        expanded(pooled(te.sum, terms=(10, 13)))
    sch = Schedule(pooled(te.sum))
    sch.split(loops(sch, "Y")[-1], factors=[None, 2])
    with pytest.raises(ScheduleError):
        sch.expand_reduction(sch.get_block("Y"))
    sch = Schedule(pooled(te.sum))
    sch.decompose_reduction(sch.get_block("Y"), loops(sch, "Y")[2])
    with pytest.raises(ScheduleError):
        sch.expand_reduction(sch.get_block("Y"))
    sch = expanded(pooled(te.sum))
    with refused(ScheduleError, "Y"):
        sch.expand_reduction(sch.get_block("Y"))


def test_a_reduction_of_open_length_is_refused() -> None:
    sch = Schedule(pooled(te.sum), symbolic=True)
    block = sch.get_block("Y")
    part = sch.sample_categorical((2, 3))
    outer, _ = sch.split(loops(sch, "Y")[-1], factors=[None, part])
    partial = sch.rfactor(outer)
    for label in (partial, block):
        with pytest.raises(ScheduleError, match="an open number of terms|must be its iteration"):
            sch.expand_reduction(label)


def test_an_update_that_is_no_reduction_is_refused() -> None:
    func = parse(
        """
@tw.script
def f(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 3):
        with T.block("Y"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(3, k)
            with T.init():
                C[vi] = 0.0
            C[vi] = A[vi, vk] - C[vi]
"""
    )
    with pytest.raises(ScheduleError):
        expanded(func)


def test_a_loop_that_another_block_shares_is_refused() -> None:
    func = parse(
        """
@tw.script
def f(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((3,), "float32")):
    for i, k in T.grid(4, 3):
        with T.block("Y"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(3, k)
            with T.init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
        with T.block("D"):
            vk = T.axis.spatial(3, k)
            D[vk] = 1.0
"""
    )
    with pytest.raises(ScheduleError):
        expanded(func)


UNIT = """
@tw.script
def f(A: T.Buffer((4, 1), "float32"), C: T.Buffer((4, 1), "float32")):
    for i, k in T.grid(4, 1):
        with T.block("Y"):
            vi = T.axis.spatial(4, {i})
            vj = T.axis.spatial(1, {j})
            vk = T.axis.reduce(1, k)
            vm = T.axis.reduce(1, {m})
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk + vm]
"""


@pytest.mark.parametrize(("i", "j", "m"), [("i", "0", "k"), ("i", "k", "0"), ("i + k", "0", "0")])
def test_a_loop_that_feeds_two_iterations_is_refused(i: str, j: str, m: str) -> None:
    func = parse(UNIT.format(i=i, j=j, m=m))
    verify(func)
    with pytest.raises(ScheduleError):
        expanded(func)
