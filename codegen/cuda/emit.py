"""The CUDA C++ of lowered functions: the kernels of each, and the parameters of their launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...base import dtypes
from ...base.errors import BuildError
from ...runtime.cuda_launch import KernelLaunch, KernelResources
from ...target import CudaTarget
from ...tir.ir import Buffer, Func, Var, integers
from ..generator import Part
from ..passes.launches import launches_of
from .kernels import Kernel, kernel
from .prelude import prelude

_ALIGNMENT = 256
"""Bytes: of internal buffers in the workspace."""
_HEADER = "// {0} for {1}\n"


class EntryPoint(NamedTuple):
    """The kernels of one function, in order, and the bytes of its workspace."""

    symbol: str
    kernels: tuple[Kernel, ...]
    workspace_bytes: int

    def launches(self, resources: dict[str, KernelResources]) -> list[KernelLaunch]:
        """Their launches, with what the compiler reports of them."""
        return [
            KernelLaunch(
                k.symbol, k.grid, k.block, k.arguments, k.shared_bytes, resources.get(k.symbol)
            )
            for k in self.kernels
        ]


class Emitted(NamedTuple):
    """The text of all functions of a build.

    `loops` are the variables of the scheduled loops by the line, from 1, that each begins at.
    """

    text: str
    entry_points: tuple[EntryPoint, ...]
    strict_fp: bool
    loops: Mapping[int, Var]


def emit(parts: Sequence[Part], target: CudaTarget, *, strict_fp: bool) -> Emitted:
    """CUDA C++ of lowered functions.

    Raises `BuildError` for a launch that is beyond the limits of the target.
    """
    entry_points = tuple(_entry_point(part.func, part.signature.name, target) for part in parts)
    kernels = [k for entry in entry_points for k in entry.kernels]
    headers = frozenset[str]().union(*(k.headers for k in kernels))
    functions = frozenset[str]().union(*(k.functions for k in kernels))
    title = _HEADER.format(", ".join(e.symbol for e in entry_points), target)
    text = "\n".join(filter(None, [title, prelude(headers, functions)]))
    loops: dict[int, Var] = {}
    for k in kernels:
        text += "\n"
        first = text.count("\n") + 1
        loops |= {first + line: var for line, var in k.loops.items()}
        text += k.text
    return Emitted(text, entry_points, strict_fp, loops)


def workspace_of(func: Func) -> tuple[dict[Buffer, int], int]:
    """The offsets of a lowered function's internal buffers in its workspace, and its bytes."""
    offsets: dict[Buffer, int] = {}
    size = 0
    for b in func.allocs:
        offsets[b] = size
        size += -(-integers(b.shape)[0] * dtypes.nbytes(b.dtype) // _ALIGNMENT) * _ALIGNMENT
    return offsets, size


def _entry_point(func: Func, name: str, target: CudaTarget) -> EntryPoint:
    offsets, size = workspace_of(func)
    launches = launches_of(func)
    symbol = f"{name}_kernel"
    kernels = tuple(
        kernel(launch, func, symbol if len(launches) == 1 else f"{symbol}_{n}", offsets)
        for n, launch in enumerate(launches)
    )
    for k in kernels:
        _check_limits(k, target)
    return EntryPoint(name, kernels, size)


def _check_limits(k: Kernel, target: CudaTarget) -> None:
    """Raise `BuildError` unless devices of the target can launch a kernel."""
    limits = target.limits
    x, y, z = k.block
    threads = x * y * z
    if threads > limits.block_threads:
        raise BuildError(
            "{0} has {1} threads in a block; {2} allows {3}",
            k.symbol,
            threads,
            target,
            limits.block_threads,
            hint="split the loops that are bound to threadIdx, and bind the inner parts only",
        )
    if k.shared_bytes > limits.block_bytes:
        raise BuildError(
            "{0} takes {1} bytes of shared memory in a block; {2} allows {3}",
            k.symbol,
            k.shared_bytes,
            target,
            limits.block_bytes,
            hint="use smaller tiles or fewer stages, or compute the buffer in more steps",
        )
    for unit, found, allowed in (
        ("blockIdx", k.grid, limits.grid),
        ("threadIdx", k.block, limits.block),
    ):
        for axis, extent, most in zip("xyz", found, allowed, strict=True):
            if extent > most:
                raise BuildError(
                    "{0} has {1} iterations along {2}.{3}; {4} allows {5}",
                    k.symbol,
                    extent,
                    unit,
                    axis,
                    target,
                    most,
                    hint=f"bind the loop to {unit}.x, or split it and bind a part",
                )
