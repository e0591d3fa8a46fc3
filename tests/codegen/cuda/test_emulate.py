"""The emulator computes what programs mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import ArgumentError
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.cuda.emulate_faults import FaultKind
from tilewright.codegen.generator import generator_for
from tilewright.schedule import Schedule
from tilewright.target import CudaTarget
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, For, Func, Seq, Store
from tilewright.tir.parser import parse

from ...refusals import refused
from .emulated import emulate_launch
from .kernels import arguments, kernel, kinds, run


def compare(func: Func, given: list[Any] | None = None) -> None:
    """Require that there are no faults, and the results of the interpreter to the last bit.

    The program has no barriers or shuffles, and may run one thread after the other.
    """
    given = arguments(func) if given is None else given
    expected, found = (
        [np.copy(a) if isinstance(a, np.ndarray) else a for a in given] for _ in "ef"
    )
    interpret(func, *expected)
    result = emulate(func, *found)
    assert not result.faults, "\n".join(map(str, result.faults))
    for a, b in zip(found, expected, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float64"])
def test_floats_are_rounded_after_each_operation(dtype: str) -> None:
    code = """
    x = A[t] * A[63 - t] + A[t] / (A[(t * 7) % 64] + 1.0)
    B[t] = T.maximum(T.sqrt(x), T.exp(-A[t])) * T.tanh(x) - T.sigmoid(x) // 0.125
    """
    compare(kernel(f"A {dtype} 64; B {dtype} 64", code))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_wrap_and_floor(dtype: str) -> None:
    code = f"""
    x = A[t] * A[63 - t] * 37 - A[(t * 7) % 64] * 101
    B[t] = T.minimum(x // (A[t] % 5 + 1), x % 7) ^ (x >> T.{dtype}(t % 80)) | (x << A[t])
    """
    compare(kernel(f"A {dtype} 64; B {dtype} 64", code))


def test_nan_saturation_and_wrapping_of_casts() -> None:
    values = [np.nan, np.inf, -np.inf, 300.7, -300.7, 1e10, -1e10, 2.5]
    code = """
    B[t] = T.int8(A[t])
    C[t] = T.int8(T.int32(A[t]))
    D[t] = T.minimum(A[t], 1.0) + T.maximum(A[t], 1.0)
    """
    func = kernel("A float32 8; B int8 8; C int8 8; D float32 8", code, threads=8)
    zeros = [np.zeros(8, d) for d in ("int8", "int8", "float32")]
    compare(func, [np.array(values, np.float32), *zeros])


def test_narrow_indices_wrap() -> None:
    code = "B[t] = T.int64(T.int32(2147483647) + T.int32(t))"
    func = kernel("A int64 4; B int64 4", code, threads=4)
    a, b = arguments(func)
    emulate(func, a, b)
    assert b.tolist() == [2**31 - 1, -(2**31), -(2**31) + 1, -(2**31) + 2]


def test_select_evaluates_the_side_that_it_takes() -> None:
    code = """
    B[t] = T.select(t < 60, A[t + 4], T.select(t == 63, A[T.int64(A[t]) * 0], A[t] / 2.0))
    C[t] = T.select(A[t] == 0, 7, 100 // A[t])
    """
    func = kernel("A float32 64; B float32 64", code.splitlines()[1])
    compare(func)
    compare(kernel("A int32 64; C int32 64", code.splitlines()[2]))


@pytest.mark.parametrize("threads", [1, 5, 32, 33, 64, 100])
def test_divergent_branches_and_loops(threads: int) -> None:
    code = """
    L = T.scratch((4,), "float32", scope="local")
    for i in range(4):
        L[i] = A[t] + T.float32(i)
    for k in range(7):
        if k < t % 9:
            if (k + t) % 2 == 0:
                L[(k + t) % 4] = L[t % 4] * 0.5
            else:
                y = L[k % 4] + T.float32(k)
                L[k % 4] = y - L[(t + k) % 4]
        elif t % 3 == 0:
            L[0] = L[0] + 1.0
    for i in range(4):
        B[t * 4 + i] = L[i]
    """
    compare(kernel(f"A float32 {threads}; B float32 {4 * threads}", code, threads=threads))


def test_axes_of_blocks_and_threads() -> None:
    text = """
@tw.script
def axes(B: T.Buffer((720,), "int32")):
    for bz in T.thread("blockIdx.z", 2):
        for by in T.thread("blockIdx.y", 3):
            for bx in T.thread("blockIdx.x", 1):
                for tz in T.thread("threadIdx.z", 2):
                    for ty in T.thread("threadIdx.y", 5):
                        for tx in T.thread("threadIdx.x", 12):
                            B[(((bz * 3 + by) * 2 + tz) * 5 + ty) * 12 + tx] = T.int32(
                                ((((bz * 10 + by) * 10 + bx) * 10 + tz) * 10 + ty) * 100 + tx
                            )
"""
    for batch in (1, 120, 240, 8192):
        func = parse(text)
        found, expected = np.zeros(720, np.int32), np.zeros(720, np.int32)
        assert not emulate(func, found, batch_threads=batch).faults
        interpret(func, expected)
        np.testing.assert_array_equal(found, expected)


def test_threads_are_numbered_from_x() -> None:
    code = """
    S[(tz * 3 + ty) * 8 + t] = T.float32(t + 10 * ty + 100 * tz)
    T.barrier("warp")
    B[(tz * 3 + ty) * 8 + t] = S[((tz * 3 + ty) * 8 + t) ^ 31]
    """
    params = "A float32 1; B float32 {0}"
    assert not run(kernel(params.format(96), code, threads=(8, 3, 4), shared="S float32 96")).faults
    found = run(kernel(params.format(96), code.replace("^ 31", "^ 32"), threads=(8, 3, 4),
                       shared="S float32 128"))  # fmt: skip
    assert FaultKind.RACE in kinds(found)


def test_numbers_and_arrays_of_any_shape() -> None:
    text = """
@tw.script
def f(A: T.Buffer((35,), "bfloat16"), x: T.bfloat16, n: T.int32, B: T.Buffer((24,), "bfloat16")):
    for t in T.thread("threadIdx.x", 24):
        if t < T.int64(n):
            B[t] = A[t // 6 * 9 + t % 6] * x
"""
    func = parse(text)
    wide = np.arange(36).astype(ml_dtypes.bfloat16).reshape(4, 9)
    found = np.full((4, 6), 7, ml_dtypes.bfloat16)
    emulate(func, wide[:, :8], 0.5, 20, found)
    expected = (wide[:, :6] * ml_dtypes.bfloat16(0.5)).ravel()
    assert found.ravel()[:20].tolist() == expected[:20].tolist()
    assert found.ravel()[20:].tolist() == [7] * 4
    with pytest.raises(ArgumentError):
        emulate(func, wide, 0.5, 20, found)
    with pytest.raises(ArgumentError):
        emulate(func, wide[:, :8], 0.5, 20)


def test_values_of_range_are_checked() -> None:
    text = """
@tw.script
def take(A: T.Buffer((8,), "float32"), I: T.Buffer((4,), "int32", value_range=(0, 8)), B: T.Buffer((4,), "float32")):
    for t in T.thread("threadIdx.x", 4):
        B[t] = A[T.int64(I[t])]
"""  # noqa: E501
    func = parse(text)
    a, b = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    assert not emulate(func, a, np.array([7, 0, 7, 3], np.int32), b).faults
    assert b.tolist() == [7, 0, 7, 3]
    with pytest.raises(ArgumentError):
        emulate(func, a, np.array([8, 0, 7, 3], np.int32), b)


def test_values_between_elements_of_strided_arrays_are_not_checked() -> None:
    text = """
@tw.script
def take(A: T.Buffer((8,), "float32"), I: T.Buffer((7,), "int32", value_range=(0, 8)), B: T.Buffer((4,), "float32")):
    for t in T.thread("threadIdx.x", 4):
        B[t] = A[T.int64(I[t * 2])]
"""  # noqa: E501
    func = parse(text)
    a, b = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    indices = np.array([7, -1, 0, 99, 7, -1, 3], np.int32)
    assert not emulate(func, a, indices[::2], b).faults
    assert b.tolist() == [7, 0, 7, 3]
    indices[2] = 8
    with refused(ArgumentError, "I", "3", "8"):
        emulate(func, a, indices[::2], b)


def test_a_launch_on_memory_of_a_device() -> None:
    text = """
@tw.script
def two(A: T.Buffer((64,), "float32"), x: T.float32, B: T.Buffer((64,), "float32")):
    W = T.alloc((64,), "float32")
    for t in T.thread("threadIdx.x", 64):
        W[t] = A[t] * x
    for t in T.thread("threadIdx.x", 64):
        B[t] = W[63 - t] + 1.0
"""
    func = parse(text)
    a, x, b = func.params
    memory: dict[Any, Any] = {p: np.zeros(64, np.float32) for p in (a, b, *func.allocs)}
    memory |= {a: np.arange(64, dtype=np.float32), x: 2.0}
    assert not emulate_launch(func, 0, memory).faults
    assert (memory[b] == 0).all()
    found = emulate_launch(func, 1, memory)
    assert not found.faults
    assert {c.launch for c in found.counts} == {1}
    np.testing.assert_array_equal(memory[b], memory[a][::-1] * 2 + 1)


def test_an_empty_program() -> None:
    func = parse('@tw.script\ndef nothing(A: T.Buffer((0,), "float32")):\n    pass\n')
    found = emulate(func, np.zeros(0, np.float32))
    assert not found.faults
    assert not found.counts


def test_a_shared_buffer_may_be_empty() -> None:
    func = kernel("A float32 64; B float32 64", "B[t] = A[t]", shared="S float32 0")
    assert not run(func).faults


def test_one_object_may_stand_at_two_places() -> None:
    func = kernel("A float32 64; B float32 64", "B[t] = A[t]")
    assert isinstance(func.body, For)
    store = func.body.body
    assert isinstance(store, Store)
    twice = replace(func, body=replace(func.body, body=Seq((store, store))))
    found = run(twice)
    assert [c.counts.executions for c in found.counts] == [64, 64]


def test_accesses_without_end_are_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of a long loop without barriers stays short, and nothing is lost of it."""
    monkeypatch.setattr("tilewright.codegen.cuda.emulate_races.MAX_LOGGED", 1000)
    code = """
    S[t] = 0.0
    for k in range(50):
        S[t] = S[t] + A[(t + k) % 64]
    {0}
    B[t] = S[63 - t]
    """
    for between, faults in (('T.barrier("block")', 0), ("", 2)):
        func = kernel("A float32 64; B float32 64", code.format(between), shared="S float32 64")
        found = run(func)
        assert kinds(found) == [FaultKind.RACE] * faults
        assert all(f.count == 64 for f in found.faults)


def test_dtypes_of_shared_memory() -> None:
    for dtype in dtypes.SCALARS:
        code = """
        S[t] = A[t]
        R[t] = A[t + 0 * t]
        T.barrier("block")
        B[t] = S[63 - t]
        C[t] = R[63 - t]
        """
        func = kernel(
            f"A {dtype} 64; B {dtype} 64; C {dtype} 64",
            code, shared=f"S {dtype} 64; R {dtype} 64; Q int8 3",
        )  # fmt: skip
        a, b, c = arguments(func)
        assert not emulate(func, a, b, c).faults
        assert a.tolist() == b[::-1].tolist() == c[::-1].tolist()
        assert all(isinstance(p, Buffer) for p in func.params)


@pytest.mark.parametrize("name", ["expm1", "log1p", "log2", "log10", "tan", "sign", "relu"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_that_te_composes(name: str, dtype: str) -> None:
    """The code of a GPU computes them as the interpreter does, special values too."""
    values = [-0.9, -1e-6, -0.0, 0.0, 1e-7, 0.3, 1.0, 2.0, 40.0, np.inf, -np.inf, np.nan]
    x = np.array(values).astype(dtype)
    a = te.placeholder(x.shape, dtype, name="A")
    y = te.compute(x.shape, lambda i: getattr(te, name)(a[i]), name="Y")
    sch = Schedule(te.func([a, y], name="f"))
    sch.bind(sch.get_loop("i"), "threadIdx.x")
    found, expected = np.empty_like(x), np.empty_like(x)
    target = CudaTarget.named("sm_90a")
    assert not generator_for(target).emulate(sch.func, target, [x, found])
    interpret(sch.func, x, expected)
    np.testing.assert_array_equal(found, expected)
