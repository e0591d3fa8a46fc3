"""The threads of parallel loops: who runs what, for callers and libraries in any number."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.cpu import thread_teams

_REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run(body: Callable[[int, int], object], count: int, flags: int = 0) -> None:
    """Run a region in the caller and up to `count` - 1 threads, with a number and their count."""
    functions = thread_teams.load()
    number = ctypes.CFUNCTYPE(ctypes.c_int)(functions["omp_get_thread_num"])
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(functions["omp_get_num_threads"])
    region = _REGION(lambda _: body(number(), threads()))
    parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    parallel(functions["GOMP_parallel"])(region, None, count, flags)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("pause", [0, 2e-3])
def test_each_thread_runs_a_part_where_the_caller_waits_for_all(count: int, pause: float) -> None:
    """Whether the threads are made, awake or asleep."""
    for _ in range(5):
        seen: list[tuple[int, int]] = []

        def body(number: int, threads: int, seen: list[tuple[int, int]] = seen) -> None:
            seen.append((number, threads))

        run(body, count, thread_teams.EACH)
        assert sorted(seen) == [(n, count) for n in range(count)]
        time.sleep(pause)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_processor_that_was_taken_from_a_thread_is_given_back() -> None:
    """The system may move the caller at any time, so the places are tried until it stays."""
    mine = os.sched_getaffinity(0)
    one, other = sorted(mine)[:2]
    found: list[int] = []

    def note(number: int, _: int) -> None:
        if number:
            found.append(threading.get_native_id())

    def helper() -> int:
        run(note, 2, thread_teams.EACH)
        return found[-1]

    def woken(thread: int, caller: int, places: set[int]) -> set[int]:
        """The processors of the thread once it was woken by a caller that has all of `mine`.

        The thread falls asleep on one of its `places`; the caller was moved to a processor last.
        """
        os.sched_setaffinity(thread, places)
        assert helper() == thread
        time.sleep(20 * thread_teams.SPINS)
        os.sched_setaffinity(0, {caller})
        os.sched_setaffinity(0, mine)
        assert helper() == thread
        return os.sched_getaffinity(thread)

    try:
        thread = helper()
        for _ in range(200):
            if woken(thread, one, {one}) != mine - {one}:
                continue
            if woken(thread, other, {one}) == mine:
                break
        else:
            pytest.fail(f"{one} was not given back")
    finally:
        os.sched_setaffinity(0, mine)
        os.sched_setaffinity(found[-1], mine)


REFUSED = """
import resource
from tests.codegen.test_thread_teams import run
from tilewright.codegen.cpu import machine, thread_teams
from tilewright.codegen.detect import resolve

run(lambda number, threads: None, 1, thread_teams.EACH)
target = resolve("cpu -threads=40")
loops = {name: l for name, l in machine._loops(target).items() if name.startswith("all ")}
used = 1024 * int(open("/proc/self/status").read().partition("VmSize:")[2].split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), resource.RLIM_INFINITY))
seen = []
run(lambda number, threads: seen.append((number, threads)), 40, thread_teams.EACH)
assert 1 < len(seen) < 40, seen
assert sorted(seen) == [(number, len(seen)) for number in range(len(seen))], seen
for loop in loops.values():
    loop.sample()
assert {loop.threads for loop in loops.values()} == {len(seen)}
assert list(machine._refused(loops, target)) == [
    f"{len(seen)} of 40 threads: the system refuses more"
]
"""


def test_threads_that_the_system_refuses_are_not_counted() -> None:
    subprocess.run([sys.executable, "-c", REFUSED], check=True, cwd=Path(__file__).parents[2])


def test_the_caller_begins_at_once_and_ends_after_those_who_began() -> None:
    most = 0
    for _ in range(200):
        seen: list[int] = []
        ended: list[int] = []

        def body(number: int, _: int, seen: list[int] = seen, ended: list[int] = ended) -> None:
            seen.append(number)
            time.sleep(1e-4)
            ended.append(number)

        run(body, 3)
        assert 0 in seen
        assert len(seen) == len(set(seen))
        assert sorted(seen) == sorted(ended)
        most = max(most, len(seen))
    assert most > 1


def test_callers_at_a_time_have_teams_of_their_own() -> None:
    failed: list[object] = []

    def call() -> None:
        for _ in range(100):
            seen: list[int] = []
            run(lambda number, _, seen=seen: seen.append(number), 3)  # type: ignore[misc]
            if 0 not in seen or len(seen) != len(set(seen)):
                failed.append(seen)

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failed


SEVERAL = """
import os, sys
import numpy as np
import tilewright as tw

def threads():
    return len(os.listdir("/proc/self/task"))

before, a = threads(), np.ones(65536, np.float32)
for path in sys.argv[1:]:
    kernel, b = tw.load(path), np.zeros(65536, np.float32)
    for _ in range(1200):
        kernel(a, b)
    assert (b == 2).all()
print(threads() - before)
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    paths = []
    for name in ("first", "second"):
        a = te.placeholder((65536,), name="a")
        b = te.compute((65536,), lambda i, a=a: a[i] * 2.0, name="b")
        sch = tw.Schedule(te.func([a, b], name=name))
        sch.parallel(sch.get_loops(sch.get_block("b"))[0])
        paths.append(tmp_path_factory.mktemp("libraries") / f"{name}.so")
        tw.build_library(sch, paths[-1], "cpu -threads=2")
    return paths


def test_libraries_share_their_threads(libraries: list[Path]) -> None:
    command = [sys.executable, "-c", SEVERAL, *map(str, libraries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


TOGETHER = """
import threading
import numpy as np
import tilewright as tw
from tilewright import te

x = te.placeholder((64,), name="x")
kernels = []

def build(factor):
    sch = tw.Schedule(te.func([x, te.compute((64,), lambda i: x[i] * factor, name="y")], name="k"))
    sch.parallel(sch.get_loops(sch.get_block("y"))[0])
    kernels.append((factor, tw.build(sch, "cpu -threads=2")))

tw.build
builders = [threading.Thread(target=build, args=(factor,)) for factor in (2.0, 3.0)]
for builder in builders:
    builder.start()
for builder in builders:
    builder.join()
for _ in range(1000):
    for factor, kernel in kernels:
        y = np.zeros(64, np.float32)
        kernel(np.ones(64, np.float32), y)
        assert (y == factor).all()
"""


def test_two_threads_build_the_first_kernels() -> None:
    subprocess.run([sys.executable, "-c", TOGETHER], check=True)


CLOSED = """
import ctypes, sys, _ctypes
import numpy as np

a, b = np.ones(65536, np.float32), np.zeros(65536, np.float32)
first, second = map(ctypes.CDLL, sys.argv[1:])

def call(kernel):
    b[:] = 0
    for _ in range(1200):
        assert kernel(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b)), None) == 0
    assert (b == 2).all()

call(second.second)
_ctypes.dlclose(second._handle)
call(first.first)
"""


def test_a_library_that_made_threads_is_closed(libraries: list[Path]) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, *map(str, libraries)], check=True)
