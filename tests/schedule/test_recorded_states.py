"""A block that reads a state which a loop updates stays in its iteration of that loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.verify import verify

from .machinery import check_meaning

STATE = """
@tw.script
def f(X: T.Buffer((4, 6), "int32"), D: T.Buffer((4, 6), "int32")):
    A = T.alloc((6,), "int32")
    B = T.alloc((4, 6), "int32")
    for t in range(4):
        for i in range(6):
            with T.block("W"):
                vt, vi = T.axis.remap("OS", [t, i])
                A[{element}] = X[vt, vi]
        for i2 in range(6):
            with T.block("P"):
                vt, vi = T.axis.remap("SS", [t, i2])
                B[vt, vi] = A[{read}] + 1
    for u, j in T.grid(4, 6):
        with T.block("C"):
            vt, vi = T.axis.remap("SS", [u, j])
            D[vt, vi] = B[vt, vi] * 2 + A[{read}]
"""
MOVES: dict[str, Callable[[Schedule], object]] = {
    "compute_inline": lambda s: s.compute_inline("P"),
    "compute_at": lambda s: s.compute_at("P", s.get_loops("C")[0]),
    "compute_at inside": lambda s: s.compute_at("P", s.get_loops("C")[1]),
    "reverse_compute_at": lambda s: s.reverse_compute_at("C", s.get_loops("P")[0]),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_reader_of_a_state_stays_where_it_is(move: str) -> None:
    func = parse(STATE.format(element="vi", read="vi"))
    verify(func)
    with pytest.raises(ScheduleError):
        MOVES[move](Schedule(func))


@pytest.mark.parametrize("move", MOVES)
def test_a_reader_of_elements_that_are_stored_once_may_move(move: str) -> None:
    text = STATE.replace("A = T.alloc((6,)", "A = T.alloc((4, 6)")
    func = parse(text.format(element="vt, vi", read="vt, vi"))
    verify(func)
    sch = Schedule(func)
    MOVES[move](sch)
    verify(sch.func)
    check_meaning(func, sch.func)


def test_an_epilogue_that_reads_a_state_is_not_added_in_the_loop_that_updates_it() -> None:
    func = parse("""
@tw.script
def f(X: T.Buffer((4, 6), "int32"), D: T.Buffer((4,), "int32")):
    A = T.alloc((6,), "int32")
    B = T.alloc((4,), "int32")
    for t in range(4):
        for i in range(6):
            with T.block("W"):
                vt, vi = T.axis.remap("OS", [t, i])
                A[vi] = X[vt, vi] * 3
        for k in range(6):
            with T.block("P"):
                vt, vk = T.axis.remap("SR", [t, k])
                with T.init():
                    B[vt] = 0
                B[vt] = B[vt] + A[vk]
    for u in range(4):
        with T.block("C"):
            vt = T.axis.spatial(4, u)
            D[vt] = B[vt] + A[0]
""")
    verify(func)
    with pytest.raises(ScheduleError):
        Schedule(func).fuse_reduction_epilogue("P", "C")


def test_a_copy_is_not_read_by_a_block_that_stores_to_the_original() -> None:
    func = parse("""
@tw.script
def f(X: T.Buffer((6,), "int32"), A: T.Buffer((6,), "int32"), D: T.Buffer((6,), "int32")):
    T.inplace(A)
    for i in range(6):
        with T.block("W"):
            vi = T.axis.spatial(6, i)
            A[vi] = A[vi] + X[vi]
    for i in range(6):
        with T.block("E"):
            vi = T.axis.spatial(6, i)
            D[vi] = A[vi] * 2
""")
    with pytest.raises(ScheduleError):
        Schedule(func).cache_read("E", 0, "local", consumers=["W"])


def test_a_search_reads_the_whole_reduction_only() -> None:
    a = te.placeholder((5, 16), "int32", name="A")
    r = te.reduce_axis(16, name="r")
    best = te.compute((5,), lambda i: te.argmax(a[i, r], axis=r, dtype="int32"), name=("I", "V"))
    whole = te.func([a, *best], name="best")
    sch = Schedule(whole)
    sch.locate_extremum("I", 8)
    check_meaning(whole, sch.func)
    axes = "vi = T.axis.spatial(5, i)\n            vr = T.axis.reduce(16, r)"
    text = func_text(whole).replace('vi, vr = T.axis.remap("SR", [i, r])', axes)
    part = parse(text.replace("T.grid(5, 16)", "T.grid(5, 8)"))
    assert part.body is not whole.body
    with pytest.raises(ScheduleError):
        Schedule(part).locate_extremum(0, 8)


@pytest.mark.parametrize("step", ["rfactor", "decompose_reduction"])
def test_a_tail_that_continues_a_reduction_has_no_init_of_its_own(step: str) -> None:
    func = parse("""
@tw.script
def f(X: T.Buffer((4, 9), "int32"), B: T.Buffer((4,), "int32")):
    T.inplace(B)
    for i, k in T.grid(4, 8):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(9, k + 1)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + X[vi, vk]
""")
    sch = Schedule(func)
    loop = sch.get_loops("B")[1]
    with pytest.raises(ScheduleError):
        sch.rfactor(loop) if step == "rfactor" else sch.decompose_reduction("B", loop)
