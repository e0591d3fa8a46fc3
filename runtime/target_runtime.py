"""What it takes to load and call kernels of each kind of target: its memory, timer and artifacts.

None of it needs a code generator. `cpu_runtime.py` is the runtime of processors;
`register_runtime` adds another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.errors import ArgumentError
from ..target import Fact, Target
from ..target.target import Registry
from .memory import Memory
from .timer import Timer

if TYPE_CHECKING:
    from .manifest import Manifest, StoredProgram
    from .module import Module
    from .signature import Signature


class TargetRuntime(ABC):
    """The runtime of a kind of target.

    `memory` is where its kernels find arrays, and `timer` times them, in sessions and in modules.
    """

    timer: ClassVar[Timer] = Timer()

    @property
    @abstractmethod
    def memory(self) -> Memory: ...

    def on_device(self, ordinal: int) -> TargetRuntime:
        """The runtime of one of a kind's devices. Raises `ArgumentError` where it has none."""
        raise ArgumentError(
            "device={0}: this code runs on processors, and devices have no numbers there",
            ordinal,
            hint="leave `device` out",
        )

    def conditions(self) -> dict[str, Fact]:
        """What bears on timings at this moment and no target says, for people and for records."""
        return {}

    def machine(self) -> dict[str, Fact]:
        """What this machine is, where it measures what another one packed.

        `CodeGenerator.timed_there` reads it. Raises `TargetError` where there is no such machine.
        """
        return {}

    @abstractmethod
    def needs(self, data: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
        """What the code of a program needs to be called, of the JSON object in its manifest.

        Which facts these are is up to the kind. Raises `ArtifactError` where they are malformed.
        """

    @abstractmethod
    def load(
        self,
        manifest: Manifest,
        program: StoredProgram,
        code: bytes,
        path: Path,
        *,
        trust_indices: bool,
    ) -> Module:
        """Load the code of an artifact, which is that of the manifest, and find the entry points of
        a program.

        `path` is that of its file, for errors. Raises `ArtifactError` unless this machine runs it.
        """


def _cpu() -> TargetRuntime:
    from .cpu_runtime import CpuRuntime

    return CpuRuntime()


def _cuda() -> TargetRuntime:
    from .cuda_runtime import CudaRuntime

    return CudaRuntime()


_RUNTIMES = Registry("runtime", "register_runtime", {"cpu": _cpu, "cuda": _cuda})


def register_runtime(kind: str, load: Callable[[], TargetRuntime]) -> None:
    """Load and call kernels for targets of a kind by what `load` returns, which is called once.

    Raises `TargetError` where the kind has a runtime already.
    """
    _RUNTIMES.register(kind, load)


def runtime_for(target: Target) -> TargetRuntime:
    """The runtime of targets of its kind. Raises `TargetError` where there is none."""
    return _RUNTIMES.of(target)
