"""`decompose_reduction`, `rfactor` and `fuse_reduction_epilogue`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, loops, matmul, matmul_relu, rowsum


def test_decompose(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        sch.decompose_reduction(block, sch.get_loops(block)[2])

    golden("decompose_reduction/innermost", matmul(), script)


def test_decompose_above_tiles(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        i0, i1 = sch.split(i, factors=[None, 3])
        j0, j1 = sch.split(j, factors=[None, 4])
        sch.reorder(i0, j0, k, i1, j1)
        sch.vectorize(j1)
        sch.unroll(i1)
        sch.decompose_reduction(block, k)

    golden("decompose_reduction/tiles", matmul(), script)


def test_decompose_where_a_guard_mixes_elements_and_reduction(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("S")
        _, k = sch.get_loops(block)
        _, k1 = sch.split(k, factors=[None, 5])
        partial = sch.rfactor(k1, 1)
        sch.decompose_reduction(partial, sch.get_loops(partial)[1])

    golden("decompose_reduction/guarded", rowsum(), script)


def test_rfactor_outer(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, k = loops(sch, "S")
        k0, _ = sch.split(k, factors=[None, 4])
        sch.rfactor(k0, 0)

    golden("rfactor/outer", rowsum(), script)


def test_rfactor_of_a_maximum(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, k = loops(sch, "M")
        _, k1 = sch.split(k, factors=[None, 4])
        sch.rfactor(k1, -1)

    golden("rfactor/maximum", rowmax(), script)


def test_rfactor_of_the_whole_reduction(golden: Golden) -> None:
    golden("rfactor/whole", rowsum(), lambda s: s.rfactor(loops(s, "S")[1], 0))


def test_fuse_epilogue(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.fuse_reduction_epilogue(sch.get_block("C"), sch.get_block("D"))

    golden("fuse_reduction_epilogue/bias", biased(), script)


def test_decompose_inside_of_the_reduction() -> None:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.reorder(k, i, j)
    with pytest.raises(ScheduleError):
        sch.decompose_reduction(block, i)


def test_decompose_of_a_map() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.decompose_reduction(sch.get_block("B"), loops(sch, "B")[0])


def test_decompose_at_a_loop_elsewhere() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.decompose_reduction(sch.get_block("C"), loops(sch, "D")[0])


def test_decompose_twice() -> None:
    sch = Schedule(matmul())
    block, k = sch.get_block("C"), loops(sch, "C")[2]
    sch.decompose_reduction(block, k)
    with refused(ScheduleError, "C_init"):
        sch.decompose_reduction(block, k)


def test_decompose_at_a_loop_of_both() -> None:
    sch = Schedule(rowsum())
    block = sch.get_block("S")
    fused = sch.fuse(*sch.get_loops(block))
    with pytest.raises(ScheduleError):
        sch.decompose_reduction(block, fused)


def test_rfactor_of_a_spatial_loop() -> None:
    sch = Schedule(rowsum())
    with pytest.raises(ScheduleError):
        sch.rfactor(loops(sch, "S")[0], 0)


def test_rfactor_of_a_loop_of_both() -> None:
    sch = Schedule(rowsum())
    fused = sch.fuse(*loops(sch, "S"))
    with pytest.raises(ScheduleError):
        sch.rfactor(fused, 0)


def test_rfactor_axis() -> None:
    sch = Schedule(rowsum())
    with pytest.raises(ScheduleError):
        sch.rfactor(loops(sch, "S")[1], 2)


def test_rfactor_of_parts_that_are_empty(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "S")[1], factors=[4, None])
        sch.rfactor(outer, 0)

    sch = golden("rfactor/empty_parts", rowsum(6, 5), script)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize(
    ("size", "factors", "position"),
    [
        (3, [None, 4], 1),
        (3, [8, None], 0),
        (1, [4, None], 0),
        (9, [4, 2, 4], 0),
        (9, [2, 2, 4], 1),
        (5, [8, 2, 2], 0),
    ],
)
def test_rfactor_where_guards_leave_nothing_of_some_iterations(
    size: int, factors: list[int | None], position: int
) -> None:
    func = rowsum(6, size)
    sch = Schedule(func)
    loop = sch.split(loops(sch, "S")[1], factors=factors)[position]
    partial = sch.rfactor(loop, -1)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_replays(func, sch)
    # The rest may be scheduled.
    row = sch.get_loops(partial)[0]
    sch.parallel(row)
    sch.reverse_compute_at(sch.get_block("S"), row)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


@pytest.mark.parametrize(("first", "guard"), [("r - 3", "r >= 3"), ("r // 2", "r % 2 == 0")])
def test_rfactor_of_a_loop_with_iterations_that_do_nothing(first: str, guard: str) -> None:
    func = parse(f"""
def sums(A: T.Buffer((6, 3), "int32"), S: T.Buffer((6,), "int32")):
    for i, r in T.grid(6, 6):
        with T.block("S"):
            vi = T.axis.spatial(6, i)
            vr = T.axis.reduce(3, {first})
            T.where({guard})
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + A[vi, vr]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.rfactor(loops(sch, "S")[1], 0)


def test_rfactor_of_a_map() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.rfactor(loops(sch, "B")[0], 0)


def test_fuse_epilogue_that_does_not_add() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.fuse_reduction_epilogue(sch.get_block("C"), sch.get_block("D"))


def test_fuse_epilogue_of_a_map() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.fuse_reduction_epilogue(sch.get_block("B"), sch.get_block("C"))


def rowmax() -> Func:
    """The maxima of the rows of A."""
    a = te.placeholder((6, 12), "float32", name="A")
    r = te.reduce_axis(12, name="r")
    m = te.compute((6,), lambda i: te.max(a[i, r], axis=r), name="M")
    return te.func([a, m], name="rowmax")


def biased() -> Func:
    """D = A @ B + bias."""
    a = te.placeholder((6, 5), "float32", name="A")
    b = te.placeholder((5, 4), "float32", name="B")
    bias = te.placeholder((4,), "float32", name="bias")
    r = te.reduce_axis(5, name="r")
    c = te.compute((6, 4), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((6, 4), lambda i, j: c[i, j] + bias[j], name="D")
    return te.func([a, b, bias, d], name="biased")
