"""Processors: which of them this machine runs code for, and what the suite did for each.

A test that needs a wider unit runs where `runs(target)` says so. Elsewhere it compiles for that
target and looks at the code. What is really compiled and loaded is noted, and the end of a run
tells.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tilewright.base.errors import TargetError
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu import detection, llvm
from tilewright.codegen.cpu.detection import host_target
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import check_runnable, resolve
from tilewright.runtime.host import HOST
from tilewright.target import CPUS, CpuTarget, Target, missing_features

LESSER = ("x86-64-v2", "x86-64-v3")
"""Processors that richer machines are taken for too: `make test-hosts`."""
UNITS = {
    "amx-tile": "AMX",
    "avx512fp16": "AVX-512 FP16",
    "avx512bf16": "AVX-512 BF16",
    "avx512vnni": "AVX-512 VNNI",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "avx": "AVX",
}
"""The names of features for people, the widest unit first."""


def runs(target: Target | str) -> bool:
    """Whether this machine executes code for `target`."""
    try:
        check_runnable(resolve(target))
    except TargetError:
        return False
    return True


def processor(text: str) -> CpuTarget:
    """The processor of a target's text, resolved."""
    return CpuTarget.of(resolve(text))


def lesser() -> list[str]:
    """Those of `LESSER` that this machine has more than."""
    features = set(host_target().features)
    return [name for name in LESSER if CPUS[name].features < features]


def take_for(patch: pytest.MonkeyPatch, target: CpuTarget) -> None:
    """Let detection take this machine for `target`, whose code is not run meanwhile.

    For tests of decisions on recorded times: they are the same on any machine.
    """

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("code is loaded on a machine that is none")

    real = detection.host_target
    for name, module in list(sys.modules.items()):
        if name.startswith("tilewright.") and getattr(module, "host_target", None) is real:
            patch.setattr(module, "host_target", lambda: target)
    patch.setattr(CpuGenerator, "load", refuse)


@dataclass
class Processors:
    """Names of the processors that code was run for, and compiled for."""

    run: set[str] = field(default_factory=set)
    compiled: set[str] = field(default_factory=set)

    def observe(self, patch: pytest.MonkeyPatch) -> None:
        """Note what is compiled in this process, and what is loaded into it."""
        emit, load = llvm.object_code, CpuGenerator.load

        def compiled(module: Any, target: CpuTarget) -> bytes:
            self.compiled.add(target.mcpu)
            return emit(module, target)

        def loaded(generator: CpuGenerator, compiled: Compiled, *args: Any, **options: Any) -> Any:
            module = load(generator, compiled, *args, **options)
            self.run.add(CpuTarget.of(compiled.target).mcpu)
            return module

        patch.setattr(llvm, "object_code", compiled)
        patch.setattr(CpuGenerator, "load", loaded)

    def add(self, noted: dict[str, list[str]]) -> None:
        """Add what another process noted."""
        self.run.update(noted["run"])
        self.compiled.update(noted["compiled"])

    def as_data(self) -> dict[str, list[str]]:
        return {"run": sorted(self.run), "compiled": sorted(self.compiled)}

    def summary(self) -> list[str]:
        """The targets whose code was run, or only compiled and why, in at most 80 columns."""
        host = host_target()
        limit = f", by {HOST}" if os.environ.get(HOST) else ""
        model = f" ({host.model})" if host.model else ""
        lines = _paragraph("taken for", [f"{host.mcpu} -threads={host.threads}{limit}{model}"])
        if self.run:
            lines += _paragraph("run", sorted(self.run))
        reasons: dict[str, list[str]] = {}
        for name in sorted(self.compiled - self.run):
            known = name in CPUS
            reason = why_not(CpuTarget.named(name), host) if known else "not run: a test's own"
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            lines += _paragraph("compiled", [*names, f"({reason})"])
        return lines


def why_not(target: CpuTarget, host: CpuTarget) -> str:
    """Why code for `target` does not run on `host`, in a few words."""
    if target.arch != host.arch:
        return f"not run: for {target.arch}"
    missing = missing_features(target, host)
    if not missing:
        return "no test runs it"
    named = [words for name, words in UNITS.items() if name in missing]
    return f"not run: no {named[0] if named else missing[0]} here"


def _paragraph(title: str, words: Iterable[str]) -> list[str]:
    indent = " " * 11
    return textwrap.wrap(
        " ".join(words), 80, initial_indent=f"{title:<11}", subsequent_indent=indent
    )


class ReportsProcessors:
    """A plugin that says at the end what ran; processes of xdist hand on what they noted."""

    def __init__(self, processors: Processors) -> None:
        self.processors = processors

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["processors"] = self.processors.as_data()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        noted = getattr(node, "workeroutput", {}).get("processors")
        if noted is not None:
            self.processors.add(noted)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.processors.compiled or self.processors.run:
            terminalreporter.section("processors")
            for line in self.processors.summary():
                terminalreporter.write_line(line)


if __name__ == "__main__":
    print(*lesser())
