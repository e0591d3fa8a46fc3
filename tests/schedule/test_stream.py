"""`stream`: results that are written past the caches."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule
from tilewright.tir.parser import parse

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled
from .programs import chain, elementwise, loops, matmul


def in_vectors(sch: Schedule, lanes: int = 4) -> None:
    """B in vectors along its last loop, past the caches."""
    *_, last = loops(sch, "B")
    _, lane = sch.split(last, factors=[None, lanes])
    sch.vectorize(lane)
    sch.stream(sch.get_block("B"), 0)


def test_the_result_is_noted(golden: Golden) -> None:
    sch = golden("stream/elementwise", elementwise(), in_vectors)
    check_compiled(sch.original, sch.func)


def test_twice_is_once() -> None:
    sch = Schedule(elementwise())
    sch.stream(sch.get_block("B"), 0)
    once = sch.func
    sch.stream(sch.get_block("B"), 0)
    assert sch.func.annotations == once.annotations == (("stream", [1]),)


def test_scalars_among_the_parameters() -> None:
    func = parse("""@tw.script
def scale(alpha: T.float32, X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("Y"):
            vi = T.axis.spatial(64, i)
            Y[vi] = X[vi] * alpha
""")
    sch = Schedule(func)
    sch.stream(sch.get_block("Y"), 0)
    assert sch.func.annotations == (("stream", [2]),)
    check_compiled(func, sch.func)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("lanes", [4, 12, 16])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_results_are_right_wherever_they_lie(
    dtype: str, lanes: int, threads: int, offset: int
) -> None:
    sch = Schedule(elementwise(6, 50, dtype))
    sch.parallel(loops(sch, "B")[0])
    in_vectors(sch, lanes)
    module = to_module(compile_func(sch.func, f"cpu -threads={threads}"))
    a = np.arange(300).reshape(6, 50).astype(dtype)
    memory = np.full(364, 7, dtype)
    first = -memory.ctypes.data % 16 // memory.itemsize + offset
    module(a, memory[first : first + 300].reshape(6, 50))
    expected = np.full(364, 7, dtype)
    expected[first : first + 300] = (a * 2 + 1).reshape(-1)
    assert (memory == expected).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_instructions_on_x86(threads: int) -> None:
    sch = Schedule(elementwise(64, 64))
    sch.parallel(loops(sch, "B")[0])
    in_vectors(sch, 16)
    code = compile_func(sch.func, f"cpu -mcpu=x86-64-v3 -threads={threads}")
    text = code.source("asm")
    assert len(re.findall(r"\bv?movnt", text)) == 4
    assert text.count("sfence") == 1
    plain = Schedule(elementwise(64, 64))
    assert "movnt" not in compile_func(plain.func, "cpu -mcpu=x86-64-v3").source("asm")


def test_instructions_on_arm() -> None:
    sch = Schedule(elementwise(64, 64))
    in_vectors(sch, 16)
    text = compile_func(sch.func, "cpu -mcpu=neoverse-n1 -threads=1").source("asm")
    assert "stnp" in text


def test_what_is_read_is_refused() -> None:
    sch = Schedule(chain())
    with refused(ScheduleError, "B"):
        sch.stream(sch.get_block("B"), 0)
    with pytest.raises(ScheduleError):
        sch.stream(sch.get_block("C"), 1)
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.stream(sch.get_block("C"), 0)
