"""What a deployment costs: `python -m benchmarks.deploy`.

Kernels of random shapes are tuned by a trial each, and built from these records into one library,
by a process that has no caches. Its files are measured, and loaded by processes of their own: the
time is that of the first `load`, after the import of the runtime. So is a model with large weights,
whose digests are computed while they are mapped; the same bytes, read and hashed in one piece, are
beside it. Then the wheel of the runtime is built, and calls are timed that are counted and not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.base.durations import format_seconds
from tilewright.base.text import format_bytes
from tilewright.graph import Builder, Graph, TensorType

from .peers.tilewright import program
from .shapes import cases

LIBRARY_BYTES = 1 << 20
"""At most, of a library of 24 kernels."""
WHEEL_BYTES = 400_000
"""At most, of the runtime."""
ROOT = Path(__file__).resolve().parent.parent
_CALLS = 2000

BUILD = """
import json, resource, sys, time
import tilewright as tw
from benchmarks.deploy import kernels
count, seed, database, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
programs = kernels(count, seed)
began = time.perf_counter()
tw.build_library(programs, path, "cpu", database, allow=("record",))
spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
processor = sum(one.ru_utime + one.ru_stime for one in spent)
print(json.dumps([time.perf_counter() - began, processor]))
"""
LOAD = """
import json, sys, time
began = time.perf_counter()
from tilewright.runtime import load
imported, processor = time.perf_counter(), time.process_time()
found = load(sys.argv[1])
took = time.perf_counter() - imported
print(json.dumps([imported - began, took, time.process_time() - processor]))
"""
READ = """
import hashlib, json, sys, time
began, processor = time.perf_counter(), time.process_time()
hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest()
print(json.dumps([0.0, time.perf_counter() - began, time.process_time() - processor]))
"""


def kernels(count: int, seed: int) -> dict[str, tw.Func]:
    """So many programs of random shapes, by names of their own."""
    drawn = zip(range(count), cases(seed), strict=False)
    return {f"{case.op}_{number}": program(case) for number, case in drawn}


def weighted(size: int) -> Graph:
    """A model with a matrix of that many bytes."""
    columns = max(64, int((size // 4) ** 0.5) // 64 * 64)
    rng = np.random.default_rng(0)
    builder = Builder("weighted")
    x = builder.input("x", TensorType("float32", (1, columns)))
    w = builder.constant(rng.standard_normal((columns, columns), np.float32), "float32")
    return builder.graph({"y": builder.add("matmul", x, w)})


def alone(script: str, *arguments: object, **environment: str) -> Any:
    """What a process of its own prints."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def loads(rounds: int, *files: tuple[str, Path]) -> list[list[list[float]]]:
    """Times of scripts on files, interleaved: of each the seconds of import and of load, and those
    of the processor for the load."""
    found: list[list[list[float]]] = [[] for _ in files]
    for _ in range(rounds):
        for times, (script, path) in zip(found, files, strict=True):
            times.append(alone(script, path))
    return found


def wheel(folder: Path) -> Path:
    """Build the wheel of the runtime, of a copy: building leaves files beside the sources."""
    source = folder / "source"
    for name in ("base", "packaging", "runtime", "target"):
        ignored = shutil.ignore_patterns("__pycache__", "build")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "LICENSE", source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    here = find_spec("setuptools") is not None  # else it is downloaded
    command += ["--no-build-isolation"] if here else []
    subprocess.run([*command, source / "packaging/runtime"], check=True)
    return next(folder.glob("*.whl"))


def calls(folder: Path, rounds: int) -> tuple[float, float]:
    """Seconds of a call with three arrays of a loaded kernel, and of one that is counted."""
    path = folder / "one_element.so"
    tw.build_library(tw.ops.add_relu_func(1), path, "cpu -threads=1", allow=("default",))
    arrays = [np.zeros(1, np.float32) for _ in range(3)]
    pair = [partial(tw.load(path, counting=counted), *arrays) for counted in (False, True)]
    times = [[timeit(call, number=_CALLS) / _CALLS for call in pair] for _ in range(rounds)]
    bare, counted = (statistics.median(own) for own in zip(*times, strict=True))
    return bare, counted


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=24)
    parser.add_argument(
        "--weights", type=int, default=100 << 20, help="bytes of the model's weights"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the shapes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--db", type=Path, help="records of the kernels, kept for another run")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = given.db or folder / "tuning.db"
        programs = kernels(given.kernels, given.seed)
        known = database.exists()
        store = tw.TuningDatabase(database)
        if not known:
            trials = len(programs)
            tw.tune([*programs.values()], "cpu", database=store, trials=trials, progress=False)
        library = folder / "ops.so"
        count, seed = given.kernels, given.seed
        seconds, processor = alone(
            BUILD, count, seed, database, library, TILEWRIGHT_CACHE_DIR=str(folder / "cache")
        )
        sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("ops*"))}
        told = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
        whole = sum(sizes.values())
        print(f"library of {count} kernels: {format_bytes(whole)} ({told})", end="")
        print(f", at most {format_bytes(LIBRARY_BYTES)}")
        print(
            f"built from records in {format_seconds(seconds)}, at most 10 s, with no caches; "
            f"{format_seconds(processor)} of processors, imports too"
        )

        single, model = folder / "one.so", folder / "model.so"
        tw.build_library(next(iter(programs.values())), single, "cpu", store)
        tw.build_library(weighted(given.weights), model, "cpu", allow=("default",))
        held = model.with_name("model.so.weights")
        names = ["a kernel", f"the {count} kernels", "a model", "its weights, read and hashed"]
        found = loads(given.rounds, (LOAD, single), (LOAD, library), (LOAD, model), (READ, held))
        imports = [imported for times in found[:3] for imported, *_ in times]
        print(f"the runtime is imported in {format_seconds(statistics.median(imports))}")
        for what, times in zip(names, found, strict=True):
            own = [took for _, took, _ in times]
            spent = statistics.median(processor for *_, processor in times)
            print(
                f"load of {what:<30} {format_seconds(statistics.median(own)):>8}"
                f" ({format_seconds(min(own))} to {format_seconds(max(own))}),"
                f" {format_seconds(spent)} of processors"
            )
        bare, counted = calls(folder, given.rounds)
        print(f"call of a kernel of one element: {format_seconds(bare)}, counted "
              f"{format_seconds(counted)}")  # fmt: skip
        print(f"wheel of the runtime: {format_bytes(wheel(folder).stat().st_size)}, at most "
              f"{format_bytes(WHEEL_BYTES)}")  # fmt: skip
        print(f"weights: {format_bytes(held.stat().st_size)}; a kernel may take 10 ms, and a model "
              "with 100 MB of weights 100 ms")  # fmt: skip


if __name__ == "__main__":
    main()
