"""`split_reduction`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import ForKind
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, loops, matmul, rowsum
from .test_symbolic import holds


def test_parallel_stretches(golden: Golden) -> None:
    sch = golden(
        "split_reduction/parallel", rowsum(), lambda s: s.split_reduction(loops(s, "S")[1], 4)
    )
    check_compiled(rowsum(), sch.func)


def test_stretches_of_unequal_length(golden: Golden) -> None:
    golden("split_reduction/tail", matmul(), lambda s: s.split_reduction(loops(s, "C")[2], 4, -1))


def test_tree(golden: Golden) -> None:
    func = rowsum(3, 14)
    sch = golden(
        "split_reduction/tree", func, lambda s: s.split_reduction(loops(s, "S")[1], 7, tree=True)
    )
    check_compiled(func, sch.func)


def test_the_loop_it_gives_is_parallel_and_outermost() -> None:
    sch = Schedule(matmul())
    partial, outer = sch.split_reduction(loops(sch, "C")[2], 2)
    assert sch.get_loops(partial)[0] is outer
    assert sch.func.body.stmts[0].kind is ForKind.PARALLEL  # type: ignore[attr-defined]


def test_an_open_number_of_parts_divides() -> None:
    sch = Schedule(rowsum(), symbolic=True)
    _, k = loops(sch, "S")
    parts = sch.sample_categorical([2, 3, 5])
    sch.split_reduction(k, parts)
    assert sch.space is not None
    (constraint,) = sch.space.constraints
    legal = [n for n in (2, 3, 5) if holds(sch.space, [n])]
    assert legal == [2, 3]
    assert "parts of equal length" in constraint.message
    for n in legal:
        concrete = sch.trace.with_row([n]).apply(rowsum())
        check_meaning(rowsum(), concrete.func)


def test_height_of_a_tree_that_is_open() -> None:
    sch = Schedule(rowsum(), symbolic=True)
    parts = sch.sample_categorical([2, 3, 4])
    with pytest.raises(ScheduleError):
        sch.split_reduction(loops(sch, "S")[1], parts, tree=True)


@pytest.mark.parametrize("parts", [1, 0, -3])
def test_too_few_parts(parts: int) -> None:
    sch = Schedule(rowsum())
    with refused(ScheduleError, parts):
        sch.split_reduction(loops(sch, "S")[1], parts)


@pytest.mark.parametrize("parts", [4, 7])
@pytest.mark.parametrize("tree", [False, True])
def test_more_parts_than_iterations_fill(parts: int, tree: bool) -> None:
    func = rowsum(6, 5)
    sch = Schedule(func)
    sch.split_reduction(loops(sch, "S")[1], parts, tree=tree)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_of_a_loop_of_elements() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.split_reduction(loops(sch, "B")[0], 4)


def test_inside_of_a_parallel_loop() -> None:
    sch = Schedule(rowsum())
    i, k = loops(sch, "S")
    sch.parallel(i)
    with pytest.raises(ScheduleError):
        sch.split_reduction(k, 4)
