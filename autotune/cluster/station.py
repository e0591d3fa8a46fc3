"""What a worker of a cluster runs: the functions that Dask calls there, by name.

A worker is a machine. One thread of it owns the processes that build and run candidates, those of a
session on this machine (`measurer.py`); they end when nothing was asked for some time, and with the
worker. Requests and answers are the JSON texts of `answers.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

from ...base.checked_json import digest_of
from ...base.errors import TilewrightError, TuningError
from ...codegen.detect import check_runnable, resolve
from ...runtime.target_runtime import runtime_for
from ...target import Target
from ..measure.measure_result import BuildRequest, Kernel, MeasureConfig, MeasureResult
from ..measure.measurer import Measurer
from ..measure.program_text import parse_program
from ..measure.worker_pool import Built, WorkerPool
from ..records import environment_record, toolchain_record
from .answers import CandidateAnswer, answer

IDLE = 60.0
"""Seconds after which the processes of a program end that nothing is asked of."""
KEPT = 64
"""Kernels of a program that are kept to be timed again."""
SENTINEL_ROUNDS = 5


def describe(request: str) -> str:
    """Who this worker is, for a target (`{"target": "cpu"}`)."""
    return _answered(request, lambda: _described(json.loads(request)["target"]))


def perform(request: str) -> str:
    """Measure, check or interleave candidates of a program."""
    return _station().do(request)


def _described(text: str) -> dict[str, Any]:
    target = resolve(text)
    check_runnable(target)
    tools, runtime = toolchain_record(target), runtime_for(target)
    return {
        "version": tools.versions["tilewright"],
        "generation": tools.generation,
        "target": str(target),
        "machine": {**runtime.machine(), **runtime.conditions()},
        "facts": environment_record(target).facts,
    }


def _answered(request: str, work: Callable[[], dict[str, Any]]) -> str:
    """The answer, also where something failed: exceptions would be sent as pickles."""
    try:
        return answer(request, work())
    except TilewrightError as error:
        return answer(request, {"error": str(error)})
    except Exception as error:  # noqa: BLE001 - a defect here is for whoever asks
        return answer(request, {"error": f"{type(error).__name__}: {error}"})


@cache
def _station() -> _Station:
    return _Station()


class _Station:
    """The thread that measures, one request after the other."""

    def __init__(self) -> None:
        self._requests = SimpleQueue[tuple[str, SimpleQueue[str]]]()
        threading.Thread(target=self._run, name="tilewright-station", daemon=True).start()

    def do(self, request: str) -> str:
        place = SimpleQueue[str]()
        self._requests.put((request, place))
        return place.get()

    def _run(self) -> None:
        with ExitStack() as stack:
            name, program = "", None
            while True:
                try:
                    request, place = self._requests.get(timeout=IDLE if program else None)
                except Empty:
                    stack.close()
                    program = None
                    continue

                def work(request: str = request) -> dict[str, Any]:
                    nonlocal name, program
                    fields = json.loads(request)
                    new = digest_of(fields["program"])
                    if program is None or name != new:
                        stack.close()
                        program = None
                        program = stack.enter_context(_Program(fields["program"]))
                        name = new
                    return program.answer(fields)

                place.put(_answered(request, work))


class _Program:
    """A program with its measurer, and kernels of it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        func, target = parse_program(fields), Target.from_json(fields["target"])
        config = MeasureConfig(**fields["config"])
        pool = WorkerPool(target, config, fields["step_modules"])
        self._measurer = Measurer(func, target, config, workers=pool, tolerance=fields["tolerance"])
        self._kernels: dict[str, Kernel] = {}

    def __enter__(self) -> _Program:
        self._measurer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._measurer.close()

    def answer(self, fields: dict[str, Any]) -> dict[str, Any]:
        requests = [BuildRequest(*pair) for pair in fields["requests"]]
        if fields["do"] == "interleave":
            kernels = self._built(requests)
            rows = None if kernels is None else self._measurer.interleave(kernels, fields["rounds"])
            return {"samples": rows}
        if fields["do"] == "check":
            kernels = self._built(requests)
            if kernels is None:
                raise TuningError("the candidate does not build any more")
            return {"check": self._measurer.check(kernels[0]).to_json()}
        return self._measure(requests, fields)

    def _measure(self, requests: Sequence[BuildRequest], fields: dict[str, Any]) -> dict[str, Any]:
        before = self._sentinel(fields["sentinel"])
        found: dict[int, MeasureResult] = {}
        for number, result in self._measurer.measure(requests, fields["best_seconds"]):
            found[number] = result
            if result.kernel is not None:
                self._keep(requests[number], result.kernel)
        after = self._sentinel(fields["sentinel"])
        return {
            "results": [CandidateAnswer.of(r, found[n]) for n, r in enumerate(requests)],
            "sentinel": [*before, *after],
            "reference_seconds": self._measurer.await_reference(),
        }

    def _sentinel(self, request: list[Any] | None) -> list[tuple[float, ...]]:
        """Samples of the kernel that all workers time; none where it fails."""
        kernels = None if request is None else self._built([BuildRequest(*request)])
        rows = None if kernels is None else self._measurer.interleave(kernels, SENTINEL_ROUNDS)
        return rows or []

    def _built(self, requests: Sequence[BuildRequest]) -> list[Kernel] | None:
        """The kernels of schedules, those that are not kept built again; `None` if one fails."""
        missing = [r for r in requests if r.trace not in self._kernels]
        for request, built in zip(missing, self._measurer.build(missing), strict=True):
            if not isinstance(built, Built):
                return None
            self._keep(request, built.kernel)
        kernels = [self._kernels[r.trace] for r in requests]
        while len(self._kernels) > KEPT:
            del self._kernels[next(iter(self._kernels))]
        return kernels

    def _keep(self, request: BuildRequest, kernel: Kernel) -> None:
        self._kernels.pop(request.trace, None)
        self._kernels[request.trace] = kernel
