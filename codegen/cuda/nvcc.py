"""nvcc: find it, compile CUDA C++ to a cubin, and read what ptxas reports of each kernel."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...base.errors import BuildError
from ...runtime.cuda_launch import KernelResources
from ...target import CudaTarget

OF_PROGRAMS = "177,186,550"
"""Warnings of what a program may have: variables and buffers that nothing reads, and comparisons of
unsigned numbers that always hold."""
_FLAGS = ("-O3", "-std=c++17", "-Werror", "all-warnings", f"-diag-suppress={OF_PROGRAMS}",
          "-Xptxas", "-v")  # fmt: skip
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_SECONDS = 600
_HINT = (
    "install the CUDA toolkit (cuda-nvcc and cuda-cudart-dev, or conda's cuda-nvcc), and have nvcc "
    "on the PATH or name its folder by CUDA_HOME; to run a kernel that is built, none is needed"
)
MOST = 4000
"""Letters of what the compiler says that an error shows."""


class Cubin(NamedTuple):
    """Machine code, and what ptxas reports of each kernel in it."""

    image: bytes
    resources: Mapping[str, KernelResources]


def compile_cubin(text: str, target: CudaTarget, *, strict_fp: bool = False) -> Cubin:
    """Compile CUDA C++. `strict_fp` forbids fma contraction.

    Raises `BuildError` where there is no compiler, and for what it refuses or warns of.
    """
    image, report = _run(text, target, "-cubin", "kernel.cubin", strict_fp=strict_fp)
    return Cubin(image, resources_of(report))


def compile_ptx(
    text: str, target: CudaTarget, *, strict_fp: bool = False, lines: bool = False
) -> str:
    """The PTX of CUDA C++, with the `lines` that it is made of. Raises `BuildError`."""
    options = ["-lineinfo"] if lines else []
    return _run(text, target, "-ptx", "kernel.ptx", options, strict_fp=strict_fp)[0].decode()


def nvcc() -> str:
    """The path of nvcc. Raises `BuildError` where there is none."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [str(Path(home, "bin")) for home in homes if home]
    for folder in (*folders, None, "/usr/local/cuda/bin"):
        found = shutil.which("nvcc", path=folder)
        if found is not None:
            return found
    raise BuildError("there is no nvcc on this machine, which compiles kernels", hint=_HINT)


def version() -> str:
    """The version of nvcc, such as `13.0.88`. Raises `BuildError`."""
    return _version_of(nvcc())


@cache
def _version_of(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError("{0} does not run: {1}", path, error, hint=_HINT) from error
    found = re.search(r"\bV(\d+(\.\d+)+)", done.stdout)
    if found is None:
        raise BuildError("{0} says no version: {1!r:.200}", path, done.stdout, hint=_HINT)
    return found[1]


def _run(
    text: str,
    target: CudaTarget,
    kind: str,
    name: str,
    options: Sequence[str] = (),
    *,
    strict_fp: bool,
) -> tuple[bytes, str]:
    """The output of nvcc, and what it says meanwhile."""
    arch = target.arch.removeprefix("sm_")
    # For an architecture with an `a` this is not the same as the shorthand -arch=sm_90a.
    machine = ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    if kind == "-ptx":
        machine = ["-gencode", f"arch=compute_{arch},code=compute_{arch}"]
    more = [*options, *(["-fmad=false"] if strict_fp else [])]
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            source, output = Path(folder, "kernel.cu"), Path(folder, name)
            source.write_text(text, encoding="utf-8")
            command = [nvcc(), kind, *machine, *_FLAGS, *more, "-o", str(output), source.name]
            done = _call(command, folder)
            if done.returncode or not output.exists():
                raise BuildError(
                    "nvcc refuses the kernel for {0}:\n{1}",
                    target,
                    (done.stderr.strip() or done.stdout.strip())[-MOST:],
                    hint=_refusal_hint(),
                )
            return output.read_bytes(), done.stderr + done.stdout
    except OSError as error:
        raise BuildError(
            "cannot compile in {0}: {1}",
            error.filename or "a temporary folder",
            error.strerror or error,
            hint="the variable TMPDIR names another folder for temporary files",
        ) from error


def _refusal_hint() -> str | None:
    """What this machine may do to nvcc."""
    flags = [name for name in _FLAG_VARIABLES if os.environ.get(name)]
    if flags:
        return f"unset {' and '.join(flags)}: they change how it compiles"
    return None if shutil.which("g++") else "install g++: nvcc calls it"


def _call(command: Sequence[str], folder: str) -> subprocess.CompletedProcess[str]:
    """Run nvcc, whose own temporary files go where the source is.

    The processes that it starts end with it, whatever ends the call.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=folder,
        env={**os.environ, "TMPDIR": folder},
    )
    with process:
        try:
            output, errors = process.communicate(timeout=_SECONDS)
        except BaseException as error:
            _kill(process.pid)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise BuildError(
                "nvcc took more than {0} s", _SECONDS, hint="unroll less, or use smaller tiles"
            ) from error
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _kill(process: int) -> None:
    """Kill a child process and all that it started. They are in the group of this process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = path.read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(path.parent.name))
    found = [process]
    for known in found:
        found += children.get(known, [])
    for known in found:
        with suppress(ProcessLookupError):
            os.kill(known, signal.SIGKILL)


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_PROPERTIES = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def resources_of(report: str) -> dict[str, KernelResources]:
    """What ptxas reports of each kernel. Raises `BuildError` for a report that is none."""
    found: dict[str, KernelResources] = {}
    for part in report.split("Compiling entry function")[1:]:
        entry = _ENTRY.match(f"Compiling entry function{part}")
        properties, used = _PROPERTIES.search(part), _USED.search(part)
        if entry is None or properties is None or used is None:
            raise BuildError("ptxas reports {0!r:.300}, expected registers and spills", part)
        stack, stores, loads = map(int, properties.groups())
        found[entry[1]] = KernelResources(
            int(used[1]), stack, stores, loads, int(used[2]) if used[2] else 0
        )
    return found
