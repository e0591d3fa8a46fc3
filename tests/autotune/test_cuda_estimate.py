"""The estimate of GPU programs: what any GPU programmer would say is faster, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.model.cuda import patterns
from tilewright.autotune.model.cuda.counts import count
from tilewright.autotune.model.cuda.estimate import FEATURES, TIMES, Estimator
from tilewright.autotune.model.cuda.launches import launches_of
from tilewright.autotune.model.cuda.model import MODEL, roofline
from tilewright.autotune.model.profile import profile
from tilewright.autotune.model.target_model import model_for, target_limits
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.errors import BuildError, TuningError
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.schedule.require import Space
from tilewright.target import CudaTarget
from tilewright.target.occupancy import blocks_per_sm, occupancy
from tilewright.tir.ir import Expr, Func, integers

from ..codegen.cuda import schedules
from ..codegen.cuda.emulated import emulated_device
from .cuda_candidates import TARGET, scheduled, tiled_matmul
from .cuda_registers import compiled, drawn, rank_correlation

N = 4096


def seconds(func: Func, target: CudaTarget = TARGET) -> float:
    found = Estimator(profile(func), target)(np.zeros((1, 0), dtype=np.int64))
    return float(found.seconds[0])


def feature(func: Func, name: str) -> float:
    (row,) = Estimator(profile(func), TARGET)(np.zeros((1, 0), dtype=np.int64)).features
    return float(2.0 ** row[FEATURES.index(name)])


def strided(n: int, each: int = 8, threads: int = 128, *, coalesced: bool) -> Func:
    """relu(A + B) by threads that take some elements next to each other, or a block apart."""
    sch = Schedule(ops.add_relu_func(n))
    (i,) = sch.get_loops(sch.get_block("C"))
    factors = [None, each, threads] if coalesced else [None, threads, each]
    block, *inner = sch.split(i, factors=factors)
    sch.bind(block, "blockIdx.x")
    sch.bind(inner[1 if coalesced else 0], "threadIdx.x")
    return sch.func


def transposed(pad: int) -> Func:
    """Tiles of 32 x 32 through shared memory, whose rows have so many elements more."""
    sch = Schedule(schedules.transpose(N, N))
    sch.storage_align(sch.get_block("X_shared"), 0, 0, 32, pad)
    return sch.func


def across(n: int) -> Func:
    """A transposition without shared memory."""
    sch = Schedule(ops.transpose_func(n, n))
    i, j = sch.get_loops(sch.get_block("Y"))
    block, thread = sch.split(j, factors=[None, 128])
    sch.bind(sch.fuse(i, block), "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return sch.func


def tiled(*row: int) -> Func:
    """A product by the decisions of `tiled_matmul`: steps, rows of threads and of each of them,
    columns likewise."""
    func = schedules.matmul_func(N, N, N)
    return scheduled(func, tiled_matmul(N, N, N), np.array(row))


def untiled() -> Func:
    """A product by a thread for each element."""
    sch = Schedule(schedules.matmul_func(N, N, N))
    b = sch.get_block("C")
    acc = sch.cache_write(b, 0, "local")
    i, j, _ = sch.get_loops(b)
    block, thread = sch.split(j, factors=[None, 256])
    sch.reverse_compute_at(acc, thread)
    sch.bind(sch.fuse(i, block), "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return sch.func


def first(func: Func, name: str, *row: int) -> Func:
    """A candidate of the sketch of a name."""
    (sketch,) = [s for s in sketches(func, TARGET) if s.name == name]
    return scheduled(func, sketch, np.array(row))


LARGE = 1 << 26
ROWS = (16384, 4096)
"""Pairs of programs that compute the same, the better one first."""
PAIRS: dict[str, tuple[Callable[[], Func], Callable[[], Func]]] = {
    "neighbours read neighbours, not a stride apart": (
        lambda: strided(LARGE, coalesced=True),
        lambda: strided(LARGE, 32, coalesced=False),
    ),
    "16 bytes at once, not 4": (
        lambda: schedules.elementwise(LARGE, lanes=4),
        lambda: schedules.elementwise(LARGE, lanes=1),
    ),
    "blocks of 128 threads, not of 8": (
        lambda: schedules.elementwise(LARGE, threads=128),
        lambda: schedules.elementwise(LARGE, threads=8),
    ),
    "many blocks, not one": (
        lambda: strided(LARGE, coalesced=True),
        lambda: strided(LARGE, LARGE // 128, coalesced=True),
    ),
    "padded rows of tiles, without conflicts of banks": (
        lambda: transposed(1),
        lambda: transposed(0),
    ),
    "few conflicts of banks, not many": (lambda: transposed(2), lambda: transposed(8)),
    "a transposition through shared tiles": (lambda: transposed(1), lambda: across(N)),
    "8 x 8 elements of a product in a thread, not 1 x 1": (
        lambda: tiled(8, 16, 8, 16, 8),
        lambda: tiled(8, 16, 1, 16, 1),
    ),
    "8 x 8 elements of a product in a thread, not 2 x 2": (
        lambda: tiled(8, 16, 8, 16, 8),
        lambda: tiled(8, 16, 2, 16, 2),
    ),
    "a product of 256 threads in a block, not of 32": (
        lambda: tiled(16, 16, 4, 16, 4),
        lambda: tiled(16, 8, 4, 4, 4),
    ),
    "blocks that compute while another one waits for its copies": (
        lambda: first(ops.matmul_func(2048, 2048, 2048), "tiled", 2, 4, 2, 2, 16),
        lambda: first(ops.matmul_func(2048, 2048, 2048), "tiled", 2, 4, 4, 2, 16),
    ),
    "registers that are there, not spills": (
        lambda: tiled(8, 16, 8, 16, 8),
        lambda: tiled(8, 32, 16, 32, 8),
    ),
    "a product through shared memory": (lambda: tiled(8, 16, 4, 16, 4), untiled),
    "a product of two stages, where a block is alone": (
        lambda: first(ops.matmul_func(2048, 2048, 2048), "tiled_pipelined", 2, 4, 4, 2, 16),
        lambda: first(ops.matmul_func(2048, 2048, 2048), "tiled", 2, 4, 4, 2, 16),
    ),
    "long rows by blocks, not by threads": (
        lambda: first(ops.reduction_func("sum", 1024, 1 << 16), "rows", 256, 1, 1),
        lambda: first(ops.reduction_func("sum", 1024, 1 << 16), "by_thread", 128, 4),
    ),
    "few long rows in two launches": (
        lambda: first(ops.reduction_func("sum", 4, 1 << 24), "rows_split", 8),
        lambda: first(ops.reduction_func("sum", 4, 1 << 24), "rows", 1024, 1, 4),
    ),
    "columns by neighbours, not rows": (
        lambda: first(ops.reduction_func("sum", *ROWS, axis=0), "columns", 16, 32, 4),
        lambda: first(ops.reduction_func("sum", *ROWS), "by_thread", 128, 1),
    ),
    "rows that are kept, not read again": (
        lambda: first(ops.softmax_func(*ROWS), "rows_kept", 128, 1),
        lambda: first(ops.softmax_func(*ROWS), "rows", 128, 1, 2),
    ),
    "rows that the second level holds until they are read again": (
        lambda: first(ops.softmax_func(1024, 1 << 16, dtype="bfloat16"), "rows", 1024, 1, 4),
        lambda: first(ops.softmax_func(1024, 1 << 16, dtype="bfloat16"), "rows", 128, 8, 4),
    ),
    "few columns in many short parts, not one for each": (
        lambda: first(ops.reduction_func("sum", 1 << 20, 16, axis=0), "columns_split", 8),
        lambda: first(ops.reduction_func("sum", 1 << 20, 16, axis=0), "columns", 32, 16, 8),
    ),
}


@pytest.mark.part(4)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ranks(name: str, arch: str) -> None:
    better, worse = (seconds(make(), CudaTarget.named(arch)) for make in PAIRS[name])
    assert better < worse, f"{better * 1e6:.1f} us and {worse * 1e6:.1f} us"


def test_what_one_tile_alone_loses() -> None:
    """A block more than the device runs at once takes as long as another wave."""
    full = strided(132 * 2048, 1, 1024, coalesced=True)
    more = strided(132 * 2048 + 1024, 1, 1024, coalesced=True)
    assert feature(full, "waves") == pytest.approx(1)
    assert feature(more, "waves") == pytest.approx(2)
    assert seconds(more) > seconds(full)


def test_few_multiprocessors_do_not_take_the_rate_of_the_second_level() -> None:
    """16 of them, each at its 64 bytes a cycle."""
    func = first(ops.reduction_func("sum", 16, 1 << 20), "rows", 1024, 1, 8)
    assert seconds(func) > 4 * 16 * (1 << 20) / (16 * 64 * TARGET.rates.hertz)


def test_what_is_read_again_comes_from_memory_where_nothing_holds_it() -> None:
    """Rows of 1 MB, one in each multiprocessor: three times from memory, and written once."""
    rows, length = 256, 1 << 18
    func = first(ops.softmax_func(rows, length), "rows", 1024, 1, 4)
    assert seconds(func) > 4 * 4 * rows * length / TARGET.rates.memory


def test_what_is_spilled_goes_to_memory_where_it_is_much() -> None:
    """16 x 16 sums of each of 1024 threads, which have 64 registers."""
    func = tiled(8, 32, 16, 32, 16)
    assert feature(func, "memory") * seconds(func) > 10 * roofline(func, TARGET).memory


def test_loads_wait_for_each_other_across_barriers() -> None:
    """One copy a step of the product, and nothing is computed meanwhile by a block alone."""
    func = first(ops.matmul_func(2048, 2048, 2048), "tiled", 2, 4, 4, 2, 16)
    (launch,) = count(profile(func), np.zeros((1, 0), dtype=np.int64))
    copies = [p for p in launch.phases if any(a.pattern.access.stores for a in p.accesses)][:2]
    assert [float(p.around) for p in copies] == [2048 / 16, 2048 / 16]
    rates = TARGET.rates
    computing = feature(func, "issue") * seconds(func)
    loading = 2 * 2048 / 16 * rates.l2_latency / rates.hertz
    assert feature(func, "blocks_per_sm") == pytest.approx(1)
    assert feature(func, "latency") * seconds(func) > computing + loading


def test_what_is_loaded_ahead_comes_while_a_step_is_computed() -> None:
    """The first step's loads alone are waited for."""
    func = first(ops.matmul_func(2048, 2048, 2048), "tiled_pipelined", 2, 4, 4, 2, 16)
    (launch,) = launches_of(profile(func))
    reading = [p for p in launch.phases if any(a.scope == "global" for a in p.accesses)]
    assert [p.ahead for p in reading] == [False, False, True, True, False]
    rates = TARGET.rates
    computing = feature(func, "issue") * seconds(func)
    waiting = 2048 / 16 * rates.l2_latency / rates.hertz
    assert feature(func, "latency") * seconds(func) < computing + waiting / 2


