"""Parallel kernels in forked processes: they have threads of their own there, and never hang.

Each case is a script in a process of its own, which is killed with all its children where it takes
too long: a hang is a failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SECONDS = 120

PROLOGUE = """
import ctypes, logging, multiprocessing, os, sys, threading
import numpy as np
import tilewright as tw
from tilewright import te
from tilewright.base.process import mapped_runtimes

class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())

log = Lines()
logging.getLogger("tilewright").addHandler(log)
fork = multiprocessing.get_context("fork")
N = 64

def program(factor=2.0):
    a = te.placeholder((N, N), name="A")
    b = te.compute((N, N), lambda i, j: a[i, j] * factor, name="B")
    sch = tw.Schedule(te.func([a, b], name="scaled"))
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    return sch

def build(factor=2.0):
    return tw.build(program(factor), "cpu -threads=2")

def is_right(call, factor=2.0):
    b = np.zeros((N, N), np.float32)
    call(np.ones((N, N), np.float32), b)
    return bool((b == factor).all())

def threads():
    return len(os.listdir("/proc/self/task"))

def in_child(function, *arguments):
    receiver, sender = fork.Pipe(False)
    process = fork.Process(target=lambda: sender.send(function(*arguments)))
    process.start()
    assert receiver.poll(60), "the child hangs"
    found = receiver.recv()
    process.join()
    assert process.exitcode == 0
    return found
"""


def run(script: str, *arguments: str, environment: Mapping[str, str] = {}) -> str:
    """The output of the script. It is killed with its children after `SECONDS`."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROLOGUE + script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    try:
        out, error = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail("it hangs")
    assert process.returncode == 0, error
    return out


def test_a_forked_process_calls_what_its_parent_called() -> None:
    run("""
mod = build()
assert is_right(mod)
a, b = np.ones((N, N), np.float32), np.zeros((N, N), np.float32)
bound = mod.bind(a, b)
bound()

class Mine(np.ndarray):
    pass

def child():
    found = [is_right(mod), is_right(mod), is_right(lambda a, b: mod(a.view(Mine), b))]
    b[...] = 0
    bound()
    found.append(bool((b == 2).all()))
    return found

assert in_child(child) == in_child(child) == [True] * 4
assert is_right(mod)
""")


def test_threads_and_children_of_a_forked_process() -> None:
    run("""
mod = build()
assert is_right(mod)

def in_threads():
    found = []
    threads = [threading.Thread(target=lambda: found.append(is_right(mod))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found == [True] * 4

def grandchild():
    before = threads()
    right = all(is_right(mod) for _ in range(1200))  # some alone: to make threads takes time
    return right, threads() - before

def child():
    return is_right(mod), in_child(grandchild)

assert in_child(in_threads)
assert in_child(child) == (True, (True, 1))
""")


def test_kernels_that_a_forked_process_builds_and_loads(tmp_path: Path) -> None:
    run(
        """
path = sys.argv[1] + "/scaled.so"
tw.build_library(program(), path, "cpu -threads=2")
loaded = tw.load(path)
assert is_right(loaded)

def child():
    built = build(3.0)
    return is_right(built, 3.0), is_right(tw.load(path)), is_right(loaded)

assert in_child(child) == (True, True, True)
""",
        str(tmp_path),
    )


def test_workers_that_are_forked_from_a_process_that_computes() -> None:
    """As data loaders do it: indices go to the workers by queues, results come back by one."""
    run("""
mod = build()
assert is_right(mod)

def work(indices, results):
    while (index := indices.get()) is not None:
        b = np.empty((N, N), np.float32)
        mod(np.full((N, N), index, np.float32), b)
        results.put((index, b))
    results.put(None)

results, queues = fork.Queue(), [fork.Queue() for _ in range(3)]
workers = [fork.Process(target=work, args=(q, results), daemon=True) for q in queues]
for w in workers:
    w.start()
for index in range(30):
    queues[index % 3].put(index)
    assert is_right(mod)
for q in queues:
    q.put(None)
found = [results.get(timeout=60) for _ in range(33)]
batches = dict(f for f in found if isinstance(f, tuple))
assert sorted(batches) == list(range(30))
assert all((b == 2 * index).all() for index, b in batches.items())
for w in workers:
    w.join()
""")


def test_a_forked_process_asks_the_cost_model() -> None:
    """Which computes in parallel regions of its own, and was not loaded before."""
    run("""
mod = build()
assert is_right(mod)

def child():
    a = te.placeholder((N, N), name="A")
    b = te.compute((N, N), lambda i, j: a[i, j] * 5.0, name="B")
    chosen = tw.build(te.func([a, b], name="chosen"), "cpu -threads=2", allow=("model",))
    return is_right(chosen, 5.0)

assert in_child(child)
""")


def test_a_pool() -> None:
    run("""
mod = build()
assert is_right(mod)

def task(number):
    b = np.empty((N, N), np.float32)
    mod(np.full((N, N), number, np.float32), b)
    return float(b.min()), float(b.max())

with fork.Pool(2) as pool:
    found = pool.map_async(task, range(20)).get(timeout=60)
assert found == [(2.0 * n, 2.0 * n) for n in range(20)]
""")


def test_a_process_that_is_forked_while_others_compute() -> None:
    run("""
mod, over = build(), threading.Event()
callers = [threading.Thread(target=lambda: [is_right(mod) for _ in iter(over.is_set, True)])
           for _ in range(3)]
for caller in callers:
    caller.start()
try:
    assert all(in_child(lambda: is_right(mod)) for _ in range(10))
finally:
    over.set()
for caller in callers:
    caller.join()
assert is_right(mod)
""")


def test_a_library_of_the_same_name_that_all_can_see_is_not_asked(tmp_path: Path) -> None:
    run(
        """
for name, factor in (("first", 2.0), ("second", 3.0)):
    tw.build_library(program(factor), f"{sys.argv[1]}/{name}.so", "cpu -threads=2")
ctypes.CDLL(f"{sys.argv[1]}/first.so", mode=ctypes.RTLD_GLOBAL)
mod = tw.load(f"{sys.argv[1]}/second.so")
assert is_right(mod, 3.0)
assert in_child(lambda: is_right(mod, 3.0))
""",
        str(tmp_path),
    )
