"""Parallel loops run alone while their teams lose time: an OpenMP runtime with made-up times."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu.jit import load_object
from tilewright.codegen.cpu.llvm_parallel import AWAKE

N = 64


class MadeUp:
    """A kernel on an OpenMP runtime in which one thread of two runs all iterations.

    It takes `worked` seconds, after `starting` seconds if threads are to be woken. It is the
    caller, or thread 1 (`helped`), for which the caller waits. After both have finished, the team
    takes another `waited` seconds.
    """

    def __init__(self) -> None:
        self.teams = self.waking = 0
        self.now = self.starting = self.worked = self.waited = 0.0
        self.helped = False
        self._thread = 0
        self._steps: Iterator[float] = iter(())
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        number = ctypes.CFUNCTYPE(ctypes.c_int)
        self._runtime: dict[str, Any] = {
            "GOMP_parallel": ctypes.CFUNCTYPE(
                None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
            )(lambda function, data, _, flags: self._parallel(region(function), data, flags)),
            "omp_get_thread_num": number(lambda: self._thread),
            "omp_get_num_threads": number(lambda: 2),
            "omp_get_wtime": ctypes.CFUNCTYPE(ctypes.c_double)(self._time),
        }
        a = te.placeholder((N,), name="A")
        sch = tw.Schedule(te.func([a, te.compute((N,), lambda i: a[i] * 2.0, name="B")], name="k"))
        sch.parallel(sch.get_loops(sch.get_block("B"))[0])
        imports = {n: ctypes.cast(f, ctypes.c_void_p).value or 0 for n, f in self._runtime.items()}
        compiled = compile_func(sch.func, "cpu -threads=2")
        self._loaded = load_object(compiled.image, ["k"], imports)
        self._kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
            self._loaded.addresses[0]
        )

    def gain(self) -> None:
        """Thread 1 runs the iterations in half a second, which the caller waits."""
        self.helped, self.worked, self.waited = True, 0.5, 0.0

    def calls(self, count: int) -> int:
        """How many of so many calls asked for a team. Each has to compute the right result."""
        before = self.teams
        for _ in range(count):
            a, b = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
            self._kernel(a.ctypes.data, b.ctypes.data)
            np.testing.assert_array_equal(b, a * 2)
        return self.teams - before

    def _parallel(self, region: Any, data: int, flags: int) -> None:
        self.teams += 1
        self.waking += flags != AWAKE
        self.now += 0.0 if flags == AWAKE else self.starting
        first = int(self.helped)
        for thread in (first, 1 - first):
            self._thread, works = thread, thread == first
            self._steps = iter((0.0, self.worked if works else 0.0))
            region(data)
        self.now += self.waited

    def _time(self) -> float:
        """The time, which goes on by the next of the steps between readings in a region."""
        self.now += next(self._steps, 0.0)
        return self.now


def late(seconds: float) -> MadeUp:
    """Made-up times in which the loop takes a second alone and a team comes late."""
    made_up = MadeUp()
    made_up.worked, made_up.waited = 1.0, seconds
    return made_up


def test_after_late_teams_the_loop_is_alone_for_ever_more_calls() -> None:
    made_up = late(3.0)
    # 8 - 3 - 3 - 3 is negative: 16 calls alone, and teams have 8 again
    assert [made_up.calls(n) for n in (3, 16, 3, 32, 3, 64, 3)] == [3, 0, 3, 0, 3, 0, 3]


def test_however_late_a_team_is_the_next_is_asked_after_16_calls_and_never_more_than_512() -> None:
    made_up = late(1e6)
    for alone in (16, 32, 64, 128, 256, 512, 512):
        assert [made_up.calls(1), made_up.calls(alone)] == [1, 0]


def test_teams_are_asked_again_when_they_gain() -> None:
    made_up = late(1e6)
    assert made_up.calls(1 + 16 + 1 + 32) == 2
    made_up.gain()
    assert made_up.calls(100) == 100
    made_up.waited = 1e6
    assert [made_up.calls(1), made_up.calls(16), made_up.calls(1)] == [1, 0, 1]  # 16 once more


def test_a_single_late_team_among_those_that_gain_changes_nothing() -> None:
    made_up = late(0.0)
    assert made_up.calls(1) == 1
    made_up.gain()
    assert made_up.calls(200) == 200
    made_up.waited = 60.0
    assert made_up.calls(1) == 1
    made_up.gain()
    assert made_up.calls(100) == 100


def test_a_caller_that_was_interrupted_does_not_make_the_loop_slow_alone() -> None:
    made_up = late(0.0)
    assert made_up.calls(1) == 1
    made_up.worked = 1e6
    assert made_up.calls(1) == 1  # 1e6 seconds count as 2
    made_up.worked, made_up.waited = 1.0, 12.0
    assert [made_up.calls(1), made_up.calls(16), made_up.calls(1)] == [1, 0, 1]


def test_as_long_as_the_time_alone_is_not_known_a_team_costs_a_call() -> None:
    """The other thread ran all iterations, or the clock did not move."""
    idle, stopped = late(1e6), MadeUp()
    idle.helped = True
    stopped.waited = 1e-6
    for made_up in (idle, stopped):
        assert [made_up.calls(n) for n in (9, 16, 1)] == [9, 0, 1]


def test_a_caller_that_ran_nothing_at_first_learns_the_time_from_the_next_team() -> None:
    made_up = late(0.0)
    made_up.helped = True
    assert made_up.calls(1) == 1
    made_up.helped = False
    assert made_up.calls(1) == 1
    made_up.gain()
    assert made_up.calls(100) == 100


def test_threads_are_woken_again_after_calls_that_waking_took() -> None:
    made_up = late(0.0)
    assert made_up.calls(1) == 1
    made_up.starting = 20.0
    assert made_up.calls(1 + 16) == 17  # 8 - 20 is negative
    assert made_up.waking == 2
    assert made_up.calls(1) == 1
    assert made_up.waking == 3


def test_threads_that_are_awake_help_however_long_waking_takes() -> None:
    made_up = late(0.0)
    assert made_up.calls(1) == 1
    made_up.starting = 20.0
    assert made_up.calls(1) == 1
    made_up.gain()
    assert made_up.calls(16) == 16
    assert made_up.waking == 2
    assert made_up.calls(100) == 100
    assert made_up.waking > 2
