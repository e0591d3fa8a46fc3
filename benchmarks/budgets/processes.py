"""What a new process takes: to import the package, to answer a command, to build."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

import tilewright as tw
from tilewright import ops
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.codegen.disk_cache import LOCATION

from .line import Line, Settings, with_children


def importing(settings: Settings) -> Iterator[Line]:
    code = (
        "import time, numpy; began = time.perf_counter(); import tilewright; "
        "print(time.perf_counter() - began)"
    )
    times = []
    for _ in range(settings.repeats):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        times.append(float(done.stdout))
    yield Line(
        "import tilewright, beyond numpy", 30, statistics.median(times) * 1e3, "ms", "Python"
    )


SHELL = {"--help": 0.15, "target": 0.3, "db list": 0.4, "db best": 0.4}
"""Commands, and the seconds of their budgets."""


def shell(settings: Settings) -> Iterator[Line]:
    """Processor time of commands in new processes, the least of many, on a session's database."""
    hardly = MeasureConfig(min_samples=1, max_samples=1, sample_seconds=1e-9, timing_seconds=1e-9)
    config = TuneConfig(measure=hardly, finalists=0, pause=0.0)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tuning.db"
        with tw.TuningDatabase(path) as database:
            func = ops.matmul_func(64, 64, 64)
            tw.tune(func, database=database, trials=settings.trials, config=config, progress=False)
        environment = _environment(folder)
        environment["TILEWRIGHT_DB"] = path
        for words, budget in SHELL.items():
            command = [sys.executable, "-m", "tilewright", *words.split()]
            run = partial(subprocess.run, command, capture_output=True, check=True, env=environment)
            seconds = min(with_children(run) for _ in range(max(settings.repeats, 2)))
            yield Line(f"tilewright {words}", budget, seconds, "s", "Python")


def zero_trials(settings: Settings) -> Iterator[Line]:
    """Processor time of builds without a record, in new processes and in one that has built before.

    The second of two new processes finds what the first one has left in the caches.
    """
    size, channels = settings.size, settings.size // 16
    programs = {
        f"matmul {size}^3": f"ops.matmul_func({size}, {size}, {size})",
        f"conv2d {channels}x56x56": f"ops.conv2d_func(1, {channels}, 56, 56, {channels})",
        f"softmax {size}x{size}": f"ops.softmax_func({size}, {size})",
    }
    start = "import time, tilewright as tw; from tilewright import ops; began = 0.0; "
    other = "tw.build(ops.add_relu_func(8)); began = time.process_time(); "
    _printed(f"{start}{other}print(0)", "")
    for name, program in programs.items():
        end = f"tw.build({program}); print(time.process_time() - began)"
        cold, warm, same = list[float](), list[float](), list[float]()
        for _ in range(max(1, settings.repeats // 3)):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(_printed(start + end, folder))
                warm.append(_printed(start + end, folder))
            with tempfile.TemporaryDirectory() as folder:
                same.append(_printed(start + other + end, folder))
        for what, budget, seconds in (
            ("in a new process, cold", 1.5, cold),
            ("in a new process, warm", 0.7, warm),
            ("in the same process, cold", 0.3, same),
        ):
            yield Line(f"build {name} {what}", budget, statistics.median(seconds), "s", "Python")


def _printed(code: str, caches: str) -> float:
    """The number that a new process prints, whose caches are in that folder."""
    command = [sys.executable, "-c", code]
    environment = _environment(caches)
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return float(done.stdout)


def _environment(caches: str) -> dict[str, str]:
    """The variables of a process whose caches are in that folder.

    Python keeps what it compiled of its modules, as it does where the package is installed.
    """
    environment = {**os.environ, LOCATION: caches}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
