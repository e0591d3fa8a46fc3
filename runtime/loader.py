"""Load artifacts: check the files, then have the kind of target load exactly what was checked.

Nothing is compiled or tuned here.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..base.errors import ArgumentError, ArtifactError
from .artifact import Manifest, read_artifact
from .module import Module
from .target_runtime import runtime_for

_REPLACING_SECONDS = 0.05


def load(
    path: str | os.PathLike[str], *, trust_indices: bool = False, device: int | None = None
) -> Module:
    """Load the module of an artifact: the file of its code, with its manifest beside it.

    For processors that is a shared library, `matmul.so`. The file is read once; these bytes are
    checked and opened, whatever happens to the path. Content that this process has loaded before is
    not opened again; code stays loaded until the process ends. Thread-safe.

    A module that registers a kind of target is to be imported before artifacts for it are loaded.

    An artifact for GPUs is loaded to the device of that number, by default to the one that this
    thread uses.

    Calls check the values of integer tensors that have a `value_range`. `trust_indices` omits the
    check; a value out of its range then makes the kernel read or write other memory.

    Raises `ArtifactError` for code or a manifest that is missing, damaged, of another version, for
    an unknown kind of target, or for a machine with instructions that this one does not have, and
    `ArgumentError` for a `device` that is none.
    """
    place = Path(path).absolute()
    manifest, code = _read(place)
    runtime = runtime_for(manifest.target)
    if device is not None:
        if type(device) is not int or device < 0:
            raise ArgumentError("device: expected the number of a device, found {0!r:.80}", device)
        runtime = runtime.on_device(device)
    return runtime.load(manifest, code, place, trust_indices=trust_indices)


def _read(path: Path) -> tuple[Manifest, bytes]:
    """Read the artifact; retry once if the files do not match, since they may be being replaced."""
    with suppress(ArtifactError):
        return read_artifact(path)
    time.sleep(_REPLACING_SECONDS)
    return read_artifact(path)