def test_a_sum_in_memory_is_held_in_a_register() -> None:
    """By the compiler: no loop but its own moves it, and nothing else is in its memory."""
    func = first(ops.reduction_func("sum", *ROWS, axis=0), "columns", 16, 32, 4)
    (launch,) = count(profile(func), np.zeros((1, 0), dtype=np.int64))
    sums, total = launch.phases
    for phase, scope in ((sums, "shared"), (total, "global")):
        own = [a for a in phase.accesses if a.held]
        assert {a.pattern.access.scope for a in own} == {scope}
        assert all(float(a.loads) == 1 for a in own)
    (read,) = [a for a in total.accesses if a.pattern.access.scope == "shared"]
    assert not read.held
    assert float(read.loads) == 16


def test_estimates_are_above_the_roofline() -> None:
    for func in (transposed(1), tiled(8, 16, 8, 16, 8)):
        assert roofline(func, TARGET).seconds < seconds(func) < 10 * roofline(func, TARGET).seconds


def test_roofline_of_a_sum_and_of_a_product() -> None:
    rates, sms = TARGET.rates, TARGET.sms
    copied = roofline(ops.add_relu_func(LARGE), TARGET)
    assert copied.memory == pytest.approx(3 * 4 * LARGE / rates.memory)
    assert str(copied).endswith("bound by memory")
    product = roofline(ops.matmul_func(N, N, N), TARGET)
    assert product.compute == pytest.approx(N**3 / (rates.float32 * sms * rates.hertz))
    assert str(product).endswith("bound by arithmetic")


