"""NVRTC: the compiler of CUDA C++ as a library, for machines without nvcc.

It comes with the toolkit and as a wheel, `nvidia-cuda-nvrtc`. It has the same front end and the
same ptxas as nvcc, but no headers of its own: kernels of narrow floats include those of the
toolkit, or of the wheel `nvidia-cuda-runtime`. Source: NVRTC's User Guide, nvrtc.h.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ...base.errors import BuildError
from ...target import CudaTarget
from .nvcc import MOST, OF_PROGRAMS, Cubin, resources_of

HINT = "or NVRTC: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime"
_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")
_LIBRARY = re.compile(r"libnvrtc\.so\.(\d+)$")
_BUILTINS = "libnvrtc-builtins.so.*"
_SYSTEM = ("libnvrtc.so.13", "libnvrtc.so.12")
_FLAGS = ("--std=c++17", f"--diag-suppress={OF_PROGRAMS}", "--ptxas-options=-v")
_WARNING = re.compile(r"^.*\bwarning\b.*$", re.MULTILINE)


def compile_cubin(text: str, target: CudaTarget, *, strict_fp: bool = False) -> Cubin:
    """Compile CUDA C++. `strict_fp` forbids fma contraction.

    Raises `BuildError` where there is no NVRTC, and for what it refuses or warns of.
    """
    image, report = _run(text, target, f"--gpu-architecture={target.arch}", "CUBIN", strict_fp)
    return Cubin(image, resources_of(report))


def compile_ptx(
    text: str, target: CudaTarget, *, strict_fp: bool = False, lines: bool = False
) -> str:
    """The PTX of CUDA C++, with the `lines` that it is made of. Raises `BuildError`."""
    virtual = target.arch.replace("sm_", "compute_")
    options = ["--generate-line-info"] if lines else []
    image, _ = _run(text, target, f"--gpu-architecture={virtual}", "PTX", strict_fp, options)
    return image.rstrip(b"\0").decode()


def version() -> str:
    """The release of NVRTC, such as `13.0`. Raises `BuildError` where there is none."""
    major, minor = c_int(), c_int()
    _check(_library().nvrtcVersion(byref(major), byref(minor)), "to say its version")
    return f"{major.value}.{minor.value}"


def is_there() -> bool:
    """Whether this machine has it."""
    try:
        _library()
    except BuildError:
        return False
    return True


def _library() -> Any:
    """The library, loaded. Raises `BuildError` where there is none."""
    for path in (*_in_folders(), *_in_wheels(), *_SYSTEM):
        library = _load(str(path))
        if library is not None:
            return library
    raise BuildError("there is no NVRTC on this machine", hint=HINT)


@cache
def _load(path: str) -> Any:
    """A library by its path, with its part that it would look for elsewhere; `None` if it is not
    there."""
    try:
        for builtins in sorted(Path(path).parent.glob(_BUILTINS)) if os.sep in path else ():
            ctypes.CDLL(str(builtins))
        return ctypes.CDLL(path)
    except OSError:
        return None


def _homes() -> list[Path]:
    """The folders of toolkits."""
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    return [Path(home) for home in (*named, "/usr/local/cuda") if home]


def _in_folders() -> Iterator[Path]:
    for home in _homes():
        for folder in ("lib64", "lib"):
            yield from _newest_first(home.joinpath(folder).glob("libnvrtc.so.*"))


def _in_wheels() -> Iterator[Path]:
    yield from _newest_first(_files(_WHEELS, "libnvrtc.so.*"))


def _newest_first(paths: Iterator[Path]) -> list[Path]:
    """Those that are libraries by their name, which has the major version."""
    found = [(int(match[1]), path) for path in paths if (match := _LIBRARY.search(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def _files(wheels: Sequence[str], pattern: str) -> Iterator[Path]:
    """The installed files of wheels with a name."""
    for wheel in wheels:
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (Path(str(file.locate())) for file in files if file.match(pattern))


def _include_folders() -> list[Path]:
    """The folders of the toolkit's headers."""
    folders = [home / "include" for home in _homes()]
    folders += [header.parent for header in _files(_RUNTIMES, "cuda_fp16.h")]
    return [folder for folder in folders if folder.joinpath("cuda_fp16.h").exists()][:1]


def _run(
    text: str,
    target: CudaTarget,
    arch: str,
    kind: str,
    strict_fp: bool,
    more: Sequence[str] = (),
) -> tuple[bytes, str]:
    """The output of a kind, and what the compiler says meanwhile."""
    options = [arch, *_FLAGS, *more, *(["--fmad=false"] if strict_fp else [])]
    options += [f"--include-path={folder}" for folder in _include_folders()]
    library = _library()
    with _program(library, text) as program:
        given = (c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), given)
        log = _output(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status or _WARNING.search(log):
            missing = "could not open source file" in log
            raise BuildError(
                "NVRTC refuses the kernel for {0}:\n{1}",
                target,
                log.strip()[-MOST:],
                hint="install the headers: pip install nvidia-cuda-runtime" if missing else None,
            )
        return _output(library, program, kind), log


@contextmanager
def _program(library: Any, text: str) -> Iterator[c_void_p]:
    program = c_void_p()
    created = library.nvrtcCreateProgram(byref(program), text.encode(), b"kernel.cu", 0, None, None)
    _check(created, "the text of the kernel")
    try:
        yield program
    finally:
        library.nvrtcDestroyProgram(byref(program))


def _output(library: Any, program: c_void_p, kind: str) -> bytes:
    size = c_size_t()
    _check(getattr(library, f"nvrtcGet{kind}Size")(program, byref(size)), f"to give its {kind}")
    content = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{kind}")(program, content), f"to give its {kind}")
    return content.raw


def _check(status: int, doing: str) -> None:
    if status:
        raise BuildError("NVRTC refuses {0}: its error {1}", doing, status)
