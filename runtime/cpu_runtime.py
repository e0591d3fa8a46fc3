"""The runtime of processors: the memory of this process, and shared libraries."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..base.checked_json import read
from ..base.errors import ArtifactError
from ..target import FEATURES, Fact
from . import openmp
from .artifact import Manifest
from .host import CPUINFO, HOST, cpu_flags, host_limit, model_name, request_tiles
from .host_memory import HOST_MEMORY
from .memory import Memory
from .module import Module
from .open_library import open_library
from .target_runtime import TargetRuntime

_log = logging.getLogger(__name__)


class CpuRuntime(TargetRuntime):
    """The code of an artifact is a shared library.

    `openmp` says that it calls OpenMP's runtime. The code of a model lists the `teams` of its
    kernels, variables as `Signature.teams_symbol`.
    """

    memory: ClassVar[Memory] = HOST_MEMORY

    def machine(self) -> dict[str, Fact]:
        return {"model": model_name()}

    def needs(self, data: Mapping[str, Any]) -> dict[str, Any]:
        needs: dict[str, Any] = {"openmp": read(bool, data.get("openmp"), "manifest: openmp")}
        if (teams := data.get("teams")) is not None:
            needs["teams"] = read(list[str], teams, "manifest: teams")
        return needs

    def load(self, manifest: Manifest, code: bytes, path: Path, *, trust_indices: bool) -> Module:
        """Open exactly the bytes that were checked; they stay loaded until the process ends."""
        check_machine(manifest, cpu_flags())
        parallel, signature = manifest.needs["openmp"], manifest.signature
        if parallel and openmp.load() is None:
            raise ArtifactError(
                "{0} runs in parallel and there is no OpenMP runtime on this machine",
                path,
                hint="install libgomp1, or a package that carries one such as xgboost-cpu",
            )
        try:
            loaded = open_library(code, signature.name)
        except OSError as error:
            raise ArtifactError("{0} does not load: {1}", path, error) from error
        addresses = [_symbol(loaded, symbol, path) for symbol in signature.symbols]
        if parallel:
            for variable in manifest.needs.get("teams", (signature.teams_symbol,)):
                openmp.connect(_symbol(loaded, variable, path))
        return Module(
            signature,
            addresses,
            manifest.target,
            origin=manifest.provenance.origin,
            owner=loaded,
            before_call=openmp.announce_serial if parallel else None,
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
