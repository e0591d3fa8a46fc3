"""Rows by several threads of a GPU: what they hold in registers, and what they read again."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.measure.numeric_check import check_outputs, tolerance_of
from tilewright.autotune.rules.cuda import row_parts
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.cuda.generator import kernels_of
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.codegen.lower import lower
from tilewright.schedule import Trace
from tilewright.schedule.find import loops_in
from tilewright.target import CudaTarget
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func

from ..long import LONG, first_of
from .checking import arguments, some_rows

ELEMENTS = 1 << 26
"""Of all rows together."""
LENGTHS = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18]
ARCHS = ["sm_80", "sm_90a"]


def rows_of(name: str, length: int, dtype: str = "float32") -> Func:
    func: Func = getattr(ops, f"{name}_func")(ELEMENTS // length, length, dtype=dtype)
    return func


def kept(func: Func, target: CudaTarget) -> list[Sketch]:
    """The sketches whose threads hold what is read again."""
    return [s for s in sketches(func, target) if s.name.endswith("_kept")]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_are_held_where_the_registers_of_a_block_hold_them(name: str, length: int) -> None:
    """A thread holds an element of a row in a register, of which a block has 64K."""
    target = CudaTarget.named("sm_90a")
    found = kept(rows_of(name, length), target)
    assert bool(found) == (length <= 1 << 14)
    for sketch in found:
        rows = Rowspace(sketch).sample(np.random.default_rng(0), 1 << 10)
        assert len(rows)
        held = -(-length // rows[:, 0])
        assert (held * rows[:, 0] * rows[:, 1] < target.limits.block_registers).all()


def test_no_sketch_has_only_rows_that_are_not_worth_measuring() -> None:
    """These would be drawn after all, as those of tiny programs are."""
    for name in ("softmax", "layer_norm"):
        for length in LENGTHS:
            for sketch in sketches(rows_of(name, length), CudaTarget.named("sm_80")):
                space = Rowspace(sketch)
                assert space.check(space.sample(np.random.default_rng(0), 64)).all(), sketch.name


@pytest.fixture
def compiler() -> str:
    try:
        return nvcc()
    except BuildError as error:
        pytest.skip(str(error))


@pytest.mark.part(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "n", "m"),
    [
        ("softmax", 3, 2048),
        ("softmax", 3, 2311),  # a last piece that is shorter
        ("softmax", 2, 3593),  # pieces are shorter, so that the last one has work for all threads
        ("layer_norm", 5, 3584),
        ("layer_norm", 3, 3593),
        ("layer_norm", 2, 4136),  # the same, in vectors
    ],
)
def test_pieces_of_long_rows_in_the_emulator(
    name: str, n: int, m: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of shorter pieces, so that rows have several. One is -inf throughout."""
    monkeypatch.setattr(row_parts, "PIECE", 512)
    monkeypatch.setattr(row_parts, "ROW_THREADS", 64)
    func = getattr(ops, f"{name}_func")(n, m, dtype=dtype)
    wanted = arguments(func, 1)
    if name == "softmax":
        wanted[0][1, 512:1024] = -np.inf
    found = [np.array(a) for a in wanted]
    interpret(func, *wanted)
    target = CudaTarget.named("sm_90a")
    (sketch,) = [s for s in sketches(func, target) if s.name == "online"]
    for row in some_rows(sketch, np.random.default_rng(0), 2):
        lowered = lower(sketch.trace.with_row(tuple(row.tolist())).apply(func).func, target)
        assert not emulate(lowered, *found).faults
        check = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
        assert check.passed, f"{row.tolist()}: {check}"


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_long_rows_come_from_memory_twice(name: str) -> None:
    """Where neither registers nor the second level hold them."""
    target = CudaTarget.named("sm_90a")
    for length in LENGTHS:
        func = rows_of(name, length)
        made = sketches(func, target)
        online = [s for s in made if s.name == "online"]
        assert bool(online) == (length >= 1 << 16)
        chosen = default_trace(func, target, sketches=made)
        assert [s.op for s in chosen] in [
            [s.op for s in sketch.trace] for sketch in (online or kept(func, target))
        ]


def spills(func: Func, trace: Trace, target: CudaTarget) -> list[int]:
    """The bytes that a thread of each kernel spills or has on its stack."""
    used = [k.resources for k in kernels_of(compile_func(trace.apply(func).func, target))[0]]
    assert all(u is not None for u in used)
    return [u.stack_bytes + u.spill_store_bytes + u.spill_load_bytes for u in used if u is not None]


