"""Sketches for GPUs: random candidates compute what the program does, and keep the limits.

The interpreter runs them, iterations of threads and blocks in any order, or where that is much the
emulator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.measure.numeric_check import check_outputs, tolerance_of
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.idle_threads import idle_threads
from tilewright.schedule.find import loops_in, statements
from tilewright.target import CudaTarget
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import ForKind, Func, Store
from tilewright.tir.visit import walk

from .checking import MAX_INTERPRETED, Array, arguments, planned, points, some_rows
from .formulas import FORMULAS
from .selection import OPERATORS, POINTWISE, operator, operator_name, selected

TARGET = CudaTarget.named("sm_90a")
ROWS = 4
"""Candidates of a program, at most; of each sketch one at least."""


def expected(func: Func) -> list[Array]:
    arrays = arguments(func, 1)
    interpret(func, *arrays)
    return arrays


def scheduled(func: Func, sketch: Sketch, row: list[int]) -> Func:
    return sketch.trace.with_row(row).apply(func).func


def of_rules(made: tuple[Sketch, ...]) -> tuple[Sketch, ...]:
    """The sketches without what the default binds, which has tests of its own; all if it is that
    alone."""
    return tuple(s for s in made if "default" not in s.name.split("+")) or made


def check_candidates(func: Func, made: tuple[Sketch, ...], rows: int = ROWS) -> None:
    """Candidates of sketches compute what a program does, in threads of a block as it may have."""
    wanted, rng = expected(func), np.random.default_rng(0)
    for sketch in of_rules(made):
        for row in some_rows(sketch, rng, max(1, rows // len(made))):
            candidate = scheduled(func, sketch, row.tolist())
            check_threads(candidate)
            found = arguments(func, 1)
            if points(func) <= MAX_INTERPRETED:
                interpret(candidate, *found, order="shuffled")
            else:
                assert not emulate(lower(candidate, TARGET), *found).faults
            check = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
            assert check.passed, f"{sketch.name} {row.tolist()}: {check}"


def check_threads(func: Func) -> None:
    """Each nest is bound, a block has whole warps within the limit, and none waits for one thread's
    loops."""
    assert not idle_threads(func)
    for nest in statements(func.body):
        axes = {s.thread: s.extent for s in loops_in(nest) if s.thread is not None}
        assert axes or not any(loops_in(nest))
        sizes = [n for axis, n in axes.items() if axis.startswith("thread")]
        threads = math.prod(n for n in sizes if isinstance(n, int))
        assert threads <= TARGET.limits.block_threads
        assert threads % 32 == 0 or not sizes


@pytest.mark.part(2)
@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=operator_name)
def test_candidates_of_operators(number: int) -> None:
    func = operator(number)
    check_candidates(func, selected(func, TARGET))


@pytest.mark.part(2)
@pytest.mark.parametrize("name", FORMULAS)
def test_candidates_of_formulas(name: str) -> None:
    func = FORMULAS[name]()
    check_candidates(func, selected(func, TARGET), 2)


EMULATED: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("matmul_func", {"n": 33, "m": 50, "k": 17}),
    "matmul_of_whole_vectors": ("matmul_func", {"n": 36, "m": 52, "k": 20}),
    "matmul_transposed": ("matmul_func", {"n": 24, "m": 20, "k": 12, "transpose_a": True}),
    "matmul_bias_gelu": (
        "matmul_func",
        {"n": 9, "m": 40, "k": 12, "bias": True, "epilogue": "gelu"},
    ),
    "matmul_bfloat16": ("matmul_func", {"n": 17, "m": 24, "k": 16, "dtype": "bfloat16"}),
    "matmul_of_parts": ("matmul_func", {"n": 20, "m": 33, "k": 260, "bias": True}),
    "batched_matmul": ("matmul_func", {"n": 9, "m": 19, "k": 16, "batch": 2, "transpose_b": True}),
    "gemv": ("matmul_func", {"n": 1, "m": 40, "k": 30}),
    "gemv_of_rows": ("matmul_func", {"n": 30, "m": 1, "k": 70}),
    "conv2d": ("conv2d_func", {"n": 2, "c": 5, "h": 9, "w": 19, "o": 7}),
    "conv2d_nhwc": (
        "conv2d_func",
        {"c": 4, "h": 8, "w": 8, "o": 6, "stride": 2, "layout": "NHWC", "bias": True},
    ),
    "conv2d_pointwise": ("conv2d_func", {**POINTWISE, "c": 16, "h": 7, "w": 8, "o": 12}),
    "conv2d_grouped": ("conv2d_func", {"n": 2, "c": 8, "h": 7, "w": 9, "o": 24, "groups": 2}),
    "conv2d_grouped_nhwc": (
        "conv2d_func",
        {"c": 6, "h": 6, "w": 5, "o": 32, "groups": 2, "layout": "NHWC", "bias": True},
    ),
    "depthwise": ("depthwise_conv2d_func", {"c": 5, "h": 8, "w": 17}),
    "softmax": ("softmax_func", {"n": 5, "m": 133}),
    "layer_norm": ("layer_norm_func", {"n": 5, "m": 96}),
    "row_sums": ("reduction_func", {"n": 21, "m": 135, "axis": 1}),
    "column_sums": ("reduction_func", {"n": 135, "m": 21, "axis": 0}),
    "sums_of_few_columns": ("reduction_func", {"n": 2051, "m": 5, "axis": 0}),
    "transposition": ("transpose_func", {"n": 37, "m": 70}),
    "elementwise": ("add_relu_func", {"n": 1003}),
}
"""Operators at small odd sizes."""


@pytest.mark.part(3)
@pytest.mark.parametrize("name", EMULATED)
def test_every_sketch_runs_in_the_emulator(name: str) -> None:
    """The last programs of candidates compute what the program does, without races."""
    make, options = EMULATED[name]
    func = getattr(ops, make)(**options)
    wanted, rng = expected(func), np.random.default_rng(1)
    for sketch in of_rules(sketches(func, TARGET)):
        for row in some_rows(sketch, rng, 2):
            lowered = lower(scheduled(func, sketch, row.tolist()), TARGET)
            found = arguments(func, 1)
            emulation = emulate(lowered, *found)
            assert not emulation.faults, f"{sketch.name} {row.tolist()}: {emulation.faults[0]}"
            check = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
            assert check.passed, f"{sketch.name} {row.tolist()}: {check}"


def axes(func: Func) -> list[dict[str, object]]:
    """The axes of each launch with their extents."""
    return [
        {s.thread: s.extent for s in loops_in(nest) if s.thread is not None}
        for nest in statements(func.body)
    ]


def sketch_named(func: Func, name: str) -> Sketch:
    (found,) = [s for s in sketches(func, TARGET) if s.name == name]
    return found


def test_vectors_are_next_to_each_other_in_threads() -> None:
    func = ops.add_relu_func(n=1 << 20)
    sketch = sketch_named(func, "flat")
    candidate = scheduled(func, sketch, [4, 256, 8])
    (launch,) = axes(candidate)
    assert launch == {"blockIdx.x": (1 << 20) // (4 * 256 * 8), "threadIdx.x": 256}
    kinds = [s.kind for s in loops_in(candidate.body)]
    assert kinds == [ForKind.THREAD, ForKind.UNROLL, ForKind.THREAD, ForKind.VECTOR]


def test_vectors_have_16_bytes_of_the_widest_dtype() -> None:
    for dtype, most in (("float32", 4), ("bfloat16", 8), ("float64", 2)):
        x = te.placeholder((4096,), dtype, name="X")
        func = te.func([x, ops.relu(x, name="Y")])
        (sketch,) = sketches(func, TARGET)
        assert max(sketch.space.values[sketch.variables[0]]) == most


def test_rows_have_launches_of_their_own_rows() -> None:
    x, b = te.placeholder((33, 640), name="X"), te.placeholder((640,), name="B")
    func = te.func([x, b, ops.add(x, b, name="Y")])
    assert planned(func, TARGET) == ["flat", "by_row"]
    candidate = scheduled(func, sketch_named(func, "by_row"), [4, 64, 1])
    assert axes(candidate) == [{"blockIdx.x": 33 * 3, "threadIdx.x": 64}]


def test_a_transposed_input_comes_through_padded_tiles() -> None:
    func = ops.transpose_func(n=256, m=512)
    assert planned(func, TARGET) == ["transposing", "flat", "by_row"]
    sketch = sketch_named(func, "transposing")
    candidate = scheduled(func, sketch, [1, 32, 32, 256])
    (tile,) = candidate.allocs
    assert tile.scope == "shared"
    assert tile.align == ((0, 32, 1),)
    assert axes(candidate) == [{"blockIdx.x": 8 * 16, "threadIdx.x": 256}]
    stores = [n.buffer.scope for n in walk(candidate.body) if type(n) is Store]
    assert stores == ["shared", "global"]


def test_tiles_of_narrow_elements_have_whole_banks_of_them() -> None:
    func = ops.transpose_func(n=256, m=512, dtype="bfloat16")
    (tile,) = sketch_named(func, "transposing").func.allocs
    assert tile.align == ((0, 64, 2),)


def test_stages_that_read_windows_have_launches_each_or_none() -> None:
    func = FORMULAS["clamped_stencils"]()
    launches = {s.name: len(axes(s.func)) for s in sketches(func, TARGET)}
    assert launches == {"apart": 2, "inside": 1}


@pytest.mark.parametrize(("columns", "block"), [(5, (16, 32)), (30, (32, 16)), (999, (64, 8))])
def test_blocks_of_few_columns_have_threads_for_no_others(
    columns: int, block: tuple[int, int]
) -> None:
    func = ops.reduction_func("sum", n=1 << 16, m=columns, axis=0)
    parts, total = axes(scheduled(func, sketch_named(func, "columns_split"), [2]))
    assert (parts["threadIdx.x"], parts["threadIdx.y"]) == block
    assert (total["threadIdx.x"], total["threadIdx.y"]) == block
    assert parts["blockIdx.x"] == 64 * -(-columns // block[0])


def test_blocks_that_no_multiprocessor_runs_are_not_tried() -> None:
    rng = np.random.default_rng(0)
    func = ops.add_relu_func(n=1 << 20, dtype="float64")
    (sketch,) = sketches(func, TARGET)
    assert {name for name, _ in sketch.prune} >= {"the threads of a block share the registers"}
    for lanes, threads, vectors in some_rows(sketch, rng, 256).tolist():
        assert threads * (24 + 3 * 2 * lanes * vectors) <= TARGET.limits.block_registers
