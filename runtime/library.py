"""`LoadedLibrary`, the programs of an artifact by name, and how each of them is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..base.display import html
from ..base.errors import ArgumentError, ArtifactError, similar
from ..base.hints import Hinted
from ..base.process import InProcess
from ..base.text import count, in_lines
from ..target import Target
from .evidence import Evidence
from .manifest import Manifest, StoredProgram
from .model import Model
from .module import Module
from .partitioned import PartitionedModel
from .profile import Instrumented, signatures
from .service import Report
from .stored_partition import load_partition
from .target_runtime import TargetRuntime
from .trust import Signed
from .weights_file import Array

Loaded: TypeAlias = "Module | Model | PartitionedModel"
"""A program of an artifact: kernels are modules."""


@dataclass(frozen=True)
class ArtifactContent:
    """What was read of an artifact: its manifest, its code, its weights, by the names of programs
    the parts that other providers run, and the signature of it that was asked for."""

    manifest: Manifest
    code: bytes
    weights: Array | None
    parts: Mapping[str, Mapping[int, bytes]]
    signed: Signed | None = None


class LoadedLibrary(
    InProcess,
    Hinted,
    error=ArtifactError,
    instead='in each process take tw.load("ops.so")',
):
    """The programs of an artifact that has several, by name: `ops["matmul"](a, b, c)`.

    Kernels are `Module`s and models `Model`s, as they are where each is loaded from an artifact of
    its own. Iteration is over names, in the order of the build.
    """

    def __init__(self, programs: Mapping[str, Loaded], target: Target) -> None:
        self.programs = dict(programs)
        self.target = target

    @property
    def ready(self) -> bool:
        """Whether all programs are."""
        return all(program.ready for program in self.programs.values())

    def warm_up(self) -> None:
        """Warm all programs up. Raises what their `warm_up` does."""
        for program in self.programs.values():
            program.warm_up()

    def count_calls(self) -> None:
        """Count the calls of all programs that begin from now on, for `report`."""
        for program in self.programs.values():
            program.count_calls()

    def report(self) -> dict[str, Report]:
        """What is known of each program and its calls, until now."""
        return {name: program.report() for name, program in self.programs.items()}

    def __getitem__(self, name: str) -> Any:
        """The module, or model, of that name. Raises `ArgumentError`."""
        found = next((program for own, program in self.programs.items() if own == name), None)
        if found is None:
            raise ArgumentError(
                "there is no program {0!r:.80}; the library has {1}", name, ", ".join(self),
                hint=similar(str(name), [*self]),
            )  # fmt: skip
        return found

    def __contains__(self, name: object) -> bool:
        return name in [*self.programs]

    def __iter__(self) -> Iterator[str]:
        return iter(self.programs)

    def __len__(self) -> int:
        return len(self.programs)

    _repr_html_ = html

    def __repr__(self) -> str:
        words = [f"{name}," for name in self]
        return in_lines(
            [f"<LoadedLibrary of {count(len(self), 'program')}:", *words, f"for {self.target}>"]
        )


def opened(
    content: ArtifactContent,
    path: Path,
    runtime: TargetRuntime,
    *,
    trust_indices: bool = False,
    only: str | None = None,
) -> dict[str, Loaded]:
    """The programs of an artifact by name, or that of one name; `path` is of its code, for errors.

    Raises `ArtifactError` where this machine does not run the code, or it has to be linked first,
    and `ProviderError` for a part whose provider does not load it.
    """
    found: dict[str, Loaded] = {}
    if (form := content.manifest.code.form) is not None:
        raise ArtifactError(
            "{0} is an {1}, which is linked into a program before it runs", path, form,
            hint=f"link it as {path.with_suffix('.h').name} says, or build a library of it",
        )  # fmt: skip
    with _numpy_dtypes(path):
        for program in content.manifest.programs:
            if only in (None, program.name):
                loaded = _opened(content, program, path, runtime, trust_indices=trust_indices)
                loaded.fixture, loaded.guards = program.fixture, program.guards
                found[program.name] = loaded
    return found


def _opened(
    content: ArtifactContent,
    program: StoredProgram,
    path: Path,
    runtime: TargetRuntime,
    *,
    trust_indices: bool,
) -> Loaded:
    manifest, code, held = content.manifest, content.code, program.weights
    if held is None:
        return runtime.load(manifest, program, code, path, trust_indices=trust_indices)
    if content.weights is None:
        weights = np.empty(0, np.uint8)
    else:
        weights = content.weights[held.offset : held.offset + held.size]
    if program.partition is not None:
        parts = content.parts[program.name]
        return load_partition(manifest, program, code, weights, parts, path, runtime)
    told = program.provenance.evidence
    evidence = None if told is None else partial(Evidence.from_json, told)

    def instrumented() -> Instrumented:
        own = signatures(program.signature, program.needs["profiled"])
        wanted = [replace(program, signature=signature) for signature in own]
        timed, empty = (runtime.load(manifest, p, code, path, trust_indices=False) for p in wanted)
        return Instrumented(timed, empty)

    return Model(
        runtime.load(manifest, program, code, path, trust_indices=False),
        weights,
        program.provenance.kernels,
        evidence,
        instrumented if "profiled" in program.needs else None,
        program.guards,
    )


@contextmanager
def _numpy_dtypes(path: Path) -> Iterator[None]:
    """Raise `ArtifactError` where numpy lacks a dtype of arguments."""
    try:
        yield
    except ImportError as error:
        raise ArtifactError(
            "{0} has arrays of dtypes that numpy alone lacks: {1}", path, error,
            hint="pip install ml_dtypes",
        ) from error  # fmt: skip


def whole(programs: Mapping[str, Loaded], target: Target) -> Loaded | LoadedLibrary:
    """The program where it is the only one, else the library of all."""
    if len(programs) == 1:
        return next(iter(programs.values()))
    return LoadedLibrary(programs, target)
