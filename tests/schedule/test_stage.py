"""`read_at` and `write_at`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled
from .programs import chain, loops, matmul, stencil


def test_tiles_of_inputs(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        k0, k1 = sch.split(k, factors=[None, 4])
        sch.reorder(i, k0, j, k1)
        sch.read_at(k0, block, 1, "local")
        sch.read_at(i, block, 0, "local")

    sch = golden("read_at/tiles", matmul(), script)
    check_compiled(sch.original, sch.func)


def test_windows(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        outer, _ = sch.split(sch.get_loops(block)[0], factors=[None, 5])
        sch.read_at(outer, block, 0, "global")

    golden("read_at/window", stencil(), script)


def test_tiles_of_results(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        j0, j1 = sch.split(j, factors=[None, 5])
        sch.reorder(i, j0, k, j1)
        sch.write_at(j0, block, 0, "local")

    sch = golden("write_at/tiles", matmul(), script)
    check_compiled(sch.original, sch.func)


def test_not_in_the_loop() -> None:
    sch = Schedule(chain())
    with refused(ScheduleError, "B", "i"):
        sch.read_at(loops(sch, "C")[0], sch.get_block("B"), 0, "global")
    with refused(ScheduleError, "B", "i"):
        sch.write_at(loops(sch, "C")[0], sch.get_block("B"), 0, "global")


def test_results_that_are_not_finished() -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, "C", "r"):
        sch.write_at(loops(sch, "C")[2], sch.get_block("C"), 0, "local")


def test_a_refusal_changes_nothing() -> None:
    sch = Schedule(matmul())
    before = sch.func
    with pytest.raises(ScheduleError):
        sch.read_at(loops(sch, "C")[0], sch.get_block("C"), 0, "L1")
    assert sch.func is before
