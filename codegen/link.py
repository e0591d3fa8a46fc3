"""Compiled code as files: object files, and shared libraries with their manifest and C header."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import llvmlite
from llvmlite import binding

from ..errors import BuildError
from ..runtime.artifact import Manifest, write_artifact
from ..runtime.module import Origin
from .build import Compiled

_COMPILERS = ("cc", "gcc", "clang")
_LINKERS = ("ld", "ld.lld", "ld.gold", "mold")
_SECONDS = 120
Find = Callable[[str], str | None]


def write_object(compiled: Compiled, path: str | os.PathLike[str]) -> Path:
    """Write the object file, for a linker of the user's own. Raises `BuildError`.

    Parallel kernels need OpenMP's runtime (libgomp) when they are linked, and all of them C's
    libraries (libc, libm).
    """
    target = Path(path)
    _replace(target, lambda new: new.write_bytes(compiled.object_code))
    return target


def write_library(
    compiled: Compiled,
    path: str | os.PathLike[str],
    *,
    origin: Origin | None = None,
    schedule_id: str | None = None,
    measurement_id: str | None = None,
    toolchain: Mapping[str, str] | None = None,
    find: Find = shutil.which,
) -> Manifest:
    """Link a shared library, `matmul.so`, and write `matmul.so.json` and `matmul.h` beside it.

    `runtime.load` loads it, and so does any program in C; a parallel kernel finds OpenMP's runtime
    in the process. Raises `BuildError` where the machine has no linker (`find` finds programs).
    """
    library = Path(path)
    command = linker(find)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source = Path(folder) / "kernel.o"
        source.write_bytes(compiled.object_code)
        _replace(library, lambda new: _run([*command, "-o", str(new), str(source)]))
    return write_artifact(
        library,
        compiled.signature,
        compiled.target,
        openmp=compiled.parallel,
        origin=Origin("schedule") if origin is None else origin,
        schedule_id=schedule_id,
        measurement_id=measurement_id,
        toolchain={**versions(), **(toolchain or {})},
    )


def linker(find: Find = shutil.which) -> list[str]:
    """The command that links shared libraries, without files. Raises `BuildError` if none is here.

    Symbols of C's libraries and OpenMP's runtime are left open: the process that loads has them.
    """
    for name in _COMPILERS:
        program = find(name)
        if program is not None:
            return [program, "-shared", "-nostdlib", "-Wl,-z,noexecstack"]
    for name in _LINKERS:
        program = find(name)
        if program is not None:
            return [program, "-shared", "-z", "noexecstack"]
    raise BuildError(
        "there is no linker on this machine (looked for {0})",
        ", ".join(_COMPILERS + _LINKERS),
        hint="install one (gcc or binutils), or write an object file: name the output kernel.o",
    )


def versions() -> dict[str, str]:
    """The versions of what the code is made by."""
    llvm = ".".join(str(n) for n in binding.llvm_version_info)
    return {"llvm": llvm, "llvmlite": llvmlite.__version__}


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError("the linker {0} does not run: {1}", command[0], error) from error
    if done.returncode:
        raise BuildError("{0} failed: {1}", " ".join(command), done.stderr.strip()[-2000:])


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name first, so that `path` is never half of a file."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(new)
        new.replace(path)
    except OSError as error:
        raise BuildError("cannot write {0}: {1}", path, error.strerror or error) from error
    finally:
        new.unlink(missing_ok=True)
