"""`cache_read` and `cache_write`."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func

from .conftest import Golden
from .programs import chain, loops, matmul, matmul_relu


def test_read(golden: Golden) -> None:
    golden("cache_read/input", matmul(), lambda s: s.cache_read(s.get_block("C"), 1, "local"))


def test_read_by_several(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        b, c = sch.get_block("B"), sch.get_block("C")
        sch.cache_read(b, 0, "global", consumers=[c])

    golden("cache_read/consumers", two_readers(), script)


def test_read_at_a_loop(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, _, _ = sch.get_loops(block)
        outer, _ = sch.split(i, factors=[None, 3])
        sch.compute_at(sch.cache_read(block, 0, "global"), outer)

    golden("cache_read/at", matmul(), script)


def test_write(golden: Golden) -> None:
    golden("cache_write/output", matmul(), lambda s: s.cache_write(s.get_block("C"), 0, "register"))


def test_the_block_that_copies_has_a_name_of_its_own() -> None:
    sch = Schedule(matmul())
    copy = sch.cache_write(sch.get_block("C"), 0, "register")
    assert copy.name == "C_register"
    assert sch.get_block("C_register") is copy


def test_write_takes_what_follows(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        write = sch.cache_write(block, 0, "global")
        sch.reverse_compute_inline(sch.get_block("D"))
        sch.reverse_compute_at(write, sch.get_loops(block)[0])

    golden("cache_write/epilogue", matmul_relu(), script)


def test_unknown_scope() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match=r"unknown scope 'L1'; expected one of global"):
        sch.cache_read(sch.get_block("C"), 0, "L1")


def test_no_such_input() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="block . reads A, B; there is no index 2"):
        sch.cache_read(sch.get_block("C"), 2, "global")


def test_no_such_output() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="block C writes C; there is no index 1"):
        sch.cache_write(sch.get_block("C"), 1, "global")


def test_consumer_that_does_not_read() -> None:
    sch = Schedule(chain())
    b, c = sch.get_block("B"), sch.get_block("C")
    with pytest.raises(ScheduleError, match="block C does not read A"):
        sch.cache_read(b, 0, "global", consumers=[c])


def test_written_in_the_same_nest() -> None:
    sch = Schedule(chain())
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.compute_at(b, sch.get_loops(c)[0])
    with pytest.raises(ScheduleError, match="B is written by block B in the same loop nest"):
        sch.cache_read(c, 0, "global")
    with pytest.raises(ScheduleError, match="B is read by block C in the same loop nest"):
        sch.cache_write(b, 0, "global")


def test_write_of_what_is_updated_in_place() -> None:
    x = te.placeholder((4,), "int32", name="X")
    y = te.compute((4,), lambda i: x[i] + 1, name="Y")
    sch = Schedule(te.func([x], name="inc", inplace={y: x}))
    with pytest.raises(ScheduleError, match="updated in place|reads X, which it writes"):
        sch.cache_write(sch.get_block("Y"), 0, "global")


def test_write_after_the_init_was_split_off() -> None:
    sch = Schedule(matmul())
    sch.decompose_reduction(sch.get_block("C"), loops(sch, "C")[2])
    with pytest.raises(ScheduleError, match="also written by block C_init"):
        sch.cache_write(sch.get_block("C"), 0, "global")


def two_readers() -> Func:
    """B = A + 1 and C = A * 2."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: a[i] * 2, name="C")
    return te.func([a, b, c], name="two")
