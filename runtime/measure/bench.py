"""The process that runs the candidates of a pack: it is asked one thing at a time.

A candidate that ends or blocks the process costs itself and this process, not the results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import ArtifactError, DeviceError, KernelError, OutOfMemoryError
from ...base.process import collected_later
from ..cuda_driver import LAUNCH_TIMEOUT
from ..inputs import Arguments, Array
from ..manifest import Manifest
from ..module import Module
from ..signature import Signature
from ..target_runtime import TargetRuntime, runtime_for
from .comparison import CheckResult, Deviation, Exact, check_outputs, deviation
from .interleaved import time_loaded
from .output_sample import OutputSample
from .pack import PackedCandidate, PackedFile, load_packed, read_pack, read_packed

Message = Mapping[str, Any]


class Bench:
    """The candidates of a pack on this machine, their arguments and the expected results.

    Answers `begin` once, then `run` of a candidate, and `finals` of several.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pack = read_pack(folder)
        self._answers: dict[str, Callable[[Message], Message]] = {
            "begin": self._begin,
            "run": self._run,
            "finals": self._finals,
        }
        self._exact: Exact | None = None

    def answer(self, message: Message) -> Message:
        """The answer to a message, or the `outcome` and `error` of a candidate that failed.

        With `lost`, this process cannot use its device any more. Raises `ArtifactError` for files
        that are damaged.
        """
        try:
            return self._answers[message["do"]](message)
        except OutOfMemoryError as error:
            return _failed("out_of_memory", error)
        except DeviceError as error:
            if not error.sticky:  # the device refuses to load or to launch it
                return _failed("build_error", error)
            late = error.code == LAUNCH_TIMEOUT
            return {**_failed("run_timeout" if late else "crash", error), "lost": True}
        except KernelError as error:
            return _failed("crash", error)
        except MemoryError:
            return _failed("out_of_memory", "no memory to load or run it")

    def _begin(self, _: Message) -> Message:
        """Run the unscheduled program; its results are those to expect."""
        manifest, module = self._loaded(self._pack.reference)
        self._runtime: TargetRuntime = runtime_for(manifest.target)
        self._signature: Signature = manifest.program.signature
        self._arguments = Arguments(
            self._signature, self._pack.seed, self._runtime.memory, positive=self._pack.positive
        )

        def run() -> None:
            module(*self._values(module))
            module.synchronize()

        seconds = self._runtime.timer.time_once(run)
        self._expected: list[Array] = [a.copy() for a in self._arguments.outputs]
        self._check_samples()
        machine = {**self._runtime.machine(), **self._runtime.conditions()}
        return {"reference_seconds": seconds, "machine": machine}

    def _check_samples(self) -> None:
        """Compare the results of the unscheduled program with those of another machine's host."""
        if self._pack.samples is None:
            return
        written = [a for a in self._signature.arguments if a.written]
        if len(self._pack.samples) != len(written):
            raise ArtifactError(
                "pack: {0} samples, expected one of each output", len(self._pack.samples)
            )
        for data, argument, output in zip(self._pack.samples, written, self._expected, strict=True):
            OutputSample.from_json(data, argument).check(output, self._pack.tolerance)

    def _run(self, message: Message) -> Message:
        began = time.perf_counter()
        candidate = self._pack.candidates[message["candidate"]]
        module = self._candidate(candidate)
        if isinstance(module, str):
            return _failed("build_error", module)
        check = self._checked(candidate, module)
        told = {"check": check.to_json(), "machine": self._runtime.conditions()}
        if not check.passed:
            return {**told, **_failed("wrong_result", check.error or "wrong results")}
        limits = self._pack.limits
        with collected_later():
            timing = self._runtime.timer.time_calls(
                self._call(module),
                min_samples=limits.min_samples,
                max_samples=limits.max_samples,
                budget_seconds=limits.timing_seconds,
                min_sample_seconds=limits.sample_seconds,
                stop_above=message["stop_above"],
            )
        return {
            **told,
            "outcome": "ok",
            "samples": list(timing.samples),
            "seconds": timing.median,
            "took": time.perf_counter() - began,
        }

    def _finals(self, message: Message) -> Message:
        modules = list[Module]()
        for number in message["candidates"]:
            module = self._candidate(self._pack.candidates[number])
            if isinstance(module, str):
                return _failed("build_error", module)
            modules.append(module)
        with collected_later():
            samples = time_loaded(
                [partial(self._call, module) for module in modules],
                self._runtime.timer,
                rounds=message["rounds"],
                min_sample_seconds=self._pack.limits.sample_seconds,
            )
        return {"samples": samples}

    def _call(self, module: Module) -> Callable[[], None]:
        return module.bind(*self._values(module))

    def _candidate(self, candidate: PackedCandidate) -> Module | str:
        """The module of a candidate, or why this machine does not load it."""
        assert candidate.file is not None, "what was not built is not asked for"
        packed = read_packed(self._folder, candidate.file)
        self._require_same_arguments(candidate.file, packed[0].program.signature)
        try:
            return load_packed(self._folder, candidate.file, packed)
        except ArtifactError as error:
            return str(error)

    def _checked(self, candidate: PackedCandidate, module: Module) -> CheckResult:
        arguments, factor = self._arguments, candidate.error_factor
        arguments.reset()
        module(*self._values(module))
        module.synchronize()
        names = [a.name for a in self._signature.arguments if a.written]
        results = arguments.outputs
        check = check_outputs(results, self._expected, names, self._pack.tolerance, None, factor)
        if not check.passed and self._pack.wide is not None:
            results = [r.copy() for r in results]
            exact = self._wide(self._pack.wide)
            check = check_outputs(
                results, self._expected, names, self._pack.tolerance, exact, factor
            )
        stray = arguments.stray_write()
        if stray is None:
            return check
        error = f"it wrote beside argument {stray}"
        return CheckResult(False, check.max_error, check.tolerance, error)

    def _wide(self, file: PackedFile) -> Exact:
        """The results in wider arithmetic, computed when they are first needed."""
        if self._exact is None:
            manifest, module = self._loaded(file)
            arguments = self._arguments.converted(manifest.program.signature)
            module(*arguments.values)
            module.synchronize()
            outputs = [a.copy() for a in arguments.outputs]
            found = [deviation(a, a, b) for a, b in zip(self._expected, outputs, strict=True)]
            # An error that overflows is no measure of anything.
            errors = [Deviation(_finite(d.largest), _finite(d.rms)) for d in found]
            self._exact = Exact(outputs, errors)
        return self._exact

    def _loaded(self, file: PackedFile) -> tuple[Manifest, Module]:
        packed = read_packed(self._folder, file)
        return packed[0], load_packed(self._folder, file, packed)

    def _values(self, module: Module) -> list[Any]:
        """The arguments of a module, the constant ones packed as its signature says."""
        return [
            value if a.packing is None else module.pack(a.name, value)
            for a, value in zip(module.signature.arguments, self._arguments.values, strict=True)
        ]

    def _require_same_arguments(self, file: PackedFile, signature: Signature) -> None:
        expected, found = (
            [(a.name, a.kind, a.role) for a in s.arguments] for s in (self._signature, signature)
        )
        if expected != found:
            raise ArtifactError(
                "{0} has other arguments than the program: expected {1}, found {2}",
                file.name,
                self._signature.c_declaration(),
                signature.c_declaration(),
                hint="pack the candidates again",
            )


def _finite(error: float) -> float:
    return error if math.isfinite(error) else 0.0


def _failed(outcome: str, error: object) -> dict[str, Any]:
    return {"outcome": outcome, "error": str(error)}
