"""The compiler of CUDA C++ that is here: nvcc, or else NVRTC."""

from __future__ import annotations

from types import ModuleType

from ...base.errors import BuildError
from ...target import CudaTarget
from . import nvcc, nvrtc
from .nvcc import Cubin


def compile_cubin(text: str, target: CudaTarget, *, strict_fp: bool = False) -> Cubin:
    """Compile CUDA C++. `strict_fp` forbids fma contraction.

    Raises `BuildError` where there is no compiler, and for what it refuses or warns of.
    """
    cubin: Cubin = _compiler().compile_cubin(text, target, strict_fp=strict_fp)
    return cubin


def compile_ptx(
    text: str, target: CudaTarget, *, strict_fp: bool = False, lines: bool = False
) -> str:
    """The PTX of CUDA C++, with the `lines` that it is made of. Raises `BuildError`."""
    ptx: str = _compiler().compile_ptx(text, target, strict_fp=strict_fp, lines=lines)
    return ptx


def versions() -> dict[str, str]:
    """The compiler and its version, `{"nvcc": "13.0.88"}`. Raises `BuildError`."""
    compiler = _compiler()
    return {compiler.__name__.rpartition(".")[2]: compiler.version()}


def _compiler() -> ModuleType:
    try:
        nvcc.nvcc()
    except BuildError as error:
        if nvrtc.is_there():
            return nvrtc
        raise BuildError(
            "there is neither nvcc nor NVRTC on this machine, which compile kernels",
            hint=f"{error.hint}; {nvrtc.HINT}",
        ) from error
    return nvcc
