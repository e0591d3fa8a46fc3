"""Kernels for processors as files: shared libraries and object files that describe themselves."""

from __future__ import annotations

import logging
from pathlib import Path

from ...errors import BuildError
from ...runtime.artifact import Provenance, artifact_files, description
from ...runtime.files import File
from ...runtime.header import c_header
from ...target import CpuTarget
from ..compiled import Compiled
from .elf import takes_constants, with_constant
from .kernel import runs_parallel
from .link import link

_log = logging.getLogger(__name__)


def library_files(compiled: Compiled, path: Path, provenance: Provenance) -> tuple[File, ...]:
    """A shared library at `path`, its C header, and its manifest.

    Raises `BuildError` where there is no linker.
    """
    target = CpuTarget.of(compiled.target)
    return artifact_files(
        path,
        link(_described(compiled), target),
        compiled.signature,
        target,
        openmp=runs_parallel(compiled),
        provenance=provenance,
    )


def object_files(compiled: Compiled, path: Path) -> tuple[File, ...]:
    """An object file at `path`, and its C header."""
    header = File(path.with_suffix(".h"), c_header(compiled.signature).encode())
    return File(path, _described(compiled)), header


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


def _described(compiled: Compiled) -> bytes:
    """The object code with the description of its kernel in it."""
    signature, target = compiled.signature, CpuTarget.of(compiled.target)
    if not takes_constants(compiled.image):
        _log.warning("%s carries no description: it is no ELF file of 64 bits", signature.name)
        return compiled.image
    openmp = runs_parallel(compiled)
    text = description(signature, str(target), target.features, openmp=openmp)
    return with_constant(compiled.image, f"{signature.name}.description", text)
