"""Many cases, one after the other or in several processes, and what came of them."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

import pytest

from ..schedule.random_cases import Tally
from ..wellformed import keep_structure
from .case import Failure, run_case
from .gpu_case import run_gpu_case
from .graph_case import run_graph_case
from .shrink import shrunk

CHUNK = 8
"""How many seeds a process takes at a time."""


@dataclass(frozen=True)
class Plan:
    """The work for each seed: every `compile_every`-th program is compiled too, 0 for none.

    With `gpu`, steps that bind loops to axes of a GPU come too, and the emulator runs the program;
    what is compiled is the text of its kernels, by the host's compiler. With `graphs` it is graphs.
    """

    compile_every: int = 0
    keep_going: bool = False
    gpu: bool = False
    graphs: bool = False


@dataclass
class Outcome:
    """Counts of what was done, and the failures, shrunk, as texts."""

    programs: int = 0
    graphs: int = 0
    compiled: int = 0
    emulated: int = 0
    tally: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.programs += other.programs
        self.graphs += other.graphs
        self.compiled += other.compiled
        self.emulated += other.emulated
        self.tally.update(other.tally)
        self.failures += other.failures

    def summary(self) -> str:
        """A line that says it all, and lines that say it for each primitive."""
        if self.graphs:
            ran = f"{self.compiled:,} of them compiled too"
            return f"{self.graphs:,} graphs, {ran}: {len(self.failures):,} failures"
        t = self.tally
        ran = f"{self.compiled:,} of them compiled too"
        if self.emulated:
            ran = f"{self.emulated:,} of them emulated as launches of a GPU"
            ran += f", the text of {self.compiled:,} run" if self.compiled else ""
        return (
            f"{self.programs:,} programs interpreted, {ran}: "
            f"{t.changes.total():,} accepted steps that change something, "
            f"{t.queries.total():,} queries and samples, {t.refusals.total():,} refused steps, "
            f"{len(self.failures):,} failures\n"
            f"accepted: {_each(t.changes)}\nqueries and samples: {_each(t.queries)}\n"
            f"refused: {_each(t.refusals)}"
        )


def _each(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.most_common())


def run_seeds(seeds: Iterable[int], plan: Plan) -> Outcome:
    """Try these seeds; without `keep_going` not further than to the first failure."""
    done = Outcome()
    for seed in seeds:
        compiled = plan.compile_every > 0 and seed % plan.compile_every == 0
        if plan.graphs:
            done.graphs += 1
            done.compiled += compiled
            problem = run_graph_case(seed, compiled=compiled)
            if problem is not None:
                done.failures.append(problem)
                if not plan.keep_going:
                    break
            continue
        if plan.gpu:
            done.programs += 1
            found = run_gpu_case(seed, done.tally, text=compiled)
            done.emulated += found.emulated
            done.compiled += found.text_ran
            if found.failure is not None:
                done.failures.append(found.failure)
                if not plan.keep_going:
                    break
            continue
        with pytest.MonkeyPatch.context() as patch:
            keep_structure(patch)
            failure = run_case(seed, done.tally, compiled=compiled)
        done.programs += 1
        done.compiled += compiled
        if failure is not None:
            done.failures.append(report(seed, failure))
            if not plan.keep_going:
                break
    return done


def report(seed: int, failure: Failure) -> str:
    """A failure as text, with as few steps as it takes."""
    small = shrunk(failure)
    rule = "-" * 72
    parts = [f"seed {seed}: {small.what}", str(small.func), small.trace.as_python()]
    if small.after is not None:
        parts.append(str(small.after))
    return f"\n{rule}\n".join(parts) + f"\n{'=' * 72}"


def run(
    seeds: Iterable[int], plan: Plan, seconds: float, jobs: int
) -> Generator[Outcome, None, None]:
    """Outcomes as they come, until time or seeds have run out.

    With several jobs, processes take seeds in turn; one that dies is an outcome with a failure.
    """
    end = time.monotonic() + seconds
    chunks = _chunks(iter(seeds))
    if jobs == 1:
        for chunk in chunks:
            if time.monotonic() >= end:
                return
            for seed in chunk:
                yield run_seeds([seed], plan)
        return
    running: dict[Future[Outcome], list[int]] = {}
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_ignore_interrupts) as pool:
        try:
            while True:
                if time.monotonic() < end:
                    for chunk in islice(chunks, 2 * jobs - len(running)):
                        running[pool.submit(run_seeds, chunk, plan)] = chunk
                if not running:
                    return
                ready, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
                    del running[future]
        except BrokenProcessPool:
            tried = ", ".join(str(s) for chunk in running.values() for s in chunk)
            yield Outcome(failures=[f"a process died; it was at one of the seeds {tried}"])
        finally:
            pool.shutdown(cancel_futures=True)


def _chunks(seeds: Iterator[int]) -> Iterator[list[int]]:
    while chunk := list(islice(seeds, CHUNK)):
        yield chunk


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that hands out the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