def test_a_device_with_faster_memory_takes_less() -> None:
    h200 = replace(TARGET, model="NVIDIA H200", l2_bytes=60 << 20)
    func = schedules.elementwise(LARGE)
    assert seconds(func, h200) == pytest.approx(seconds(func) * 3.35 / 4.8, rel=0.1)


# Features


def test_features_are_shares_and_finite() -> None:
    func = ops.softmax_func(1024, 1024)
    for sketch in sketches(func, TARGET):
        rows = Rowspace(sketch).sample(np.random.default_rng(0), 64)
        found = Estimator(profile(sketch.func, sketch.space.bounds), TARGET)(rows)
        assert found.features.shape == (len(rows), len(FEATURES))
        assert found.features.dtype == np.float32
        assert np.isfinite(found.features).all()
        assert np.allclose(found.features[:, 0], np.log2(found.seconds), atol=1e-4)
        shares = 2.0 ** found.features[:, [FEATURES.index(name) for name in TIMES]]
        assert (shares <= 1.0 + 1e-5).all()
    assert len(set(FEATURES)) == len(FEATURES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ops.transpose_func(300, 500),
        lambda: ops.layer_norm_func(64, 1000),
        lambda: ops.reduction_func("sum", 4, 1 << 18),
    ],
)
def test_rows_have_the_estimates_of_their_programs(make: Callable[[], Func]) -> None:
    func, rng = make(), np.random.default_rng(0)
    for sketch in sketches(func, TARGET):
        rows = Rowspace(sketch).sample(rng, 4)
        every = Estimator(profile(sketch.func, sketch.space.bounds), TARGET)(rows)
        for n, row in enumerate(rows):
            program = profile(scheduled(func, sketch, row))
            alone = Estimator(program, TARGET)(np.zeros((1, 0), dtype=np.int64))
            assert alone.seconds[0] == pytest.approx(every.seconds[n], rel=0.02), (
                f"{sketch.name} {row}"
            )


