"""The cost of each step, beside its budget: `python -m benchmarks.budgets`.

The budgets are for two virtual cores with AVX-512. Times are medians of many repetitions, warm, in
processor time where one processor does the work. The program is the matrix product 1024^3 in
float32 with the schedule that is taken by default.

Machines differ, and so does one from hour to hour. A reference loop in Python and one in C are
timed before and after each group of lines. `machine` is how many times as long they took as on the
machine that `REFERENCES` was measured on, an AMD EPYC (Zen 5). `ours` is the share of the budget
that remains after division by it. Where both columns exceed the budget, this code does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich import box
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.events import Event, Trial
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.model.base_model import SHIPPED, named
from tilewright.autotune.model.cost_model import CostModel
from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.model.profile import profile
from tilewright.autotune.model.target_model import model_for
from tilewright.autotune.search.candidates import Rowspace, decided
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.codegen.build import compile_func
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cpu import llvm
from tilewright.codegen.cuda.compiler import versions
from tilewright.codegen.cuda.emit import emit as emit_cuda
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.codegen.generator import Part
from tilewright.codegen.lower import lower
from tilewright.errors import BuildError, ScheduleError
from tilewright.runtime import time_interleaved
from tilewright.schedule import Trace, require
from tilewright.schedule.render import explain
from tilewright.target import CpuTarget, CudaTarget
from tilewright.tir.ir import Func, Store, Var
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from .filled import filled

ROWS = 20_000


@dataclass(frozen=True)
class Line:
    """A budget and what was measured, in `unit`; without a budget it is for information.

    What cannot be measured on this machine is `None`, and left out.
    `reference` names the loop that does similar work, if one does. `machine` is how many times as
    long that took here as on the machine of the reference.
    """

    what: str
    budget: float | None
    measured: float | None
    unit: str
    reference: str | None = None
    machine: float | None = None

    @property
    def share(self) -> float | None:
        if self.budget is None or self.measured is None:
            return None
        return self.measured / self.budget


@dataclass(frozen=True)
class Settings:
    """How much is done: `trials` of the session, `records` to look up among, `size` of matrices."""

    trials: int = 64
    records: int = 1_000_000
    size: int = 1024
    repeats: int = 15


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.budgets", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help=f"of {', '.join(BUDGETS)}")
    parser.add_argument("--json", type=Path, default=Path("build/budgets.json"))
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - set(BUDGETS)
    if unknown:
        parser.error(f"no budget {', '.join(sorted(unknown))}; there are {', '.join(BUDGETS)}")
    settings = (
        Settings(trials=8, records=2000, size=128, repeats=3) if options.quick else Settings()
    )
    lines: list[Line] = []
    for name in options.only or BUDGETS:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        lines += paced(BUDGETS[name], settings)
    Console(width=None if sys.stdout.isatty() else 120).print(table(lines))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    return 0


def table(lines: Sequence[Line]) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("what")
    for name in ("budget", "measured", "of it", "machine", "ours"):
        found.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        share, machine = line.share, line.machine
        ours = None if share is None or machine is None else share / machine
        found.add_row(
            line.what,
            "" if line.budget is None else f"{line.budget:g} {line.unit}",
            "left out" if line.measured is None else f"{line.measured:.3g} {line.unit}",
            "" if share is None else f"{share:.0%}",
            "" if machine is None else f"{machine:.2f}",
            "" if ours is None else f"{ours:.0%}",
            style="bold red" if share is not None and min(share, ours or share) > 1 else None,
        )
    return found


# The machine


def build_records() -> None:
    """The reference in Python: small objects are made, and looked up by type and by identity."""
    known: dict[object, int] = {}
    for number in range(2000):
        record = Line("record", None, float(number), "ms")
        known[record.unit, number] = len(known) if type(record) in _KINDS else 0


_KINDS = {Line: 0}
_TEXT = bytes((n * n // 7 + n // 64) % 251 for n in range(1 << 16))
REFERENCES: dict[str, tuple[Callable[[], object], float]] = {
    "Python": (build_records, 1.5e-3),
    "C": (partial(zlib.compress, _TEXT, 9), 1.25e-3),
}
"""Loops, and the processor seconds that they take on the machine of the reference."""


def paced(run: Callable[[Settings], Iterator[Line]], settings: Settings) -> list[Line]:
    """The lines of a group, with what the reference loops took around it."""

    def times() -> dict[str, float]:
        return {name: median(loop, 15) / usual for name, (loop, usual) in REFERENCES.items()}

    before, lines, after = times(), list(run(settings)), times()
    return [
        line
        if line.reference is None
        else replace(line, machine=(before[line.reference] + after[line.reference]) / 2)
        for line in lines
    ]


# The compiler


@cache
def subject(size: int) -> tuple[Func, CpuTarget, Trace]:
    """The program, this machine, and the default schedule."""
    func, target = ops.matmul_func(size, size, size), CpuTarget.of(resolve("cpu"))
    return func, target, default_trace(func, target)


def median(run: Callable[[], Any], repeats: int) -> float:
    """The median of the processor seconds of `repeats` calls, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return statistics.median(times)


