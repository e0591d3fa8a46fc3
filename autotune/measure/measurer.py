"""Measuring schedules: builds in parallel, then timed runs one after the other.

Builders and the runner are processes of their own (`worker`); a candidate that crashes, hangs or
takes too much memory costs its process, which is replaced. A process that is killed from outside
says nothing of its candidate, which gets another one; only if that is killed too, it counts as a
crash. While a candidate is timed, no builder works and this process waits. Kernels that run on a
device are not disturbed: then builders go on.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from ...base.errors import TilewrightError, TuningError
from ...codegen.calling_convention import signature_of
from ...codegen.generator import generator_for
from ...runtime.measure.comparison import CheckResult
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.outcome import Outcome
from .any_measurer import Numbered
from .interchange import reference_program
from .measure_result import BuildRequest, Kernel, MeasureConfig, MeasureResult
from .program_builds import ProgramBuilds, failed, is_ok
from .program_text import program_fields
from .protocol import Message
from .reference import new_memory
from .worker_pool import (
    Built,
    Handshake,
    Requeue,
    WorkerPool,
    describe,
    was_killed,
)
from .worker_process import Reply, turn

_log = logging.getLogger(__name__)
_RUNNING_REFERENCE = "running the unscheduled program"


class Measurer:
    """Measures schedules of one program on one target; a context manager.

    `tick` is called at least every 0.2 seconds while it waits, and gives up by raising. Raises
    `TuningError` where no worker can start or the unscheduled program cannot run. To be used and
    closed by the thread that opened it.

    `workers` are shared with the measurers of other programs, all of which are created before the
    first is entered. Without `workers` it starts processes of its own.

    `reference_seconds` is the time of the unscheduled program once it has run. `seconds_building`,
    `seconds_meanwhile`, `seconds_running` and `seconds_waiting` are the durations of waiting for
    builds, of other work meanwhile, of timed runs, and of waiting for the unscheduled program.
    `timing` is set while a candidate runs. `width` and `environment` are as in `AnyMeasurer`.
    """

    def __init__(
        self,
        func: Func,
        target: Target,
        config: MeasureConfig | None = None,
        *,
        workers: WorkerPool | None = None,
        tolerance: float | None = None,
    ) -> None:
        self.config = config or MeasureConfig()
        self.reference_seconds: float | None = None
        self.seconds_running = 0.0
        self.seconds_waiting = 0.0
        self.timing = False
        self.width = 1
        self.environment: str | None = None
        self.tick: Callable[[], None] = lambda: None
        self._tolerance = tolerance
        self._outputs = new_memory(signature_of(func))
        self._rounding: list[list[float]] | None = None
        self._no_rounding: str | None = None
        self._workers = WorkerPool(target, self.config) if workers is None else workers
        self._func, self._target = func, target
        program = program_fields(func, target)
        self._builds = ProgramBuilds(program, self._workers)
        self._program = {"do": "program", **program}
        self._on_device = generator_for(target).on_device
        self._runner = self._workers.runner
        self._runner.inherit(self._outputs)

    def __enter__(self) -> Self:
        """Start the processes; they get ready while the caller goes on."""
        try:
            self._workers.open(self._builds.handshakes, self._handshakes_of_runner)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes at once."""
        self._workers.close()
        if self._outputs >= 0:
            os.close(self._outputs)
            self._outputs = -1

    @property
    def processes(self) -> list[int]:
        """The ids of the worker processes, the runner's first."""
        return [s.worker.process.pid for s in self._workers.workers]

    @property
    def seconds_building(self) -> float:
        return self._builds.seconds_building

    @property
    def seconds_meanwhile(self) -> float:
        return self._builds.seconds_meanwhile

    def measure(
        self,
        requests: Sequence[BuildRequest],
        best_seconds: float | None,
        meanwhile: Iterable[None] = (),
    ) -> Iterator[Numbered]:
        """The number and result of each schedule, in order, as soon as it is known.

        `best_seconds` is the time to beat. A candidate that beats it and all before it is compared
        with the unscheduled program. `meanwhile` is work for this process in short steps, done
        while builders work; all of it is done before anything is timed on this machine's
        processors.
        """
        yield from self.time(self._to_time(requests, meanwhile), best_seconds)

    def time(
        self, candidates: Iterable[Built | MeasureResult], best_seconds: float | None
    ) -> Iterator[Numbered]:
        """As `measure`, of what is built already."""
        for number, built in enumerate(candidates):
            if isinstance(built, MeasureResult):
                yield number, built
                continue
            measured = self.run(built, best_seconds)
            yield number, measured
            if measured.seconds is not None and measured.accepted(self._tolerance):
                best_seconds = measured.seconds

    def build(
        self, requests: Sequence[BuildRequest], meanwhile: Iterable[None] = ()
    ) -> list[Built | MeasureResult]:
        """Compile schedules, as many at a time as there are builders."""
        return list(self._as_built(requests, meanwhile))

    def _to_time(
        self, requests: Sequence[BuildRequest], meanwhile: Iterable[None]
    ) -> Iterable[Built | MeasureResult]:
        """The schedules of requests, each when it may be timed."""
        if self._on_device:
            return self._as_built(requests, meanwhile)
        return self.build(requests, meanwhile)

    def _as_built(
        self, requests: Sequence[BuildRequest], meanwhile: Iterable[None]
    ) -> Iterator[Built | MeasureResult]:
        """Compile schedules; each, in order, as soon as it is. Builders go on meanwhile."""
        return self._builds.each(requests, meanwhile, self.tick)

    def run(self, built: Built, best_seconds: float | None = None) -> MeasureResult:
        """Time a compiled candidate, and check it if it beats `best_seconds`."""
        self.await_reference()
        began = time.monotonic()
        measured = self._run(built.kernel, best_seconds)
        self.seconds_running += time.monotonic() - began
        return replace(measured, kernel=built.kernel)

    def check(self, kernel: Kernel) -> CheckResult:
        """Compare the results of a kernel with those of the unscheduled program."""
        self.await_reference()
        verdict = self._check(kernel)
        if isinstance(verdict, CheckResult):
            return verdict
        error = failed(verdict, Outcome.RUN_TIMEOUT, "checking it").error
        return CheckResult(False, float("inf"), 0.0, error)

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]] | None:
        """Interleaved samples of kernels, in seconds per call; `None` if one of them fails.

        Those for which there is no memory beside the ones before them have no samples.
        """
        began = time.monotonic()
        fields = {
            "do": "interleave",
            "kernels": [{"size": len(k.image), **k.form()} for k in kernels],
            "rounds": rounds,
            "sample_seconds": self.config.sample_seconds,
        }
        images = b"".join(k.image for k in kernels)
        answer = self._ask_runner(Message(fields, images), self.config.run_timeout)
        self.seconds_running += time.monotonic() - began
        if not isinstance(answer, Message) or "samples" not in answer.fields:
            return None
        return [tuple(samples) for samples in answer.fields["samples"]]

    def await_reference(self) -> float:
        """Wait until the runner has run the unscheduled program; return its seconds."""
        began = time.monotonic()
        self._runner.take_up(self._handshakes_of_runner)
        while self.reference_seconds is None:
            for _, reply in turn([self._runner.worker], self.tick):
                self._runner.receive(reply)
        self.seconds_waiting += time.monotonic() - began
        return self.reference_seconds

    def _run(self, kernel: Kernel, best_seconds: float | None) -> MeasureResult:
        fields = {"do": "run", **kernel.form(), "timing": self.config.timing(best_seconds)}
        answer = self._ask_runner(Message(fields, kernel.image), self._patience(best_seconds))
        if not is_ok(answer):
            return failed(answer, Outcome.RUN_TIMEOUT, "running it")
        timed = answer.fields
        seconds: float = timed["seconds"]
        check = None
        if best_seconds is None or seconds < best_seconds:
            verdict = self._check(kernel)
            if not isinstance(verdict, CheckResult):
                return failed(verdict, Outcome.RUN_TIMEOUT, "checking it")
            if not verdict.passed:
                return MeasureResult(Outcome.WRONG_RESULT, error=verdict.error, check=verdict)
            check = verdict
        samples = tuple(timed["samples"])
        return MeasureResult(Outcome.OK, seconds, samples, stopped=timed["stopped"], check=check)

    def _check(self, kernel: Kernel) -> CheckResult | Reply:
        """Compare results; a failure counts if it shows in a new process too.

        A candidate that writes where it should not may spoil the next ones in its process. After
        the first failure that rounding may explain, the rounding error of the unscheduled program
        is known.
        """
        verdict = self._check_once(kernel)
        if isinstance(verdict, CheckResult) and not verdict.passed:
            self._runner.close()
            if 0 < verdict.tolerance < verdict.max_error < math.inf:
                self._find_rounding()
            verdict = self._check_once(kernel)
            self._runner.close()
            if isinstance(verdict, CheckResult) and not verdict.passed and self._no_rounding:
                verdict = replace(verdict, error=f"{verdict.error}; {self._no_rounding}")
        return verdict

    def _find_rounding(self) -> None:
        """Find the rounding error of the unscheduled program, once."""
        if self._rounding is not None or self._no_rounding is not None:
            return
        answer = self._ask_runner(Message({"do": "rounding"}), self.config.reference_timeout)
        if is_ok(answer):
            self._rounding = answer.fields["errors"]
            return
        failed = answer.fields.get("error") if isinstance(answer, Message) else describe(answer)
        self._no_rounding = f"the program does not run in wider arithmetic: {failed}"
        _log.warning("candidates may be refused for the rounding of sums: %s", self._no_rounding)

    def _check_once(self, kernel: Kernel) -> CheckResult | Reply:
        fields = {
            "do": "check",
            **kernel.form(),
            "error_factor": kernel.error_factor,
            "rounding": self._rounding,
        }
        answer = self._ask_runner(Message(fields, kernel.image), self.config.run_timeout)
        if not is_ok(answer):
            return answer
        return CheckResult.from_json(answer.fields["check"])

    def _ask_runner(self, message: Message, timeout: float) -> Reply:
        """The runner's answer, or its death."""
        self.timing = True
        self._runner.take_up(self._handshakes_of_runner)
        asked_again = False
        try:
            while True:
                worker = self._runner.ask(message, timeout)
                answer: Reply | Requeue | None = None
                while answer is None:
                    for _, reply in turn([worker], self.tick):
                        answer = self._runner.receive(reply)
                        if answer is not None:
                            break  # its death after that is the next request's matter
                if isinstance(answer, Requeue):
                    continue
                if asked_again or not was_killed(answer):
                    return answer
                _log.info("the runner was killed; its candidate gets another")
                asked_again = True
        finally:
            self.timing = False

    def _patience(self, best_seconds: float | None) -> float:
        """The time limit of a candidate, in seconds."""
        config = self.config
        known = best_seconds if best_seconds is not None else self.reference_seconds
        if known is None:
            return config.run_timeout
        return min(config.run_timeout, max(config.run_grace, config.patience * known))

    def _handshakes_of_runner(self) -> list[Handshake]:
        fields = {
            **self._program,
            "memory": self.config.run_memory,
            "seed": self.config.seed,
            "outputs": self._outputs,
        }
        handshakes = [Handshake(Message(fields), self.config.start_timeout, "starting the runner")]
        if self.reference_seconds is None:
            handshakes.append(
                Handshake(
                    self._reference,
                    self.config.reference_timeout,
                    _RUNNING_REFERENCE,
                    self._hear_reference,
                    once=True,
                )
            )
        return handshakes

    @cached_property
    def _reference(self) -> Message:
        """The request to run the unscheduled program. Raises `TuningError` where there is none."""
        try:
            reference = reference_program(self._func, self._target)
        except TilewrightError as error:
            raise TuningError("{0} failed: {1}", _RUNNING_REFERENCE, error) from error
        return Message({"do": "reference", **program_fields(reference, self._target)})

    def _hear_reference(self, answer: Message) -> None:
        self.reference_seconds = float(answer.fields["seconds"])
        if answer.fields["not_sampled"] is not None:
            _log.warning(
                "what the program as written computes on the device is not compared with the "
                "host: %s",
                answer.fields["not_sampled"],
            )
