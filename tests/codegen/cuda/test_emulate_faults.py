"""The emulator finds each planted fault, says where it is, and finds none in right programs."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import VerifyError
from tilewright.codegen.cuda.emulate import Emulation, emulate
from tilewright.codegen.cuda.emulate_faults import Action, Fault, FaultKind
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .kernels import arguments, kernel, kinds, run

REVERSED = """
S[t] = A[t]
{0}
B[t] = S[63 - t]
"""


def the_fault(found: Emulation, kind: FaultKind) -> Fault:
    assert kinds(found) == [kind], "\n".join(map(str, found.faults))
    return found.faults[0]


def threads(fault: Fault) -> list[int]:
    """The numbers along x of the threads at its sites."""
    return [site.thread.thread[0] for site in fault.sites]


def actions(fault: Fault) -> list[tuple[Action, str | None]]:
    return [(s.action, None if s.buffer is None else s.buffer.name) for s in fault.sites]


def reversed_by(between: str, n: int = 64) -> Func:
    code = REVERSED.format(between).replace("63", str(n - 1))
    return kernel(f"A float32 {n}; B float32 {n}", code, threads=n, shared=f"S float32 {n}")


# Races between threads of a block


def test_a_barrier_is_missing() -> None:
    fault = the_fault(run(reversed_by("")), FaultKind.RACE)
    assert actions(fault) == [(Action.WRITE, "S"), (Action.READ, "S")]
    write, read = fault.sites
    assert write.index == read.index == write.thread.thread[0] == 63 - read.thread.thread[0]
    assert fault.count == 64
    assert "S[t] = A[t]" in str(fault)
    assert "B[t] = S[63 - t]" in str(fault)


def test_a_barrier_of_the_block_is_enough() -> None:
    func = reversed_by('T.barrier("block")')
    a, b = arguments(func)
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, a[::-1])


def test_a_barrier_of_the_warp_orders_its_threads_only() -> None:
    fault = the_fault(run(reversed_by('T.barrier("warp")')), FaultKind.RACE)
    assert [n // 32 for n in threads(fault)] in ([0, 1], [1, 0])
    assert not run(reversed_by('T.barrier("warp")', 32)).faults
    assert kinds(run(reversed_by("", 32))) == [FaultKind.RACE]


def test_barriers_before_both_accesses_do_not_order_them() -> None:
    code = """
    T.barrier("block")
    S[t] = A[t]
    B[t] = S[63 - t]
    T.barrier("block")
    """
    func = kernel("A float32 64; B float32 64", code, shared="S float32 64")
    assert kinds(run(func)) == [FaultKind.RACE]


@pytest.mark.parametrize("space", ["S", "B"])
def test_two_threads_write_one_element(space: str) -> None:
    code = f"{space}[t // 2] = A[t]"
    found = run(kernel("A float32 64; B float32 64", code, shared="S float32 64"))
    fault = the_fault(found, FaultKind.RACE)
    assert actions(fault) == [(Action.WRITE, space)] * 2
    assert sorted(threads(fault)) == [0, 1]
    assert fault.count == 32


def test_a_read_before_the_write_of_another_thread() -> None:
    code = """
    B[t] = 0.0
    for k in range(3):
        S[t] = A[t]
        T.barrier("block")
        B[t] = B[t] + S[63 - t]
    """
    func = kernel("A float32 64; B float32 64", code, shared="S float32 64")
    fault = the_fault(run(func), FaultKind.RACE)
    assert sorted(actions(fault)) == [(Action.READ, "S"), (Action.WRITE, "S")]
    once = code + '    T.barrier("block")\n'
    assert not run(kernel("A float32 64; B float32 64", once, shared="S float32 64")).faults


def test_writes_in_both_branches() -> None:
    code = """
    if t < 32:
        S[t] = A[t]
    else:
        S[t - 32] = A[t]
    """
    found = run(kernel("A float32 64; B float32 64", code, shared="S float32 64"))
    fault = the_fault(found, FaultKind.RACE)
    assert fault.count == 32
    assert fault.sites[0].statement is not fault.sites[1].statement


def test_threads_use_elements_of_their_own() -> None:
    code = """
    S[t] = A[t]
    B[t] = S[t]
    S[t] = B[t] * 2.0
    B[t] = S[t] + B[t]
    """
    assert not run(kernel("A float32 64; B float32 64", code, shared="S float32 64")).faults


def test_a_thread_waits_for_its_warp_and_then_for_the_block() -> None:
    """A barrier of the warp does not order what came before a barrier of the block."""
    code = """
    S[t] = A[t]
    T.barrier("block")
    B[t] = S[63 - t]
    T.barrier("warp")
    S[t ^ 1] = A[t]
    """
    func = kernel("A float32 64; B float32 64", code, shared="S float32 64")
    fault = the_fault(run(func), FaultKind.RACE)
    assert sorted(actions(fault)) == [(Action.READ, "S"), (Action.WRITE, "S")]
    assert {n // 32 for n in threads(fault)} == {0, 1}


def test_blocks_wait_by_themselves() -> None:
    code = """
    S[t] = A[t]
    if b == 1:
        T.barrier("block")
    B[b * 64 + t] = S[63 - t]
    """
    func = kernel("A float32 64; B float32 128", code, blocks=2, shared="S float32 64")
    fault = the_fault(run(func), FaultKind.RACE)
    assert {site.thread.block for site in fault.sites} == {(0, 0, 0)}
    assert fault.count == 64


def test_launches_are_in_order() -> None:
    text = """
