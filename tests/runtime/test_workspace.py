"""Workspaces: what the pool gives to calls, and a caller's own."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ArgumentError, KernelError, OutOfMemoryError
from tilewright.runtime import Argument, workspace
from tilewright.runtime.host_memory import HOST_MEMORY, HostMemory
from tilewright.runtime.signature import Signature
from tilewright.runtime.workspace import Pool, shared_pool

from ..refusals import refused
from .conftest import Probe

Make = Callable[..., Any]

A = Argument("a", "float32", (3, 4))
OUT = Argument("c", "float32", (3, 4), role="out")
SIZE = 640


@pytest.fixture(autouse=True)
def own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of a test have a pool of their own."""
    monkeypatch.setattr(workspace, "_pools", weakref.WeakValueDictionary())


def arrays(count: int) -> list[Any]:
    return [np.zeros((3, 4), np.float32) for _ in range(count)]


def needing(size: int) -> Signature:
    return Signature("f", (), size)


@pytest.mark.parametrize("size", [64, 1000 * 64, 3 << 20])
def test_new_memory_is_aligned(size: int) -> None:
    for _ in range(10):
        memory = HOST_MEMORY.allocate(size)
        assert memory.size == size
        assert memory.ctypes.data % 64 == 0


def test_a_workspace_is_used_again_and_a_small_one_is_replaced() -> None:
    pool = Pool(HOST_MEMORY)
    first = pool.take(needing(128))
    other = pool.take(needing(128))
    assert other is not first
    pool += [first, other]
    assert pool.take(needing(64)) is other
    pool.append(other)
    larger = pool.take(needing(256))
    assert larger.size == 256
    pool.append(larger)
    assert pool == [first, larger]


def test_what_is_too_small_is_freed_before_memory_is_taken() -> None:
    pool = Pool(HOST_MEMORY, [HOST_MEMORY.allocate(64)])
    small = weakref.ref(pool[0])

    class Noting(HostMemory):
        def allocate(self, size: int) -> Any:
            assert small() is None
            return super().allocate(size)

    pool.memory = Noting()
    assert pool.take(needing(128)).size == 128


def test_the_pool_goes_with_the_last_module(probe: Make) -> None:
    probes = [probe(A, workspace_bytes=SIZE) for _ in range(2)]
    for p in probes:
        p.mod(*arrays(1))
    (memory,) = shared_pool(HOST_MEMORY)
    held = weakref.ref(memory)
    del memory, p
    probes.pop()
    gc.collect()
    assert held() is not None
    probes.pop()
    gc.collect()
    assert held() is None
    assert shared_pool(HOST_MEMORY) == []


def test_a_kernel_gets_a_workspace_as_its_last_value(probe: Make) -> None:
    p = probe(A, OUT, workspace_bytes=SIZE)
    a, c = arrays(2)
    assert p.mod.workspace_bytes == SIZE
    run = p.mod.bind(a, c)
    p.mod(a, c)
    run()
    (memory,) = shared_pool(HOST_MEMORY)
    assert memory.size == SIZE
    assert p.calls == [(a.ctypes.data, c.ctypes.data, memory.ctypes.data)] * 2


def test_modules_share_workspaces(probe: Make) -> None:
    small, large = probe(A, workspace_bytes=SIZE), probe(A, workspace_bytes=3 * SIZE)
    for p in (small, large, small):
        p.mod(*arrays(1))
    (memory,) = shared_pool(HOST_MEMORY)
    assert memory.size == 3 * SIZE
    assert small.calls[1][-1] == large.calls[0][-1] == memory.ctypes.data


def test_a_kernel_that_fails_gives_its_workspace_back(probe: Make) -> None:
    p = probe(A, workspace_bytes=SIZE)
    p.status = 7
    with refused(KernelError, "probe", "7"):
        p.mod(*arrays(1))
    assert [memory.size for memory in shared_pool(HOST_MEMORY)] == [SIZE]


class Meeting(Probe):
    """A kernel that waits until it runs in all threads."""

    def kernel(self, *values: Any) -> int:
        BARRIER.wait()
        return super().kernel(*values)


THREADS = 4
BARRIER = threading.Barrier(THREADS, timeout=300)