def test_rows_do_not_change_each_other() -> None:
    """What was counted before for other rows stays what it is."""
    sketch = tiled_matmul(512, 512, 512)
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 300)
    source = profile(sketch.func, sketch.space.bounds)
    estimator = Estimator(source, TARGET)
    halves = [estimator(rows[150:]), estimator(rows[:150])]
    whole = Estimator(source, TARGET)(rows)
    assert np.array_equal(np.concatenate([halves[1].seconds, halves[0].seconds]), whole.seconds)
    assert len(estimator(rows[:0]).seconds) == 0


def test_combinations_that_are_too_many_to_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = tiled_matmul(512, 512, 512)
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 64)
    source = profile(sketch.func, sketch.space.bounds)
    numbered = Estimator(source, TARGET)(rows)
    monkeypatch.setattr(patterns, "MOST_KEYS", 1)
    assert np.array_equal(Estimator(source, TARGET)(rows).features, numbered.features)


def test_blocks_that_no_sm_runs_come_last() -> None:
    """The first row shares 263 KB."""
    (sketch,) = [s for s in sketches(ops.transpose_func(N, N), TARGET) if s.name == "transposing"]
    rows = np.array([[4, 128, 128, 512], [4, 32, 32, 256]])
    found = Estimator(profile(sketch.func, sketch.space.bounds), TARGET)(rows)
    assert found.seconds[0] > 1.0 > found.seconds[1]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (1024, 32, 0, 2),
        (1024, 64, 0, 1),
        (1024, 65, 0, 0),
        (256, 32, 0, 8),
        (256, 168, 0, 1),
        (128, 255, 0, 2),
        (32, 32, 0, 32),
        (256, 32, 48 * 1024, 4),
        (256, 32, 227 * 1024, 1),
        (256, 32, 228 * 1024, 0),
        (1056, 16, 0, 0),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, blocks: int) -> None:
    numbers = (np.array([float(n)]) for n in (threads, registers, shared))
    assert blocks_per_sm(TARGET.limits, *numbers).tolist() == [blocks]


