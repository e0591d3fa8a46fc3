"""What a worker of a cluster runs: the functions that Dask calls there, by name.

A worker is a machine that runs candidates, or a process that builds them. One thread of it owns the
processes that do so, those of a session on this machine (`measurer.py`, `program_builds.py`); they
end when nothing was asked for some time, and with the worker. Requests are JSON texts, beside which
code may come; answers are the messages of `answers.py`.
"""

from __future__ import annotations

import json
import logging
import platform
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from ...base.checked_json import digest_of
from ...base.errors import TilewrightError, TuningError
from ...codegen.detect import check_runnable, resolve
from ...codegen.generator import generator_for
from ...runtime.target_runtime import runtime_for
from ...target import Target
from ...tuning_db.values import storable
from ..measure.measure_result import BuildRequest, Kernel, MeasureConfig, MeasureResult
from ..measure.measurer import Measurer
from ..measure.program_builds import ProgramBuilds
from ..measure.program_text import parse_program
from ..measure.worker_pool import Built, WorkerPool
from ..records import environment_record, toolchain_record
from .answers import CandidateAnswer, answered
from .code import Compiled, pack, unpack

_log = logging.getLogger(__name__)
IDLE = 60.0
"""Seconds after which the processes of a program end that nothing is asked of."""
KEPT = 64
"""Kernels of a program that are kept to be timed again."""
SENTINEL_ROUNDS = 5
DECLARED = "tilewright.target"
"""The setting of Dask that names the target which a worker is for."""
Fields: TypeAlias = dict[str, Any]


def describe(request: str) -> bytes:
    """Who this worker is: `{"target": "cpu", "among": []}`; of a builder `{"builds": target}`."""
    return _answered(request, lambda: (_described(json.loads(request)), b""))


def perform(request: str, data: bytes = b"") -> bytes:
    """Build, measure, check or interleave candidates of a program; `data` is their code."""
    return _station().do(request, data)


def _described(fields: Fields) -> Fields:
    builds = "builds" in fields
    target, serves = (Target.from_json(fields["builds"]), True) if builds else served(fields)
    tools, runtime = toolchain_record(target), runtime_for(target)
    return {
        "version": tools.versions["tilewright"],
        "generation": tools.generation,
        "architecture": platform.machine(),
        "serves": serves,
        "target": str(target),
        "machine": {} if builds else {**runtime.machine(), **runtime.conditions()},
        "facts": {} if builds else environment_record(target).facts,
    }


def served(fields: Fields) -> tuple[Target, bool]:
    """The target that this worker measures for, and whether it is the one that is wanted.

    A worker may declare it. One that does not serves the first target of the session whose
    processor it is, else the first whose code it runs. Raises `TargetError` if there is none.
    """
    import dask.config

    wanted, declared = fields["target"], dask.config.get(DECLARED, None)
    if declared is not None:
        own: Target = resolve(str(declared))
        check_runnable(own)
        return own, wanted == own.kind or str(resolve(wanted)) == str(own)
    runs = [t for t in fields["among"] if _runs(t)]
    serves = next((t for t in runs if _is_here(resolve(t))), runs[0] if runs else wanted)
    check_runnable(resolve(serves))
    return resolve(serves), serves == wanted


def _runs(text: str) -> bool:
    try:
        check_runnable(resolve(text))
    except TilewrightError:
        return False
    return True


def _is_here(target: Target) -> bool:
    return str(generator_for(target).timed_on(target)) == str(target)


def _answered(request: str, work: Callable[[], tuple[Fields, bytes]]) -> bytes:
    """The answer, also where something failed: exceptions would be sent as pickles."""
    try:
        return answered(request, *work())
    except TilewrightError as error:
        return answered(request, {"error": storable(str(error))})
    except Exception as error:  # noqa: BLE001 - a defect here is for whoever asks
        return answered(request, {"error": storable(f"{type(error).__name__}: {error}")})


@cache
def _station() -> _Station:
    return _Station()


