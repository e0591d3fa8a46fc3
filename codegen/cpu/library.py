"""Kernels for processors as files: shared libraries and object files that describe themselves."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...base.errors import BuildError
from ...base.files import File
from ...runtime.artifact import Provenance, artifact_files, description
from ...runtime.header import c_header
from ...runtime.signature import Signature
from ...target import CpuTarget, Target
from ..compiled import Compiled
from .archive import archive, members
from .elf import with_constant
from .generator import runs_parallel
from .system_names import is_system_name

_log = logging.getLogger(__name__)
_COMPILERS = ("cc", "gcc", "clang")
_LINKERS = ("ld", "ld.lld", "ld.gold", "mold")
_SECONDS = 120
Find = Callable[[str], str | None]


def library_files(compiled: Compiled, path: Path, provenance: Provenance) -> tuple[File, ...]:
    """A shared library at `path`, its C header, and its manifest.

    Raises `BuildError` where there is no linker, and for the name of a function of the system.
    """
    target, signature = CpuTarget.of(compiled.target), compiled.signature
    _check_names(signature)
    code = File(path, link(_described(compiled), target), 0o777)
    return artifact_files(
        code, signature, target, _needs(compiled), provenance, [_header(path, signature)]
    )


def object_files(compiled: Compiled, path: Path) -> tuple[File, ...]:
    """An object file at `path`, and its C header. Raises `BuildError` as `library_files` does."""
    _check_names(compiled.signature)
    return File(path, _described(compiled)), _header(path, compiled.signature)


def check_path(path: Path, *, object_file: bool) -> None:
    """Raise `BuildError` for a path that the code cannot have."""
    if path.suffix == ".h":
        raise BuildError(
            "cannot write {0}: its C header has that name, too",
            path,
            hint="name the library matmul.so, for instance, or the object file matmul.o",
        )
    if path.suffix == ".o" and not object_file:
        raise BuildError(
            "{0} has the name of an object file, and a shared library is asked for",
            path,
            hint="add object_file=True (--object), or name the library matmul.so, for instance",
        )


def _check_names(signature: Signature) -> None:
    for name in signature.symbols:
        if is_system_name(name):
            raise BuildError(
                "a kernel in a file cannot be named {0}: a program that links it would call it in "
                "the place of the {0} of the system",
                name,
                hint=f"give the program another name, such as {signature.name}_kernel; records in "
                "a database hold under any name",
            )


def _needs(compiled: Compiled) -> dict[str, Any]:
    """What the runtime of processors asks a manifest for (`TargetRuntime.needs`)."""
    return {"openmp": runs_parallel(compiled)}


def _header(path: Path, signature: Signature) -> File:
    return File(path.with_suffix(".h"), c_header(signature).encode())


def _described(compiled: Compiled) -> bytes:
    """The object code with the description of its kernel in it."""
    signature, target = compiled.signature, CpuTarget.of(compiled.target)
    text = description(signature, target, target.features, _needs(compiled))
    first, *others = members(compiled.image)
    described = with_constant(first, f"{signature.name}.description", text)
    if described is None:
        _log.warning("%s carries no description: it is no ELF file of 64 bits", signature.name)
        return compiled.image
    return archive([described, *others])


def link(object_code: bytes, target: Target, *, find: Find = shutil.which) -> bytes:
    """Link an image of object files to a shared library; returns its content.

    Functions of the C library and of OpenMP's runtime stay undefined: the process that loads the
    library has them. Linking happens in a temporary folder. Raises `BuildError` if there is no
    linker (`find` finds programs), if it fails, and if the folder cannot be written.
    """
    command = linker(find)
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            library, sources = Path(folder, "kernel.so"), list[str]()
            for number, code in enumerate(members(object_code)):
                source = Path(folder, f"{number}.o")
                source.write_bytes(code)
                sources.append(str(source))
            _run([*command, "-o", str(library), *sources], target)
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
