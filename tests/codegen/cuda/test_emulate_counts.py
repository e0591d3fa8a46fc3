"""What the emulator counts, against counts by hand."""

from __future__ import annotations

import pytest

from tilewright.base import dtypes
from tilewright.codegen.cuda.emulate import Emulation
from tilewright.codegen.cuda.emulate_memory import Counts
from tilewright.tir.ir import Barrier, For, If, Let, Store

from .kernels import kernel, run


def stores(found: Emulation) -> list[Counts]:
    """The counts of stores, in order."""
    assert not found.faults, "\n".join(map(str, found.faults))
    return [c.counts for c in found.counts if type(c.statement) is Store]


def read(index: str, *, dtype: str = "float32", size: int = 4096, threads: int = 32) -> Counts:
    """The counts of a read from global memory."""
    func = kernel(f"A {dtype} {size}; B {dtype} {threads}", f"B[t] = A[{index}]", threads=threads)
    (counts,) = stores(run(func))
    return counts


# Sectors of global memory


@pytest.mark.parametrize(
    ("index", "sectors"),
    [
        ("t", 4),
        ("t + 8", 4),
        ("t + 1", 5),
        ("31 - t", 4),
        ("t * 2", 8),
        ("t * 8", 32),
        ("t * 64", 32),
        ("5 + t * 0", 1),
        ("t // 8", 1),
        ("t // 8 * 64", 4),
        ("t % 2 * 8", 2),
    ],
)
def test_sectors_of_a_read(index: str, sectors: int) -> None:
    counts = read(index)
    assert (counts.global_requests, counts.sectors_read, counts.sectors_written) == (2, sectors, 4)


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32", "float64", "bool"])
def test_sectors_by_size_of_elements(dtype: str) -> None:
    counts = read("t", dtype=dtype)
    assert counts.sectors_read == counts.sectors_written == dtypes.nbytes(dtype)


def test_warps_ask_by_themselves() -> None:
    counts = read("t // 64", threads=80)
    assert counts.global_requests == 2 * 3
    assert counts.sectors_read == 3
    assert counts.sectors_written == 4 + 4 + 2


def test_only_active_threads_ask() -> None:
    code = """
    if t % 32 < 9:
        B[t] = A[t]
    if t < 32:
        B[t] = A[t]
    """
    first, second = stores(run(kernel("A float32 64; B float32 64", code)))
    assert (first.executions, first.global_requests, first.sectors_read) == (18, 4, 4)
    assert (second.executions, second.global_requests, second.sectors_read) == (32, 2, 4)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 4), ("float64", 2), ("int8", 4)])
def test_sectors_of_moves(dtype: str, lanes: int) -> None:
    code = f"B[T.ramp(t * {lanes}, 1, {lanes})] = A[T.ramp(t * {lanes}, 1, {lanes})]"
    size = 64 * lanes
    (counts,) = stores(run(kernel(f"A {dtype} {size}; B {dtype} {size}", code)))
    assert counts.global_requests == 2 * 2
    assert counts.sectors_read == counts.sectors_written == size * dtypes.nbytes(dtype) // 32


def test_blocks_are_added_up() -> None:
    func = kernel("A float32 320; B float32 320", "B[b * 64 + t] = A[b * 64 + t]", blocks=5)
    for batch in (64, 128, 8192):
        (counts,) = stores(run(func, batch_threads=batch))
        assert (counts.executions, counts.global_requests, counts.sectors_read) == (320, 20, 40)


# Wavefronts of shared memory


