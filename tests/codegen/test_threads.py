"""Many threads at once: calls of one module, builds, and arrays that others try to change."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.base.errors import ArgumentError
from tilewright.codegen.cpu.glue import make_glue
from tilewright.runtime import Argument, Module, Origin, Signature
from tilewright.target import Target

from ..refusals import refused

THREADS = 16
SECONDS = 300


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """The results of threads that begin together."""
    barrier = threading.Barrier(THREADS, timeout=SECONDS)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS), timeout=SECONDS))


def scaled(factor: float, *, parallel: bool = False) -> tw.Schedule:
    a = te.placeholder((40, 50), name="A")
    idx = te.placeholder((40,), "int32", name="idx", value_range=(0, 40))
    b = te.compute((40, 50), lambda i, j: a[idx[i], j] * factor, name="B")
    sch = tw.Schedule(te.func([a, idx, b], name="scaled"))
    if parallel:
        sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    return sch


@pytest.mark.parametrize("threads", [1, 2])
def test_sixteen_threads_call_one_module(threads: int) -> None:
    mod = tw.build(scaled(2.0, parallel=True), f"cpu -threads={threads}")
    order = np.arange(40, dtype=np.int32)[::-1].copy()
    wrong = np.full(40, 40, np.int32)

    def work(number: int) -> bool:
        a, b = np.full((40, 50), number, np.float32), np.zeros((40, 50), np.float32)
        a[:, 0] = np.arange(40)
        run = mod.bind(a, order, b)
        for n in range(60):
            b[...] = -1
            if n % 3 == 0:
                with refused(ArgumentError, "0", "40", "[0]"):
                    mod(a, wrong, b)
            if n % 2:
                run()
            else:
                mod(a, order, b)
            if not (b == 2 * a[::-1]).all():
                return False
        return True

    assert at_once(work) == [True] * THREADS


def test_sixteen_threads_build_at_once() -> None:
    def work(number: int) -> bool:
        factor = float(number // 2)  # two of each, so that some find what others have compiled
        mod = tw.build(scaled(factor), "cpu -threads=1")
        a, b = np.ones((40, 50), np.float32), np.zeros((40, 50), np.float32)
        mod(a, np.zeros(40, np.int32), b)
        return bool((b == factor).all())

    assert at_once(work) == [True] * THREADS


def waiting_module(glue: bool) -> tuple[Module, Any]:
    """A module whose kernel waits for the semaphore that is in its argument."""
    libc = ctypes.CDLL(None)
    memory = np.zeros(4, np.int64)
    assert libc.sem_init(ctypes.c_void_p(memory.ctypes.data), 0, 0) == 0
    address = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    assert address is not None
    mod = Module(
        Signature("sem_wait", (Argument("s", "int64", (4,), role="inout"),)),
        [address],
        Target.parse("cpu -mcpu=x86-64 -threads=1"),
        origin=Origin("schedule"),
        glue=make_glue if glue else None,
    )
    return mod, memory


@pytest.mark.parametrize("glue", [True, False])
def test_an_array_is_not_resized_while_a_kernel_runs_on_it(glue: bool) -> None:
    mod, memory = waiting_module(glue)
    arrays = [memory]
    del memory
    address, began = arrays[0].ctypes.data, threading.Event()

    def call() -> None:
        began.set()
        mod(arrays[0])

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert began.wait(SECONDS)
    thread.join(0.2)  # it is in the kernel by now
    assert thread.is_alive()
    with pytest.raises(ValueError, match="refer"):
        arrays[0].resize(4096)
    ctypes.CDLL(None).sem_post(ctypes.c_void_p(address))
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize(("n", "common"), [(96, False), (90, True)], ids=["even", "border"])
def test_few_iterations_with_a_border_are_one_share(n: int, common: bool) -> None:
    a = te.placeholder((n,), name="A")
    sch = tw.Schedule(te.func([a, te.compute((n,), lambda i: a[i] * 2.0, name="B")], name="k"))
    outer, _ = sch.split(sch.get_loops(sch.get_block("B"))[0], factors=[None, 16])
    sch.parallel(outer)
    module = tw.build(sch, "cpu -threads=2")
    given, result = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    module(given, result)
    np.testing.assert_array_equal(result, given * 2)
    # Several shares begin where divisions by the number of threads say.
    assert ("urem" not in module.source("llvm")) is common
