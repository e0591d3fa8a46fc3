"""The main use from end to end: tune a kernel, then build it again from the database.

    python examples/demo.py [--trials 64] [--size 1024] [--database tuning.db]

Tuning and building run in different processes, as in a real deployment: the second finds its
schedule in the database and measures no candidates. It then compares the build with the program as
written, with the untuned build, which is what `tw.build` chooses without a record, and with numpy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matmul import matmul
from rich import box
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright.autotune.result import TuneResult
from tilewright.base.durations import format_seconds
from tilewright.base.text import short_id
from tilewright.codegen.detect import resolve
from tilewright.runtime import Timing, time_interleaved
from tilewright.runtime.timer import wait_for_threads
from tilewright.tuning_db.interleaved_comparison import time_ratio

ROUNDS = 41
SLOW_SECONDS = 1.0
TUNED = "tuned"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--size", type=int, default=1024, help="of the square matrices")
    parser.add_argument("--database", default="tuning.db")
    parser.add_argument("--only-build", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        if options.only_build:
            build_and_compare(options.size, options.database)
            return 0
        if tune(options.size, options.database, options.trials).interrupted:
            return 130
        again = [sys.executable, __file__, "--only-build"]
        again += ["--size", str(options.size), "--database", options.database]
        return subprocess.run(again, check=False).returncode
    except tw.TilewrightError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def tune(size: int, database: str, trials: int) -> TuneResult:
    """Search for a fast schedule; the database remembers it."""
    target = resolve("cpu")
    print(f"This machine: {target.facts['model']}, {target.threads} threads ({target})")
    print(f"numpy {np.__version__} takes {format_seconds(numpy_seconds(size))}: the time to beat")
    print(f"Tuning examples/matmul.py:matmul, {size}^3 float32, into {database}\n", flush=True)
    with tw.TuningDatabase(database) as db:
        result = tw.tune(matmul(size, size, size), target=target, database=db, trials=trials)
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in vars(result.spent).items())
    print(f"\nWhere the {result.seconds:.1f} s went: {spent}")
    if result.best is not None:
        print(f"\nIts schedule, as Python that runs:\n\n{indented(str(result.best.trace))}")
    return result


def numpy_seconds(size: int) -> float:
    """The median time of numpy's product; the last table compares it interleaved."""
    a, b, c = np.ones((3, size, size), np.float32)
    return time_interleaved([lambda: np.matmul(a, b, out=c)], rounds=9)[0].median


@dataclass(frozen=True)
class Row:
    """One way to compute the product, its largest error, and the seconds of its first call."""

    name: str
    run: Callable[[], object]
    error: float
    seconds: float


def build_and_compare(size: int, database: str) -> None:
    """In a separate process: build from the database, and time the result."""
    func = matmul(size, size, size)
    with tw.TuningDatabase(database, create=False) as db:
        before = len(db.measurements())
        began = time.perf_counter()
        tuned = tw.build(func, target="cpu", database=db, allow=["record"])
        seconds = time.perf_counter() - began
        measured = len(db.measurements()) - before
    schedule = tuned.origin.schedule_id
    assert schedule is not None, "nothing but records is allowed"
    print(
        f"\nA new process built it in {seconds:.2f} s with {measured} measurements, "
        f"from schedule {short_id(schedule)} of {database}:",
        flush=True,
    )
    modules = {
        "as written": tw.build(tw.Schedule(func), target="cpu"),
        "untuned build": tw.build(func, target="cpu"),
        TUNED: tuned,
    }
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, size, size)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    c = np.empty((size, size), np.float32)  # one for all: where it lies changes their times
    runs: dict[str, Callable[[], object]] = {
        name: partial(module, a, b, c) for name, module in modules.items()
    }
    runs[f"numpy {np.__version__}"] = lambda: np.matmul(a, b, out=c)
    print("Calling each once: one that takes a second or more is not called again.", flush=True)
    rows = []
    for name, run in runs.items():
        c.fill(np.nan)
        began = time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        rows.append(Row(name, run, float(np.abs(c - exact).max()), seconds))
    show(rows, timed(rows), flops=2 * size**3)


def timed(rows: Sequence[Row]) -> list[Timing]:
    """Interleaved timings, so that a disturbance of the machine affects all rows alike.

    Rows whose first call takes a second or more are not called again: that is their timing.
    """
    fast = [row for row in rows if row.seconds < SLOW_SECONDS]
    many = time_interleaved([row.run for row in fast], rounds=ROUNDS, before_turn=wait_for_threads)
    timings = iter(many)
    return [
        next(timings) if row.seconds < SLOW_SECONDS else Timing((row.seconds,), 1, row.seconds)
        for row in rows
    ]


def show(rows: Sequence[Row], timings: Sequence[Timing], *, flops: int) -> None:
    (tuned,) = (t for row, t in zip(rows, timings, strict=True) if row.name == TUNED)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("matrix product")
    for name in ("median", "GFLOP/s", "x tuned", "95% interval", "error"):
        table.add_column(name, justify="right")
    for row, timing in zip(rows, timings, strict=True):
        compared = time_ratio(timing.samples, tuned.samples)
        low, high = compared.interval or (None, None)
        table.add_row(
            row.name,
            format_seconds(timing.median),
            f"{flops / timing.median / 1e9:.1f}",
            f"{compared.ratio:.3g}",
            "" if timing is tuned or low is None else f"{low:.3g} to {high:.3g}",
            f"{row.error:.1e}",
            style="bold green" if timing is tuned else None,
        )
    Console().print(table)
    print(
        "The untuned build is what tw.build chooses without a record. Whole calls from\n"
        "Python, in float32, interleaved. `x tuned` is the median of the ratios in each\n"
        "round; an interval around 1 is a tie. Errors are against the product in float64."
    )


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
