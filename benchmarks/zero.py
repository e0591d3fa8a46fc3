"""Builds without trials on shapes that nobody saw: `python -m benchmarks.zero --seed 1`.

Kernels of random shapes are built by the estimate's choice and by the base model's, then tuned,
and the three are timed interleaved. Speed is that of the tuned kernel's time over theirs: 1 where a
search finds nothing better. The seed is printed; it must be none that the model was trained on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright.autotune.measure.machine import with_rates
from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.codegen.detect import resolve
from tilewright.runtime import time_interleaved

from . import suite
from .peers.tilewright import packed, program, target
from .shapes import cases
from .suite import Case

CHOICES = {"estimate": default_trace, "model": model_trace}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    rows = list(compared(options))
    found = Table(title="zero trials on unseen shapes", box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("kernel")
    for name in ("tuned, us", *CHOICES):
        found.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        speeds = (f"{row['speed'][name]:.2f}" for name in CHOICES)
        found.add_row(row["case"], f"{row['tuned'] * 1e6:.3g}", *speeds)
    means = {name: geometric([r["speed"][name] for r in rows]) for name in CHOICES}
    found.add_row("geometric mean", "", *(f"{m:.3f}" for m in means.values()))
    Console(width=None if sys.stdout.isatty() else 160).print(found)
    if options.json is not None:
        report = {"seed": options.seed, "trials": options.trials, "cases": rows, "mean": means}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.zero", description=__doc__)
    found.add_argument("--seed", type=int, default=1, help="makes the shapes the same again")
    found.add_argument("--count", type=int, default=22, help="of kernels")
    found.add_argument("--trials", type=int, default=64, help="for the tuned ones")
    found.add_argument("--threads", type=int, default=1)
    found.add_argument("--rounds", type=int, default=9)
    found.add_argument("--json", type=Path)
    return found


def compared(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each kernel: the tuned one's seconds, and the speed of each choice beside it."""
    for case in islice(cases(options.seed), options.count):
        func, where = program(case), with_rates(resolve(target(options.threads)))
        with tempfile.TemporaryDirectory() as folder, tw.TuningDatabase(f"{folder}/t.db") as db:
            tw.tune(func, where, database=db, trials=options.trials)
            modules = [tw.build(func, where, db, allow=["record"])]
        chosen = [choose(func, where).apply(func) for choose in CHOICES.values()]
        modules += [tw.build(schedule, where) for schedule in chosen]
        timings = time_interleaved([_call(m, case) for m in modules], rounds=options.rounds)
        tuned, *others = (t.median for t in timings)
        speed = {name: tuned / t for name, t in zip(CHOICES, others, strict=True)}
        print(f"{case.name}: {speed}", flush=True)
        yield {"case": case.name, "tuned": tuned, "speed": speed}


def _call(module: tw.Module, case: Case) -> Callable[[], object]:
    return module.bind(*packed(module, suite.inputs(case)), suite.output(case))


def geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


if __name__ == "__main__":
    sys.exit(main())
