"""Tuning sessions: their time, and the memory of all their processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

import tilewright as tw
from tilewright import ops
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.session.events import Event, Trial

from .line import Line, Settings


def candidate(settings: Settings) -> Iterator[Line]:
    """The slope between a short and a longer session, in which kernels are hardly timed.

    Their times then differ as on a disturbed machine, which is not waited for.
    """
    hardly = MeasureConfig(min_samples=1, max_samples=1, sample_seconds=1e-9, timing_seconds=1e-9)
    config = TuneConfig(measure=hardly, finalists=0, pause=0.0)
    func = ops.matmul_func(64, 64, 64)
    spent, trials = [], []
    for count in (8, 8 + settings.trials // 2):
        with tempfile.TemporaryDirectory() as folder, tw.TuningDatabase(f"{folder}/t.db") as db:
            result = tw.tune(func, database=db, trials=count, config=config, progress=False)
        spent.append(result.seconds - result.spent.build - result.spent.waiting)
        trials.append(result.trials)
    cost = (spent[1] - spent[0]) / max(trials[1] - trials[0], 1)
    yield Line("fixed cost of a measured candidate", 20, cost * 1e3, "ms")


def session(settings: Settings) -> Iterator[Line]:
    """Time and memory of a session and all its processes, as the command line runs it."""
    code = (
        "import sys, tilewright as tw; from tilewright import ops; "
        "path, n, trials = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]); "
        "db = tw.TuningDatabase(path); "
        "tw.tune(ops.matmul_func(n, n, n), database=db, trials=trials, progress=False)"
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"{folder}/t.db", str(settings.size), str(settings.trials)]
        began = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-c", code, *arguments])
        with watched(child.pid) as most:
            status = child.wait()
        seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"the session ended with status {status}")
    buffers = 2 * 4 * 4 * settings.size**2  # three operands and the right result, in two processes
    what = f"{settings.trials} trials of matmul {settings.size}^3"
    yield Line(f"{what}, start to end", 45, seconds, "s")
    yield Line(f"{what}: memory, workload aside", 500, (most[0] - buffers) / 1e6, "MB")


def growth(settings: Settings) -> Iterator[Line]:
    """The memory that many trials add to a session and all its processes.

    The kernels have internal buffers of many sizes, and are hardly timed.
    """
    hardly = MeasureConfig(min_samples=1, max_samples=1, sample_seconds=1e-9, timing_seconds=1e-9)
    config = TuneConfig(measure=hardly, finalists=0, pause=0.0)
    first, count, sizes = 50, 1000 * settings.trials // 64, list[int]()

    def watch(event: Event) -> None:
        if isinstance(event, Trial) and event.number in (first, count):
            sizes.append(memory(os.getpid()))

    with tempfile.TemporaryDirectory() as folder, tw.TuningDatabase(f"{folder}/t.db") as db:
        channels = settings.size // 16
        func = ops.conv2d_func(c=channels, h=28, w=28, o=channels)
        tw.tune(func, database=db, trials=count, config=config, callback=watch, progress=False)
    what = f"memory that trials {first + 1} to {count} of conv2d {channels}x28x28 add"
    before, after = sizes
    yield Line(what, 100, (after - before) / 1e6, "MB")


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """The most bytes that a process and its descendants had for themselves at one time."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            most[0] = max(most[0], memory(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def memory(pid: int) -> int:
    """Bytes of a process and its descendants, pages they share counted once between them."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for process in family:
        try:
            facts = process.memory_full_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        total += getattr(facts, "pss", 0) or facts.uss
    return total
