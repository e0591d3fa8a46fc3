"""Load artifacts: check the files, then have the kind of target load exactly what was checked.

Nothing is compiled or tuned here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..base.errors import ArgumentError, ArtifactError
from .artifact import Manifest, read_artifact
from .evidence import Evidence
from .model import Model
from .profile import Instrumented, signatures
from .stored_partition import check_allowed, load_partition, part_path
from .target_runtime import runtime_for
from .weights_file import Array, map_weights, weights_path

_REPLACING_SECONDS = 0.05


def load(
    path: str | os.PathLike[str],
    *,
    trust_indices: bool = False,
    device: int | None = None,
    never: Sequence[str] = (),
) -> Any:
    """Load the `Module` of an artifact, or its `Model` or `PartitionedModel`: the file of its code,
    with its manifest beside it.

    For processors that is a shared library, `matmul.so`. The file is read once; these bytes are
    checked and opened, whatever happens to the path. Content that this process has loaded before is
    not opened again; code stays loaded until the process ends. Thread-safe.

    A model has its weights in `matmul.so.weights`. They are checked and mapped, not read: whoever
    writes into that file changes the model. Replace it instead, as builds do.

    A module that registers a kind of target is to be imported before artifacts for it are loaded.

    An artifact for GPUs is loaded to the device of that number, by default to the one that this
    thread uses.

    Calls check the values of integer tensors that have a `value_range`. `trust_indices` omits the
    check; a value out of its range then makes the kernel read or write other memory. For a model it
    is refused: guards of indices are in its code.

    Parts of a model that other providers run are files beside the code, which these load. `never`
    has names of providers that are forbidden here. A provider of your own is to be registered
    before.

    Raises `ArtifactError` for code, weights or a manifest that is missing, damaged or of another
    version, for an unknown kind of target, or for a machine with instructions that this one does
    not have, `ProviderError` for a part whose provider is forbidden, not there, or of a version
    that does not take it, and `ArgumentError` for a `device` that is none, `trust_indices` of a
    model, or `never` that has no names.
    """
    place = Path(path).absolute()
    if isinstance(never, str) or not all(isinstance(name, str) for name in never):
        raise ArgumentError("never: expected names of providers, found {0!r:.80}", never)
    manifest, code, weights, parts = _read(place, never)
    runtime = runtime_for(manifest.target)
    if device is not None:
        if type(device) is not int or device < 0:
            raise ArgumentError("device: expected the number of a device, found {0!r:.80}", device)
        runtime = runtime.on_device(device)
    if weights is not None and trust_indices:
        raise ArgumentError(
            "trust_indices: the code of a model compares its indices, found {0!r}", trust_indices,
            hint="leave it out",
        )  # fmt: skip
    if manifest.partition is not None and weights is not None:
        with _numpy_dtypes(place):
            return load_partition(manifest, code, weights, parts, place, runtime)
    module = runtime.load(manifest, code, place, trust_indices=trust_indices)
    if weights is None:
        return module
    told = manifest.provenance.evidence
    evidence = None if told is None else partial(Evidence.from_json, told)

    def instrumented() -> Instrumented:
        own = signatures(manifest.signature, manifest.needs["profiled"])
        wanted = [replace(manifest, signature=signature) for signature in own]
        timed, empty = (runtime.load(m, code, place, trust_indices=False) for m in wanted)
        return Instrumented(timed, empty)

    with _numpy_dtypes(place):
        return Model(
            module, weights, manifest.provenance.kernels, evidence,
            instrumented if "profiled" in manifest.needs else None, manifest.guards,
        )  # fmt: skip


@contextmanager
def _numpy_dtypes(path: Path) -> Iterator[None]:
    """Raise `ArtifactError` where numpy lacks a dtype of arguments."""
    try:
        yield
    except ImportError as error:
        raise ArtifactError(
            "{0} has arrays of dtypes that numpy alone lacks: {1}", path, error,
            hint="pip install ml_dtypes",
        ) from error  # fmt: skip


_Content = tuple[Manifest, bytes, Array | None, Mapping[int, bytes]]
"""The manifest and code of an artifact, the weights of a model, and parts that others run."""


def _read(path: Path, never: Collection[str]) -> _Content:
    """Read the artifact; retry once if the files do not match, since they may be being replaced."""
    with suppress(ArtifactError):
        return _read_once(path, never)
    time.sleep(_REPLACING_SECONDS)
    return _read_once(path, never)


def _read_once(path: Path, never: Collection[str]) -> _Content:
    manifest, code = read_artifact(path)
    held, stored = manifest.weights, manifest.partition
    weights = None if held is None else map_weights(weights_path(path), held)
    if stored is None:
        return manifest, code, weights, {}
    check_allowed(stored, never, path)
    files = {n: (part_path(path, n), file.content) for n, file in stored.files.items()}
    return manifest, code, weights, {n: bytes(map_weights(*file)) for n, file in files.items()}