class _Station:
    """The thread that works, on one request after the other."""

    def __init__(self) -> None:
        self._requests = SimpleQueue[tuple[str, bytes, SimpleQueue[bytes]]]()
        self._name = False, ""
        self._program: _Builder | _Program | None = None
        threading.Thread(target=self._run, name="tilewright-station", daemon=True).start()

    def do(self, request: str, data: bytes) -> bytes:
        place = SimpleQueue[bytes]()
        self._requests.put((request, data, place))
        return place.get()

    def _run(self) -> None:
        while True:
            try:
                request, data, place = self._requests.get(timeout=IDLE if self._program else None)
            except Empty:
                self._end()
                continue
            place.put(_answered(request, partial(self._work, request, data)))

    def _work(self, request: str, data: bytes) -> tuple[Fields, bytes]:
        fields = json.loads(request)
        return self._program_of(fields).answer(fields, data)

    def _program_of(self, fields: Fields) -> _Builder | _Program:
        """The program of a request, open: the one of before, or another in its place."""
        name = fields["do"] == "build", digest_of(fields["program"])
        if self._program is None or self._name != name:
            self._end()
            program = (_Builder if name[0] else _Program)(fields["program"])
            with ExitStack() as failed:
                failed.callback(program.close)
                program.open()
                failed.pop_all()
            self._name, self._program = name, program  # only now: no other answers in its place
        return self._program

    def _end(self) -> None:
        """End the processes of the program, if there is one; what fails there stops nothing."""
        program, self._program = self._program, None
        if program is not None:
            try:
                program.close()
            except Exception:  # noqa: BLE001 - the next program needs none of it
                _log.exception("the processes of a program cannot be ended")


class _Builder:
    """A program with a process that builds its candidates."""

    def __init__(self, fields: Fields) -> None:
        config = replace(MeasureConfig(**fields["config"]), builders=1)
        target = Target.from_json(fields["target"])
        self._pool = WorkerPool(target, config, fields["step_modules"])
        self._builds = ProgramBuilds(fields, self._pool)

    def open(self) -> None:
        self._pool.open(self._builds.handshakes)

    def close(self) -> None:
        self._pool.close()

    def answer(self, fields: Fields, _: bytes) -> tuple[Fields, bytes]:
        requests = _requests(fields)
        codes, data = pack(requests, list(self._builds.each(requests)))
        return {"codes": codes}, data


class _Program:
    """A program with its measurer, and kernels of it."""

    def __init__(self, fields: Fields) -> None:
        func, target = parse_program(fields), Target.from_json(fields["target"])
        config = MeasureConfig(**fields["config"])
        pool = WorkerPool(target, config, fields["step_modules"])
        self._measurer = Measurer(func, target, config, workers=pool, tolerance=fields["tolerance"])
        self._target = str(target)
        self._kernels: dict[str, Kernel] = {}

    def open(self) -> None:
        self._measurer.__enter__()

    def close(self) -> None:
        self._measurer.close()

    def answer(self, fields: Fields, data: bytes) -> tuple[Fields, bytes]:
        requests = _requests(fields)
        if fields["do"] == "interleave":
            kernels = self._built(requests)
            rows = None if kernels is None else self._measurer.interleave(kernels, fields["rounds"])
            return {"samples": rows}, b""
        if fields["do"] == "check":
            kernels = self._built(requests)
            if kernels is None:
                raise TuningError("the candidate does not build any more")
            return {"check": self._measurer.check(kernels[0]).to_json()}, b""
        codes = fields["codes"]
        known = unpack(codes, data, requests, self._target) if codes else None
        return self._measure(requests, known, fields), b""

    def _measure(
        self, requests: Sequence[BuildRequest], known: list[Compiled] | None, fields: Fields
    ) -> Fields:
        before = self._sentinel(fields["sentinel"])
        found: dict[int, MeasureResult] = {}
        candidates = self._measurer.build(requests) if known is None else known
        for number, result in self._measurer.time(candidates, fields["best_seconds"]):
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


def _requests(fields: Fields) -> list[BuildRequest]:
    return [BuildRequest(*pair) for pair in fields["requests"]]
