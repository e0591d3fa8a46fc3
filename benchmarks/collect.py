"""Measurements to train the base model on: `python -m benchmarks.collect --seed 0 --db X`.

Kernels of random shapes are tuned for a short while, with half of the candidates drawn blindly: a
model that saw only what a search liked does not know what to avoid.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import islice

import numpy as np

import tilewright as tw
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.search.search import SearchConfig

from .peers.tilewright import program, target
from .shapes import cases
from .suite import Case

MEASURE = MeasureConfig(min_samples=8, sample_seconds=5e-4, slack=1e6)
"""Slow candidates too get samples enough for one of them to be undisturbed."""
EVERYWHERE = 100.0
"""Octaves: any row may be drawn blindly. Records of sessions are JSON, which has no infinity."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    print(f"seed {options.seed}")
    rng = np.random.default_rng((options.seed, 1))
    search = SearchConfig(random=options.random, explored=EVERYWHERE)
    config = TuneConfig(finalists=0, measure=MEASURE, search=search)
    began = time.monotonic()
    with tw.TuningDatabase(options.db) as database:
        large = (
            case
            for case in cases(options.seed)
            if roughly(case) >= options.least
            and any(case.name.startswith(name) for name in options.only)
        )
        for case in islice(large, options.count):
            threads = int(rng.choice(options.threads))
            if time.monotonic() - began > options.seconds:
                break
            try:
                result = tw.tune(
                    program(case),
                    target(threads),
                    database=database,
                    trials=options.trials,
                    seconds=options.each,
                    config=config,
                )
            except tw.TilewrightError as error:
                print(f"{case.name}: {error}", file=sys.stderr)
                continue
            print(f"{case.name}, {threads} thread(s): {result}", flush=True)
    return 0


def roughly(case: Case) -> float:
    """Seconds at 100 GFLOP/s and 10 GB/s, whichever is more."""
    return max(case.flops / 1e11, case.bytes / 1e10)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.collect", description=__doc__)
    found.add_argument("--seed", type=int, default=0, help="makes the shapes the same again")
    found.add_argument("--count", type=int, default=44, help="of kernels")
    found.add_argument("--only", nargs="+", default=[""], help="how names of kernels begin")
    found.add_argument("--least", type=float, default=0.0, help="seconds a kernel takes, roughly")
    found.add_argument("--trials", type=int, default=48, help="for each kernel")
    found.add_argument("--each", type=float, default=30.0, help="seconds for each kernel")
    found.add_argument("--seconds", type=float, default=3600.0, help="for all of them")
    found.add_argument("--random", type=float, default=0.5, help="the share drawn blindly")
    found.add_argument("--threads", type=int, nargs="+", default=[1])
    found.add_argument("--db", default="collected.db")
    return found


if __name__ == "__main__":
    sys.exit(main())
