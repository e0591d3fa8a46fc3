"""Spatial iterations that use elements of an internal buffer again keep their order and place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_meaning

SCRATCH = """
@tw.script
def f(A: T.Buffer((12,), "int32"), D: T.Buffer((12,), "int32")):
    C = T.alloc((1,), "int32")
    B = T.alloc((12,), "int32")
    for i in range(12):
        with T.block("W"):
            vi = T.axis.spatial(12, i)
            C[0] = A[vi] * 2
        for k in range(3):
            with T.block("P"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + C[0] * A[vk]
    for j in range(12):
        with T.block("R"):
            vj = T.axis.spatial(12, j)
            D[vj] = B[vj] + 1
"""
READER = """
@tw.script
def f(A: T.Buffer((12,), "int32"), D: T.Buffer((12,), "int32")):
    C = T.alloc(({size},), "int32")
    B = T.alloc((12,), "int32")
    for i in range(12):
        with T.block("W"):
            vi = T.axis.spatial(12, i)
            C[{place}] = A[vi] * 2
        with T.block("P"):
            vi = T.axis.spatial(12, i)
            B[vi] = C[{place}] + 1
    for j in range(12):
        with T.block("R"):
            vj = T.axis.spatial(12, j)
            D[vj] = B[vj] + 1
"""
SUMS = """
@tw.script
def f(A: T.Buffer((12, 4), "int32"), D: T.Buffer((2,), "int32")):
    C = T.alloc((2,), "int32")
    for i, k in T.grid(12, 4):
        with T.block("W"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi % 2] = 0
            C[vi % 2] = C[vi % 2] + A[vi, vk]
    for j in range(2):
        with T.block("R"):
            vj = T.axis.spatial(2, j)
            D[vj] = C[vj]
"""
SCAN = """
@tw.script
def f(A: T.Buffer((12,), "int32"), D: T.Buffer((1,), "int32")):
    C = T.alloc((13,), "int32")
    for j in range(13):
        with T.block("Z"):
            vj = T.axis.spatial(13, j)
            C[vj] = 1
    for i in range(12):
        with T.block("W"):
            vi = T.axis.{kind}(12, i)
            {body}
    with T.block("R"):
        D[0] = C[0]
"""


def _kept(func: Func, step: Callable[[Any], object]) -> None:
    sch: Any = Schedule(func)
    step(sch)
    verify(sch.func)
    check_meaning(func, sch.func)


@pytest.mark.parametrize(("size", "place"), [(1, "0"), (2, "vi % 2")])
@pytest.mark.parametrize("move", ["compute_inline", "compute_at"])
def test_a_reader_of_what_is_stored_again_stays_where_it_is(
    size: int, place: str, move: str
) -> None:
    sch: Any = Schedule(parse(READER.format(size=size, place=place)))
    verify(sch.func)
    with pytest.raises(ScheduleError, match="in which block W updates it"):
        if move == "compute_inline":
            sch.compute_inline("P")
        else:
            sch.compute_at("P", sch.get_loops("R")[0])


def test_a_reader_of_an_element_of_its_own_may_move() -> None:
    func = parse(READER.format(size=12, place="vi"))
    _kept(func, lambda s: s.compute_inline("P"))


def test_what_is_stored_again_is_not_computed_in_an_inner_loop() -> None:
    sch: Any = Schedule(parse(SCRATCH))
    verify(sch.func)
    with pytest.raises(ScheduleError, match="uses elements of C again"):
        sch.compute_at("W", sch.get_loops("P")[1])


def test_a_copy_within_the_iteration_is_allowed() -> None:
    func = parse(READER.format(size=1, place="0"))
    _kept(func, lambda s: s.cache_read("P", 0, "global"))


SUM_STEPS: dict[str, Callable[[Any], object]] = {
    "reorder": lambda s: s.reorder(*reversed(s.get_loops("W"))),
    "decompose_reduction": lambda s: s.decompose_reduction("W", s.get_loops("W")[0]),
}


@pytest.mark.parametrize("step", SUM_STEPS)
def test_sums_into_the_same_elements_are_not_mixed(step: str) -> None:
    func = parse(SUMS)
    verify(func)
    with pytest.raises(ScheduleError, match="again"):
        SUM_STEPS[step](Schedule(func))


def test_the_init_within_an_iteration_may_be_taken_out() -> None:
    _kept(parse(SUMS), lambda s: s.decompose_reduction("W", s.get_loops("W")[1]))


@pytest.mark.parametrize("body", ["C[0] = C[0] * 3 + A[vi]", "C[vi], C[vi + 1]"])
def test_a_scan_over_an_internal_buffer_keeps_its_order(body: str) -> None:
    if body == "C[vi], C[vi + 1]":
        lines = ("C[vi] = C[vi] * 3 + A[vi]", "C[vi + 1] = C[vi + 1] + A[vi]")
        body = "\n            ".join(lines)
    sch: Any = Schedule(parse(SCAN.format(kind="spatial", body=body)))
    outer, inner = sch.split(sch.get_loops("W")[0], [None, 3])
    with pytest.raises(ScheduleError, match="use the same elements again"):
        sch.reorder(inner, outer)
