"""Blocks under an `if` of the program: steps see that they do not run in all iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_compiled, check_meaning

Step = Callable[[Any], Any]


def program(body: str, params: str = "", allocs: str = "B = T.alloc((16,), 'int32')") -> Func:
    """Statements between A and C, of sixteen elements each."""
    head = "A: T.Buffer((16,), 'int32'), C: T.Buffer((16,), 'int32')"
    lines = ["@tw.script", f"def program({head}{params}):", "    T.inplace(C)", f"    {allocs}"]
    return parse("\n".join([*lines, *("    " + line for line in body.strip("\n").split("\n"))]))


FIRST = """
for i in range(16):
    if i < {0}:
        with T.block("B"):
            v = T.axis.spatial(1, 0)
            B[v] = A[v]
    with T.block("C"):
        vi = T.axis.spatial(16, i)
        C[vi] = B[0] * 2
"""
FOLLOWER = """
for i in range(16):
    with T.block("B"):
        vi = T.axis.spatial(16, i)
        B[vi] = A[vi]
for j in range(16):
    if j % 3 == 0:
        with T.block("C"):
            vi = T.axis.spatial(16, j)
            C[vi] = B[vi] * 2
"""
EPILOGUE = """
for i, k in T.grid(16, 4):
    with T.block("B"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            B[vi] = 0
        B[vi] = B[vi] + M[vi, vk]
for j in range(16):
    if j < 3:
        with T.block("C"):
            vi = T.axis.spatial(16, j)
            C[vi] = B[vi] + A[vi]
"""
SUM = """
for i in range(16):
    if {0}:
        for k in range(4):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + M[vi, vk]
"""
MATRIX = ", M: T.Buffer((16, 4), 'int32')"


def refused(func: Func, step: Step) -> None:
    verify(func)
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        step(sch)


def correct(func: Func, step: Step) -> None:
    verify(func)
    sch = Schedule(func)
    step(sch)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def reordered(sch: Any) -> None:
    outer, inner = sch.split(sch.get_loop("i"), factors=[4, 4])
    sch.reorder(inner, outer)


@pytest.mark.parametrize("step", [lambda s: s.parallel(s.get_loop("i")), reordered])
def test_what_an_earlier_iteration_wrote_is_not_this_one_s(step: Step) -> None:
    refused(program(FIRST.format(8)), step)
    correct(program(FIRST.format(16)), step)


def test_a_consumer_keeps_its_condition() -> None:
    correct(program(FOLLOWER), lambda s: s.reverse_compute_at("C", s.get_loop("i")))
    refused(program(FOLLOWER), lambda s: s.reverse_compute_inline("C"))


def test_an_epilogue_does_not_leave_its_condition() -> None:
    refused(program(EPILOGUE, MATRIX), lambda s: s.fuse_reduction_epilogue("B", "C"))


@pytest.mark.parametrize("loop", ["i", "k"])
def test_an_init_has_the_condition_of_its_sum(loop: str) -> None:
    func = program(SUM.format("i % 3 == 0"), MATRIX)
    correct(func, lambda s: s.decompose_reduction("C", s.get_loop(loop)))


def test_partial_sums_are_made_where_the_sum_is() -> None:
    correct(program(SUM.format("i % 3 == 0"), MATRIX), lambda s: s.rfactor(s.get_loop("k")))


def test_a_copy_in_a_nest_has_what_was_computed() -> None:
    for read in ("B[vi]", "B[vi - vi % 2]"):
        func = program(f"""
for i in range(4):
    if i % 2 == 0:
        for x in range(4):
            with T.block("B"):
                vi = T.axis.spatial(16, i * 4 + x)
                B[vi] = A[vi]
        for x in range(4):
            with T.block("C"):
                vi = T.axis.spatial(16, i * 4 + x)
                C[vi] = {read}
""")
        refused(func, lambda s: s.cache_read("C", 0, "local"))
        refused(func, lambda s: s.cache_write("B", 0, "local"))
