"""Sessions on many machines: `python -m benchmarks.farm [--workers 1,4,1000] [--real 1,2,1+4]`.

Simulated: the search of a program is asked for candidates and told their times, as in a session on
so many workers. A candidate takes the seconds that the base model of the package predicts, which is
learned from the recorded measurements of the package, times a factor of its own, as widely spread
as what the model leaves of them. The search does without that model. To build and time it takes a
worker `--seconds` on average, spread as the recorded trials are. The search takes the client's
processor time, measured here, in which no candidate is given out.

- `batches`: a batch has 8 candidates for each worker, and the next is asked for when it is done.
- `stream`: whoever is free gets 8, drawn by what is known by then.

Printed are trials a second, their share of as many times those of one worker, and after how many
trials and seconds a schedule is known that is within 5% of what one worker finds in 128 trials.

Real: sessions on workers of Dask that wait in place of building and timing (`--waits`), so that
this machine is as good as several: 1, 2 and 4 that do both, and a runner with 1, 2 and 4 builders.
Everything else is done: the search, Dask, code that travels, answers, the database.
"""

from __future__ import annotations

import argparse
import heapq
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright import ops
from tilewright.autotune.cluster import station
from tilewright.autotune.cluster.answers import CandidateAnswer
from tilewright.autotune.cluster.cluster import Role
from tilewright.autotune.cluster.code import pack, unpack
from tilewright.autotune.cluster.stream import PART
from tilewright.autotune.measure.measure_result import BuildRequest, Kernel, MeasureResult
from tilewright.autotune.measure.worker_pool import Built
from tilewright.autotune.model import samples
from tilewright.autotune.model.base_model import SHIPPED, BaseModel, named
from tilewright.autotune.model.target_model import model_for
from tilewright.autotune.search.search import Candidate, Search, SearchConfig
from tilewright.base.checked_json import digest_of
from tilewright.codegen.compiled import Launch
from tilewright.codegen.detect import resolve
from tilewright.runtime.measure.comparison import CheckResult
from tilewright.target import Target
from tilewright.tir.ir import Func
from tilewright.tuning_db import Outcome

TARGET = "cpu -mcpu=znver4 -threads=1"
CODE_BYTES = 20_000
CLOSE = 1.05
MIN_TRIALS = 128
SPREAD = 0.6
"""Of the logarithm of the seconds of a trial, as of the recorded ones."""
Give = Callable[[float, int], float]


class Trials(NamedTuple):
    """The seconds of schedules in the order in which they were known, and when that was."""

    seconds: list[float]
    known: list[float]

    @property
    def rate(self) -> float:
        return len(self.seconds) / max(self.known)

    def until(self, goal: float) -> tuple[int, float]:
        """How many trials it took to come to so few seconds, and when; all, where it did not."""
        order = np.argsort(self.known, kind="stable")
        found = (n for n, k in enumerate(order) if self.seconds[k] <= goal)
        last = next(found, len(order) - 1)
        return last + 1, self.known[order[last]]


class Truth:
    """The seconds of the candidates of a program, by what was recorded of others."""

    def __init__(self, base: BaseModel, spread: float) -> None:
        self._base, self._spread = base, spread

    def seconds(self, candidate: Candidate) -> float:
        columns = np.array([candidate.features], np.float32)
        octaves = columns[0, 0] + float(self._base.residual(columns)[0])
        rng = np.random.default_rng(int(digest_of(candidate.schedule.id)[:8], 16))
        return float(2.0 ** (octaves + self._spread * rng.standard_normal()))


class Farm:
    """Workers that measure in virtual time, and the client that asks the search."""

    def __init__(self, workers: int, seconds: float, seed: int) -> None:
        self.now = 0.0
        self._rng = np.random.default_rng(seed)
        self._mean = seconds
        self._free = [0.0] * workers

    def work(self, function: Callable[[], Any]) -> Any:
        """Do something on the client, whose processor time passes."""
        began = time.process_time()
        result = function()
        self.now += time.process_time() - began
        return result

    def finish(self, worker_free: float, candidates: int) -> float:
        """When a worker that is free at a moment has measured so many candidates."""
        factors = self._rng.lognormal(-SPREAD * SPREAD / 2, SPREAD, candidates)
        return max(worker_free, self.now) + self._mean * float(factors.sum())


