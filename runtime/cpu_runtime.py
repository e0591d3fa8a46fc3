"""The runtime of processors: the memory of this process, and shared libraries."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import itertools
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from ..base.checked_json import read
from ..base.errors import ArtifactError
from ..target import FEATURES, Fact
from .evidence import Natural
from .host import CPUINFO, HOST, cpu_flags, host_limit, model_name, request_tiles
from .host_memory import HOST_MEMORY
from .manifest import Manifest, StoredProgram
from .memory import Memory
from .module import Module
from .signature import Signature
from .target_runtime import TargetRuntime

_log = logging.getLogger(__name__)


class CpuRuntime(TargetRuntime):
    """The code of an artifact is a shared library.

    That of a model says how many steps are `profiled` if it has functions for a profile. That of
    object files says whether it calls `openmp`, as libraries before format 7 do.
    """

    memory: ClassVar[Memory] = HOST_MEMORY

    def machine(self) -> dict[str, Fact]:
        return {"model": model_name()}

    def needs(self, data: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
        del signature
        needs: dict[str, Any] = {}
        if (openmp := data.get("openmp")) is not None:
            needs["openmp"] = read(bool, openmp, "manifest: openmp")
        if (steps := data.get("profiled")) is not None:
            needs["profiled"] = read(Natural, steps, "manifest: profiled")
        return needs

    def load(
        self,
        manifest: Manifest,
        program: StoredProgram,
        code: bytes,
        path: Path,
        *,
        trust_indices: bool,
    ) -> Module:
        """Open exactly the bytes that were checked; they stay loaded until the process ends."""
        check_machine(manifest, cpu_flags())
        signature = program.signature
        if any(p.needs.get("openmp") for p in manifest.programs):
            raise ArtifactError(
                "{0} was built by an earlier version and calls an OpenMP runtime, which none does "
                "any more", path, hint="build it anew",
            )  # fmt: skip
        try:
            loaded = open_library(code, signature.name)
        except OSError as error:
            raise ArtifactError("{0} does not load: {1}", path, error) from error
        addresses = [_symbol(loaded, symbol, path) for symbol in signature.symbols]
        return Module(
            signature,
            addresses,
            manifest.target,
            origin=program.provenance.origin,
            owner=loaded,
            trust_indices=trust_indices,
        )


def check_machine(manifest: Manifest, flags: frozenset[str] | None) -> None:
    """Raise `ArtifactError` if the processor lacks a required extension, or the system forbids it.

    `flags` are those of /proc/cpuinfo; without them nothing can be checked, which is logged.
    """
    limit = host_limit()
    beyond = [] if limit is None else [n for n in manifest.features if n not in limit.features]
    if beyond:
        raise ArtifactError(
            "the artifact is for {0} and needs {1}, which {2}={3} leaves out",
            manifest.target,
            ", ".join(beyond),
            HOST,
            str(limit).removeprefix("cpu "),
            hint=f"build it for that target, or unset {HOST}",
        )
    if flags is None:
        _log.warning("%s tells no processor features: they are not checked", CPUINFO)
    missing = [n for n in manifest.features if flags is not None and FEATURES[n].flag not in flags]
    if missing:
        raise ArtifactError(
            "the artifact is for {0} and needs {1}, which this processor does not have",
            manifest.target,
            ", ".join(missing),
            hint="build it for this machine, or for a generic target such as `cpu -mcpu=x86-64-v3`",
        )
    if "amx-tile" in manifest.features and not request_tiles():
        raise ArtifactError(
            "the artifact is for {0} and needs the registers of amx-tile, which the system does "
            "not let this process use",
            manifest.target,
            hint="build it for a target without them: -mattr=-amx-tile",
        )


def _symbol(loaded: ctypes.CDLL, symbol: str, library: Path) -> int:
    try:
        function = loaded[symbol]  # attributes are also those of Python's own object
    except AttributeError:
        raise ArtifactError(
            "{0} has no symbol {1}", library, symbol, hint="build the artifact anew"
        ) from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


# Open a shared library by its content.
#
# A path may name another file by the time it is opened, and the dynamic loader does not read a file
# again whose path it has seen. The loader therefore gets the checked bytes, in memory that can no
# longer change, under a path that was never used before.

_MEMORY = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
"""Whether this Python has files in memory that can be sealed: not where its C library is old."""
_numbers = itertools.count(1)
_opened: dict[str, ctypes.CDLL] = {}


def open_library(code: bytes, name: str) -> ctypes.CDLL:
    """Open the shared library with this content, once in a process; it is never closed.

    `name` is shown in /proc/self/maps, for people. The library finds others by the system's rules
    only, not beside its file. Thread-safe. Raises `OSError` if it is not a library, and if there is
    no place for it.
    """
    digest = hashlib.sha256(code).hexdigest()
    found = _opened.get(digest)
    if found is not None:
        return found
    problems = []
    for place in (_in_memory, _in_folder) if _MEMORY else (_in_folder,):
        try:
            with place(code, name) as path:
                return _opened.setdefault(digest, ctypes.CDLL(path))
        except OSError as error:  # no /proc, or a system that runs no code from there
            problems.append(str(error))
    raise OSError("; ".join(problems))


@contextmanager
def _in_memory(code: bytes, name: str) -> Iterator[str]:
    """The path of a sealed file in memory: nobody can write to it or change its size."""
    descriptor = os.memfd_create(f"tilewright-{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(code)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield _new_path(descriptor)
    finally:
        os.close(descriptor)


def _new_path(descriptor: int) -> str:
    """A path of the descriptor that this process has not used before.

    Descriptor numbers are reused, and glibc returns the library that it loaded from an equal path.
    A counter in binary, `/` for 0 and `/.` for 1, makes all paths different.
    """
    bits = f"{next(_numbers):b}".replace("0", "/").replace("1", "/.")
    return f"/proc/self/fd{bits}/{descriptor}"


@contextmanager
def _in_folder(code: bytes, name: str) -> Iterator[str]:
    """The path of a file in a private folder; its removal does not affect the loaded library."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder, f"{name[:100]}-{next(_numbers)}.so")
        path.write_bytes(code)
        yield str(path)