@tw.script
def two(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    W = T.alloc((64,), "float32")
    for b in T.thread("blockIdx.x", 2):
        for t in T.thread("threadIdx.x", 32):
            W[b * 32 + t] = A[b * 32 + t]
    for b in T.thread("blockIdx.x", 2):
        for t in T.thread("threadIdx.x", 32):
            B[b * 32 + t] = W[63 - b * 32 - t]
"""
    func = parse(text)
    a, b = arguments(func)
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, a[::-1])


def test_equal_faults_are_one_with_a_count() -> None:
    code = """
    for k in range(5):
        S[t] = A[t]
        B[t] = S[63 - t]
        T.barrier("block")
    """
    func = kernel("A float32 64; B float32 64", code, shared="S float32 64")
    assert the_fault(run(func), FaultKind.RACE).count == 5 * 64


# Races between blocks


@pytest.mark.parametrize("batch", [8192, 64, 192])
def test_two_blocks_write_one_element(batch: int) -> None:
    func = kernel("A float32 64; B float32 65", "B[b // 2 + t] = A[t]", blocks=5)
    found = run(func, batch_threads=batch)
    assert FaultKind.BLOCK_RACE in kinds(found)
    fault = next(f for f in found.faults if f.kind is FaultKind.BLOCK_RACE)
    assert actions(fault) == [(Action.WRITE, "B")] * 2
    assert fault.sites[0].thread.block != fault.sites[1].thread.block
    assert FaultKind.RACE not in kinds(found)


@pytest.mark.parametrize("batch", [8192, 64])
@pytest.mark.parametrize("reader", [0, 1])
def test_a_block_reads_what_another_writes(batch: int, reader: int) -> None:
    code = f"""
    if b == {reader}:
        B[64 + t] = B[t]
    else:
        B[t] = A[t]
    """
    func = kernel("A float32 64; B float32 128", code, blocks=2, inplace="B")
    fault = the_fault(run(func, batch_threads=batch), FaultKind.BLOCK_RACE)
    assert sorted(actions(fault)) == [(Action.READ, "B"), (Action.WRITE, "B")]
    assert {site.thread.block[0] for site in fault.sites} == {0, 1}
    assert fault.count == 64


def test_barriers_do_not_order_blocks() -> None:
    code = """
    if b == 0:
        B[t] = A[t]
    T.barrier("block")
    if b == 1:
        B[64 + t] = B[t]
    """
    func = kernel("A float32 64; B float32 128", code, blocks=2)
    assert FaultKind.BLOCK_RACE in kinds(run(func))


def test_many_readers_and_one_block_that_writes_later() -> None:
    code = """
    if b < 3:
        B[64 + b * 64 + t] = B[0]
    T.barrier("block")
    if (b == 3) & (t == 0):
        B[0] = A[0]
    """
    func = kernel("A float32 64; B float32 256", code, blocks=4, inplace="B")
    for batch in (8192, 64):
        fault = the_fault(run(func, batch_threads=batch), FaultKind.BLOCK_RACE)
        assert {site.index for site in fault.sites} == {0}


def test_blocks_read_the_same_and_write_their_own() -> None:
    func = kernel("A float32 64; B float32 192", "B[b * 64 + t] = A[0] + A[t]", blocks=3)
    for batch in (8192, 64):
        assert not run(func, batch_threads=batch).faults


# Reads of what nobody wrote

LOCAL = 'L = T.scratch((2,), "float32", scope="local")\n'


@pytest.mark.parametrize(
    ("code", "buffer"),
    [
        ("B[t] = B[t] + A[t]", "B"),
        ("if t < 63:\n    S[t] = A[t]\nB[t] = S[t]", "S"),
        (LOCAL + "L[0] = A[t]\nB[t] = L[1]", "L"),
        (LOCAL + "if t < 63:\n    L[0] = 1.0\nB[t] = L[0]", "L"),
        (
            f"for k in range(2):\n    {LOCAL}    if k == 0:\n        L[0] = A[t]\n    B[t] = L[0]",
            "L",
        ),
    ],
    ids=["output", "shared", "local", "local_of_others", "local_of_an_iteration"],
)  # fmt: skip
def test_unwritten_elements_are_read(code: str, buffer: str) -> None:
    found = run(kernel("A float32 64; B float32 64", code, shared="S float32 64"))
    fault = the_fault(found, FaultKind.UNWRITTEN)
    (site,) = fault.sites
    assert site.buffer is not None
    assert site.buffer.name == buffer
    assert site.action is Action.READ
    assert site.index == {"B": 0, "S": 63, "L": 1 if "L[1]" in code else 0}[buffer]
    assert fault.count == (1 if "63" in code else 64)


def test_shared_memory_is_fresh_in_each_block() -> None:
    code = """
    if b == 0:
        S[t] = A[t]
    B[b * 64 + t] = S[t]
    """
    func = kernel("A float32 64; B float32 128", code, blocks=2, shared="S float32 64")
    for batch in (8192, 64):
        fault = the_fault(run(func, batch_threads=batch), FaultKind.UNWRITTEN)
        assert fault.sites[0].thread.block == (1, 0, 0)
        assert fault.count == 64


def test_an_inplace_output_is_written_at_the_start() -> None:
    func = kernel("A float32 64; B float32 64", "B[t] = B[t] + A[t]", inplace="B")
    a, b = arguments(func)
    expected = a + b
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, expected)


def test_what_is_not_written_stays() -> None:
    func = kernel("A float32 64; B float32 64", "if t % 2 == 0:\n    B[t] = A[t]")
    a, b = arguments(func)
    expected = np.where(np.arange(64) % 2 == 0, a, b)
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, expected)


# Shared buffers whose bytes overlap

OVERLAPPING = """
S[t] = A[t]
T.barrier("block")
x = S[63 - t]
{0}
R[t] = A[t]
T.barrier("block")
B[t] = x + {1}
"""


def overlapping(between: str, value: str, offsets: list[int], second: str = "float32") -> Func:
    code = OVERLAPPING.format(between, value)
    if second != "float32":
        code = code.replace("R[t] = A[t]", f"R[t] = T.{second}(A[t])")
    return kernel(
        "A float32 64; B float32 64", code, shared=f"S float32 64; R {second} 64", offsets=offsets
    )


def test_one_buffer_follows_another() -> None:
    assert not run(overlapping('T.barrier("block")', "R[t]", [0, 0])).faults
    assert not run(overlapping("", "R[t] + S[t]", [0, 256])).faults


def test_a_write_races_with_reads_of_the_buffer_below() -> None:
    fault = the_fault(run(overlapping("", "R[t]", [0, 0])), FaultKind.RACE)
    assert sorted(actions(fault)) == [(Action.READ, "S"), (Action.WRITE, "R")]
    assert fault.sites[0].index == fault.sites[1].index


def test_a_write_ends_the_elements_below() -> None:
    fault = the_fault(run(overlapping('T.barrier("block")', "S[t]", [0, 0])), FaultKind.UNWRITTEN)
    assert fault.count == 64


@pytest.mark.parametrize(("offset", "count"), [(0, 16), (128, 16), (240, 4), (256, 0)])
def test_bytes_decide(offset: int, count: int) -> None:
    """64 elements of one byte end 16 of four bytes, or those that are below the buffer's end."""
    found = run(overlapping('T.barrier("block")', "S[t]", [0, offset], "int8"))
    assert [f.count for f in found.faults] == ([count] if count else [])
    assert all(f.kind is FaultKind.UNWRITTEN for f in found.faults)
    found = run(overlapping("", "1.0", [0, offset], "int8"))
    assert kinds(found) == ([FaultKind.RACE] if count else [])
    for fault in found.faults:
        of_s, of_r = sorted(fault.sites, key=lambda site: str(site.buffer), reverse=True)
        assert of_s.index is not None
        assert of_r.index is not None
        assert of_s.index == (offset + of_r.index) // 4


# Accesses outside of a buffer


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("index", "wrong", "first"),
    [("t + 1", 1, 64), ("t - 1", 1, -1), ("t * 2", 32, 64), ("T.{0}(64)", 64, 64)],
)
def test_reads_outside(dtype: str, index: str, wrong: int, first: int) -> None:
    index = index.format(dtype).replace("t ", f"T.{dtype}(t) ")
    func = kernel("A float32 64; B float32 64", f'B[t] = T.load(A[{index}], dtype="float32")')
    a, b = arguments(func)
    a += 1
    fault = the_fault(emulate(func, a, b), FaultKind.OUT_OF_BOUNDS)
    assert fault.count == wrong
    assert fault.sites[0].index == first
    assert (b == 0).sum() == wrong


