"""The estimate counts of GPU programs what the emulator does when it runs them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.model.cuda.addresses import Threads
from tilewright.autotune.model.cuda.counts import count
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir.ir import Func, Select
from tilewright.tir.visit import walk

from ..codegen.cuda import schedules
from .cuda_candidates import TARGET, emulated, estimated, numbers, scheduled


def transposed(pad: int) -> Func:
    """Tiles of 32 x 32 through shared memory, whose rows have so many elements more."""
    func = schedules.transpose(64, 96)
    sch = Schedule(func)
    sch.storage_align(sch.get_block("X_shared"), 0, 0, 32, pad)
    return sch.func


WHOLE: dict[str, Callable[[], Func]] = {
    "elementwise": lambda: schedules.elementwise(4096),
    "elementwise by elements": lambda: schedules.elementwise(4096, lanes=1),
    "elementwise of float16": lambda: schedules.elementwise(4096, "float16", lanes=8),
    "transpose": lambda: schedules.transpose(64, 96),
    "transpose of int8": lambda: schedules.transpose(64, 96, "int8"),
    "softmax by warps": lambda: schedules.softmax(8, 256),
    "softmax by parts of warps": lambda: schedules.softmax(8, 64, rows=8, threads=16),
    "softmax by blocks": lambda: schedules.softmax(3, 512, rows=1, threads=128),
    "softmax by several blocks of warps": lambda: schedules.softmax(8, 256, threads=64),
    "sum in two launches": lambda: schedules.sum_in_two_launches(32, 1024),
    "matmul": lambda: schedules.matmul(64, 64, 32),
    "matmul by vectors": lambda: schedules.matmul(64, 96, 32, lanes=4),
    "matmul of bfloat16": lambda: schedules.matmul(64, 64, 32, "bfloat16", lanes=4),
}


@pytest.mark.parametrize("name", WHOLE)
def test_counts_of_whole_tiles_are_those_of_the_emulator(name: str) -> None:
    func = WHOLE[name]()
    assert estimated(func) == emulated(func)


@pytest.mark.parametrize(("pad", "conflicts"), [(0, 32), (1, 1), (2, 2), (4, 4)])
def test_padding_changes_the_wavefronts_of_a_transposition(pad: int, conflicts: int) -> None:
    func = transposed(pad)
    (launch,) = found = estimated(func)
    assert found == emulated(func)
    elements = 64 * 96
    assert launch["wavefronts"] == elements / 32 * (1 + conflicts)


PROGRAMS: dict[str, Callable[[], Func]] = {
    "elementwise": lambda: ops.add_relu_func(1 << 13),
    "transpose": lambda: ops.transpose_func(128, 128),
    "transpose of bfloat16": lambda: ops.transpose_func(128, 128, dtype="bfloat16"),
    "softmax": lambda: ops.softmax_func(32, 512),
    "layer_norm": lambda: ops.layer_norm_func(32, 512),
    "sum": lambda: ops.reduction_func("sum", 64, 1 << 13),
    "matmul": lambda: schedules.matmul_func(64, 64, 32),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_of_rows_are_those_of_the_emulator(name: str) -> None:
    """So are those of the programs that the rows stand for. Tiles are whole."""
    func, rng = PROGRAMS[name](), np.random.default_rng(0)
    for sketch in sketches(func, TARGET):
        rows = rng.permutation(Rowspace(sketch).sample(rng, 64))
        launches = count(profile(sketch.func, sketch.space.bounds), rows)
        compared = 0
        for n, row in enumerate(rows):
            program = scheduled(func, sketch, row)
            if not is_whole(program):
                continue
            found = [numbers(launch, n) for launch in launches]
            assert found == estimated(program), f"{sketch.name} {row}"
            assert found == emulated(program), f"{sketch.name} {row}"
            compared += 1
            if compared == 3:
                break
        assert compared, sketch.name


def is_whole(func: Func) -> bool:
    """Whether no block has a guard, and no copy chooses between an element and what pads it."""
    guarded = any(b.predicate is not None for b in blocks_in(func.body))
    return not guarded and not any(type(n) is Select for n in walk(lower(func, TARGET).body))


def test_a_part_of_a_tile_counts_in_part() -> None:
    """Of 1000 elements a block of 512 has 488 left: what is beyond is not counted as a whole."""
    (found,) = estimated(schedules.elementwise(1000))
    (wanted,) = emulated(schedules.elementwise(1000))
    assert found["sectors_read"] == pytest.approx(wanted["sectors_read"], rel=0.05)
    assert found["operations"] == pytest.approx(wanted["operations"], rel=0.05)


def test_versions_of_a_buffer_are_apart_however_few_iterations_there_are() -> None:
    """A stage is read at the number of the step, where that is below the number of stages."""
    func = ops.int8_matmul_func(10, 20, 12)
    (sketch,) = [s for s in sketches(func, TARGET) if "stages=2" in s.generator]
    rows = np.array([[4], [8]])
    assert Rowspace(sketch).check(rows).all()
    (launch,) = count(profile(sketch.func, sketch.space.bounds), rows)
    for n, row in enumerate(rows):
        (wanted,) = emulated(scheduled(func, sketch, row))
        assert numbers(launch, n)["barriers"] == wanted["barriers"], row


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (8, 32), (64, 32)])
def test_sectors_of_strided_requests(stride: int, sectors: int) -> None:
    one = np.array([1])
    threads = Threads.of(64 * one, one, one)
    assert threads.sectors(threads.x * stride, 4).tolist() == [2 * sectors]


@pytest.mark.parametrize(("stride", "fronts"), [(1, 1), (2, 2), (32, 32), (33, 1), (36, 4)])
def test_wavefronts_of_strided_requests(stride: int, fronts: int) -> None:
    two = np.array([32, 32])
    threads = Threads.of(two, np.array([1, 2]), np.array([1, 1]))
    found = threads.wavefronts(threads.x * stride, 4, np.full(len(threads.x), 4))
    assert found.tolist() == [fronts, 2 * fronts]


def test_what_is_the_same_in_all_iterations_is_computed_once() -> None:
    """The mean and the scale of a row, of which each element takes a difference and products."""
    func = ops.layer_norm_func(64, 4096)
    (sketch,) = [s for s in sketches(func, TARGET) if s.name == "rows"]
    program = scheduled(func, sketch, np.array([64, 1, 1]))
    (launch,) = count(profile(program), np.zeros((1, 0), dtype=np.int64))
    *_, squares, _, last = launch.phases
    iterations = 4096 / 64
    operations, functions = (float(n) for n in squares.operations)
    assert operations == pytest.approx(3 + 1 / iterations)  # x - m, its square, the sum; m
    assert functions == pytest.approx(1 / iterations)
    operations, functions = (float(n) for n in last.operations)
    assert operations == pytest.approx(4 + 4 / iterations)
    assert functions == pytest.approx(3 / iterations)
    emulated_operations = numbers(launch, 0)["operations"]
    assert emulated_operations > 64 * 4096 * 12
