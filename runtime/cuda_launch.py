"""What an entry point of a CUDA image launches: kernels, in order, on one stream.

An entry point is a function of the signature (`runtime/signature.py`). Its parameters are the
arguments and, as the last one, the workspace. It has no code of its own: a call passes some of the
parameters to each of its kernels. The list of kernels is data, which compiled code and manifests
carry as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ..base.errors import ArtifactError
from ..target.cuda import ARCHS
from .c_names import is_c_identifier
from .signature import MAX_ARGUMENTS, Signature, show

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
_MAX_COUNT = 2**31 - 1


@dataclass(frozen=True)
class KernelResources:
    """What the compiler reports of a kernel.

    `registers` are those of a thread. `stack_bytes` and the spills are of a thread too; a spill is
    a register that is stored to memory and loaded again. `shared_bytes` are those that the code
    declares, beside the dynamic ones of a launch.
    """

    registers: int
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _RESOURCES}

    @staticmethod
    def from_json(data: object) -> KernelResources:
        """The resources of their JSON form. Raises `ArtifactError` for anything malformed."""
        found = _fields(data, "the resources of a kernel", _RESOURCES)
        return KernelResources(
            **{name: _number(value, name, 0, _MAX_COUNT) for name, value in found.items()}
        )


@dataclass(frozen=True)
class KernelLaunch:
    """The launch of one kernel of an image.

    `grid` and `block` are extents in x, y and z. `shared_bytes` are dynamic. `arguments` are the
    kernel's parameters as positions of those of the entry point: the number of an argument, or the
    number of arguments for the workspace.
    """

    symbol: str
    grid: Extents
    block: Extents
    arguments: tuple[int, ...]
    shared_bytes: int = 0
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

    @staticmethod
    def from_json(data: object) -> KernelLaunch:
        """The launch of its JSON form. Raises `ArtifactError` for anything malformed."""
        found = _fields(data, "the launch of a kernel", _LAUNCH)
        symbol, arguments, resources = found["symbol"], found["arguments"], found["resources"]
        if not isinstance(symbol, str) or len(symbol) > _MAX_SYMBOL or not is_c_identifier(symbol):
            raise ArtifactError("symbol: expected the name of a kernel, found {0}", show(symbol))
        if not isinstance(arguments, list) or len(arguments) * 8 > MAX_PARAMETER_BYTES:
            raise ArtifactError(
                "{0}: expected a list of at most {1} parameters, found {2}",
                symbol,
                MAX_PARAMETER_BYTES // 8,
                show(arguments),
            )
        block = _extents(found["block"], "block", MAX_BLOCK)
        launch = KernelLaunch(
            symbol,
            _extents(found["grid"], "grid", MAX_GRID),
            block,
            tuple(_number(n, "arguments", 0, MAX_ARGUMENTS) for n in arguments),
            _number(found["shared_bytes"], "shared_bytes", 0, MAX_SHARED_BYTES),
            None if resources is None else KernelResources.from_json(resources),
        )
        if launch.threads > MAX_THREADS:
            raise ArtifactError(
                "{0}: a block of {1} threads, at most {2}", symbol, launch.threads, MAX_THREADS
            )
        return launch


_RESOURCES = tuple(f.name for f in fields(KernelResources))
_LAUNCH = tuple(f.name for f in fields(KernelLaunch))


def kernels_to_json(kernels: Sequence[KernelLaunch]) -> list[dict[str, Any]]:
    """The kernels of an entry point as JSON."""
    return [kernel.to_json() for kernel in kernels]


def kernels_from_json(data: object, signature: Signature) -> tuple[KernelLaunch, ...]:
    """The kernels of the entry point of a signature.

    Raises `ArtifactError` for anything malformed, and for parameters that the entry point lacks.
    """
    if not isinstance(data, list) or len(data) > MAX_KERNELS:
        raise ArtifactError(
            "expected a list of at most {0} kernels, found {1}", MAX_KERNELS, show(data)
        )
    kernels = tuple(map(KernelLaunch.from_json, data))
    workspace = len(signature.arguments)
    last = workspace if signature.workspace_bytes else workspace - 1
    for kernel in kernels:
        beyond = [n for n in kernel.arguments if n > last]
        if beyond:
            raise ArtifactError(
                "{0}: takes parameter {1} of {2}, which has {3} arguments and {4} workspace",
                kernel.symbol,
                beyond[0],
                signature.name,
                workspace,
                "a" if signature.workspace_bytes else "no",
            )
    return kernels


def _fields(data: object, what: str, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict) or data.keys() != set(names):
        raise ArtifactError("expected {0} with {1}, found {2}", what, ", ".join(names), show(data))
    return data


def _number(value: object, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ArtifactError(
            "{0}: expected an integer from {1} to {2}, found {3}", name, least, most, show(value)
        )
    return value


def _extents(value: object, name: str, most: Extents) -> Extents:
    if not isinstance(value, list) or len(value) != len(most):
        raise ArtifactError("{0}: expected three integers, found {1}", name, show(value))
    x, y, z = (_number(n, name, 1, limit) for n, limit in zip(value, most, strict=True))
    return x, y, z
