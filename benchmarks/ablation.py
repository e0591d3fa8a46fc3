"""The worth of parts of the search, on recorded measurements: `python -m benchmarks.ablation DB`.

For each program and target of a tuning database, its measured schedules are searched again, with
their recorded times in place of measurements: eight at a time, drawn from the rest as a search
does. Then with a part switched off: the base model that ships, what is learned of the other
programs of the database, what a session learns of decisions and of failures, the chance in what is
drawn (the best predicted in their order), the learned model altogether (the analytic estimate
alone), all predictions (random order), one choice of the rules (without the sketches that have it
in their name). Printed is the best time after so many trials over the best time of all, as
geometric mean over programs and seeds: 1 is best, and what changes nothing is worth nothing. While
all have failed, that counts as the slowest of all. Then the share of those trials that failed.

New candidates cannot be replayed, so what evolution is worth does not show here. The base model may
have been trained on measurements of the same programs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import tilewright as tw
from tilewright.autotune.model.base_model import SHIPPED, named
from tilewright.autotune.model.cost_model import CostModel, TrainingRows
from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.search.candidates import decided
from tilewright.autotune.search.pool import drawn
from tilewright.autotune.search.search import SearchConfig
from tilewright.schedule import Trace
from tilewright.tuning_db import Outcome, TargetRecord, Workload

BATCH = 8
POINTS = (8, 16, 32, 64)
EACH = 32
ALL, NO_BASE, NO_OTHERS = "everything", "without the base model", "without other programs"
NO_DECISIONS, NO_FAILURES = "without decisions", "without failures"
NO_CHANCE = "without chance"
NO_MODEL, RANDOM = "without the model", "random order"


class Recorded(NamedTuple):
    """A schedule that was measured: the names of its rules, its sketch, and its fastest sample.

    Its `seconds` are infinite if it failed.
    """

    rules: frozenset[str]
    sketch: str
    row: tuple[int, ...]
    features: tuple[float, ...]
    seconds: float


class Task(NamedTuple):
    """The measurements of a program on comparable targets; `family` is one for all its sizes."""

    family: str
    target: str
    tried: Sequence[Recorded]


class Worth(NamedTuple):
    """The result of a search: its best time after each of `POINTS` over the best of all.

    `failed` is the share of its trials that did. Of `lost` programs no candidate is left.
    """

    ratios: tuple[float, ...]
    failed: float
    lost: int


def recorded(database: tw.TuningDatabase) -> list[Task]:
    """The measurements of each program and comparable target with this version of the features."""
    found = []
    targets = {t.comparable: t for t in database.records(TargetRecord)}
    for workload in database.records(Workload):
        for target in targets.values():
            best: dict[str, Recorded] = {}
            for measured, schedule in database.history(workload=workload.id, target=target):
                if measured.features is None:
                    continue
                if measured.feature_version != MODEL.feature_version:
                    continue
                fastest = min(measured.samples) if measured.outcome is Outcome.OK else math.inf
                if schedule.id in best and best[schedule.id].seconds <= fastest:
                    continue
                rules = frozenset(c.partition("(")[0] for c in schedule.generator.split("+"))
                trace = Trace.from_json(schedule.trace)
                row = tuple(v or 0 for values in trace.decisions.values() for v in values)
                sketch = trace.opened().to_json(notes=False)
                best[schedule.id] = Recorded(rules, sketch, row, measured.features, fastest)
            if any(math.isfinite(r.seconds) for r in best.values()):
                tried = [best[id] for id in sorted(best)]
                found.append(Task(workload.family or workload.id, target.comparable, tried))
    return found


def parts(tasks: Sequence[Task]) -> list[str]:
    """The parts to switch off: none, parts of the model, all predictions, and each rule."""
    rules = sorted({rule for task in tasks for r in task.tried for rule in r.rules if rule})
    switched = [ALL, NO_BASE, NO_OTHERS, NO_DECISIONS, NO_FAILURES, NO_CHANCE, NO_MODEL, RANDOM]
    return [*switched, *(f"without {rule}" for rule in rules)]


def columns(tried: Sequence[Recorded]) -> np.ndarray:
    """The columns that a session learns from: the features, and behind them the decisions."""
    numbers = {sketch: n for n, sketch in enumerate(sorted({r.sketch for r in tried}))}
    width = 1 + max(len(r.row) for r in tried)
    rows = [decided(numbers[r.sketch], np.array([r.row]), width)[0] for r in tried]
    return np.hstack([np.array([r.features for r in tried]), rows])


def elsewhere(task: Task, tasks: Sequence[Task], rng: np.random.Generator) -> TrainingRows:
    """Some of what was measured of programs of other families on the same target."""
    features, seconds, programs = [np.empty((0, len(MODEL.features)))], list[float](), list[int]()
    for number, other in enumerate(tasks, 1):
        if other.family == task.family or other.target != task.target:
            continue
        taken = [other.tried[k] for k in rng.permutation(len(other.tried))[:EACH]]
        features.append(np.array([r.features for r in taken]))
        seconds += [r.seconds for r in taken]
        programs += [number] * len(taken)
    return TrainingRows(
        np.concatenate(features), np.array(seconds), np.array(programs, dtype=np.int64)
    )


def course(
    task: Task, part: str, seed: int, tasks: Sequence[Task] = ()
) -> Iterator[tuple[float, float]]:
    """The best time after each batch of a search without that part, and the share that failed.

    Nothing if nothing is left. `tasks` are those of the database.
    """
    rng = np.random.default_rng(seed)
    known, seconds = columns(task.tried), np.array([r.seconds for r in task.tried])
    if part == NO_DECISIONS:
        known = known[:, : len(MODEL.features)]
    kept = [k for k, r in enumerate(task.tried) if part.removeprefix("without ") not in r.rules]
    left = rng.permutation(np.array(kept, dtype=np.int64))
    base = None if part == NO_BASE else named(SHIPPED, MODEL)
    temperature = 0.0 if part == NO_CHANCE else SearchConfig().temperature
    model, told = CostModel(seed, base), np.empty(0, dtype=np.int64)
    if part not in (NO_OTHERS, NO_MODEL, RANDOM):
        model.relate(elsewhere(task, tasks, rng))
        model.fit(known[:0], seconds[:0])
    while len(left):
        if part != RANDOM:
            scores = known[left, 0]
            if part != NO_MODEL:
                scores = model.predict(known[left]) + model.penalty(known[left])
            left = left[drawn(scores, temperature, rng)]
        told, left = np.concatenate([told, left[:BATCH]]), left[BATCH:]
        ran = np.isfinite(seconds[told])
        if part not in (NO_MODEL, RANDOM):
            learned = told[ran] if part == NO_FAILURES else told
            model.fit(known[learned], seconds[learned])
        yield float(seconds[told].min()), 1.0 - float(ran.mean())


def worth(tasks: Sequence[Task], part: str, seeds: int) -> Worth:
    """The result of a search without that part; infinite ratios where no candidate is left."""
    logs: list[list[float]] = []
    shares: list[float] = []
    lost = 0
    for task in tasks:
        ran = [r.seconds for r in task.tried if math.isfinite(r.seconds)]
        least, most = min(ran), max(ran)
        for seed in range(seeds):
            went = list(islice(course(task, part, seed, tasks), max(POINTS) // BATCH))
            if went:
                at = [went[min(n // BATCH, len(went)) - 1][0] for n in POINTS]
                logs.append([math.log(min(seconds, most) / least) for seconds in at])
                shares.append(went[-1][1])
            elif seed == 0:
                lost += 1
    if not logs:
        return Worth((math.inf,) * len(POINTS), 0.0, lost)
    return Worth(tuple(np.exp(np.mean(logs, axis=0)).tolist()), float(np.mean(shares)), lost)


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
        Column("", no_wrap=True),
        *map(str, POINTS),
        "failed",
        "nothing left",
        box=None,
        title="the best found over the best of all, after so many trials",
    )
    for part in parts(tasks):
        found = worth(tasks, part, options.seeds)
        ratios = (f"{ratio:.3f}" for ratio in found.ratios)
        table.add_row(part, *ratios, f"{found.failed:.1%}", str(found.lost or ""))
    Console().print(table)


if __name__ == "__main__":
    main()
