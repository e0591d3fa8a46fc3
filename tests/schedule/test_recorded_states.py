"""A block that reads a state which a loop updates stays in its iteration of that loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
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


def scheduled(func: Func) -> Any:
    """A schedule that takes names of blocks."""
    return Schedule(func)


MOVES: dict[str, Callable[[Any], object]] = {
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
    sch: Any = Schedule(func)
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
        scheduled(func).fuse_reduction_epilogue("P", "C")


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
        scheduled(func).cache_read("E", 0, "local", consumers=["W"])


def test_a_search_reads_the_whole_reduction_only() -> None:
    a = te.placeholder((5, 16), "int32", name="A")
    r = te.reduce_axis(16, name="r")
    best = te.compute((5,), lambda i: te.argmax(a[i, r], axis=r, dtype="int32"), name=("I", "V"))
    whole = te.func([a, *best], name="best")
    sch: Any = Schedule(whole)
    sch.locate_extremum("I", 8)
    check_meaning(whole, sch.func)
    axes = "vi = T.axis.spatial(5, i)\n            vr = T.axis.reduce(16, r)"
    text = func_text(whole).replace('vi, vr = T.axis.remap("SR", [i, r])', axes)
    part = parse(text.replace("T.grid(5, 16)", "T.grid(5, 8)"))
    assert part.body is not whole.body
    with pytest.raises(ScheduleError):
        scheduled(part).locate_extremum(0, 8)


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
    sch: Any = Schedule(func)
    loop = sch.get_loops("B")[1]
    with pytest.raises(ScheduleError):
        sch.rfactor(loop) if step == "rfactor" else sch.decompose_reduction("B", loop)


TIES = """
@tw.script
def f(A: T.Buffer((2, 6), "int32"), P: T.Buffer((2, 6), "int32"), I: T.Buffer((2,), "int32"),
      Q: T.Buffer((2,), "int32"), V: T.Buffer((2,), "int32")):
    for i, k in T.grid(2, 6):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = 2147483647
                Q[vi] = -1
                V[vi] = -2147483648
            kept = T.select({first}, I[vi], T.int32({key}))
            payload = T.select({first}, Q[vi], P[vi, vk])
            best = T.select({first}, V[vi], A[vi, vk])
            I[vi] = kept
            Q[vi] = payload
            V[vi] = best
"""


def test_results_that_go_with_keys_which_tie_keep_their_order() -> None:
    first = "(V[vi] > A[vi, vk]) | ((V[vi] == A[vi, vk]) & (I[vi] < T.int32({key})))"
    distinct, ties = (
        parse(TIES.format(key=k, first=first.format(key=k))) for k in ("vk", "vk % 2")
    )
    for func, legal in ((distinct, True), (ties, False)):
        verify(func)
        sch: Any = Schedule(func)
        outer, inner = sch.split(sch.get_loops("B")[1], [None, 3])
        if legal:
            sch.reorder(inner, outer)
            check_meaning(func, sch.func)
        else:
            with pytest.raises(ScheduleError):
                sch.reorder(inner, outer)


def test_a_best_element_under_a_condition_keeps_its_order() -> None:
    func = parse("""
@tw.script
def f(A: T.Buffer((6,), "int32"), M: T.Buffer((6,), "int32"), I: T.Buffer((1,), "int32"),
      V: T.Buffer((1,), "int32")):
    for i, k in T.grid(1, 6):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                V[vi] = -1000
            if M[vk] != 0:
                kept = T.select(V[vi] >= A[vk], I[vi], T.int32(vk))
                best = T.select(V[vi] >= A[vk], V[vi], A[vk])
                I[vi] = kept
                V[vi] = best
""")
    verify(func)
    sch: Any = Schedule(func)
    outer, inner = sch.split(sch.get_loops("B")[1], [None, 2])
    with pytest.raises(ScheduleError):
        sch.reorder(inner, outer)