def batches(search: Search, truth: Truth, farm: Farm, workers: int, trials: int) -> Trials:
    """A batch of 8 for each worker at a time."""
    found = Trials([], [])
    while len(found.seconds) < trials:
        batch = farm.work(partial(search.ask, min(PART * workers, trials - len(found.seconds))))
        if not batch:
            break
        size = max(1, min(PART, -(-len(batch) // workers)))
        free = [farm.now] * workers
        heapq.heapify(free)
        for first in range(0, len(batch), size):
            part = batch[first : first + size]
            end = farm.finish(heapq.heappop(free), len(part))
            heapq.heappush(free, end)
            _note(found, truth, part, end)
        farm.now = max(free)
        farm.work(partial(search.tell, _observed(batch, truth)))
    return found


def stream(search: Search, truth: Truth, farm: Farm, workers: int, trials: int) -> Trials:
    """Whoever is free gets 8; what is done is learned before others are drawn."""
    found = Trials([], [])
    at_work: list[tuple[float, int, list[Candidate]]] = []
    idle, asked = workers, 0
    while True:
        done: list[Candidate] = []
        while at_work and at_work[0][0] <= farm.now:
            end, _, part = heapq.heappop(at_work)
            _note(found, truth, part, end)
            done += part
            idle += 1
        if done:
            farm.work(partial(search.tell, _observed(done, truth)))
        count = min(PART * idle, trials - asked)
        batch = farm.work(partial(search.ask, count)) if count > 0 else []
        asked += len(batch)
        size = max(1, min(PART, -(-len(batch) // max(1, idle))))
        for first in range(0, len(batch), size):
            part = batch[first : first + size]
            heapq.heappush(at_work, (farm.finish(farm.now, len(part)), asked + first, part))
            idle -= 1
        if not at_work:
            return found
        farm.now = max(farm.now, at_work[0][0])


def _note(found: Trials, truth: Truth, part: Sequence[Candidate], end: float) -> None:
    for candidate in part:
        found.seconds.append(truth.seconds(candidate))
        found.known.append(end)


def _observed(batch: Sequence[Candidate], truth: Truth) -> list[Any]:
    return [c.observed(Outcome.OK, truth.seconds(c)) for c in batch]


WAYS = {"batches": batches, "stream": stream}


def left_by(base: BaseModel, kind: str) -> float:
    """The spread (octaves) of what the base model leaves of the recorded measurements."""
    some = samples.featurise(samples.shipped(kind)[::40], kind)
    wrong = np.log2(some.seconds) - some.features[:, 0] - base.residual(some.features)
    each = [wrong[some.task == n] for n in np.unique(some.task)]
    return float(np.sqrt(np.mean(np.concatenate([w - np.median(w) for w in each]) ** 2)))


def simulated(
    func: Func, workers: Sequence[int], seconds: float, parts: int, seeds: Sequence[int]
) -> None:
    """Print how sessions on so many workers go, in which each worker gets so many parts."""
    target = resolve(TARGET)
    base = named(SHIPPED, model_for(target))
    assert base is not None
    truth = Truth(base, left_by(base, "cpu"))
    print(
        f"simulated: {func.name}, {seconds:g} s a candidate, {len(seeds)} seeds; the goal is "
        f"within {CLOSE - 1:.0%} of the best of {MIN_TRIALS} trials of one worker\n"
        "workers      way  trials/s  of ideal  trials to goal  seconds  times as fast",
        flush=True,
    )
    first = list[Trials]()
    for count, (way, run) in product(workers, WAYS.items()):
        trials = max(MIN_TRIALS, parts * PART * count)
        each = list[Trials]()
        for seed in seeds:
            search = Search(func, target, seed=seed, config=SearchConfig(base=None))
            each.append(run(search, truth, Farm(count, seconds, seed), count, trials))
        first = first or each
        goals = [CLOSE * min(trials.seconds[:MIN_TRIALS]) for trials in first]
        ends = [t.until(goal) for t, goal in zip(each, goals, strict=True)]
        ideal = _mean([t.rate for t in first]) / workers[0]
        alone = _mean([t.until(goal)[1] for t, goal in zip(first, goals, strict=True)])
        rate, took = _mean([t.rate for t in each]), _mean([end for _, end in ends])
        print(
            f"{count:7} {way:>8} {rate:9.3g} {rate / (count * ideal):9.0%} "
            f"{_mean([n for n, _ in ends]):15.0f} {took:8.3g} {alone / took:14.3g}",
            flush=True,
        )


def _mean(numbers: Sequence[float]) -> float:
    return statistics.geometric_mean(numbers)


def wait(build_seconds: float, run_seconds: float) -> None:
    """Make the worker that runs this wait in place of work; code of builders travels."""

    class Waiting:
        def __init__(self, fields: dict[str, Any]) -> None:
            self._code = str(resolve(Target.from_json(fields["target"])))

        def open(self) -> None:
            pass

        def close(self) -> None:
            pass

        def answer(self, fields: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
            passed = {"passed": True, "max_error": 0.0, "tolerance": 1e-6, "error": None}
            if fields["do"] == "interleave":
                return {"samples": None}, b""
            if fields["do"] == "check":
                return {"check": passed}, b""
            requests = [BuildRequest(*pair) for pair in fields["requests"]]
            if fields["do"] == "build":
                time.sleep(build_seconds * len(requests))
                kernel = Kernel(os.urandom(CODE_BYTES), (Launch("f"),), target=self._code)
                codes, code = pack(requests, [Built(kernel, 0.0)] * len(requests))
                return {"codes": codes}, code
            if fields["codes"]:
                unpack(fields["codes"], data, requests, self._code)
            else:
                time.sleep(build_seconds * len(requests))
            time.sleep(run_seconds * len(requests))
            results = [CandidateAnswer.of(r, _ran(r)) for r in requests]
            return {"results": results, "sentinel": [], "reference_seconds": 1e-2}, b""

    station._Program = station._Builder = Waiting  # type: ignore[assignment,misc]


def _ran(request: BuildRequest) -> MeasureResult:
    took = 1e-4 * (1 + int(digest_of(request.trace)[:6], 16) / 2**24)
    check = CheckResult(True, 0.0, 1e-6, None)
    return MeasureResult(Outcome.OK, took, (took,) * 3, check=check)


def real(func: Func, farms: Sequence[tuple[int, int]], seconds: Sequence[float]) -> None:
    """Print the trials a second of sessions on so many runners and builders, which wait."""
    distributed: Any = import_module("distributed")
    table = Table("runners", "builders", "trials", "trials/s", "of one", box=None)
    alone: float | None = None
    for runners, builders in farms:
        roles = [Role.RUN] * runners + [Role.BUILD] * builders
        trials = PART * 4 * max(runners, builders)
        workers = {
            n: {
                "cls": distributed.Nanny,
                "options": {"nthreads": 1, "silence_logs": 30, "resources": {role.value: 1}},
            }
            for n, role in enumerate(roles)
        }
        scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
        with (
            distributed.SpecCluster(workers=workers, scheduler=scheduler) as local,
            distributed.Client(local, set_as_default=False) as client,
            tw.TuningDatabase("sqlite://") as database,
        ):
            client.run(wait, *seconds)
            moments: list[float] = []

            def note(event: object, moments: list[float] = moments) -> None:
                if type(event).__name__ in ("Batch", "Trial"):
                    moments.append(event.elapsed)  # type: ignore[attr-defined]

            tw.tune(
                func,
                "cpu -threads=1",
                database=database,
                trials=trials,
                cluster=client,
                progress=False,
                callback=note,
            )
            rate = trials / (moments[-1] - moments[0])
            alone = rate if alone is None else alone
            row = (runners, builders, trials, f"{rate:.3g}", f"{rate / alone:.2f}x")
            table.add_row(*map(str, row))
    Console().print(
        f"real Dask workers that wait {seconds[0]:g} s in place of building a candidate and "
        f"{seconds[1]:g} s in place of timing it; runners without builders do both",
        table,
    )


def _farms(text: str) -> list[tuple[int, int]]:
    """`1+4`: a runner and four builders; `2`: two workers that do both."""
    pairs = [part.partition("+") for part in text.split(",") if part]
    return [(int(runners), int(builders or 0)) for runners, _, builders in pairs]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", default="1,4,16,64,256,1000", type=_numbers)
    parser.add_argument("--real", default="1,2,4,1+1,1+2,1+4", type=_farms)
    parser.add_argument("--waits", default=[0.5, 0.03], type=float, nargs=2, help="build, run")
    parser.add_argument("--seconds", default=2.0, type=float, help="of a candidate, on average")
    parser.add_argument("--parts", default=4, type=int, help="of 8, that a simulated worker gets")
    parser.add_argument("--seeds", default=3, type=int)
    options = parser.parse_args()
    func = ops.matmul_func(512, 512, 512)
    if options.workers:
        seeds = range(options.seeds)
        simulated(func, options.workers, options.seconds, options.parts, seeds)
    if options.real:
        real(func, options.real, options.waits)


if __name__ == "__main__":
    main()