# The model of the kind, and what builds choose by it


def test_it_is_the_model_of_its_kind() -> None:
    assert model_for(TARGET) is MODEL
    assert MODEL.base is None
    facts = MODEL.facts.of(replace(TARGET, model="NVIDIA H200", l2_bytes=60 << 20))
    assert facts == {"model": "NVIDIA H200", "sms": 132, "l2_bytes": 60 << 20}
    assert MODEL.facts.of(MODEL.facts.described(TARGET, facts)) == facts
    for wrong in ({"sms": "many"}, {"sms": -1}, {"l3_bytes": 1}):
        with pytest.raises(TuningError):
            MODEL.facts.described(TARGET, wrong)


def chosen(func: Func) -> Func:
    return default_trace(func, TARGET).apply(func).func


def test_a_transposition_is_by_padded_tiles() -> None:
    (tile,) = chosen(ops.transpose_func(N, N)).allocs
    assert tile.scope == "shared"
    assert tile.align


def test_few_long_rows_are_summed_in_two_launches() -> None:
    func = chosen(ops.reduction_func("sum", 4, 1 << 24))
    assert [launch["blockIdx.x"] > 1 for launch in launches(func)] == [True, True]


def test_many_rows_are_summed_by_several_threads_each() -> None:
    (launch,) = launches(chosen(ops.reduction_func("sum", *ROWS)))
    assert launch["blockIdx.x"] * launch.get("threadIdx.y", 1) == ROWS[0]
    assert launch["threadIdx.x"] >= 8


def test_a_softmax_reads_its_rows_once() -> None:
    func = chosen(ops.softmax_func(*ROWS))
    x = func.params[0]
    reads = [v for v in profile(func).visits if any(a.buffer is x for a in v.accesses)]
    assert len(reads) == 1


def launches(func: Func) -> list[dict[str, int]]:
    """The axes of each launch with their extents."""
    found: dict[object, dict[str, int]] = {}
    for visit in profile(func).visits:
        axes = found.setdefault(visit.loops[0].var, {})
        axes |= {f.thread: integers([f.extent])[0] for f in visit.loops if f.thread is not None}
    return list(found.values())


@pytest.fixture
def compiler() -> str:
    try:
        return nvcc()
    except BuildError as error:
        pytest.skip(str(error))


def test_a_build_without_records_follows_the_estimate(compiler: str) -> None:
    del compiler
    with emulated_device() as faults:
        module = tw.build(ops.transpose_func(2048, 2048), target="cuda -arch=sm_90a")
        assert module.origin.kind == "model"
        (taken,) = module.resources.values()
        assert taken["shared_bytes"] > 0
        assert taken["local_bytes"] == 0
    assert not faults


@pytest.mark.long
def test_registers_rank_as_those_of_ptxas(compiler: str) -> None:
    """Of few candidates; `python -m tests.autotune.cuda_registers` has more."""
    del compiler
    every = [
        kernel for candidate in islice(drawn(1), 0, None, 2) for kernel in compiled(*candidate)
    ]
    assert len(every) >= 15
    assert rank_correlation(every) > 0.7
    assert not any(kernel.spilled_bytes for kernel in every)


