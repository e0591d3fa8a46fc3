"""Contractions and convolutions for GPUs by tiles: their loops, shared memory and machine code."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.cuda.generator import kernels_of
from tilewright.codegen.cuda.nvcc import compile_ptx, nvcc
from tilewright.codegen.lower import lower
from tilewright.schedule.find import loops_in
from tilewright.target import CudaTarget
from tilewright.tir.equality import flat
from tilewright.tir.ir import Alloc, Barrier, Buffer, For, Func, If, Load, Stmt, Store, integers
from tilewright.tir.visit import walk

from .checking import arguments, some_rows

TARGET = CudaTarget.named("sm_90a")
ARCHS = ("sm_80", "sm_90a")
GOOD = [4, 2, 2, 2, 8]
"""Warps and vectors along rows, those along columns, and steps: blocks of 128 x 128 by 8."""


@pytest.fixture
def compiler() -> str:
    try:
        return nvcc()
    except BuildError as error:
        pytest.skip(str(error))


def sketch_named(func: Func, name: str, target: CudaTarget = TARGET) -> Sketch:
    (found,) = [s for s in sketches(func, target) if s.name == name]
    return found


def candidate(func: Func, row: list[int], name: str = "tiled") -> Func:
    return sketch_named(func, name).trace.with_row(row).apply(func).func


def test_the_inner_loop_is_products_and_loads_of_16_bytes(compiler: str) -> None:
    """64 products of 16 numbers, which 4 loads bring; ptxas unrolls the rest away."""
    compiled = compile_func(candidate(ops.matmul_func(1024, 1024, 1024), GOOD), TARGET)
    (kernel,) = kernels_of(compiled)[0]
    assert kernel.block == (256, 1, 1)
    assert kernel.grid == (8, 8, 1)
    ptx = compile_ptx(compiled.text, TARGET)
    bodies = re.split(r"\n\$L_", ptx)
    (inner,) = [body for body in bodies if "fma.rn.f32" in body]
    assert inner.count("fma.rn.f32") == 64
    assert inner.count("ld.shared.v4") == inner.count("ld.shared") == 4
    assert ".local" not in ptx


SHAPES: dict[str, dict[str, Any]] = {
    "both_inputs_along_their_sum": {"transpose_b": True},
    "both_inputs_across_their_sum": {"transpose_a": True},
    "one_of_each": {},
}


@pytest.mark.parametrize("name", SHAPES)
def test_shared_memory_has_no_conflicts(name: str) -> None:
    """A warp uses 32 banks at once, 8 threads those of 16 bytes each."""
    func = ops.matmul_func(128, 128, 16, **SHAPES[name])
    lowered = lower(candidate(func, GOOD), TARGET)
    emulation = emulate(lowered, *arguments(func, 1))
    assert not emulation.faults
    stores = loads = 0
    for counted in emulation.counts:
        statement, counts = counted.statement, counted.counts
        if not isinstance(statement, Store) or counts.shared_requests == 0:
            continue
        if statement.buffer.scope == "shared":
            scalar = not isinstance(statement.value, Load) or "x" not in statement.value.dtype
            assert counts.wavefronts == counts.shared_requests * (1 if scalar else 4)
            stores += 1
        else:
            assert counts.wavefronts == counts.shared_requests * 4
            loads += 1
    assert (stores, loads) == (2, 2)


def test_odd_sizes_are_padded_by_the_copies() -> None:
    """No condition is in the loop that computes: zeros are beyond the ends."""
    func = ops.matmul_func(4095, 4097, 4093)
    lowered = lower(candidate(func, GOOD), TARGET)
    (inner,) = [
        s for s in walk(lowered.body)
        if isinstance(s, For) and any(b.name.startswith("C") for b in stored(s.body)) and reads(s)
        and s.extent == 8
    ]  # fmt: skip
    assert not any(isinstance(n, If) for n in walk(inner))
    grid = {s.thread: s.extent for s in loops_in(lowered.body) if s.thread is not None}
    assert (grid["blockIdx.x"], grid["blockIdx.y"]) == (33, 32)


def test_two_stages_wait_once_a_step() -> None:
    """Elements of the next step are loaded before the products, and stored after them."""
    func = candidate(ops.matmul_func(256, 256, 64), GOOD, "tiled_pipelined")
    lowered = lower(func, TARGET)
    (step,) = [s for s in walk(lowered.body) if isinstance(s, For) and s.extent == 64 // 8 - 1]
    code = step.body
    while isinstance(code, Alloc):
        assert code.buffer.shape == (4,)
        code = code.body

    def does(s: Stmt) -> str:
        if isinstance(s, Barrier):
            return "wait"
        if reads(s):
            return "compute"
        return "store" if any(b.scope == "shared" for b in stored(s)) else "load"

    assert [does(s) for s in flat(code)] == ["load", "load", "wait", "compute", "store", "store"]


def test_a_step_alone_has_one_stage() -> None:
    names = [s.name for s in sketches(ops.matmul_func(64, 64, 4), TARGET)]
    assert "tiled" in names
    assert "tiled_pipelined" not in names


@pytest.mark.part(1)
@pytest.mark.parametrize("name", SHAPES)
def test_threads_hold_what_they_fetch_in_registers(name: str) -> None:
    """Whatever the tiles are: the index of each element that a thread holds is a number."""
    func = ops.matmul_func(256, 256, 64, **SHAPES[name])
    sketch = sketch_named(func, "tiled_pipelined")
    for row in some_rows(sketch, np.random.default_rng(0), 12):
        lowered = lower(sketch.trace.with_row(row.tolist()).apply(func).func, TARGET)
        own = [n.buffer for n in walk(lowered.body) if isinstance(n, Alloc)]
        held = [b for b in own if b.scope == "local" and not b.name.startswith("C_local")]
        assert len(held) == 8
        assert max(math.prod(integers(b.shape)) for b in held) <= 64, row.tolist()


def stored(s: Any) -> set[Any]:
    return {n.buffer for n in walk(s) if isinstance(n, Store)}


def reads(s: Any) -> bool:
    return any(isinstance(n, Load) and n.buffer.scope == "shared" for n in walk(s))


@pytest.mark.parametrize(("channels", "lanes"), [(16, 4), (7, 1)])
def test_steps_are_in_the_order_of_the_input_that_is_contiguous_along_them(
    channels: int, lanes: int
) -> None:
    """Weights are contiguous along channels and places of the window: whole sectors are read.

    Where rows of weights are whole vectors, 16 bytes are copied at once.
    """
    func = ops.conv2d_func(c=channels, h=12, w=12, o=32)
    made = next(s for s in sketches(func, TARGET) if s.name.startswith("tiled+"))
    candidate = made.trace.with_row([1, 2, 8, 1, 16]).apply(func).func
    lowered = lower(candidate, TARGET)
    weights = next(p for p in lowered.params if isinstance(p, Buffer) and p.name == "W")
    found = emulate(lowered, *arguments(func, 0))
    assert not found.faults
    copies = [
        c.counts
        for c in found.counts
        if isinstance(c.statement, Store) and any(n is weights for n in walk(c.statement))
    ]
    elements = 32 * channels * 9
    assert sum(c.sectors_read for c in copies) <= 1.5 * elements * 4 / 32
    assert elements <= sum(c.global_requests for c in copies) * 32 * lanes <= 1.3 * elements


def test_batches_and_groups_are_numbered_by_their_own_axis() -> None:
    func = ops.conv2d_func(n=3, c=32, h=16, w=16, o=64, groups=2)
    sketch = sketch_named(func, "tiled+inlined")
    (launch,) = [
        {s.thread: s.extent for s in loops_in(candidate_of(sketch, func).body) if s.thread}
    ]
    assert launch["blockIdx.z"] == 3 * 2


def test_more_batches_than_a_grid_has_are_not_tiled() -> None:
    names = [s.name for s in sketches(ops.matmul_func(4, 4, 4, batch=65536), TARGET)]
    assert names
    assert "tiled" not in names


def candidate_of(sketch: Sketch, func: Func) -> Func:
    (row,) = some_rows(sketch, np.random.default_rng(0), 1)
    return sketch.trace.with_row(row.tolist()).apply(func).func


def test_few_results_of_long_reductions_are_split() -> None:
    """Parts of the reduction in blocks of their own, and a launch that adds them up."""
    func = ops.matmul_func(64, 64, 65536)
    sketch = sketch_named(func, "tiled_split")
    assert "tiled_split" not in {s.name for s in sketches(ops.matmul_func(2048, 2048, 512), TARGET)}
    scheduled = candidate_of(sketch, func)
    launches = [s for s in scheduled.body.stmts if isinstance(s, For)]  # type: ignore[attr-defined]
    assert len(launches) == 2
    (parts,) = [b for b in scheduled.allocs if b.scope == "global"]
    assert parts.shape[1:] >= (64, 64)


COMPILED: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("matmul_func", {"n": 1024, "m": 1024, "k": 1024}),
    "matmul_odd": ("matmul_func", {"n": 1023, "m": 517, "k": 1021, "epilogue": "gelu"}),
    "batched": ("matmul_func", {"n": 96, "m": 200, "k": 64, "batch": 12, "dtype": "bfloat16"}),
    "conv2d": ("conv2d_func", {"n": 8, "c": 64, "h": 56, "w": 56, "o": 64}),
    "conv2d_nhwc": ("conv2d_func", {"n": 8, "c": 64, "h": 28, "w": 28, "o": 96, "layout": "NHWC"}),
    "split": ("matmul_func", {"n": 64, "m": 64, "k": 65536}),
}  # fmt: skip


@pytest.mark.part(2)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["matmul_odd", "batched", "conv2d"])
def test_two_stages_compile_without_spills(name: str, arch: str, compiler: str) -> None:
    make, options = COMPILED[name]
    func, target = getattr(ops, make)(**options), CudaTarget.named(arch)
    sketch = next(s for s in sketches(func, target) if s.name.startswith("tiled_pipelined"))
    (row,) = some_rows(sketch, np.random.default_rng(3), 1).tolist()
    (kernel, *_) = kernels_of(compile_func(sketch.trace.with_row(row).apply(func).func, target))[0]
    taken = kernel.resources
    assert taken is not None
    assert taken.spill_store_bytes == taken.stack_bytes == 0, row


@pytest.mark.part(2)
@pytest.mark.parametrize("name", COMPILED)
def test_random_candidates_compile_without_spills(name: str, compiler: str) -> None:
    make, options = COMPILED[name]
    func = getattr(ops, make)(**options)
    for arch in ARCHS:
        target = CudaTarget.named(arch)
        rng = np.random.default_rng(3)
        (sketch, *_) = [
            s for s in sketches(func, target) if s.name.startswith("tiled") == (name != "split")
            or s.name == "tiled_split"
        ]  # fmt: skip
        for row in some_rows(sketch, rng, 1).tolist():
            scheduled = sketch.trace.with_row(row).apply(func).func
            for kernel in kernels_of(compile_func(scheduled, target))[0]:
                taken = kernel.resources
                assert taken is not None
                assert taken.spill_store_bytes == taken.stack_bytes == 0, (arch, row)
                assert taken.registers <= target.limits.thread_registers
