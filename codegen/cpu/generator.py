"""The code generator for processors: LLVM, OpenMP's runtime, shared libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime import openmp
from ...runtime.module import Module, Origin
from ...target import CpuTarget, Fact, check_runnable
from ..compiled import Compiled
from ..generator import Code, CodeGenerator, Part, Pass, Tools
from . import llvm
from .detection import host_target, resolved
from .kernel import CALLED, assembly, check_image, compile_parts, load
from .llvm import Emitted
from .lowering import passes

if TYPE_CHECKING:
    from ...runtime.artifact import Provenance
    from ...runtime.files import File

_PER_THREAD = 80 << 20
"""Addresses that the C library reserves for each thread: its stack and its heap."""


class CpuGenerator(CodeGenerator[CpuTarget, tuple[Emitted, ...]]):
    @property
    def sources(self) -> Mapping[str, Callable[[Compiled], str]]:
        return {"llvm": lambda compiled: compiled.text, "asm": assembly}

    @property
    def reserved(self) -> frozenset[str]:
        return CALLED

    def host(self) -> CpuTarget:
        return host_target()

    def resolve(self, wanted: CpuTarget) -> CpuTarget:
        return resolved(wanted)

    def check_runnable(self, target: CpuTarget) -> None:
        check_runnable(target, host_target())

    def timed_on(self, target: CpuTarget) -> CpuTarget:
        return host_target().with_threads(target.threads)

    def tools(self) -> Tools:
        found = llvm.llvm_version()
        versions = {"llvm": found, "llvmlite": llvm.llvmlite_version()}
        return Tools(f"llvm {found.partition('.')[0]}", versions)

    def runtimes(self) -> dict[str, Fact]:
        runtime = openmp.load()
        return {"openmp": None if runtime is None else runtime.path}

    def compiled_target(self, target: CpuTarget) -> CpuTarget:
        """Serial where OpenMP has no runtime."""
        if target.threads > 1 and openmp.load() is None:
            return target.with_threads(1)
        return target

    def passes(self, target: CpuTarget) -> tuple[Pass, ...]:
        return passes(target)

    def emit(
        self, parts: Sequence[Part], target: CpuTarget, *, strict_fp: bool
    ) -> tuple[Emitted, ...]:
        kernel = parts[0].signature
        return tuple(
            llvm.emit(func, signature, target, strict_fp=strict_fp, kernel=kernel)
            for func, signature in parts
        )

    def compile(self, emitted: tuple[Emitted, ...], target: CpuTarget) -> Code:
        return compile_parts(emitted, target)

    def check(self, compiled: Compiled) -> None:
        check_image(compiled)

    def load(self, compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
        return load(compiled, origin, trust_indices=trust_indices)

    def check_path(self, path: Path, *, intermediate: bool) -> None:
        from .library import check_path

        check_path(path, object_file=intermediate)

    def files(
        self, compiled: Compiled, path: Path, provenance: Provenance, *, intermediate: bool
    ) -> tuple[File, ...]:
        """A shared library with its manifest and C header, or an object file with the header."""
        from .library import library_files, object_files

        if intermediate:
            return object_files(compiled, path)
        return library_files(compiled, path, provenance)

    def environment(self, target: CpuTarget, *, runs: bool) -> dict[str, str]:
        return {
            "OMP_NUM_THREADS": str(target.threads if runs else 1),
            "OMP_DYNAMIC": "false",
            "OMP_MAX_ACTIVE_LEVELS": "1",
        }

    def addresses(self, target: CpuTarget) -> int:
        return target.threads * _PER_THREAD
