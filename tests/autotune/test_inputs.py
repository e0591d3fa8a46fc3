"""Arguments that kernels are tuned on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import Func, te
from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.measure.numeric_check import arguments_of
from tilewright.autotune.measure.program_text import program_fields
from tilewright.autotune.measure.runner import _Program
from tilewright.base import dtypes
from tilewright.codegen.build import compile_func
from tilewright.codegen.calling_convention import signature_of
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.inputs import Arguments


def copy(dtype: str, **options: Any) -> Func:
    a = te.placeholder((5, 7), dtype, name="A", **options)
    return te.func([a, te.compute((5, 7), lambda i, j: a[i, j], name="B")], name="copy")


def arguments(func: Func, seed: int = 0) -> Arguments:
    return arguments_of(func, signature_of(func), seed, HOST_MEMORY)


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_inputs_are_random_finite_and_the_same_again(dtype: str) -> None:
    first, again, other = (arguments(copy(dtype), seed) for seed in (1, 1, 2))
    a, b = first.values
    assert a.dtype == b.dtype == dtypes.to_numpy(dtype)
    wide = a.astype(np.float64)
    assert np.isfinite(wide).all()
    assert len(np.unique(wide)) > 1
    assert dtype == "bool" or np.abs(wide).min() >= 0.5
    assert (a == again.values[0]).all()
    assert not (a == other.values[0]).all()


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_arrays_without_dimensions(dtype: str) -> None:
    a = te.placeholder((), dtype, name="A")
    c = te.placeholder((), dtype, name="C")
    b = te.compute((3,), lambda i: te.select(i > 0, a[()], c[()]), name="B")
    changed = te.compute((), lambda: c[()], name="D")
    func = te.func([a, c, b], inplace={changed: c})
    x, y, _ = (arguments(func, 1).values[k] for k in range(3))
    for array, again in zip((x, y), arguments(func, 1).values, strict=False):
        assert (array.shape, array.dtype) == ((), dtypes.to_numpy(dtype))
        assert (array == again).all()
        assert dtype == "bool" or abs(float(array)) >= 0.5
    ranged = te.placeholder((), "uint8", name="A", value_range=(250, 251))
    func = te.func([ranged, te.compute((), lambda: ranged[()], name="B")])
    assert arguments(func).values[0] == 250


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_an_element_that_is_not_written_shows(dtype: str) -> None:
    made = arguments(copy(dtype))
    a, b = made.values
    b[...] = a
    made.reset()
    same = (a == b) if dtype != "bool" else (a.view(np.uint8) == b.view(np.uint8))
    assert not same.any()
    assert np.shares_memory(made.outputs[0], b)


def test_integers_keep_to_their_range() -> None:
    a, _ = arguments(copy("int32", value_range=(-2, 3))).values
    assert set(np.unique(a)) == {-2, -1, 0, 1, 2}


def test_what_has_no_result_for_negative_numbers_gets_positive_ones() -> None:
    a = te.placeholder((64,), name="A")
    root = te.func([a, te.compute((64,), lambda i: te.sqrt(a[i]), name="B")], name="root")
    assert arguments(root).values[0].min() > 0
    assert arguments(copy("float32")).values[0].min() < 0


def test_declared_strides_and_scalars_are_respected() -> None:
    a = te.placeholder((4, 3), name="A", strides=(8, 2))
    s, n, t = te.scalar("float32", "s"), te.scalar("int32", "n"), te.scalar("bool", "t")
    value = te.compute((4, 3), lambda i, j: te.select(t, a[i, j] * s + n, 0.0), name="B")
    func = te.func([a, s, n, t, value], name="mixed")
    made = arguments(func).values
    assert made[0].strides == (32, 8)
    assert made[1:4] == [0.75, 3, True]


def test_stray_writes_show_on_both_sides() -> None:
    made = arguments(copy("float32"))
    assert made.stray_write() is None
    name, *guards = made._guards[1]
    before, after = map(HOST_MEMORY.array, guards)
    assert name == "B"
    b = made.values[1]
    start = b.__array_interface__["data"][0]
    assert before.__array_interface__["data"][0] + before.size == start
    assert after.__array_interface__["data"][0] == start + b.nbytes
    assert start % 64 == 16
    for guard, place in ((before, -1), (after, 0)):
        kept = guard[place]
        guard[place] = 0
        assert made.stray_write() == "B"
        guard[place] = kept
    assert made.stray_write() is None


def test_arguments_read_and_written_get_their_data_again() -> None:
    made = arguments(copy("float32"))
    before = made.values[0].copy()
    made.values[1][...] = 0
    made.reset()
    assert np.isnan(made.values[1]).all()
    assert (made.values[0] == before).all()


def test_what_is_timed_does_not_check_the_values_of_indices() -> None:
    """The values are made here, and times stay those of kernels."""
    x = te.placeholder((50,), name="X")
    idx = te.placeholder((4,), "int32", name="idx", value_range=(0, 50))
    y = te.compute((4,), lambda i: x[idx[i]], name="Y")
    func = te.func([x, idx, y])
    compiled = compile_func(func, "cpu -threads=1")
    fields = {**program_fields(func, compiled.target), "seed": 0, "memory": 0, "outputs": -1}
    form = Kernel(b"", compiled.launches).form()
    module = _Program(fields).load(compiled.image, form)
    memory, found = np.arange(100, dtype=np.float32), np.zeros(4, np.float32)
    module(memory[:50], np.full(4, 75, np.int32), found)  # beyond its range, within the memory
    assert (found == 75).all()