STEPS = 25
"""Of a trace of a matmul: what the budget for its replay is about."""


def replay(settings: Settings) -> Iterator[Line]:
    func, _, trace = subject(settings.size)
    seconds = median(lambda: trace.apply(func), settings.repeats)
    share = STEPS / len(trace)
    yield Line(f"replay {STEPS} steps, of {len(trace)}", 5, share * seconds * 1e3, "ms", "Python")


def verifying(settings: Settings) -> Iterator[Line]:
    """Programs of two hundred nodes, about, and one that takes questions about integers."""
    func, target, trace = subject(settings.size)
    softmax = ops.softmax_func(settings.size, settings.size)
    programs = {
        "layer_norm": ops.layer_norm_func(settings.size, settings.size),
        "softmax, scheduled": default_trace(softmax, target).apply(softmax).func,
        "matmul, scheduled": trace.apply(func).func,
        "matmul, double-buffered": double_buffered(settings.size),
    }
    for name, program in programs.items():
        nodes = sum(1 for _ in walk(program.body))
        seconds = median(partial(verify, program), settings.repeats)
        yield Line(f"verify {name} ({nodes} nodes)", 20, seconds * 1e3, "ms", "Python")


def double_buffered(size: int) -> Func:
    sch = tw.Schedule(ops.matmul_func(size, size, size))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(loop, factors=[None, 16]) for loop in (i, j, k))
    sch.reorder(i0, j0, k0, i1, j1, k1)
    for operand in range(2):
        copy = sch.cache_read(block, operand, "local")
        sch.compute_at(copy, k0)
        sch.double_buffer(copy, k0)
    return sch.func


def refusing(settings: Settings) -> Iterator[Line]:
    """A condition that does not hold beside one that does, in a schedule of many steps."""
    func, _, trace = subject(settings.size)
    schedule = trace.apply(func)
    loop, times = Var("i"), 1000
    steps, history = list(schedule.trace.steps), [(func,)] * (len(trace) + 1)

    def demand(holds: bool) -> None:
        for _ in range(times):
            try:
                require(
                    holds, "factor {0} does not divide extent {1}", 3, 16,
                    at=loop, hint=lambda: "2, 4", found=3, alternatives=lambda: [2, 4],
                )  # fmt: skip
            except ScheduleError as error:
                explain(error, steps[-1], tuple(history), 0, tuple(steps), ())

    refused, met = (median(partial(demand, h), settings.repeats) for h in (False, True))
    yield Line("refuse a step, beyond the check", 5, (refused - met) / times * 1e6, "us", "Python")


STORES = 195
"""Of a matmul with a tile of 8 x 48, lowered: what the budget for that is about.

A tile that divides neither side is copied for each of its edges, and has twice as many.
"""


def lowering(settings: Settings) -> Iterator[Line]:
    func, target, trace = subject(settings.size)
    scheduled = trace.apply(func).func
    seconds = median(lambda: lower(scheduled, target), settings.repeats)
    stores = sum(type(n) is Store for n in walk(lower(scheduled, target)))
    share = STORES / stores
    yield Line(f"lower {STORES} stores, of {stores}", 15, share * seconds * 1e3, "ms", "Python")


def machine_code(settings: Settings) -> Iterator[Line]:
    func, target, trace = subject(settings.size)
    lowered = lower(trace.apply(func).func, target)
    signature = signature_of(func)

    def emit() -> str:
        return llvm.emit(lowered, signature, target)[0]

    text = emit()
    seconds = median(emit, settings.repeats)
    yield Line(f"write LLVM IR ({text.count(chr(10))} lines)", None, seconds * 1e3, "ms")
    seconds = median(
        lambda: llvm.object_code(llvm.optimise(text, target), target), settings.repeats
    )
    yield Line("LLVM: optimise and emit it", 60, seconds * 1e3, "ms", "C")


# The search


