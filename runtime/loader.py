"""Load artifacts: check the files, then have the kind of target load exactly what was checked.

Nothing is compiled or tuned here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base.errors import ArgumentError, ArtifactError
from .artifact import manifest_content, manifest_path, parse_manifest, part_place, read_code
from .library import ArtifactContent, Loaded, LoadedLibrary, opened, whole
from .memory import memory_for
from .stored_partition import check_allowed, part_path
from .target_runtime import runtime_for
from .trust import Keys, check_signature, public_keys
from .weights_file import copy_weights, map_weights, read_part, weights_path

_REPLACING_SECONDS = 0.05


def load(
    path: str | os.PathLike[str],
    *,
    trust_indices: bool = False,
    device: int | None = None,
    never: Sequence[str] = (),
    counting: bool = False,
    keys: Sequence[str | os.PathLike[str]] | None = None,
) -> Any:
    """Load the `Module` of an artifact, or its `Model` or `PartitionedModel`: the file of its code,
    with its manifest beside it. An artifact of several programs is a `LoadedLibrary` of these.

    For processors that is a shared library, `matmul.so`. The file is read once; these bytes are
    checked and opened, whatever happens to the path. Content that this process has loaded before is
    not opened again; code stays loaded until the process ends. Thread-safe.

    Models have their weights in `matmul.so.weights`. They are checked and mapped, not read: whoever
    writes into that file changes the models. Replace it instead, as builds do.

    A module that registers a kind of target is to be imported before artifacts for it are loaded.

    An artifact for GPUs is loaded to the device of that number, by default to the one that this
    thread uses.

    Calls check the values of integer tensors that have a `value_range`. `trust_indices` omits the
    check; a value out of its range then makes the kernel read or write other memory. For a model it
    is refused: guards of indices are in its code.

    Parts of a model that other providers run are files beside the code, which these load. `never`
    has names of providers that are forbidden here. A provider of your own is to be registered
    before.

    `keys` are public keys of minisign, files or their texts `RW...`: one of them has to have signed
    the manifest (`sign`), and with it all files, before anything of it is read. Weights are then
    copied, so that nothing that was checked can be changed.

    What was loaded may be called at once, or `ready` first by `warm_up`. With `counting`, its
    `report` has the calls, their time and errors.

    Raises `ArtifactError` for code, weights or a manifest that is missing, damaged or of another
    version, for an unknown kind of target, or for a machine with instructions that this one does
    not have, `TrustError` for what none of the `keys` has signed as it is, and for a key that is
    none, `ProviderError` for a part whose provider is forbidden, not there, or of a version
    that does not take it, `OutOfMemoryError`, and `ArgumentError` for a `device` that is none,
    `trust_indices` of a model, or `never` that has no names.
    """
    place = Path(path).absolute()
    with memory_for("{0}: no memory to load it", place):
        loaded = _load(place, trust_indices, device, never, keys)
    if counting:
        loaded.count_calls()
    return loaded


def _load(
    place: Path,
    trust_indices: bool,
    device: int | None,
    never: Sequence[str],
    keys: Sequence[str | os.PathLike[str]] | None,
) -> Loaded | LoadedLibrary:
    if isinstance(never, str) or not all(isinstance(name, str) for name in never):
        raise ArgumentError("never: expected names of providers, found {0!r:.80}", never)
    content = read_content(place, never, None if keys is None else public_keys(keys))
    manifest = content.manifest
    runtime = runtime_for(manifest.target)
    if device is not None:
        if type(device) is not int or device < 0:
            raise ArgumentError("device: expected the number of a device, found {0!r:.80}", device)
        runtime = runtime.on_device(device)
    models = [program.name for program in manifest.programs if program.weights is not None]
    if models and trust_indices:
        raise ArgumentError(
            "trust_indices: the code of a model ({0}) compares its indices, found {1!r}",
            models[0], trust_indices, hint="leave it out",
        )  # fmt: skip
    return whole(opened(content, place, runtime, trust_indices=trust_indices), manifest.target)


def read_content(path: Path, never: Collection[str], keys: Keys | None = None) -> ArtifactContent:
    """Read the artifact; retry once if the files do not match, since they may be being replaced."""
    with suppress(ArtifactError):
        return _read_once(path, never, keys)
    time.sleep(_REPLACING_SECONDS)
    return _read_once(path, never, keys)


def _read_once(path: Path, never: Collection[str], keys: Keys | None) -> ArtifactContent:
    content = manifest_content(path)
    described = manifest_path(path)
    signed = None if keys is None else check_signature(content, described, keys)
    manifest = parse_manifest(content, described)
    code = read_code(path, manifest)
    weights = None
    if manifest.weights is not None:
        weights_of = map_weights if keys is None else copy_weights
        weights = weights_of(weights_path(path), manifest.weights)
    parts: dict[str, dict[int, bytes]] = {}
    for program in manifest.programs:
        if (stored := program.partition) is not None:
            check_allowed(stored, never, path)
            place = part_place(path, manifest, program.name)
            parts[program.name] = {
                n: read_part(part_path(place, n), file.content) for n, file in stored.files.items()
            }
    return ArtifactContent(manifest, code, weights, parts, signed)