def indirect(kind: str) -> Func:
    """A program whose indices are no int64 arithmetic over its loops."""
    table = te.placeholder((50, 64), "float32", name="table")
    rows = te.placeholder((30,), "int32", name="rows", value_range=(0, 50))
    weights = te.placeholder((30,), "float32", name="weights")
    shift, wide = te.scalar("int32", name="shift"), te.scalar("int64", name="wide")
    indices: dict[str, Callable[[Expr, Expr], Any]] = {
        "gather": lambda i, j: (te.cast(rows[i], "int64"), j),
        "nested gather": lambda i, j: (te.cast(rows[rows[i] % 30], "int64"), j),
        "narrow": lambda i, j: (te.cast(te.cast(i, "uint8") * 7 % 50, "int64"), j),
        "scalars": lambda i, j: ((wide + i) % 50, te.cast(shift, "int64") % 64),
        "float": lambda i, j: (te.clip(te.cast(weights[i] * 50, "int64"), 0, 49), j),
        "choice": lambda i, j: (te.select(weights[i] > 0.5, i, te.cast(rows[i], "int64")), j),
        "negative divisor": lambda i, j: (te.clip((i + 5) // -3 + 40, 0, 49), (i - 4) % -7 + 6),
        "wrapping": lambda i, j: ((i * 2**62 + 5) % 50, (j * -(2**63) + (2**63 - 1)) % 64),
    }

    def element(i: Expr, j: Expr) -> Expr:
        return table[indices[kind](i, j)]

    out = te.compute((30, 64), element, name="out")
    given: dict[str, list[Any]] = {
        "gather": [rows], "nested gather": [rows], "scalars": [wide, shift],
        "float": [weights], "choice": [weights, rows],
    }  # fmt: skip
    return te.func([*given.get(kind, []), table, out], name="indirect")


@pytest.mark.parametrize(
    "kind",
    [
        "gather", "nested gather", "narrow", "scalars", "float", "choice", "negative divisor",
        "wrapping",
    ],
)  # fmt: skip
def test_indices_that_are_not_known_are_estimated(kind: str) -> None:
    for sketch in sketches(indirect(kind), TARGET):
        rows = Rowspace(sketch).sample(np.random.default_rng(0), 20)
        read = profile(sketch.func, sketch.space.bounds)
        found = Estimator(read, TARGET)(rows)
        assert np.isfinite(found.features).all()
        assert (found.seconds > 0).all()
    assert default_trace(indirect(kind), TARGET).steps


def test_gathered_rows_are_read_as_rows() -> None:
    """An index that is read moves the whole row: its threads find their elements side by side."""

    def bound(func: Func) -> Func:
        sch = Schedule(func)
        i, j = sch.get_loops(sch.get_block("out"))
        sch.bind(i, "blockIdx.x")
        sch.bind(j, "threadIdx.x")
        return sch.func

    assert feature(bound(indirect("gather")), "sector_use") == pytest.approx(1, rel=0.3)


def test_a_warp_of_few_threads_takes_the_place_of_a_whole_one() -> None:
    assert occupancy(4, 48, 2048) == 4 * 2 / 64
    assert occupancy(8, 256, 2048) == 1.0


@pytest.mark.parametrize("copied", [False, True])
def test_loops_in_a_block_count_as_those_around_it(copied: bool) -> None:
    target = resolve("cuda -arch=sm_90")
    sch = Schedule(ops.matmul_func(24, 8, 16))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    outer, inner = sch.split(k, factors=[None, 4])
    if copied:
        inner = sch.get_loops(sch.read_at(outer, block, 1, "shared"))[-1]
    estimate = MODEL.estimate(sch.func, target)
    sch.blockize(inner)
    assert MODEL.estimate(sch.func, target) == estimate
    assert target_limits(sch.func, target, Space()) == []
