"""split: perfect, with a tail, and what it refuses."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.verify import verify

from .conftest import Golden
from .programs import elementwise, loops, matmul


def test_factors_that_divide(golden: Golden) -> None:
    golden("split/divides", elementwise(), lambda sch: sch.split(loops(sch, "B")[0], [None, 2, 4]))


def test_a_tail_gets_a_predicate(golden: Golden) -> None:
    golden("split/tail", matmul(), lambda sch: sch.split(loops(sch, "C")[2], [None, 4]))


def test_tails_add_up(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, inner = sch.split(loops(sch, "B")[0], factors=[None, 7])
        sch.split(inner, factors=[2, None])
        sch.split(inner_of(sch), factors=[5, 3])

    def inner_of(sch: Schedule):  # type: ignore[no-untyped-def]
        return loops(sch, "B")[-1]

    golden("split/tails", elementwise(), script)


def test_the_missing_factor_may_be_anywhere() -> None:
    sch = Schedule(elementwise(24, 1))
    i, _ = loops(sch, "B")
    sch.split(i, factors=[2, None, 3])
    extents = [loop.extent for loop in nest(sch)]
    assert extents == [2, 4, 3, 1]


def test_a_factor_beyond_the_extent_leaves_a_single_iteration() -> None:
    sch = Schedule(elementwise(5, 1))
    sch.split(loops(sch, "B")[0], factors=[None, 8])
    assert [loop.extent for loop in nest(sch)] == [1, 8, 1]


def nest(sch: Schedule):  # type: ignore[no-untyped-def]
    from tilewright.schedule.find import loops_in

    return list(loops_in(sch.func.body))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([None, 0], "factor 0 is not positive"),
        ([None, -4], "factor -4 is not positive"),
        ([None, None], "at most one factor may be None"),
        ([], "0 factors; expected 1 to 16"),
        ([3, 5], "multiply to 15, less than the extent 16"),
        ([None] + [1] * 16, "17 factors"),
        ([None, 2.0], "factors must be a sequence with each an integer or None"),
        ([None, True], "factors must be"),
        (8, "factors must be"),
    ],
)
def test_factors_that_make_no_sense_are_refused(factors: object, message: str) -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        sch.split(i, factors=factors)  # type: ignore[arg-type]
    assert sch.func is before
    assert len(sch.trace) == 2


def test_perfect_refuses_a_tail() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    sch.split(i, factors=[None, 4], perfect=True)
    with pytest.raises(ScheduleError) as refusal:
        sch.split(j, factors=[None, 5], perfect=True)
    assert (refusal.value.found, refusal.value.expected) == (5, "a divisor of 12")
    with pytest.raises(ScheduleError):
        sch.split(j, factors=[3, 5], perfect=True)


def test_a_loop_that_is_parallel_already_is_refused() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.parallel(i)
    with pytest.raises(ScheduleError):
        sch.split(i, factors=[None, 4])


def test_an_annotated_loop_is_refused() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.annotate(i, "note", 1)
    with pytest.raises(ScheduleError):
        sch.split(i, factors=[None, 4])


def test_more_parts_than_iterations_of_a_loop_of_elements_and_terms() -> None:
    """A guard of such a loop leaves out points that others visit, which nothing here shows."""
    sch = Schedule(matmul(6, 8, 4))
    _, j, k = sch.get_loops(sch.get_block("C"))
    middle = sch.split(sch.fuse(j, k), factors=[None, 2, 3])[1]
    with pytest.raises(ScheduleError):
        sch.split(middle, factors=[None, 4, 3])
    sch.split(middle, factors=[None, 2])
    verify(sch.func)
