"""tile: splits and a reorder in one step."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule

from ..refusals import refused
from .conftest import Golden
from .programs import loops, matmul


def test_loops_of_a_block(golden: Golden) -> None:
    golden("tile/block", matmul(), lambda sch: sch.tile(sch.get_block("C"), (4, 6)))


def test_loops_by_name_with_tails(golden: Golden) -> None:
    golden("tile/loops", matmul(), lambda sch: sch.tile(loops(sch, "C")[1:], (5, 4)))


def test_outer_loops_come_first() -> None:
    sch = Schedule(matmul())
    i0, j0, i1, j1 = sch.tile(sch.get_block("C"), (4, 6))
    assert [v.name for v in (i0, j0, i1, j1)] == ["i_0", "j_0", "i_1", "j_1"]
    assert loops(sch, "C")[:4] == (i0, j0, i1, j1)


def test_too_many_factors_are_refused() -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, "4", "C", "3"):
        sch.tile(sch.get_block("C"), (2, 2, 2, 2))


def test_factors_and_loops_must_agree() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.tile(loops(sch, "C"), (2, 2))


def test_a_refused_order_leaves_the_schedule_as_it_was() -> None:
    sch = Schedule(matmul())
    i, j, r = loops(sch, "C")
    fused = sch.fuse(j, r)
    before = sch.func
    with pytest.raises(ScheduleError):
        sch.tile((i, fused), (2, 2))
    assert sch.func is before
    assert len(sch.trace) == 3