@pytest.mark.parametrize("space", ["B", "S", "L"])
def test_writes_outside(space: str) -> None:
    code = f"""
    L = T.scratch((64,), "float32", scope="local")
    {space}[t + 60] = A[t]
    """
    func = kernel("A float32 64; B float32 64", code, shared="S float32 64; R float32 64")
    fault = the_fault(run(func), FaultKind.OUT_OF_BOUNDS)
    assert actions(fault) == [(Action.WRITE, space)]
    assert fault.count == 60
    assert threads(fault) == [4]


def test_a_guard_keeps_accesses_inside() -> None:
    code = """
    if t < 37:
        B[t] = T.select(t > 0, A[t - 1], 0.0)
    """
    func = kernel("A float32 37; B float32 37", code)
    a, b = arguments(func)
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, np.concatenate([[0], a[:-1]]))


# Barriers


def test_some_threads_miss_a_barrier() -> None:
    code = """
    if t < 40:
        T.barrier("block")
    B[t] = A[t]
    """
    fault = the_fault(run(kernel("A float32 64; B float32 64", code)), FaultKind.MISSED_BARRIER)
    assert actions(fault) == [(Action.WAIT, None), (Action.MISS, None)]
    assert threads(fault) == [0, 40]
    assert fault.count == 1


def test_branches_have_barriers_of_their_own() -> None:
    code = """
    if t < 32:
        T.barrier("block")
    else:
        T.barrier("block")
    B[t] = A[t]
    """
    found = run(kernel("A float32 64; B float32 64", code))
    assert kinds(found) == [FaultKind.MISSED_BARRIER] * 2


