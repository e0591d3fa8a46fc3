"""What parallel kernels lose to their teams of threads on quiet and on busy processors.

    python -m benchmarks.teams                  # as the processors are
    python -m benchmarks.teams --busy 4         # beside 4 processes that compute

Each product of square matrices is built with the default schedule for all threads and for one.
Both are called in turns of many calls: back to back, after a product in numpy, and after a pause
in which the calling thread computes. Rare late threads show in the mean, not in the median.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

import tilewright as tw
from tilewright.codegen.detect import resolve
from tilewright.ops import matmul_func

SIZES = (48, 128, 256, 512)
PAUSES = (50e-6, 1e-3)
SECONDS = 0.2
TURNS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    options = parser.parse_args(arguments)
    others = [multiprocessing.Process(target=compute, daemon=True) for _ in range(options.busy)]
    for other in others:
        other.start()
    try:
        report()
    finally:
        for other in others:
            other.kill()


def compute() -> None:
    while True:
        pass


def report() -> None:
    threads = resolve("cpu").threads
    print(f"{threads} threads and one; median and mean in us")
    print(f"{'matmul':>7} {'between':>8}{'threads':>18}{'one':>18}{'load':>8}")
    for size in SIZES:
        modules = [
            tw.build(matmul_func(size, size, size), f"cpu -threads={n}") for n in (threads, 1)
        ]
        rng = np.random.default_rng(0)
        a, b = rng.uniform(-1, 1, (2, size, size)).astype(np.float32)
        c, d = np.empty_like(a), np.empty_like(a)
        between: dict[str, Callable[[], object]] = {
            "nothing": lambda: None,
            "numpy": partial(np.matmul, a, b, out=d),
        }
        between |= {f"{s * 1e6:.0f} us": partial(pause, s) for s in PAUSES}
        for name, run in between.items():
            samples: list[list[float]] = [[], []]
            for _ in range(TURNS):
                for module, times in zip(modules, samples, strict=True):
                    times += timed(partial(module, a, b, c), run)
            texts = [
                f"{statistics.median(s) * 1e6:.1f} {statistics.fmean(s) * 1e6:.1f}" for s in samples
            ]
            print(f"{size:>7} {name:>8}{texts[0]:>18}{texts[1]:>18}{os.getloadavg()[0]:>8.1f}")


def timed(call: Callable[[], object], between: Callable[[], object]) -> list[float]:
    """The seconds of each of the calls that fit into `SECONDS`."""
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        between()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def pause(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


if __name__ == "__main__":
    main()