def scoring(settings: Settings) -> Iterator[Line]:
    side = max(4, settings.size // 16)
    yield from _scoring("matmul", ops.matmul_func(settings.size, settings.size, settings.size))
    yield from _scoring("conv2d", ops.conv2d_func(1, side, side, side, side))


def _scoring(name: str, func: Func) -> Iterator[Line]:
    """A search's work on a candidate, over all sketches of a program, split by stage."""
    target, rng, clock = resolve("cpu"), np.random.default_rng(0), time.process_time
    base, count = named(SHIPPED, MODEL), 0
    stages = dict.fromkeys(("draw and check", "featurise", "score"), 0.0)
    for sketch in sketches(func, target):
        space = Rowspace(sketch)
        source = profile(sketch.func, sketch.space.bounds)
        model = CostModel(base=base)
        estimate = MODEL.estimator(source, target)
        width = 1 + len(sketch.variables)
        rows = space.sample(rng, 100)
        known = estimate(rows)
        columns = np.hstack([known.features, decided(0, rows, width)])
        model.fit(columns, known.seconds * rng.uniform(0.5, 2, len(rows)))
        times = [clock()]
        rows = space.sample(rng, ROWS)
        times.append(clock())
        features = np.hstack([estimate(rows).features, decided(0, rows, width)])
        times.append(clock())
        model.predict(features)
        times.append(clock())
        for stage, (began, ended) in zip(stages, pairwise(times), strict=True):
            stages[stage] += ended - began
        count += len(rows)
    each = {stage: seconds / max(count, 1) * 1e6 for stage, seconds in stages.items()}
    for stage, microseconds in each.items():
        yield Line(f"{stage} a candidate of {name}", None, microseconds, "us")
    yield Line(f"all of it ({count:,} candidates of {name})", 10, sum(each.values()), "us", "C")


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


# GPUs


CUDA = CudaTarget.named("sm_90a")


def gpu(settings: Settings) -> Iterator[Line]:
    """A search's work on a candidate, and builds of what is chosen without trials."""
    size, channels = settings.size, settings.size // 4
    matmul = ops.matmul_func(4 * size, 4 * size, 4 * size)
    conv2d = ops.conv2d_func(1, channels, 56, 56, channels)
    yield from _scoring_again("matmul", matmul)
    yield from _scoring_again("conv2d", conv2d)
    programs = {
        "matmul": matmul,
        "conv2d": conv2d,
        "softmax": ops.softmax_func(size, size),
        "row sums": ops.reduction_func("sum", size, size),
        "transposition": ops.transpose_func(size, size),
    }
    chosen = [default_trace(f, CUDA).apply(f).func for f in programs.values()]
    written = [median(partial(_cuda_text, f), settings.repeats) for f in chosen]
    what = f"lower {len(programs)} programs and write CUDA C++ (median)"
    yield Line(what, None, statistics.median(written) * 1e3, "ms", "Python")
    what = f"build {len(programs)} programs (median of processor seconds)"
    try:
        compiler = " ".join(*versions().items())
    except BuildError as error:
        yield Line(f"{what}: {str(error).splitlines()[0]}", 1.5, None, "s")
        return
    built = [_with_children(partial(compile_func, f, CUDA)) for f in chosen]
    yield Line(f"{what}, {compiler}", 1.5, statistics.median(built), "s", "C")


def _cuda_text(func: Func) -> str:
    part = Part(lower(func, CUDA), signature_of(func))
    return emit_cuda([part], CUDA, strict_fp=False).text


def _scoring_again(name: str, func: Func) -> Iterator[Line]:
    """A search's work on a candidate of sketches for GPUs, whose spaces may be small.

    Children of the rows of each sketch are drawn and scored, as in rounds of a session, which meets
    most of them again. What is new takes longer, and all different rows are new once: a line of
    its own, and a part of the whole.
    """
    rng, clock = np.random.default_rng(0), time.process_time
    stages = dict.fromkeys(("draw and check", "featurise again", "score"), 0.0)
    made, different, first = sketches(func, CUDA), 0, 0.0
    for sketch in made:
        space = Rowspace(sketch)
        estimate = model_for(CUDA).estimator(profile(sketch.func, sketch.space.bounds), CUDA)
        model, width = CostModel(), 1 + len(sketch.variables)
        rows = space.sample(rng, ROWS)
        different += len(rows)
        began = clock()
        known = estimate(rows)
        first += clock() - began
        columns = np.hstack([known.features, decided(0, rows, width)])
        model.fit(columns, known.seconds * rng.uniform(0.5, 2, len(rows)))
        times = [clock()]
        space.mutate(rng, rows, ROWS)
        times.append(clock())
        again = rows[rng.integers(len(rows), size=ROWS)]
        features = np.hstack([estimate(again).features, decided(0, again, width)])
        times.append(clock())
        model.predict(features)
        times.append(clock())
        for stage, (start, end) in zip(stages, pairwise(times), strict=True):
            stages[stage] += end - start
    candidates = ROWS * len(made)
    each = {stage: seconds / candidates * 1e6 for stage, seconds in stages.items()}
    for stage, microseconds in each.items():
        yield Line(f"{stage} a candidate of {name} on a GPU", None, microseconds, "us")
    yield Line(f"featurise a new one, of {different:,}", None, first / different * 1e6, "us")
    what = f"all of it, {ROWS:,} candidates of each of {len(made)} sketches of {name} on a GPU"
    yield Line(what, 10, sum(each.values()) + first / candidates * 1e6, "us", "C")


def _with_children(run: Callable[[], object]) -> float:
    """The processor seconds of a call, those of the processes that it started included."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    run()
    after, spent = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time() - began
    return spent + after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


# The database


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


# The runtime


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
    """The number that a new process prints, whose caches are in that folder.

    Python keeps what it compiled of its modules, as it does where the package is installed.
    """
    environment = {**os.environ, LOCATION: caches}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=environment
    )
    return float(done.stdout)


BUDGETS: dict[str, Callable[[Settings], Iterator[Line]]] = {
    "replay": replay,
    "verify": verifying,
    "refuse": refusing,
    "lower": lowering,
    "llvm": machine_code,
    "score": scoring,
    "gpu": gpu,
    "candidate": candidate,
    "lookup": lookup,
    "call": call,
    "indices": index_check,
    "import": importing,
    "build": zero_trials,
    "session": session,
    "growth": growth,
}


if __name__ == "__main__":
    sys.exit(main())
