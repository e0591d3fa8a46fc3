"""Steps on programs whose indices wrap around int64."""

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.initialised import wraps_around
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


def shifted(offset: int, factor: int) -> Func:
    return parse(f"""
@tw.script
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    S = T.alloc((4, 8), "float32")
    for i, j in T.grid(4, 8):
        with T.block("S"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = S[({offset} - vi * {factor}) % 4, vj]
""")


def pipelined(func: Func) -> Schedule:
    sch = Schedule(func)
    block = sch.get_block("B")
    i, _ = sch.get_loops(block)
    sch.compute_at(sch.cache_read(block, 0, "local"), i)
    sch.pipeline(i, stages=[0, 1], order=[1, 0])
    return sch


def test_a_step_is_refused_where_the_verifier_cannot_follow_an_index_that_wraps() -> None:
    """In the last iteration 2**62 + 1 - 3 * (2**62 + 1) is below the least integer."""
    func = shifted(2**62 + 1, 2**62 + 1)
    verify(func)
    assert wraps_around(func)
    with pytest.raises(ScheduleError, match="wraps around int64 is not verified"):
        pipelined(func)


def test_the_same_step_is_taken_where_nothing_wraps() -> None:
    func = shifted(3, 1)
    assert not wraps_around(func)
    verify(pipelined(func).func)


def test_other_steps_on_it_are_taken() -> None:
    sch = Schedule(shifted(2**62 + 1, 2**62 + 1))
    sch.split(sch.get_loops(sch.get_block("B"))[1], factors=[None, 4])
    sch.reorder(*reversed(sch.get_loops(sch.get_block("S"))))
    verify(sch.func)
