"""Load artifacts: check the files, then `dlopen` exactly the bytes that were checked.

Nothing is compiled or tuned here.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from ..errors import ArtifactError, TargetError
from ..target import FEATURES, CpuTarget
from . import openmp
from .artifact import Manifest, read_artifact
from .host import CPUINFO, HOST, cpu_flags, host_limit, request_tiles
from .module import Module
from .open_library import open_library

_log = logging.getLogger(__name__)
_REPLACING_SECONDS = 0.05


def load(path: str | os.PathLike[str], *, trust_indices: bool = False) -> Module:
    """Load the module in a shared library, `matmul.so`, with its manifest beside it.

    The file is read once; these bytes are checked and opened, whatever happens to the path. Content
    that this process has loaded before is not opened again; code stays loaded until the process
    ends. Thread-safe.

    Calls check the values of integer tensors that have a `value_range`. `trust_indices` omits the
    check; a value out of its range then makes the kernel read or write other memory.

    Raises `ArtifactError` for a library or manifest that is missing, damaged, of another version,
    or for a machine with instructions that this one does not have.
    """
    library = Path(path).absolute()
    manifest, code = _read(library)
    target = _target(manifest)
    check_machine(manifest, cpu_flags())
    if manifest.openmp and openmp.load() is None:
        raise ArtifactError(
            "{0} runs in parallel and there is no OpenMP runtime on this machine",
            library,
            hint="install libgomp1, or a package that carries one such as xgboost-cpu",
        )
    try:
        loaded = open_library(code, manifest.signature.name)
    except OSError as error:
        raise ArtifactError("{0} does not load: {1}", library, error) from error
    addresses = [_symbol(loaded, symbol, library) for symbol in manifest.signature.symbols]
    if manifest.openmp:
        openmp.connect(_symbol(loaded, manifest.signature.teams_symbol, library))
    return Module(
        manifest.signature,
        addresses,
        target,
        origin=manifest.provenance.origin,
        owner=loaded,
        before_call=openmp.announce_serial if manifest.openmp else None,
        trust_indices=trust_indices,
    )


def _read(library: Path) -> tuple[Manifest, bytes]:
    """Read the artifact; retry once if the files do not match, since they may be being replaced."""
    with suppress(ArtifactError):
        return read_artifact(library)
    time.sleep(_REPLACING_SECONDS)
    return read_artifact(library)


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


def _target(manifest: Manifest) -> CpuTarget:
    try:
        return CpuTarget.parse(manifest.target)
    except TargetError as error:
        raise ArtifactError("manifest: target: {0}", error) from error


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
