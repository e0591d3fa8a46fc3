"""Calls of kernels, and lookups of schedules."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import ops, te
from tilewright.runtime import time_interleaved

from ..filled import filled
from .line import Line, Settings, median


def lookup(settings: Settings) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        database, workloads, target, toolchain = filled(Path(folder) / "t.db", settings.records)
        times = []
        for _ in range(5):
            for workload in workloads:
                began = time.perf_counter()
                found = database.best(workload.id, target, toolchain)
                times.append(time.perf_counter() - began)
                assert found is not None
        database.close()
    what = f"look up the best among {settings.records:,} measurements, warm"
    yield Line(what, 1, statistics.median(times[len(workloads) :]) * 1e3, "ms", "Python")


class Exporter:
    """An array of no known type: it has DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def call(settings: Settings) -> Iterator[Line]:
    module = tw.build(tw.Schedule(ops.add_relu_func(1)), "cpu -threads=1")
    arrays = [np.zeros(1, np.float32) for _ in range(3)]
    others = [Exporter(a) for a in arrays]
    # numpy 2.0 knows the unversioned protocol alone.
    versioned = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
    options = {"max_version": (1, 0)} if versioned else {}

    def export() -> None:
        for other in others:
            other.__dlpack_device__()
            other.__dlpack__(**options)

    def each(run: Callable[[], object], count: int = 2000) -> float:
        """Processor seconds of one of many calls."""
        return median(lambda: [run() for _ in range(count)], settings.repeats) / count

    bare, whole = each(module.bind(*arrays)), each(lambda: module(*arrays))
    foreign, exporting = each(lambda: module(*others)), each(export)
    yield Line("call a kernel with three ndarrays, all checks", 5, whole * 1e6, "us", "Python")
    yield Line("the same, arguments bound beforehand", None, bare * 1e6, "us")
    yield Line("call it with three DLPack objects", 11, foreign * 1e6, "us", "Python")
    yield Line("of that, the objects exporting themselves", None, exporting * 1e6, "us")


def index_check(settings: Settings) -> Iterator[Line]:
    """The time that checking the values of an index array adds to a call, beside a pass over them.

    The kernel reads 64 of the indices, so that its own time is next to nothing.
    """
    count = 16 * settings.size**2
    table = te.placeholder((64,), name="table")
    idx = te.placeholder((count,), "int32", name="idx", value_range=(0, 64))
    rows = te.compute((64,), lambda i: table[idx[i]], name="rows")
    program = tw.Schedule(te.func([table, idx, rows], name="gather"))
    arrays = np.ones(64, np.float32), np.zeros(count, np.int32), np.zeros(64, np.float32)
    checked, trusting = (
        tw.build(program, "cpu -threads=1", trust_indices=trust).bind(*arrays)
        for trust in (False, True)
    )
    whole, bare, largest = time_interleaved(
        [checked, trusting, arrays[1].max], rounds=settings.repeats
    )
    check = whole.median - bare.median
    yield Line(f"check {count:,} indices (int32)", None, check * 1e6, "us")
    yield Line("of numpy's maximum of them", 1.5, check / largest.median, "times")
