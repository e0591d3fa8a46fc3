"""Traces that would make programs explode are refused in time."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule

from .programs import elementwise, loops


def test_nests_are_bounded() -> None:
    sch = Schedule(elementwise(64, 1))
    loop = loops(sch, "B")[0]
    with pytest.raises(ScheduleError):
        for _ in range(20):
            loop = sch.split(loop, factors=[None] + [1] * 4)[0]


def test_copies_of_a_body_are_bounded() -> None:
    sch = Schedule(elementwise(1 << 12, 1))
    inner = sch.split(loops(sch, "B")[0], factors=[None] + [2] * 11)
    with pytest.raises(ScheduleError):
        for loop in reversed(inner):
            sch.loop_partition(loop, 1)


def test_index_expressions_are_bounded() -> None:
    sch = Schedule(elementwise(97, 89))
    a, b = loops(sch, "B")
    with pytest.raises(ScheduleError):
        for k in range(60):
            fused = sch.fuse(a, b)
            outer, inner = sch.split(fused, factors=[None, 7 + k % 5])
            sch.reorder(inner, outer)
            a, b = inner, outer


def test_unrolled_statements_are_counted_over_the_whole_nest() -> None:
    sch = Schedule(elementwise(4096, 4096))
    i, j = loops(sch, "B")
    parts = (*sch.split(i, [None, 16, 16]), *sch.split(j, [None, 16, 16]))
    with pytest.raises(ScheduleError):
        for loop in parts:
            sch.unroll(loop)
