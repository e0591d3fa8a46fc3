"""reorder: permutations of perfectly nested loops, and where the order matters."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_meaning
from .programs import chain, loops, matmul, matmul_relu, stencil


def test_all_loops(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j, r = loops(sch, "C")
        sch.reorder(r, j, i)

    golden("reorder/all", matmul(), script)


def test_others_keep_their_positions(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _, r = loops(sch, "C")
        sch.reorder(r, i)

    after = golden("reorder/partial", matmul(), script)
    assert [v.name for v in loops(after, "C")] == ["r", "j", "i"]


def test_tiles_with_tails(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j, r = loops(sch, "C")
        i0, i1 = sch.split(i, factors=[None, 3])
        j0, j1 = sch.split(j, factors=[None, 5])
        r0, r1 = sch.split(r, factors=[None, 4])
        sch.reorder(i0, j0, r0, r1, i1, j1)

    golden("reorder/tiles", matmul(), script)


def test_the_same_order_changes_nothing() -> None:
    sch = Schedule(matmul())
    before = sch.func
    sch.reorder(*loops(sch, "C"))
    assert sch.func is before


def test_a_producer_inside_moves_along() -> None:
    sch = Schedule(matmul_relu(4, 6, 3))
    c, d = sch.get_block("C"), sch.get_block("D")
    i, j = sch.get_loops(d)
    sch.compute_at(c, j)
    sch.reorder(j, i)
    check_meaning(sch.original, sch.func)


def test_a_loop_named_twice_is_refused() -> None:
    sch = Schedule(matmul())
    i, j, _ = loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.reorder(i, j, i)


def test_loops_of_different_nests_are_refused() -> None:
    sch = Schedule(chain())
    (i,), (j,) = loops(sch, "B"), loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.reorder(j, i)


def test_statements_between_are_refused() -> None:
    sch = Schedule(matmul_relu())
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _ = sch.get_loops(d)
    sch.compute_at(c, i)
    with pytest.raises(ScheduleError):
        sch.reorder(sch.get_loops(d)[1], i)


def test_a_vectorized_loop_stays_innermost() -> None:
    sch = Schedule(matmul())
    i, j, r = loops(sch, "C")
    sch.reorder(i, r, j)
    sch.vectorize(j)
    with pytest.raises(ScheduleError):
        sch.reorder(j, r)


def test_a_loop_that_mixes_spatial_and_reduction_is_refused() -> None:
    sch = Schedule(matmul(4, 4, 6))
    _, j, r = loops(sch, "C")
    outer, inner = sch.split(sch.fuse(j, r), factors=[None, 4])
    with pytest.raises(ScheduleError):
        sch.reorder(inner, outer)


OPAQUE = """
@tw.script
def scan(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32")):
    for i, j in T.grid(4, 8):
        with T.block("scan"):
            vi, vj = T.axis.remap("SO", [i, j])
            B[vi, vj] = T.select({condition}, B[{before}], 0) + A[vi, vj]
"""


def test_opaque_iterations_keep_their_order() -> None:
    diagonal = OPAQUE.format(condition="(vi < 3) & (vj > 0)", before="vi + 1, vj - 1")
    sch = Schedule(parse(diagonal))
    i, j = loops(sch, "scan")
    with pytest.raises(ScheduleError):
        sch.reorder(j, i)


def test_opaque_iterations_may_run_for_other_spatial_ones_first() -> None:
    func = parse(OPAQUE.format(condition="vj > 0", before="vi, vj - 1"))
    sch = Schedule(func)
    i, j = loops(sch, "scan")
    sch.reorder(j, i)
    assert [v.name for v in loops(sch, "scan")] == ["j", "i"]
    check_meaning(func, sch.func)
    verify(sch.func)
    outer, inner = sch.split(j, [2, 4])
    with pytest.raises(ScheduleError):
        sch.reorder(inner, outer)


CARRIED = """
@tw.script
def carried(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
    B = T.alloc((4, 9), "int32")
    for i in T.serial(4):
        with T.block("first"):
            vi = T.axis.spatial(4, i)
            B[vi, 0] = 0
    for i, j in T.grid(4, 8):
        with T.block("next"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj + 1] = A[vi, vj]
        with T.block("use"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi, vj + 1]
"""


def test_values_carried_along_one_loop_leave_the_other_free() -> None:
    sch = Schedule(parse(CARRIED))
    i, j = loops(sch, "use")
    sch.reorder(j, i)
    check_meaning(sch.original, sch.func)


def argmax(n: int = 6, m: int = 10) -> Func:
    a = te.placeholder((n, m), "int32", name="A")
    r = te.reduce_axis(m, name="r")
    index, value = te.compute((n,), lambda i: te.argmax(a[i, r], axis=r), name="best")
    return te.func([a, index, value], name="argmax")


def test_two_results_reduce_in_any_order() -> None:
    sch = Schedule(argmax())
    block = sch.get_block(0)
    i, r = sch.get_loops(block)
    r0, r1 = sch.split(r, factors=[None, 4])
    sch.reorder(r1, i, r0)
    check_meaning(sch.original, sch.func)


def test_a_stencil_computed_inside_still_reorders() -> None:
    sch = Schedule(stencil())
    b, c = sch.get_block("B"), sch.get_block("C")
    (i,) = sch.get_loops(c)
    i0, i1 = sch.split(i, factors=[None, 4])
    sch.compute_at(b, i0)
    assert len(sch.get_loops(b)) == 2
    with pytest.raises(ScheduleError):
        sch.reorder(i1, i0)