def wavefronts(index: str, *, dtype: str = "float32", threads: int = 32) -> int:
    """The wavefronts of a read of shared memory, which fills all of it before."""
    code = f"""
    for k in range({2048 // threads}):
        S[k * {threads} + t] = A[k * {threads} + t]
    T.barrier("block")
    B[t] = S[{index}]
    """
    params = f"A {dtype} 2048; B {dtype} {threads}"
    filled, counts = stores(run(kernel(params, code, threads=threads, shared=f"S {dtype} 2048")))
    assert filled.wavefronts == filled.shared_requests * max(dtypes.nbytes(dtype) // 4, 1)
    assert counts.shared_requests == -(-threads // 32)
    return counts.wavefronts


@pytest.mark.parametrize(
    ("index", "count"),
    [
        ("t", 1),
        ("t + 5", 1),
        ("31 - t", 1),
        ("t * 2", 2),
        ("t * 3", 1),
        ("t * 4", 4),
        ("t * 32", 32),
        ("t * 33", 1),
        ("7 + t * 0", 1),
        ("t // 2", 1),
        ("t // 16 * 32", 2),
        ("t % 16 * 64", 16),
        ("t % 8 * 33", 1),
    ],
)
def test_conflicts_of_banks(index: str, count: int) -> None:
    assert wavefronts(index) == count


@pytest.mark.parametrize(
    ("dtype", "index", "count"),
    [
        ("float16", "t", 1),
        ("float16", "t * 2", 1),
        ("float16", "t * 4", 2),
        ("float16", "t * 64", 32),
        ("int8", "t * 4", 1),
        ("int8", "t * 8", 2),
        ("float64", "t", 2),
        ("float64", "t * 2", 4),
        ("float64", "t % 16", 2),
        ("float64", "3 + t * 0", 2),
    ],
)
def test_conflicts_by_size_of_elements(dtype: str, index: str, count: int) -> None:
    assert wavefronts(index, dtype=dtype) == count


def test_a_part_of_a_warp() -> None:
    assert wavefronts("t * 4", threads=16) == 2
    assert wavefronts("t * 2", threads=48) == 2 + 1


@pytest.mark.parametrize(
    ("base", "lanes", "count"),
    [
        ("t * 4", 4, 4),  # a quarter of the warp has all banks
        ("t * 2", 2, 2),
        ("t * 8", 4, 8),
        ("t * 4", 2, 4),
        ("t // 8 * 4", 4, 4),  # each quarter reads one address
        ("t * 32", 4, 32),
        ("t * 36", 4, 4),
        ("t * 34", 2, 2),
    ],
)
def test_conflicts_of_moves(base: str, lanes: int, count: int) -> None:
    code = f"""
    for k in range(64):
        S[k * 32 + t] = A[k * 32 + t]
    T.barrier("block")
    B[T.ramp(t * {lanes}, 1, {lanes})] = S[T.ramp({base}, 1, {lanes})]
    """
    func = kernel("A float32 2048; B float32 128", code, threads=32, shared="S float32 2048")
    _, counts = stores(run(func))
    assert (counts.shared_requests, counts.wavefronts) == (1, count)


@pytest.mark.parametrize(("pad", "conflicts"), [(0, 32), (1, 1), (2, 2), (4, 4)])
def test_a_transposition_of_32_times_32(pad: int, conflicts: int) -> None:
    row = 32 + pad
    code = f"""
    for k in range(4):
        S[(k * 8 + ty) * {row} + t] = A[(k * 8 + ty) * 32 + t]
    T.barrier("block")
    for k in range(4):
        B[(k * 8 + ty) * 32 + t] = S[t * {row} + k * 8 + ty]
    """
    func = kernel(
        "A float32 1024; B float32 1024", code, threads=(32, 8), shared=f"S float32 {32 * row}"
    )
    found = run(func)
    write, transposed = stores(found)
    assert (write.wavefronts, transposed.wavefronts) == (32, 32 * conflicts)
    assert write.sectors_read == transposed.sectors_written == 1024 // 8
    (barrier,) = [c.counts for c in found.counts if type(c.statement) is Barrier]
    assert (barrier.barriers, barrier.executions) == (1, 256)


def test_offsets_of_buffers_move_the_banks() -> None:
    code = """
    S[t] = A[t]
    R[t] = A[t]
    """
    func = kernel(
        "A float32 32; B float32 32", code + "B[t] = S[t]", threads=32,
        shared="S float32 32; R float32 32", offsets=[0, 144],
    )  # fmt: skip
    assert [c.wavefronts for c in stores(run(func))] == [1, 1, 1]


# Executions, operations and barriers


def test_operations_by_dtype() -> None:
    code = """
    x = A[t] * 2.0 + 1.0
    if t < 40:
        B[t + 0 * t] = T.exp(x) + T.select(t < 8, x * x * x, x)
    for k in range(3):
        C[t] = T.int8(T.float16(A[t]))
    """
    func = kernel("A float32 64; B float32 64; C int8 64", code)
    found = run(func)
    assert not found.faults
    kinds = [type(c.statement) for c in found.counts]
    assert kinds == [Let, If, Store, Store]
    assert For not in kinds
    let, branch, one, other = (c.counts for c in found.counts)
    assert (let.executions, let.operations) == (64, {"float32": 128})
    assert (branch.executions, branch.operations) == (64, {"int64": 64})
    assert one.executions == 40
    assert one.operations == {"int64": 2 * 40 + 40, "float32": 2 * 40 + 2 * 8}
    assert (other.executions, other.operations) == (192, {"int8": 192, "float16": 192})


def test_barriers_and_shuffles() -> None:
    code = """
    for k in range(3):
        T.barrier("block")
        T.barrier("warp")
    if b == 1:
        T.barrier("block")
    if t < 64:
        T.barrier("warp")
    B[b * 96 + t] = T.warp_shuffle(A[b * 96 + t], 1)
    """
    found = run(kernel("A float32 192; B float32 192", code, threads=96, blocks=2))
    assert not found.faults
    barriers = [c.counts.barriers for c in found.counts if type(c.statement) is Barrier]
    assert barriers == [3 * 2, 3 * 6, 1, 2 * 2]
    (store,) = stores(found)
    assert store.shuffles == 6


def test_a_statement_that_stands_twice_counts_twice() -> None:
    func = kernel("A float32 64; B float32 64", "B[t] = A[t]\nif t < 32:\n    B[t] = A[t]")
    first, second = stores(run(func))
    assert (first.executions, second.executions) == (64, 32)
