"""What an entry point of a CUDA image launches: kernels, in order, on one stream.

An entry point is a function of the signature (`runtime/signature.py`). Its parameters are the
arguments and, as the last one, the workspace. It has no code of its own: a call passes some of the
parameters to each of its kernels. The list of kernels is data, which compiled code and manifests
carry as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeAlias

from ..base.checked_json import Such, at_most, between, read
from ..base.errors import ArtifactError
from ..target.cuda import ARCHS
from .signature import MAX_ARGUMENTS, Signature, is_c_identifier

Extents: TypeAlias = tuple[int, int, int]

_LIMITS = tuple(ARCHS.values())
"""A launch is within those of one of the devices that are known, in each respect."""
MAX_GRID: Extents = max(limits.grid for limits in _LIMITS)
MAX_BLOCK: Extents = max(limits.block for limits in _LIMITS)
MAX_THREADS = max(limits.block_threads for limits in _LIMITS)
"""Threads of a block."""
MAX_SHARED_BYTES = max(limits.block_bytes for limits in _LIMITS)
"""Shared memory of a block."""
MAX_PARAMETER_BYTES = 4096
"""All parameters of a kernel; each takes at most 8 bytes."""
MAX_KERNELS = 4096
"""Kernels of an entry point."""
_MAX_SYMBOL = 1024
_KERNEL_NAME = Such("the name of a kernel", is_c_identifier)
Count: TypeAlias = Annotated[int, between(0, 2**31 - 1)]


@dataclass(frozen=True)
class KernelResources:
    """What the compiler reports of a kernel.

    `registers` are those of a thread. `stack_bytes` and the spills are of a thread too; a spill is
    a register that is stored to memory and loaded again. `shared_bytes` are those that the code
    declares, beside the dynamic ones of a launch.
    """

    registers: Count
    stack_bytes: Count = 0
    spill_store_bytes: Count = 0
    spill_load_bytes: Count = 0
    shared_bytes: Count = 0

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def _extents(most: Extents) -> Such:
    return Such(
        f"extents from 1 to {most}",
        lambda found: all(1 <= n <= limit for n, limit in zip(found, most, strict=True)),
    )


@dataclass(frozen=True)
class KernelLaunch:
    """The launch of one kernel of an image.

    `grid` and `block` are extents in x, y and z. `shared_bytes` are dynamic. `arguments` are the
    kernel's parameters as positions of those of the entry point: the number of an argument, or the
    number of arguments for the workspace.
    """

    symbol: Annotated[str, at_most(_MAX_SYMBOL, "characters"), _KERNEL_NAME]
    grid: Annotated[Extents, _extents(MAX_GRID)]
    block: Annotated[Extents, _extents(MAX_BLOCK)]
    arguments: Annotated[
        tuple[Annotated[int, between(0, MAX_ARGUMENTS)], ...],
        at_most(MAX_PARAMETER_BYTES // 8, "parameters"),
    ]
    shared_bytes: Annotated[int, between(0, MAX_SHARED_BYTES)] = 0
    resources: KernelResources | None = None

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "grid": list(self.grid),
            "block": list(self.block),
            "arguments": list(self.arguments),
            "shared_bytes": self.shared_bytes,
            "resources": None if self.resources is None else self.resources.to_json(),
        }

    def validate(self) -> None:
        """Raise `ValueError` for a block of more threads than any device has."""
        if self.threads > MAX_THREADS:
            raise ValueError(f"a block of {self.threads} threads, at most {MAX_THREADS}")


@dataclass(frozen=True)
class _Kernels:
    kernels: Annotated[tuple[KernelLaunch, ...], at_most(MAX_KERNELS, "kernels")]


def kernels_to_json(kernels: Sequence[KernelLaunch]) -> list[dict[str, Any]]:
    """The kernels of an entry point as JSON."""
    return [kernel.to_json() for kernel in kernels]


def kernels_from_json(data: object, signature: Signature) -> tuple[KernelLaunch, ...]:
    """The kernels of the entry point of a signature.

    Raises `ArtifactError` for anything malformed, and for parameters that the entry point lacks.
    """
    kernels = read(_Kernels, {"kernels": data}, "an entry point").kernels
    workspace = len(signature.arguments)
    last = workspace if signature.workspace_bytes else workspace - 1
    for number, kernel in enumerate(kernels):
        beyond = [n for n in kernel.arguments if n > last]
        if beyond:
            raise ArtifactError(
                "{0}: takes parameter {1} of {2}, which has {3} arguments and {4} workspace",
                kernel.symbol,
                beyond[0],
                signature.name,
                workspace,
                "a" if signature.workspace_bytes else "no",
                at=f"kernels[{number}].arguments",
            )
    return kernels