def test_a_barrier_of_the_warp_in_a_branch() -> None:
    code = """
    if t < {0}:
        T.barrier("warp")
    B[t] = A[t]
    """
    params = "A float32 64; B float32 64"
    assert not run(kernel(params, code.format(32))).faults
    fault = the_fault(run(kernel(params, code.format(40))), FaultKind.MISSED_BARRIER)
    assert threads(fault) == [32, 40]


def test_a_barrier_where_a_condition_is_the_same_in_the_block() -> None:
    code = """
    S[t] = A[t]
    if b > 0:
        T.barrier("block")
        B[b * 64 + t] = S[63 - t]
    else:
        B[t] = S[t]
    """
    func = kernel("A float32 64; B float32 192", code, blocks=3, shared="S float32 64")
    assert not run(func).faults


# Warp shuffles

SUM = """
x0 = A[t]
x1 = x0 + T.warp_shuffle(x0, 16)
x2 = x1 + T.warp_shuffle(x1, 8)
x3 = x2 + T.warp_shuffle(x2, 4)
x4 = x3 + T.warp_shuffle(x3, 2)
x5 = x4 + T.warp_shuffle(x4, 1)
B[t] = x5
"""


def test_a_warp_adds_up() -> None:
    func = kernel("A float32 64; B float32 64", SUM)
    a, b = arguments(func)
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, a.reshape(2, 32).sum(axis=1).repeat(32))


def test_shuffles_between_threads_that_have_more_dimensions() -> None:
    func = kernel(
        "A float32 48; B float32 48",
        "B[ty * 16 + t] = T.warp_shuffle(A[ty * 16 + t], 16)",
        threads=(16, 3),
    )
    a, b = arguments(func)
    fault = the_fault(emulate(func, a, b), FaultKind.ABSENT_LANE)
    assert fault.count == 16
    assert fault.sites[0].thread.thread == (0, 2, 0)
    np.testing.assert_array_equal(b[:32], np.concatenate([a[16:32], a[:16]]))


def test_a_shuffle_in_a_divergent_warp() -> None:
    code = """
    if t < {0}:
        B[t] = T.warp_shuffle(A[t], 1)
    """
    params = "A float32 64; B float32 64"
    assert not run(kernel(params, code.format(32))).faults
    fault = the_fault(run(kernel(params, code.format(33))), FaultKind.DIVERGENT_SHUFFLE)
    assert actions(fault) == [(Action.SHUFFLE, None), (Action.MISS, None)]
    assert threads(fault) == [32, 33]


