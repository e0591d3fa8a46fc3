"""fuse: index arithmetic that later steps see through, and what it refuses."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, elementwise, loops, matmul


def test_quotient_and_remainder(golden: Golden) -> None:
    golden("fuse/two", elementwise(), lambda sch: sch.fuse(*loops(sch, "B")))


def test_three_loops_spatial_and_reduction(golden: Golden) -> None:
    golden("fuse/three", matmul(2, 3, 4), lambda sch: sch.fuse(*loops(sch, "C")))


def test_fuse_undoes_split(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.fuse(*sch.split(loops(sch, "B")[0], factors=[None, 4]))

    after = golden("fuse/undoes_split", elementwise(), script)
    assert "//" not in str(after.func)


def test_fuse_undoes_a_split_with_a_tail(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.fuse(*sch.split(loops(sch, "B")[0], factors=[None, 5]))

    golden("fuse/tail", elementwise(), script)


def test_split_of_a_fused_loop(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        fused = sch.fuse(*loops(sch, "B"))
        outer, _ = sch.split(fused, factors=[None, 12])
        sch.parallel(outer)

    after = golden("fuse/split_again", elementwise(), script)
    assert "//" not in str(after.func)


def test_fused_tiles_run_in_parallel() -> None:
    sch = Schedule(matmul())
    i0, j0, _, _ = sch.tile(sch.get_block("C"), (4, 4))
    sch.parallel(sch.fuse(i0, j0))


@pytest.mark.parametrize("step", ["fuse", "reorder"])
def test_a_loop_is_named_once(step: str) -> None:
    sch = Schedule(matmul())
    i, *_ = loops(sch, "C")
    with refused(ScheduleError, "i"):
        getattr(sch, step)(i, i)


def test_one_loop_stays() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    before = sch.func
    assert sch.fuse(i) is i
    assert sch.func is before


def test_fused_with_a_loop_that_any_factor_leaves_one_iteration() -> None:
    """The factor is at least 8, the extent 6: an open size that can only be 1."""
    sch = Schedule(elementwise(4, 6), symbolic=True)
    i, j = loops(sch, "B")
    j_0, _ = sch.split(j, factors=[None, sch.sample_categorical([1, 2, 3]) * 8])
    sch.parallel(sch.fuse(i, j_0))


def test_loops_not_nested_are_refused() -> None:
    sch = Schedule(chain())
    (i,), (j,) = loops(sch, "B"), loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.fuse(i, j)


def test_the_wrong_order_is_refused() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.fuse(j, i)


def test_a_loop_between_is_refused() -> None:
    sch = Schedule(matmul())
    i, _, r = loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.fuse(i, r)


def test_different_kinds_are_refused() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    sch.parallel(i)
    with pytest.raises(ScheduleError):
        sch.fuse(i, j)


def test_thread_loops_are_refused() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    with pytest.raises(ScheduleError):
        sch.fuse(i, j)


def test_no_loop_is_refused() -> None:
    with pytest.raises(ScheduleError):
        Schedule(elementwise()).fuse()


NEVER = """
@tw.script
def never(A: T.Buffer((6,), "int32"), B: T.Buffer((6,), "int32")):
    for i in T.serial(6):
        with T.block("all"):
            vi = T.axis.spatial(6, i)
            B[vi] = A[vi]
    for i, j in T.grid(2, 3):
        with T.block("none"):
            vi = T.axis.spatial(6, i * 3 + j)
            T.where(i * 3 + j + 6 < 6)
            B[vi] = 0
"""


def test_a_predicate_that_never_holds_stays() -> None:
    sch = Schedule(parse(NEVER))
    sch.fuse(*loops(sch, "none"))
    check_meaning(sch.original, sch.func)


@pytest.mark.parametrize("factors", [[2, 3, 1], [6, 1, 1], [1, 1, 6]])
def test_later_nests_have_the_fused_loop_whatever_its_extent(factors: list[int]) -> None:
    """A trace gives as many loops for each decision, so that it can be replayed with others."""
    a = te.placeholder((6, 4), name="A")
    k = te.reduce_axis(4, name="k")
    sch = Schedule(te.func([a, te.compute((6,), lambda i: te.sum(a[i, k], k), name="S")]))
    block = sch.get_block("S")
    i, _ = sch.get_loops(block)
    outer, *inner = sch.split(i, factors=factors)
    sch.fuse(*inner)
    init = sch.decompose_reduction(block, outer)
    assert len(sch.get_loops(init)) == 2


def test_an_empty_loop_divides_by_nothing_after_a_split_that_runs() -> None:
    func = parse("""
@tw.script
def empty(A: T.Buffer((0, 1), "int32"), B: T.Buffer((1, 0), "int32")):
    for i, j in T.grid(1, 0):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi] + 3
""")
    sch = Schedule(func)
    fused = sch.fuse(*sch.get_loops(sch.get_block("B")))
    sch.split(fused, [8, 2], perfect=False)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)