def test_calls_at_the_same_time_have_workspaces_of_their_own() -> None:
    p = Meeting(A, workspace_bytes=SIZE)
    for _ in range(3):
        threads = [threading.Thread(target=p.mod, args=arrays(1)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rounds = [p.calls[i : i + THREADS] for i in range(0, 3 * THREADS, THREADS)]
    first, *others = [{call[-1] for call in calls} for calls in rounds]
    assert len(first) == THREADS
    assert others == [first, first]  # and nothing more was taken
    assert len(shared_pool(HOST_MEMORY)) == THREADS


def test_memory_that_is_not_there_is_an_error_of_two_kinds(probe: Make) -> None:
    p = probe(A, workspace_bytes=1 << 62)
    with pytest.raises(OutOfMemoryError):
        p.mod(*arrays(1))
    with pytest.raises(MemoryError):
        p.mod.bind(*arrays(1))()
    assert issubclass(OutOfMemoryError, KernelError)
    assert p.calls == []


def test_a_caller_gives_its_own_workspace(probe: Make) -> None:
    p = probe(A, OUT, workspace_bytes=SIZE)
    (a, c), memory = arrays(2), HOST_MEMORY.allocate(3 * SIZE)
    p.mod(a, c, workspace=memory)
    run = p.mod.bind(a, c, workspace=memory[2 * SIZE :].reshape(10, -1))
    run()
    run()
    data = [a.ctypes.data, c.ctypes.data]
    start = memory.ctypes.data
    assert p.calls == [(*data, start), (*data, start + 2 * SIZE), (*data, start + 2 * SIZE)]
    assert shared_pool(HOST_MEMORY) == []


def test_a_module_returns_a_new_workspace(probe: Make) -> None:
    p = probe(A, workspace_bytes=SIZE)
    first, second = p.mod.workspace(), p.mod.workspace()
    assert first.nbytes == second.nbytes == SIZE
    assert not np.shares_memory(first, second)
    for memory in (first, second):
        p.mod(*arrays(1), workspace=memory)
        assert p.calls.pop()[-1] == memory.ctypes.data
    assert shared_pool(HOST_MEMORY) == []
    assert probe(A).mod.workspace().nbytes == 0
    with pytest.raises(OutOfMemoryError):
        probe(A, workspace_bytes=1 << 62).mod.workspace()


def read_only(memory: Any) -> Any:
    memory.flags.writeable = False
    return memory


REFUSED = [
    (lambda m: m[: SIZE - 1], [f"at least {SIZE} bytes for probe, found {SIZE - 1}"]),
    (lambda m: m[1:], ["an address that is a multiple of 64", "module.workspace() returns one"]),
    (lambda m: m[32:], ["an address that is a multiple of 64"]),
    (lambda m: m.view("f4"), ["bytes (dtype uint8), found dtype float32", ".view(numpy.uint8)"]),
    (lambda m: m[::2], ["a compact array, found strides of (2,) bytes"]),
    (lambda m: m.reshape(64, -1).T, ["a compact array"]),
    (read_only, ["memory to write to, found a read-only array"]),
    (np.ma.asarray, ["a masked array"]),
    (lambda m: m.tolist(), ["expected an array, found list"]),
    (lambda m: m.ctypes.data, ["expected an array, found int"]),
]


@pytest.mark.parametrize(("spoil", "words"), REFUSED)
def test_a_workspace_that_does_not_fit_is_refused(
    probe: Make, spoil: Callable[[Any], Any], words: list[str]
) -> None:
    p = probe(A, OUT, workspace_bytes=SIZE)
    a, c = arrays(2)
    memory = spoil(HOST_MEMORY.allocate(2 * SIZE))
    for call in (p.mod, p.mod.bind):
        with pytest.raises(ArgumentError) as error:
            call(a, c, workspace=memory)
        for word in ["workspace", *words]:
            assert word in str(error.value)
    assert p.calls == []


def test_a_workspace_is_passed_by_name(probe: Make) -> None:
    p = probe(A, OUT, workspace_bytes=SIZE)
    with pytest.raises(ArgumentError, match="found 3\n  hint: a workspace is passed by its name"):
        p.mod(*arrays(2), p.mod.workspace())
    with pytest.raises(ArgumentError, match="found 1\n  hint: outputs are passed in"):
        p.mod(*arrays(1))


def test_a_workspace_overlaps_with_no_argument(probe: Make) -> None:
    p = probe(A, OUT, workspace_bytes=SIZE)
    memory = HOST_MEMORY.allocate(SIZE + 96)
    inside = [memory[at : at + 48].view("f4").reshape(3, 4) for at in (0, SIZE - 4, SIZE)]
    (other,) = arrays(1)
    for bad in inside[:2]:
        with pytest.raises(ArgumentError):
            p.mod(bad, other, workspace=memory)
        with pytest.raises(ArgumentError):
            p.mod(other, bad, workspace=memory)
    p.mod(inside[2], other, workspace=memory)  # what is not needed may be used otherwise
    assert len(p.calls) == 1


def test_a_kernel_that_needs_no_workspace_ignores_it(probe: Make) -> None:
    p = probe(A, OUT)
    a, c = arrays(2)
    assert p.mod.workspace_bytes == 0
    p.mod(a, c)
    p.mod.bind(a, c)()
    assert p.calls == [(a.ctypes.data, c.ctypes.data)] * 2
    for memory in (np.empty(1, np.uint8), np.empty(7, np.uint8)[1:]):
        p.mod(a, c, workspace=memory)
        assert p.calls.pop() == (a.ctypes.data, c.ctypes.data, memory.ctypes.data)
    with refused(ArgumentError, "int"):
        p.mod(a, c, workspace=0)


class Exported:
    """Memory that is known through DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_a_workspace_may_be_another_librarys(probe: Make) -> None:
    p = probe(A, workspace_bytes=SIZE)
    memory = HOST_MEMORY.allocate(SIZE)
    run = p.mod.bind(*arrays(1), workspace=Exported(memory))
    run()
    assert p.calls[0][-1] == memory.ctypes.data
