"""Scheduled programs in machine code: whatever is scheduled computes what the program does."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import BuildError, ScheduleError
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import For, ForKind, Func
from tilewright.tir.visit import walk

from ..schedule.random_cases import Tally, a_case, apply_random_steps
from .machinery import check, check_passes

TARGETS = ["cpu -threads=1", "cpu -threads=2", "cpu -mcpu=x86-64-v3 -threads=1"]


@pytest.mark.part(5)
@pytest.mark.parametrize("seed", range(30))
def test_random_schedules(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    func, steps = a_case(pick)
    sch = Schedule(func, seed=seed)
    apply_random_steps(sch, pick, 12, Tally(), steps)
    if any(type(n) is For and n.kind is ForKind.THREAD for n in walk(sch.func)):
        return
    try:
        check(sch.func, original=sch.original, target=TARGETS[seed % 3])
        check_passes(sch.func)
    except BuildError as error:  # a buffer put into registers whose loops are not unrolled
        if "held in registers" not in str(error):
            raise


def matmul(n: int, m: int, k: int, dtype: str = "float32") -> Func:
    a, b = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.func([a, b, c], name="matmul")


def tiled(
    func: Func, rows: int, columns: int, lanes: int, scope: str, *, packed: bool, threads: bool
) -> Schedule:
    """A register tile of rows x columns over a packed operand, in vectors of `lanes`."""
    sch = Schedule(func)
    block = sch.get_block("C")
    write = sch.cache_write(block, 0, scope)
    copy = sch.pack(block, 1, "BAb", [columns]) if packed else None
    i, j, r = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, columns])
    j1, j2 = sch.split(j1, [None, lanes])
    sch.reorder(j0, i0, r, i1, j1, j2)
    sch.reverse_compute_at(write, i0)
    sch.unroll(i1)
    sch.unroll(j1)
    sch.vectorize(j2)
    sch.decompose_reduction(block, r)
    x, y = sch.get_loops(write)[-2:]
    y0, y1 = sch.split(y, [None, lanes])
    sch.unroll(x)
    sch.unroll(y0)
    sch.vectorize(y1)
    if copy is not None:
        sch.vectorize(sch.split(sch.get_loops(copy)[-1], [None, lanes])[1])
    if threads:
        sch.parallel(j0)
    return sch


@pytest.mark.part(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(8, 64, 6), (13, 50, 3), (3, 5, 1), (5, 33, 4)])
def test_register_tiles_of_any_size(shape: tuple[int, int, int], target: str) -> None:
    lanes = 8 if "v3" in target else 16
    func = matmul(*shape)
    sch = Schedule(func)
    for scope in ("global", "register"):
        sch = tiled(func, 4, 2 * lanes, lanes, scope, packed=True, threads=True)
        check(sch.func, original=func, target=target)
    if target == TARGETS[0]:
        check_passes(sch.func)


def test_a_register_tile_lives_in_registers() -> None:
    """The inner loop of an 8x48 tile: 24 multiply-adds, no store and nothing on the stack."""
    sch = tiled(matmul(16, 96, 16), 8, 48, 16, "register", packed=True, threads=False)
    compiled = check(sch.func, original=sch.original, target="cpu -mcpu=skylake-avx512 -threads=1")
    lines = compiled.source("asm").splitlines()
    multiplies = [k for k, line in enumerate(lines) if "vfmadd231ps" in line]
    assert len(multiplies) == 24
    inner = lines[multiplies[0] : multiplies[-1] + 1]
    assert not any("rsp" in line for line in inner)
    assert not any(line.split()[-1].endswith(")") and "vmov" in line for line in inner)


OPERATORS = [
    ("matmul_func", {"n": 5, "m": 7, "k": 3, "bias": True, "epilogue": "relu"}),
    ("conv2d_func", {"c": 3, "h": 7, "w": 6, "o": 4, "stride": 2, "bias": True}),
    ("depthwise_conv2d_func", {"c": 3, "h": 5, "w": 6}),
    ("pool2d_func", {"c": 2, "h": 7, "w": 5}),
    ("softmax_func", {"n": 3, "m": 19}),
    ("layer_norm_func", {"n": 3, "m": 21}),
    ("add_relu_func", {"n": 35}),
    ("transpose_func", {"n": 7, "m": 5}),
    ("reduction_func", {"n": 7, "m": 5, "axis": 0, "kind": "argmax"}),
    ("attention_func", {"batch": 1, "heads": 1, "sequence": 5, "dim": 4}),
]


@pytest.mark.parametrize(("name", "options"), OPERATORS)
def test_operators_with_their_last_loops_in_vectors(name: str, options: dict[str, int]) -> None:
    func: Func = getattr(ops, name)(**options)
    check(func, rtol=1e-5)
    sch = Schedule(func)
    for number in range(sum(1 for n in walk(func) if type(n).__name__ == "Block")):
        loops = sch.get_loops(sch.get_block(number))
        for loop in reversed(loops):
            try:
                sch.vectorize(loop)
                break
            except ScheduleError:
                continue
    check(sch.func, original=func, rtol=1e-5)


def test_declared_strides_are_used() -> None:
    a = te.placeholder((5, 6), "float32", name="A", strides=(1, 5))
    b = te.placeholder((5, 6), "float32", name="B", strides=(13, 2))
    c = te.compute((5, 6), lambda i, j: a[i, j] - 2 * b[i, j], name="C")
    func = te.func([a, b, c], name="strided")
    check(func)
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("C"))[1])
    check(sch.func, original=func)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_empty_and_single(shape: tuple[int, int]) -> None:
    a = te.placeholder(shape, "float32", name="A")
    c = te.compute(shape, lambda i, j: a[i, j] + 1, name="C")
    check(te.func([a, c], name="f"))


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "bfloat16", "float16", "int8", "uint16", "int64", "bool"]
)
def test_scalars_of_every_dtype(dtype: str) -> None:
    a = te.placeholder((9,), dtype, name="A")
    x = te.scalar(dtype, "x")

    def larger(i: te.Var) -> te.Expr:
        return te.maximum(a[i], x)

    check(te.func([a, x, te.compute((9,), larger, name="C")], name="f"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
@pytest.mark.parametrize("lanes", [1, 16])
def test_padding_reads_nothing_outside(lanes: int) -> None:
    """Pages that may not be read lie right before and right behind the input."""
    n = mmap.PAGESIZE // 4
    a = te.placeholder((n,), "float32", name="A")
    y = te.compute((n + 16,), lambda i: te.select((i >= 8) & (i < n + 8), a[i - 8], 0.0), name="Y")
    func = te.func([a, y], name="pad")
    sch = Schedule(func)
    if lanes > 1:
        sch.vectorize(sch.split(sch.get_loops(sch.get_block("Y"))[0], [None, lanes])[1])
    module = to_module(compile_func(sch.func, "cpu -threads=1"))
    libc = ctypes.CDLL(None, use_errno=True)
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    everything = np.frombuffer(pages, np.float32)
    start = everything.ctypes.data
    everything[:] = 1
    for page in (0, 2):
        where = ctypes.c_void_p(start + page * mmap.PAGESIZE)
        assert libc.mprotect(where, mmap.PAGESIZE, 0) == 0
    found = np.zeros(n + 16, np.float32)
    module(everything[n : 2 * n], found)
    np.testing.assert_array_equal(found, np.pad(np.ones(n, np.float32), 8))