def test_a_shuffle_in_a_branch_of_a_select() -> None:
    code = "B[t] = T.select(A[t] > 4.0, T.warp_shuffle(A[t], 1), 0.0)"
    found = run(kernel("A float32 64; B float32 64", code))
    assert kinds(found) == [FaultKind.DIVERGENT_SHUFFLE]
    assert found.faults[0].count == 2


# Moves


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("t * 4", None),
        ("t * 4 + 2", FaultKind.MISALIGNED),
        ("t * 8", FaultKind.OUT_OF_BOUNDS),
        ("t * 4 - 4", FaultKind.OUT_OF_BOUNDS),
    ],
)
@pytest.mark.parametrize("read", [True, False])
def test_moves(base: str, kind: FaultKind | None, read: bool) -> None:
    own = "T.ramp(t * 4, 1, 4)"
    other = f"T.ramp({base}, 1, 4)"
    to, of = (own, other) if read else (other, own)
    func = kernel("A float32 256; B float32 256", f"B[{to}] = A[{of}]")
    a, b = arguments(func)
    found = emulate(func, a, b)
    expected = {kind} if kind is not None else set()
    if base.endswith("+ 2"):
        expected.add(FaultKind.OUT_OF_BOUNDS)
    assert set(kinds(found)) == expected
    if kind is None:
        np.testing.assert_array_equal(a, b)


def test_moves_to_and_from_memory_of_threads() -> None:
    code = """
    L = T.scratch((8,), "float16", scope="local")
    L[T.ramp(0, 1, 8)] = A[T.ramp(t * 8, 1, 8)]
    for i in range(4):
        x = L[i]
        L[i] = L[7 - i]
        L[7 - i] = x
    S[T.ramp(t * 8, 1, 8)] = L[T.ramp(0, 1, 8)]
    T.barrier("block")
    B[T.ramp(t * 8, 1, 8)] = S[T.ramp((63 - t) * 8, 1, 8)]
    """
    func = kernel("A float16 512; B float16 512", code, shared="S float16 512")
    a, b = arguments(func)
    assert not emulate(func, a, b).faults
    np.testing.assert_array_equal(b, a[::-1])


# Arithmetic without a meaning


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("A[t] // T.int32(t % 4)", 16),
        ("A[t] % T.int32(t % 4)", 16),
        ("T.select(t % 4 == 0, 0, A[t] // T.int32(t % 4))", 0),
        ("A[t] << T.int32(t)", 0),
        ("A[t] >> T.int32(t - 1)", 0),
    ],
)
def test_undefined_arithmetic(value: str, count: int) -> None:
    found = run(kernel("A int32 64; B int32 64", f"B[t] = {value}"))
    assert [f.count for f in found.faults] == ([count] if count else [])
    assert set(kinds(found)) <= {FaultKind.UNDEFINED}


# Programs of another form


@pytest.mark.parametrize(
    "code",
    [
        'with T.block("B"):\n    v = T.axis.spatial(16, t)\n    B[v] = A[v]',
        "for i in T.vectorized(4):\n    B[t] = A[t]",
        "T.store(B[t], A[t], mask=t < 4)",
        "B[t] = T.load(A[t], mask=t < 4)",
        "B[T.ramp(t, 2, 4)] = A[T.ramp(t, 1, 4)]",
        "B[T.ramp(t, 1, 8)] = A[T.ramp(t, 1, 8)]",
        "B[T.ramp(t, 1, 4)] = A[T.ramp(t, 1, 4)] + A[T.ramp(t, 1, 4)]",
        'R = T.scratch((4,), "float32", scope="shared")\nR[0] = A[t]',
        "T.prefetch(A[t])",
    ],
)
def test_programs_in_another_form_are_refused(code: str) -> None:
    func = kernel("A float32 64; B float32 64", code, threads=16)
    a, b = arguments(func)
    before = b.copy()
    with pytest.raises(VerifyError):
        emulate(func, a, b)
    np.testing.assert_array_equal(b, before)


def test_threads_next_to_each_other_are_innermost() -> None:
    func = kernel(
        "A float32 64; B float32 64", 'for i in T.thread("threadIdx.y", 1):\n    B[t] = A[t]'
    )
    with pytest.raises(VerifyError):
        run(func)


@pytest.mark.parametrize("offsets", [[], [0], [0, 8], [0, -16], [0, 16, 32]])
def test_offsets_of_shared_memory_are_needed(offsets: list[int]) -> None:
    func = kernel(
        "A float32 64; B float32 64", "B[t] = A[t]", shared="S int8 4; R int8 4", offsets=offsets
    )
    with pytest.raises(VerifyError):
        run(func)
