"""`cache_read` and `cache_write`."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
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
    with pytest.raises(ScheduleError):
        sch.cache_read(sch.get_block("C"), 0, "L1")


def test_no_such_input() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.cache_read(sch.get_block("C"), 2, "global")


def test_no_such_output() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.cache_write(sch.get_block("C"), 1, "global")


def test_consumer_that_does_not_read() -> None:
    sch = Schedule(chain())
    b, c = sch.get_block("B"), sch.get_block("C")
    with pytest.raises(ScheduleError):
        sch.cache_read(b, 0, "global", consumers=[c])


def test_write_of_what_is_updated_in_place() -> None:
    x = te.placeholder((4,), "int32", name="X")
    y = te.compute((4,), lambda i: x[i] + 1, name="Y")
    sch = Schedule(te.func([x], name="inc", inplace={y: x}))
    with pytest.raises(ScheduleError, match="updated in place|reads X, which it writes"):
        sch.cache_write(sch.get_block("Y"), 0, "global")


def test_write_after_the_init_was_split_off() -> None:
    sch = Schedule(matmul())
    sch.decompose_reduction(sch.get_block("C"), loops(sch, "C")[2])
    with refused(ScheduleError, "C_init"):
        sch.cache_write(sch.get_block("C"), 0, "global")


def two_readers() -> Func:
    """B = A + 1 and C = A * 2."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: a[i] * 2, name="C")
    return te.func([a, b, c], name="two")


UPDATED_IN_PART = """
@tw.script
def updated(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    T.inplace(A)
    for i in range(4):
        with T.block("A"):
            vi = T.axis.spatial(4, i)
            A[vi] = 5
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = {}
"""


@pytest.mark.parametrize(
    ("step", "value"),
    [
        ("cache_read", "A[7 - vi]"),
        ("read_at", "A[7 - vi]"),
        ("compute_ahead", "A[vi] * 3"),
        ("distinguish_reads", "A[vi] + A[7 - vi]"),
    ],
)
def test_what_is_updated_in_part_has_the_callers_elements_too(step: str, value: str) -> None:
    func = parse(UPDATED_IN_PART.format(value))
    sch = Schedule(func)
    block = sch.get_block("B")
    if step == "read_at":
        sch.read_at(sch.get_loops(block)[0], block, 0, "local")
    elif step == "cache_read":
        sch.cache_read(block, 0, "local")
    else:
        getattr(sch, step)(block, 0)
    verify(sch.func)
    results = [np.zeros(8, np.int32) for _ in range(2)]
    for program, result in zip((func, sch.func), results, strict=True):
        interpret(program, np.arange(100, 108, dtype=np.int32), result)
    assert (results[0] == results[1]).all()
