"""Values of index arrays in the glue's machine code: it accepts what the checked entry accepts."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import te
from tilewright.base import dtypes
from tilewright.base.errors import ArgumentError
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cpu.glue_range import walk_order
from tilewright.runtime import Argument
from tilewright.runtime.header import Declared, c_header
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.ranges import make_range_check
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func

from ..refusals import refused
from .test_glue import Rig

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...] | None]] = [
    ((), None),
    ((1,), None),
    ((7,), None),
    ((128,), None),
    ((129,), None),
    ((1000,), None),
    ((3, 5, 7), None),
    ((4, 6), (8, 1)),
    ((4, 6), (1, 4)),
    ((5, 3), (7, 2)),
    ((4, 300), (301, 1)),
    ((2, 3, 4), (40, 1, 10)),
    ((6, 4), (0, 1)),
    ((4, 6), (1, 1)),
]


def strided(argument: Argument) -> Any:
    """An array of zeros with the argument's strides."""
    memory = np.zeros(argument.span_bytes // argument.itemsize, dtypes.to_numpy(argument.dtype))
    steps = tuple(n * argument.itemsize for n in argument.element_strides)
    return np.lib.stride_tricks.as_strided(memory, argument.shape, steps)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("shape", "strides"), SHAPES)
def test_every_element_is_looked_at(
    dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    rig = Rig(Argument("a", dtype, shape, strides, value_range=(5, 9)))
    array = strided(rig.signature.arguments[0])
    array[...] = 8
    assert rig.accepts(array)
    for place in list(np.ndindex(shape))[:: max(1, array.size // 97)]:
        for value in (4, 9):
            array[place] = value
            assert not rig.accepts(array), place
            array[place] = 5
    assert rig.accepts(array)


@given(st.data())
def test_the_glue_and_the_checked_entry_agree(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    least, greatest = dtypes.int_limits(dtype)
    bound = st.one_of(
        st.integers(-(2**65), 2**65),
        st.integers(least - 2, least + 3),
        st.integers(greatest - 2, greatest + 3),
        st.integers(-3, 3),
    )
    low = data.draw(bound)
    high = data.draw(bound.filter(lambda n: n > low))
    argument = Argument(
        "a", dtype, (data.draw(st.sampled_from([1, 3, 40])),), value_range=(low, high)
    )
    rig = Rig(argument)
    near = [n for n in (low - 1, low, high - 1, high, 0, least, greatest) if least <= n <= greatest]
    values = data.draw(st.lists(st.sampled_from(near), min_size=1, max_size=3))
    array = np.resize(np.array(values, dtypes.to_numpy(dtype)), argument.shape)
    assert rig.accepts(array) == all(low <= int(n) < high for n in array)
    check = make_range_check(rig.signature, HOST_MEMORY)
    if rig.accepts(array) and check is not None:
        check([array.ctypes.data])


def test_several_arguments_have_a_function_each() -> None:
    one = Argument("a", "int32", (40,), value_range=(0, 9))
    rig = Rig(one, Argument("b", "int32", (40,), value_range=(5, 90)), one)
    fives = np.full(40, 5, np.int32)
    assert rig.accepts(fives, fives, fives)
    for number in range(3):
        wrong = [fives, fives, fives]
        wrong[number] = np.full(40, 91, np.int32)
        assert not rig.accepts(*wrong)


@pytest.mark.parametrize(
    ("shape", "strides", "steps"),
    [
        ((4, 1, 6, 8), (48, 9, 8, 1), [(192, 1)]),
        ((4, 6, 8), (48, 0, 1), [(4, 48), (8, 1)]),
        ((3, 4), (1, 3), [(12, 1)]),
        ((3, 4), (8, 2), [(12, 2)]),
        ((1, 1), (7, 7), []),
    ],
)
def test_dimensions_side_by_side_are_one(
    shape: tuple[int, ...], strides: tuple[int, ...], steps: list[tuple[int, int]]
) -> None:
    assert walk_order(shape, strides) == steps


def test_references_are_balanced_where_a_value_is_refused() -> None:
    rig = Rig(Argument("a", "int64", (8,), value_range=(0, 5)))
    array = np.full(8, 7)
    gc.collect()
    before = sys.getrefcount(array)
    for _ in range(100):
        assert not rig.accepts(array)
    gc.collect()
    assert sys.getrefcount(array) == before


def gather(strides: tuple[int, ...] | None = None) -> Func:
    x = te.placeholder((100,), name="X")
    idx = te.placeholder((4, 6), "int32", name="idx", strides=strides, value_range=(0, 100))
    y = te.compute((4, 6), lambda i, j: x[idx[i, j]], name="Y")
    return te.func([x, idx, y], name="gather")


@pytest.mark.parametrize("strides", [None, (1, 4)])
@pytest.mark.parametrize("bound", [False, True])
def test_a_gather_reads_nothing_out_of_bounds(strides: tuple[int, ...] | None, bound: bool) -> None:
    mod = tw.build(tw.Schedule(gather(strides)), "cpu -threads=1")
    x, y = np.arange(100, dtype=np.float32), np.zeros((4, 6), np.float32)
    idx = np.arange(24, dtype=np.int32).reshape(4, 6)
    idx = idx if strides is None else np.asfortranarray(idx)
    run = mod.bind(x, idx, y) if bound else lambda: mod(x, idx, y)
    run()
    assert (y == idx).all()
    for value in (-1, 100, 2**30, -(2**31)):
        idx[3, 5] = value
        with refused(ArgumentError, "0", "99", "[3, 5]", value):
            run()
    idx[3, 5] = 99
    run()
    assert y[3, 5] == 99


def test_a_gather_of_who_trusts_calls_the_kernel() -> None:
    """Out of its declared range, and yet in bounds of the memory: nothing else may be tried."""
    mod = tw.build(tw.Schedule(gather()), "cpu -threads=1", trust_indices=True)
    memory, y = np.arange(200, dtype=np.float32), np.zeros((4, 6), np.float32)
    mod(memory[:100], np.full((4, 6), 150, np.int32), y)
    assert (y == 150).all()


def packed_gather(n: int = 96) -> tw.Schedule:
    """Indices that are known ahead, which the schedule packs."""
    x = te.placeholder((100,), name="X")
    idx = te.placeholder((n, n), "int32", name="idx", constant=True, value_range=(1, 100))
    y = te.compute((n, n), lambda i, j: x[idx[j, i]], name="Y")
    sch = tw.Schedule(te.func([x, idx, y], name="gather"))
    sch.cache_read(sch.get_block("Y"), 1, "global")
    return sch


def test_packed_indices_are_checked_as_they_are_packed_and_called() -> None:
    mod = tw.build(packed_gather(), "cpu -threads=1")
    assert "idx" in mod.layouts
    idx = np.full((96, 96), 7, np.int32)
    x, y = np.arange(100, dtype=np.float32), np.zeros((96, 96), np.float32)
    packed = mod.pack("idx", idx)
    mod(x, packed, y)
    assert (y == 7).all()
    idx[5, 6] = 0
    with refused(ArgumentError, "idx", "1", "99", "0"):
        mod.pack("idx", idx)
    packed.reshape(-1)[11] = 1000
    with refused(ArgumentError, "idx", "1000"):
        mod(x, packed, y)


def test_a_header_says_which_values_are_right() -> None:
    program = Declared(signature_of(gather()))
    header = c_header("g", "g.so", CpuTarget.named("x86-64"), [program])
    assert " * idx: in tensor int32[4][6], values from 0 to 99\n" in header
    assert " * Values are not checked" in header
    assert "values" not in header.partition("idx:")[0]
