"""loop_partition: peeled tails without predicates in the main part."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule

from .conftest import Golden
from .machinery import check_meaning
from .programs import elementwise, loops, matmul, rowsum, stencil


def test_a_spatial_tail(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "B")[1], factors=[None, 8])
        sch.loop_partition(outer)

    after = golden("loop_partition/spatial", elementwise(), script)
    assert str(after.func).count("T.where") == 1


def test_a_reduction_tail_continues_the_sum(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "S")[1], factors=[None, 5])
        sch.loop_partition(outer)

    golden("loop_partition/reduction", rowsum(), script)


def test_at_a_given_iteration(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "B")
        tail, blocks = sch.loop_partition(i, 10)
        assert len(blocks) == 1
        sch.parallel(tail)

    golden("loop_partition/at", elementwise(), script)


def test_both_dimensions_of_a_tile(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i0, j0, _, _ = sch.tile(sch.get_block("C"), (3, 5))
        sch.loop_partition(i0)
        sch.loop_partition(j0)

    golden("loop_partition/tile", matmul(), script)


def test_parts_are_scheduled_on_their_own() -> None:
    sch = Schedule(elementwise())
    block = sch.get_block("B")
    outer, inner = sch.split(sch.get_loops(block)[1], factors=[None, 8])
    _, (tail_block,) = sch.loop_partition(outer)
    sch.vectorize(inner)
    sch.unroll(sch.get_loops(tail_block)[-1])
    check_meaning(sch.original, sch.func)


def test_a_parallel_loop_around_both_parts_of_a_reduction() -> None:
    sch = Schedule(rowsum())
    i, r = loops(sch, "S")
    outer, _ = sch.split(r, factors=[None, 5])
    sch.loop_partition(outer)
    sch.parallel(i)
    check_meaning(sch.original, sch.func)


def test_a_parallel_loop_stays_parallel_in_both_parts() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.parallel(i)
    sch.loop_partition(i, 3)
    assert str(sch.func).count("T.parallel") == 2
    check_meaning(sch.original, sch.func)


def test_without_a_predicate_there_is_nothing_to_peel() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError) as refusal:
        sch.loop_partition(i)
    assert "say where to cut" in str(refusal.value)


@pytest.mark.parametrize(
    ("at", "message"), [(0, "is empty"), (16, "nothing is left"), (99, "left")]
)
def test_empty_parts_are_refused(at: int, message: str) -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError, match=message):
        sch.loop_partition(loops(sch, "B")[0], at)


def test_a_predicate_that_fails_everywhere_leaves_no_main_part() -> None:
    sch = Schedule(elementwise(5, 1))
    outer, _ = sch.split(loops(sch, "B")[0], factors=[None, 8])
    with pytest.raises(ScheduleError):
        sch.loop_partition(outer)


def test_thread_loops_are_refused() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.bind(i, "blockIdx.x")
    with pytest.raises(ScheduleError):
        sch.loop_partition(i, 3)


def test_buffers_of_one_iteration_are_not_shared_with_the_tail(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        b, c = sch.get_block("B"), sch.get_block("C")
        outer, inner = sch.split(sch.get_loops(c)[0], factors=[None, 6])
        sch.compute_at(b, outer)
        sch.loop_partition(outer)
        sch.parallel(outer)
        sch.vectorize(inner)

    golden("loop_partition/own_buffers", stencil(), script)
