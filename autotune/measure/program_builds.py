"""Building schedules of one program: in builder processes, without anything that runs them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard

from ...base.errors import TuningError
from ...codegen.compiled import Launch
from ...tuning_db.outcome import Outcome
from .measure_result import BuildRequest, Kernel, MeasureResult
from .protocol import Message
from .worker_pool import (
    Builds,
    Built,
    Handshake,
    OtherWork,
    SupervisedWorker,
    WorkerPool,
    describe,
    was_killed,
)
from .worker_process import Died, Reply, Worker

_ENOUGH = 8
"""Builds after which it is known how long they take."""


class ProgramBuilds:
    """Builds schedules of a program (`program_fields`) with the builders of a pool.

    `tick` is called at least every 0.2 seconds while it waits. `seconds_building` and
    `seconds_meanwhile` are the durations of waiting for builds, and of other work meanwhile.
    """

    def __init__(self, program: dict[str, Any], workers: WorkerPool) -> None:
        self.seconds_building = self.seconds_meanwhile = 0.0
        self._config, self._workers = workers.config, workers
        self._program = {"do": "program", **program}
        self._took: list[float] = []

    def each(
        self,
        requests: Sequence[BuildRequest],
        meanwhile: Iterable[None] = (),
        tick: Callable[[], None] = lambda: None,
    ) -> Iterator[Built | MeasureResult]:
        """Compile schedules; each, in order, as soon as it is. Builders go on meanwhile."""
        work = OtherWork(meanwhile)
        builds = Builds(self._workers.builders, requests, self._ask, self._hear)
        try:
            for number in range(len(requests)):
                began, before = time.monotonic(), work.seconds
                while number not in builds.results:
                    builds.hear(tick, work.step)
                if not builds.at_work:
                    work.finish()
                self.seconds_building += time.monotonic() - began - (work.seconds - before)
                yield builds.results[number]
                builds.hear(tick, wait=False)
        finally:
            self.seconds_meanwhile += work.seconds
            builds.give_up()

    def handshakes(self) -> list[Handshake]:
        """What a builder gets first."""
        modules = [*self._program["modules"], *self._workers.modules]
        fields = {**self._program, "memory": self._config.build_memory, "modules": modules}
        return [Handshake(Message(fields), self._config.start_timeout, "starting a builder")]

    def _ask(self, supervised: SupervisedWorker, request: BuildRequest) -> Worker:
        supervised.take_up(self.handshakes)
        message = Message({"do": "build", "trace": request.trace})
        return supervised.ask(message, self._timeout())

    def _hear(self, answer: Reply, request: BuildRequest) -> Built | MeasureResult:
        if not is_ok(answer):
            return failed(answer, Outcome.BUILD_TIMEOUT, "building it")
        fields = answer.fields
        launches = tuple(map(Launch.from_json, fields["launches"]))
        self._took.append(fields["seconds"])
        kernel = Kernel(
            answer.data,
            launches,
            fields["signature"],
            request.error_factor,
            fields["resources"],
            target=fields["target"],
        )
        return Built(kernel, fields["seconds"])

    def _timeout(self) -> float:
        """The time limit of compiling a candidate, by the median of those before it."""
        config = self._config
        if len(self._took) < _ENOUGH:
            return config.build_timeout
        usual = config.build_patience * statistics.median(self._took)
        return min(config.build_timeout, max(config.build_grace, usual))


def is_ok(reply: Reply) -> TypeGuard[Message]:
    """Whether a worker did what it was asked."""
    return isinstance(reply, Message) and reply.fields.get("outcome") == Outcome.OK


def failed(reply: Reply, late: Outcome, doing: str) -> MeasureResult:
    """The outcome and reason of a candidate that failed; `late` if it took too long."""
    if isinstance(reply, Message):
        if "outcome" not in reply.fields:
            raise TuningError("{0} failed: {1}", doing, reply.fields.get("error"))
        return MeasureResult(Outcome(reply.fields["outcome"]), error=str(reply.fields["error"]))
    again = ", twice" if was_killed(reply) else ""
    text = f"{doing}{again}: {describe(reply)}"
    if isinstance(reply, Died):
        late = Outcome.OUT_OF_MEMORY if reply.out_of_memory else Outcome.CRASH
    return MeasureResult(late, error=text)
