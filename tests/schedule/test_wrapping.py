"""Steps on programs whose indices wrap around int64."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ScheduleError, VerifyError
from tilewright.schedule import Schedule
from tilewright.tir.initialised import wraps_around
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
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
    with pytest.raises(ScheduleError):
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


@pytest.mark.parametrize("place", ["{w} & 3", "T.maximum(T.minimum({w}, 3), 0)"])
def test_what_wraps_need_not_be_divided(place: str) -> None:
    wraps = f"({2**62 + 1} - vi * {2**62 + 1})"
    text = func_text(shifted(3, 1)).replace("(3 - vi * 1) % 4", place.format(w=wraps))
    func = parse(text)
    assert wraps_around(func)
    verify(func)
    with pytest.raises(ScheduleError):
        pipelined(func)


def test_a_program_that_was_not_verified_before_is_not_refused_for_what_wraps() -> None:
    text = func_text(shifted(2**62 + 1, 2**62 + 1)).replace("S[vi, vj] =", "S[vi, 7 - vj // 2] =")
    func = parse(text)
    with pytest.raises(VerifyError):
        verify(func)
    sch = Schedule(func)
    sch.split(sch.get_loops(sch.get_block("S"))[1], factors=[None, 4])


def test_iterations_that_wrap_with_a_parameter_are_not_merged() -> None:
    """With n = 2**63 - 2 the last iterations write what the first ones read."""
    func = parse("""
@tw.script
def f(
    A: T.Buffer((3,), "float32"), S: T.Buffer((6,), "float32"),
    B: T.Buffer((3,), "float32"), n: T.int64,
):
    T.inplace(S)
    for i in range(3):
        with T.block("W"):
            vi = T.axis.opaque(3, i)
            S[(n + vi) % 6] = A[vi]
    for j in range(3):
        with T.block("R"):
            vj = T.axis.spatial(3, j)
            B[vj] = S[(n + 5 - vj) % 6]
""")
    sch = Schedule(func)
    loops = [sch.get_loops(sch.get_block(name))[0] for name in "WR"]
    with pytest.raises(ScheduleError):
        sch.merge(*loops)


def test_such_a_program_is_built_without_the_steps_that_are_refused() -> None:
    """Symbolic schedules refuse them too, so that candidates can be made of what is decided."""
    func = parse("""
@tw.script
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    S = T.alloc((8,), "float32")
    J = T.alloc((4,), "float32")
    for i in range(4):
        with T.block("S"):
            vi = T.axis.spatial(4, i)
            S[vi * 2 + 1] = A[vi] * 2.0
    for i in range(4):
        with T.block("J"):
            vi = T.axis.spatial(4, i)
            J[vi] = S[vi * 2 + 1] + A[vi]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = J[T.minimum(vi + 9223372036854775807, 255) % 4]
""")
    for symbolic in (False, True):
        sch = Schedule(func, symbolic=symbolic)
        with pytest.raises(ScheduleError):
            sch.compute_inline(sch.get_block("J"))
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    tw.build(func, allow=("default",))(a, b)
    wrapped = (np.arange(4) + np.array(2**63 - 1)).clip(max=255) % 4
    np.testing.assert_array_equal(b, (a * 3)[wrapped])
