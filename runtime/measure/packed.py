"""The work of the process that runs the candidates of a pack (`supervisor.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ...base.errors import ArtifactError, BuildError
from ..inputs import Arguments
from ..manifest import Manifest
from ..module import Module
from ..signature import Signature
from ..target_runtime import runtime_for
from .bench import FAILURES, Answer, Bench, failed, failure
from .comparison import Array, CheckResult, Exact
from .output_sample import OutputSample
from .pack import PackedCandidate, PackedFile, load_packed, read_pack, read_packed

Message = Mapping[str, Any]


class PackedBench:
    """The candidates of a pack on this machine, and the expected results.

    Answers `begin` once, then `run` of a candidate, and `finals` of several.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pack = read_pack(folder)
        self._answers: dict[str, Callable[[Message], Answer]] = {
            "begin": self._begin,
            "run": self._run,
            "finals": self._finals,
        }
        self._expected: list[Array] = []

    def answer(self, message: Message) -> Answer:
        """The answer to a message, or the `failure` of a candidate.

        Raises `ArtifactError` for files that are damaged.
        """
        try:
            return self._answers[message["do"]](message)
        except FAILURES as error:
            return failure(error)

    def _begin(self, _: Message) -> Answer:
        """Run the unscheduled program; its results are those to expect."""
        pack = self._pack
        manifest, module = self._loaded(pack.reference)
        runtime, signature = runtime_for(manifest.target), manifest.program.signature
        arguments = Arguments(signature, pack.seed, runtime.memory, positive=pack.positive)
        self._bench = Bench(runtime, arguments, pack.tolerance)
        seconds, outputs = self._bench.run_reference(module)
        self._expected = [a.copy() for a in outputs]
        self._check_samples()
        machine = {**runtime.machine(), **runtime.conditions()}
        return {"reference_seconds": seconds, "machine": machine}

    def _check_samples(self) -> None:
        """Compare the results of the unscheduled program with those of another machine's host."""
        if self._pack.samples is None:
            return
        written = [a for a in self._bench.signature.arguments if a.written]
        if len(self._pack.samples) != len(written):
            raise ArtifactError(
                "pack: {0} samples, expected one of each output", len(self._pack.samples)
            )
        for data, argument, output in zip(self._pack.samples, written, self._expected, strict=True):
            OutputSample.from_json(data, argument).check(output, self._pack.tolerance)

    def _run(self, message: Message) -> Answer:
        candidate, limits = self._pack.candidates[message["candidate"]], self._pack.limits
        module = self._candidate(candidate)
        check = self._checked(candidate, module)
        told = {"check": check.to_json(), "machine": self._bench.runtime.conditions()}
        if not check.passed:
            return {**told, **failed("wrong_result", check.error or "wrong results")}
        options = limits.timing(message["stop_above"])
        return {**told, **self._bench.time(lambda: module, options)}

    def _finals(self, message: Message) -> Answer:
        chosen = [self._pack.candidates[number] for number in message["candidates"]]
        loads = [partial(self._candidate, candidate) for candidate in chosen]
        return self._bench.interleave(loads, message["rounds"], self._pack.limits.sample_seconds)

    def _checked(self, candidate: PackedCandidate, module: Module) -> CheckResult:
        factor = candidate.error_factor
        check = self._bench.check(module, self._expected, None, factor)
        if check.passed or self._exact is None:
            return check
        return self._bench.check(module, self._expected, self._exact, factor)

    @cached_property
    def _exact(self) -> Exact | None:
        """The results in wider arithmetic, computed when they are first needed."""
        file = self._pack.wide
        return None if file is None else self._bench.run_wide(self._loaded(file)[1], self._expected)

    def _candidate(self, candidate: PackedCandidate) -> Module:
        """The module of a candidate. Raises `BuildError` where this machine does not load it."""
        assert candidate.file is not None, "what was not built is not asked for"
        packed = read_packed(self._folder, candidate.file)
        self._require_same_arguments(candidate.file, packed[0].program.signature)
        try:
            return load_packed(self._folder, candidate.file, packed)
        except ArtifactError as error:
            raise BuildError("{0}", error) from error

    def _loaded(self, file: PackedFile) -> tuple[Manifest, Module]:
        packed = read_packed(self._folder, file)
        return packed[0], load_packed(self._folder, file, packed)

    def _require_same_arguments(self, file: PackedFile, signature: Signature) -> None:
        own = self._bench.signature
        expected, found = (
            [(a.name, a.kind, a.role) for a in s.arguments] for s in (own, signature)
        )
        if expected != found:
            raise ArtifactError(
                "{0} has other arguments than the program: expected {1}, found {2}",
                file.name,
                own.c_declaration(),
                signature.c_declaration(),
                hint="pack the candidates again",
            )