def test_the_last_piece_has_elements_for_each_thread() -> None:
    for length in (1 << 15, 1 << 18, 50257, 100_000, 131_071, 840 * 2048 + 1, 360_360 * 256 + 8):
        for most in (1, 4, 8):
            size, lanes = row_parts.piece_size(length, most)
            assert row_parts.PIECE // 2 < size <= row_parts.PIECE
            assert size % (row_parts.ROW_THREADS * lanes) == 0
            assert length % size == 0 or length % size >= row_parts.ROW_THREADS * lanes
    assert row_parts.piece_size(1 << 18, 8) == (row_parts.PIECE, 8)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", first_of(["softmax", "layer_norm"]))
def test_rows_of_any_length_are_read_once_for_both_reductions(name: str, dtype: str) -> None:
    """Each warp reads a sector more where its elements begin inside of one."""
    target = CudaTarget.named("sm_90a")
    item = {"float32": 4, "bfloat16": 2}[dtype]
    for length, form, launches in ((50257, "rows_kept", 1), (100_000, "online", 4)):
        func = getattr(ops, f"{name}_func")(2, length, dtype=dtype)
        (sketch,) = [s for s in sketches(func, target) if s.name == form]
        row = some_rows(sketch, np.random.default_rng(0), 1)[0]
        lowered = lower(sketch.trace.with_row(tuple(row.tolist())).apply(func).func, target)
        found = emulate(lowered, *arguments(func, 1))
        assert not found.faults
        read = [0] * launches
        for c in found.counts:
            read[c.launch] += c.counts.sectors_read
        others = 2 * 2 if name == "layer_norm" and form == "rows_kept" else 0  # gamma, beta
        spare = 1.05 if length % 8 == 0 else 1 + 32 / (32 * item)
        assert read[0] * 32 <= spare * item * length * (2 + others), (length, read)


@pytest.mark.part(1)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", first_of(["softmax", "layer_norm"]))
def test_long_rows_spill_nothing(name: str, arch: str, compiler: str) -> None:
    """What is chosen without trials, and a drawn candidate of each sketch."""
    del compiler
    target, rng = CudaTarget.named(arch), np.random.default_rng(0)
    dtype = {"softmax": "float32", "layer_norm": "bfloat16"}[name]
    for length in (50257, *((1 << 14, 131_071, 1 << 18) if LONG else ())):
        func = rows_of(name, length, dtype)
        made = sketches(func, target)
        traces = [default_trace(func, target, sketches=made)]
        for sketch in made:
            row = rng.permutation(Rowspace(sketch).sample(rng, 1 << 10))[0]
            traces.append(sketch.trace.with_row(tuple(row.tolist())))
        for trace in traces:
            assert not any(spills(func, trace, target)), (length, trace)


def test_blocks_have_many_short_rows() -> None:
    """As many as 256 threads take; of longer ones 16 at most."""
    target = CudaTarget.named("sm_90a")
    for length, most in ((16, 64), (64, 16), (1 << 12, 16)):
        for sketch in kept(rows_of("softmax", length), target):
            assert max(sketch.space.values[sketch.variables[-1]]) == most, sketch.name
    func = ops.reduction_func("sum", 1 << 20, 16)
    trace = default_trace(func, target)
    sizes = {
        s.thread: s.extent for s in loops_in(trace.apply(func).func.body) if s.thread is not None
    }
    assert (sizes["threadIdx.x"], sizes["threadIdx.y"]) == (4, 64)


@pytest.mark.parametrize(("name", "read"), [("softmax", 1), ("layer_norm", 3)])
def test_loads_of_a_step_fit_the_registers(name: str, read: int) -> None:
    """Those of each array that a block reads along rows, as of gamma and beta."""
    target = CudaTarget.named("sm_90a")
    (sketch,) = [s for s in sketches(rows_of(name, 1 << 14), target) if s.name == "rows"]
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 1 << 10)
    threads, loaded = rows[:, 0] * rows[:, 1], 4 * read * rows[:, 2]
    assert (threads * loaded <= target.limits.block_registers * 3 // 4).all()
    assert (loaded == 4 * read * 8).any()
