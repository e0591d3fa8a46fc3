"""What parts of the search are worth, on recorded measurements: `python -m benchmarks.ablation DB`.

For each program and target of a tuning database, its measured schedules are searched again, with
their recorded times in place of measurements: eight at a time, those predicted best of the rest.
Then with a part switched off: the base model that ships, the learned model altogether (the analytic
estimate alone), all predictions (random order), one choice of the rules (without the sketches that
have it in their name). Printed
is the best time after so many trials over the best time of all, as geometric mean over programs and
seeds: 1 is best, and what changes nothing is worth nothing.

New candidates cannot be replayed, so what evolution is worth does not show here. The base model may
have been trained on measurements of the same programs.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import tilewright as tw
from tilewright.autotune.base_model import SHIPPED, named
from tilewright.autotune.cost_model import CostModel
from tilewright.tuning_db import TargetRecord, Workload

BATCH = 8
POINTS = (8, 16, 32, 64)
ALL, NO_BASE = "everything", "without the base model"
NO_MODEL, RANDOM = "without the model", "random order"


class Recorded(NamedTuple):
    """A schedule that was measured: the names of its rules, and its fastest sample."""

    rules: frozenset[str]
    features: tuple[float, ...]
    seconds: float


def recorded(database: tw.TuningDatabase) -> list[list[Recorded]]:
    """What ran, of each program and comparable target, by this version of the features."""
    found = []
    targets = {t.comparable: t for t in database.records(TargetRecord)}
    for workload in database.records(Workload):
        for target in targets.values():
            best: dict[str, Recorded] = {}
            for measured, schedule in database.history(workload=workload.id, target=target):
                if not measured.samples or measured.features is None:
                    continue
                if measured.feature_version != CostModel.feature_version:
                    continue
                fastest = min(measured.samples)
                if schedule.id in best and best[schedule.id].seconds <= fastest:
                    continue
                rules = frozenset(re.split("[+_]", schedule.generator))
                best[schedule.id] = Recorded(rules, measured.features, fastest)
            if best:
                found.append([best[id] for id in sorted(best)])
    return found


def parts(tasks: Sequence[Sequence[Recorded]]) -> list[str]:
    """What can be switched off: nothing, the base, the model, all predictions, and each rule."""
    rules = sorted({rule for task in tasks for r in task for rule in r.rules if rule})
    return [ALL, NO_BASE, NO_MODEL, RANDOM, *(f"without {rule}" for rule in rules)]


def course(task: Sequence[Recorded], part: str, seed: int) -> Iterator[float]:
    """The best time after each batch of a search without that part; nothing if nothing is left."""
    rng = np.random.default_rng(seed)
    left = [r for r in task if part.removeprefix("without ") not in r.rules]
    left = [left[k] for k in rng.permutation(len(left))]
    base = None if part == NO_BASE else named(SHIPPED)
    model, told = CostModel(seed, base), list[Recorded]()
    while left:
        if part != RANDOM:
            rows = np.array([r.features for r in left])
            scores = rows[:, 0] if part == NO_MODEL else model.predict(rows)
            left = [left[k] for k in np.argsort(scores, kind="stable")]
        told += left[:BATCH]
        del left[:BATCH]
        if part not in (NO_MODEL, RANDOM):
            model.fit(np.array([r.features for r in told]), np.array([r.seconds for r in told]))
        yield min(r.seconds for r in told)


def ratios(
    tasks: Sequence[Sequence[Recorded]], part: str, trials: int, seeds: int
) -> tuple[float, int]:
    """The best time after `trials` over the best of all, and of how many programs none is left."""
    logs, lost = [], 0
    for task in tasks:
        least = min(r.seconds for r in task)
        for seed in range(seeds):
            best = list(islice(course(task, part, seed), -(-trials // BATCH)))
            if best:
                logs.append(math.log(best[-1] / least))
            elif seed == 0:
                lost += 1
    return math.exp(sum(logs) / len(logs)) if logs else math.inf, lost


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", help="a tuning database with measurements")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    with tw.TuningDatabase(options.database, create=False, read_only=True) as database:
        tasks = recorded(database)
    if not tasks:
        raise SystemExit(f"{options.database} has no measurement with features of this version")
    table = Table(
        Column("", no_wrap=True), *(f"{n} trials" for n in POINTS), "nothing left", box=None
    )
    for part in parts(tasks):
        cells = [ratios(tasks, part, n, options.seeds) for n in POINTS]
        table.add_row(part, *(f"{ratio:.3f}" for ratio, _ in cells), str(cells[0][1] or ""))
    Console().print(table)


if __name__ == "__main__":
    main()
