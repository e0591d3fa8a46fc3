"""split: perfect, with a tail, and what it refuses."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule

from .conftest import Golden
from .programs import elementwise, matmul


def loops(sch: Schedule, name: str = "B"):  # type: ignore[no-untyped-def]
    return sch.get_loops(sch.get_block(name))


def test_split_that_divides(golden: Golden) -> None:
    golden("split/divides", elementwise(), lambda sch: sch.split(loops(sch)[0], [None, 2, 4]))


def test_split_with_a_tail(golden: Golden) -> None:
    golden("split/tail", matmul(), lambda sch: sch.split(loops(sch, "C")[2], [None, 4]))


def test_split_by_a_factor_of_zero_is_refused() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch)
    with pytest.raises(ScheduleError, match="factor 0 is not positive"):
        sch.split(i, factors=[None, 0])
