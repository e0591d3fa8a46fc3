"""Measuring the schedules of a program on the workers of a cluster, as `Measurer` does it here.

A batch is divided into parts. Builders compile them, where there are any, ahead of the runners;
else each runner builds its own. All runners also time one kernel, the sentinel, before and after a
part: one on which that takes much longer than on others, or whose times of it differ, is slow or
disturbed. Its part is given to others, and it is set aside. Finals are held by one worker, on which
the sentinel is fastest: interleaved times are comparable.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Self

from ...runtime.measure.comparison import CheckResult
from ...tir.ir import Func
from ...tuning_db.values import Environment, Outcome
from ..measure.any_measurer import Numbered
from ..measure.measure_result import BuildRequest, Kernel, MeasureConfig, MeasureResult
from ..measure.program_text import program_fields
from ..measure.worker_pool import Built
from .answers import Checked, Interleaved, Measured, parse, received
from .cluster import Cluster, Role, Worker
from .code import Compiled, pack, unpack
from .dispatch import Disturbed, Done, Job, Once, do
from .sentinels import Sentinels
from .stream import Stream

SENTINEL_SECONDS = 0.05
"""A sentinel takes less than that: it is timed before and after each part."""
_WALL = 4.0
"""Seconds by the clock for each second of the limits, which are of processor time."""


class _Codes(NamedTuple):
    """What builders made of a part."""

    compiled: list[Compiled]


class ClusterMeasurer:
    """Measures schedules of one program on a cluster; a context manager.

    It is used as a `Measurer`. `keep` is called with the record of each machine that measured
    something, before its results are given out.
    """

    def __init__(
        self,
        func: Func,
        cluster: Cluster,
        config: MeasureConfig | None = None,
        *,
        modules: Sequence[str] = (),
        tolerance: float | None = None,
        keep: Callable[[Environment], object] = lambda _: None,
    ) -> None:
        self.config = config or MeasureConfig()
        self.reference_seconds: float | None = None
        self.seconds_building = self.seconds_meanwhile = 0.0
        self.seconds_running = self.seconds_waiting = 0.0
        self.timing = False
        self.environment: str | None = None
        self.tick: Callable[[], None] = lambda: None
        self._cluster, self._tolerance, self._keep = cluster, tolerance, keep
        self._program = {
            **program_fields(func, cluster.target),
            "config": asdict(self.config),
            "tolerance": tolerance,
            "step_modules": [*modules],
        }
        self._asking = 0.0
        self._kept = set[str]()
        self._sentinel: BuildRequest | None = None
        self._sentinels = Sentinels()
        self._referee: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def width(self) -> int:
        """How many workers measure, or build for those that do: the more of the two."""
        return max(1, *(len(self._cluster.of(role)) for role in Role))

    def measure(
        self,
        requests: Sequence[BuildRequest],
        best_seconds: float | None,
        meanwhile: Iterable[None] = (),
    ) -> Iterator[Numbered]:
        """The number and result of each schedule, as soon as it is known.

        See `Measurer.measure`. The time to beat is the best when a worker begins with its part.
        """
        return self.stream(requests, best_seconds, lambda _: (), meanwhile)

    def stream(
        self,
        first: Sequence[BuildRequest],
        best_seconds: float | None,
        more: Callable[[int], Sequence[BuildRequest]],
        meanwhile: Iterable[None] = (),
    ) -> Iterator[Numbered]:
        """As `measure`, of `first` and what is asked for when workers are free.

        `more` is called with a number of schedules, and returns at most so many, which are numbered
        on; none is the end.
        """
        best, requests = best_seconds, list(first)

        def ask(numbers: Sequence[int]) -> tuple[str, bytes]:
            sentinel = None if self._sentinel is None else list(self._sentinel)
            part = [requests[n] for n in numbers]
            codes, data = pack(part, compiled) if (compiled := stream.code(numbers)) else ([], b"")
            more = {"best_seconds": best, "sentinel": sentinel, "codes": codes}
            return self._request("measure", part, **more), data

        def read(worker: Worker, numbers: Sequence[int], answer: object, request: str) -> Measured:
            found = parse(Measured, answer, request)
            found.require([requests[n] for n in numbers])
            slow = self._sentinels.note(worker, found.sentinel)
            if slow is not None and len(self._cluster.workers) > 1:
                raise Disturbed(slow)
            return found

        def run(numbers: Sequence[int]) -> Job:
            return Job(numbers, ask, read, self._limit(len(numbers)))

        def build(numbers: Sequence[int]) -> Job:
            def ask(numbers: Sequence[int]) -> tuple[str, bytes]:
                return self._request("build", [requests[n] for n in numbers]), b""

            def read(_: Worker, numbers: Sequence[int], answer: object, asked: str) -> _Codes:
                message = received(answer, asked)
                part = [requests[n] for n in numbers]
                codes = message.fields.get("codes")
                return _Codes(unpack(codes, message.data, part, str(self._cluster.target)))

            limit = self._limit(len(numbers))
            return Job(numbers, ask, read, limit, role=Role.BUILD, otherwise=run)

        def draw(count: int) -> int:
            began = time.monotonic()
            new = more(count)
            requests.extend(new)
            self._asking += time.monotonic() - began
            return len(new)

        stream = Stream(self._cluster, len(requests), draw, build=build, run=run)
        for each in self._timed(do(self._cluster, stream, self._tick(meanwhile))):
            if isinstance(each.answer, _Codes):
                yield from stream.built(each.job.numbers, each.answer.compiled)
                continue
            stream.done(each.job.numbers)
            for number, result in self._results(each, requests):
                yield number, result
                seconds = result.seconds
                if seconds is not None and result.accepted(self._tolerance):
                    best = seconds if best is None else min(best, seconds)

    def run(self, built: Built, best_seconds: float | None = None) -> MeasureResult:
        """Measure a candidate again, wherever."""
        request = built.kernel.request
        assert request is not None, "what a cluster measured has its schedule"
        ((_, result),) = self.measure([request], best_seconds)
        return result

    def check(self, kernel: Kernel) -> CheckResult:
        """Compare the results of a candidate with those of the unscheduled program."""
        assert kernel.request is not None, "what a cluster measured has its schedule"
        request = kernel.request

        def read(_: Worker, __: Sequence[int], text: object, asked: str) -> CheckResult:
            return CheckResult.from_json(vars(parse(Checked, text, asked).check))

        job = Job([0], lambda _: (self._request("check", [request]), b""), read, self._limit(1))
        (done,) = self._timed(do(self._cluster, Once(job), self.tick))
        if done.answer is None:
            return CheckResult(False, float("inf"), 0.0, _lost_text(done, self._cluster))
        result: CheckResult = done.answer
        return result

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]] | None:
        """Interleaved samples of candidates, by one worker; `None` if one of them fails.

        So it is if the worker is lost; the next time, it is another one. `environment` is that of
        the worker then.
        """
        requests = [k.request for k in kernels if k.request is not None]

        def read(_: Worker, __: object, text: object, asked: str) -> list[tuple[float, ...]] | None:
            found = parse(Interleaved, text, asked)
            found.require(len(requests), rounds)
            return None if found.samples is None else list(found.samples)

        worker = self._fastest()
        job = Job(
            [0],
            lambda _: (self._request("interleave", requests, rounds=rounds), b""),
            read,
            self._limit(len(requests)) + 10 * rounds * len(requests) * self.config.sample_seconds,
            on=worker,
        )
        (done,) = self._timed(do(self._cluster, Once(job), self.tick))
        self._note(done.worker)
        self.environment = done.worker.environment.id
        rows: list[tuple[float, ...]] | None = done.answer
        return rows

    def await_reference(self) -> float:
        """The seconds of the unscheduled program, which every worker runs before candidates."""
        while self.reference_seconds is None:
            deque(self.measure([], None), maxlen=0)
        return self.reference_seconds

    def _request(self, what: str, requests: Sequence[BuildRequest], **more: Any) -> str:
        fields = {"do": what, "program": self._program, "requests": [list(r) for r in requests]}
        return json.dumps({**fields, **more}, allow_nan=False)

    def _results(self, done: Done, requests: Sequence[BuildRequest]) -> Iterator[Numbered]:
        """The results of a part: crashes, if it was lost with its workers."""
        if done.answer is None:
            for number in done.job.numbers:
                error = _lost_text(done, self._cluster)
                yield number, MeasureResult(Outcome.CRASH, error=error)
            return
        found: Measured = done.answer
        self._note(done.worker)
        self.reference_seconds = self.reference_seconds or found.reference_seconds
        environment = done.worker.environment.id
        for number, answer in zip(done.job.numbers, found.results, strict=True):
            yield number, answer.result(requests[number], environment)
            seconds = answer.seconds
            if self._sentinel is None and seconds is not None and seconds < SENTINEL_SECONDS:
                self._sentinel = requests[number]

    def _note(self, worker: Worker) -> None:
        """Keep the record of a worker's machine."""
        environment = worker.environment
        if environment.id not in self._kept:
            self._keep(environment)
            self._kept.add(environment.id)

    def _fastest(self) -> Worker:
        """The worker that holds the finals: the one of before, else the calmest one."""
        workers = self._cluster.workers
        if not workers:
            raise self._cluster.none_left()
        if self._referee not in workers:
            self._referee = min(workers, key=self._sentinels.seconds)
        assert self._referee is not None
        return self._referee

    def _limit(self, candidates: int) -> float:
        """The seconds by the clock in which a worker has to answer."""
        config = self.config
        each = config.build_timeout + 3 * config.run_timeout
        start = 2 * config.start_timeout + config.reference_timeout
        return start + _WALL * (1 + candidates) * each

    def _tick(self, meanwhile: Iterable[None]) -> Callable[[], None]:
        steps = iter(meanwhile)

        def tick() -> None:
            began = time.monotonic()
            next(steps, None)
            self.seconds_meanwhile += time.monotonic() - began
            self.tick()

        return tick

    def _timed(self, done: Iterator[Done]) -> Iterator[Done]:
        """Count the time of waiting for jobs."""
        while True:
            began, before = time.monotonic(), self.seconds_meanwhile + self._asking
            each = next(done, None)
            other = self.seconds_meanwhile + self._asking - before
            self.seconds_running += time.monotonic() - began - other
            if each is None:
                return
            yield each


def _lost_text(done: Done, cluster: Cluster) -> str:
    name = cluster.named(done.worker.address)
    doing = "built" if done.job.role is Role.BUILD else "measured"
    return f"the worker that {doing} it was lost, twice; the last was {name}"
