"""Link object files to shared libraries."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ...errors import BuildError
from ...target import Target

_COMPILERS = ("cc", "gcc", "clang")
_LINKERS = ("ld", "ld.lld", "ld.gold", "mold")
_SECONDS = 120
Find = Callable[[str], str | None]


def link(object_code: bytes, target: Target, *, find: Find = shutil.which) -> bytes:
    """Link an object file to a shared library; returns its content.

    Functions of the C library and of OpenMP's runtime stay undefined: the process that loads the
    library has them. Linking happens in a temporary folder. Raises `BuildError` if there is no
    linker (`find` finds programs), if it fails, and if the folder cannot be written.
    """
    command = linker(find)
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            source, library = Path(folder, "kernel.o"), Path(folder, "kernel.so")
            source.write_bytes(object_code)
            _run([*command, "-o", str(library), str(source)], target)
            return library.read_bytes()
    except OSError as error:
        raise BuildError(
            "cannot link in {0}: {1}",
            error.filename or "a temporary folder",
            error.strerror or error,
            hint="the variable TMPDIR names another folder for temporary files",
        ) from error


def linker(find: Find = shutil.which) -> list[str]:
    """The command, without files, that links libraries. Raises `BuildError` if there is none."""
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
        hint="install one (gcc or binutils), or write an object file, which takes no linker",
    )


def _run(command: list[str], target: Target) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError("the linker {0} does not run: {1}", command[0], error) from error
    if done.returncode:
        raise BuildError(
            "{0} failed for the target {1}: {2}",
            " ".join(command),
            target,
            done.stderr.strip()[-2000:],
            hint="write an object file and link it where the linker for that target is",
        )
