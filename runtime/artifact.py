"""Artifacts: a file of code, and the manifest that describes it and the programs in it.

That of a processor is a shared library: `matmul.so` comes with `matmul.so.json` and `matmul.h`.
Models have the file of `weights_file.py` besides, and partitioned ones those of their parts, see
`stored_partition.py`. The manifest (`manifest.py`) has everything that loading needs to know before
the code is opened, digests of code and weights, and a digest of itself. No manifest names a file.
The facts that a safe call depends on are embedded in the code too, so that a manifest written for
other code is detected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checked_json import parse_digested
from ..base.errors import ArtifactError
from ..base.files import File, open_regular, read_some
from ..target import Target
from .guards import Guard
from .manifest import (
    HINT,
    MARK,
    CodeFile,
    Form,
    Manifest,
    Provenance,
    StoredProgram,
    WeightsSlice,
    description,
)
from .signature import WORKSPACE_ALIGNMENT, Signature
from .stored_partition import StoredPartition, part_path
from .weights_file import Array, StoredFile, StoredWeights, digest_of_bytes, weights_path

_MAX_MANIFEST_BYTES = 16 << 20
"""The evidence of ten thousand nodes has 3 MB."""


@dataclass(frozen=True)
class ProgramContent:
    """A program to be stored: what the manifest has of it, with its weights themselves.

    `needs` are those of `TargetRuntime.needs`. A partition comes with the parts that other
    providers store, by number.
    """

    signature: Signature
    needs: Mapping[str, Any]
    provenance: Provenance
    weights: Array | None = None
    guards: Sequence[Guard] = ()
    partition: tuple[StoredPartition, Mapping[int, bytes]] | None = None


def manifest_path(code: Path) -> Path:
    """The path of the manifest of a file of code: `matmul.so.json` beside `matmul.so`."""
    return code.with_name(code.name + ".json")


def artifact_files(
    code: File,
    target: Target,
    toolchain: Mapping[str, str],
    programs: Sequence[ProgramContent],
    header: File | None = None,
    *,
    form: Form | None = None,
) -> tuple[File, ...]:
    """Returns the code, the weights of models, the parts that other providers run, the header and
    the manifest, to be written by `replace_files`. `form` is that of code that is to be linked.

    The manifest comes last: while they are replaced, no manifest is newer than the others.
    `toolchain` has versions by name. Raises `ArtifactError` for what could not be read back, for
    instance a name that is not valid in C, or code without the `description` of a program.
    """
    content = bytes(code.content)
    weights, slices = together([program.weights for program in programs])
    manifest = Manifest(
        target=target,
        features=target.features,
        toolchain=toolchain,
        code=CodeFile(len(content), digest_of_bytes(content), form),
        header=None if header is None else StoredFile.of(header.content),
        weights=None if weights is None else StoredWeights.of(weights),
        programs=tuple(
            StoredProgram(
                program.signature, program.needs, program.provenance, own, tuple(program.guards),
                None if program.partition is None else program.partition[0],
            )
            for program, own in zip(programs, slices, strict=True)
        ),
    )  # fmt: skip
    described = manifest_file(manifest, code.path)
    check_code(code.path, content, manifest)
    beside = [] if weights is None else [File(weights_path(code.path), weights.data)]
    for program in programs:
        parts = {} if program.partition is None else program.partition[1]
        place = part_place(code.path, manifest, program.signature.name)
        beside += [File(part_path(place, number), part) for number, part in parts.items()]
    return (code, *beside, *([] if header is None else [header]), described)


def manifest_file(manifest: Manifest, code: Path) -> File:
    """The file of a manifest. Raises `ArtifactError` for one that could not be read back."""
    path = manifest_path(code)
    try:
        text = json.dumps(manifest.to_json(), indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ArtifactError("the manifest of {0} is not JSON: {1}", code, error) from error
    parse_manifest(text.encode(), path)
    return File(path, text.encode())


def part_place(code: Path, manifest: Manifest, program: str) -> Path:
    """What the names of a program's parts begin with: of several programs each has its own."""
    return code if len(manifest.programs) == 1 else code.with_name(f"{code.name}.{program}")


def together(held: Sequence[Array | None]) -> tuple[Array | None, list[WeightsSlice | None]]:
    """The weights of programs in one array, equal ones once, and where those of each are.

    The array is `None` where there are no bytes.
    """
    arrays = [array for array in held if array is not None and array.nbytes]
    places: dict[str, int] = {}
    kept: list[Array] = []
    size = 0
    slices: list[WeightsSlice | None] = []
    for array in held:
        if array is None or not array.nbytes:
            slices.append(None if array is None else WeightsSlice(0, 0))
            continue
        key = digest_of_bytes(array.data) if len(arrays) > 1 else ""
        if key not in places:
            places[key] = size
            kept.append(array)
            size += -(-array.nbytes // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        slices.append(WeightsSlice(places[key], array.nbytes))
    if len(kept) < 2:
        return next(iter(kept), None), slices
    whole = np.zeros(size, np.uint8)
    for array, start in zip(kept, places.values(), strict=True):
        whole[start : start + array.nbytes] = array
    return whole, slices


def read_artifact(code_path: Path) -> tuple[Manifest, bytes]:
    """Returns the manifest of an artifact and its code, as `read_code` does."""
    manifest = read_manifest(code_path)
    return manifest, read_code(code_path, manifest)


def read_code(code_path: Path, manifest: Manifest) -> bytes:
    """Returns the code of an artifact, checked against its manifest.

    The returned bytes are the checked ones, whatever happens to the file. Raises `ArtifactError`.
    """
    code = _read_code(code_path, manifest.code.size)
    check_code(code_path, code, manifest)
    return code


def read_manifest(code_path: Path) -> Manifest:
    """Returns the manifest of an artifact, checked for form. Raises `ArtifactError`."""
    return parse_manifest(manifest_content(code_path), manifest_path(code_path))


def manifest_content(code_path: Path) -> bytes:
    """The bytes of the manifest of an artifact. Raises `ArtifactError`."""
    if not code_path.name or os.path.isdir(code_path):
        raise ArtifactError(
            "{0} is a folder; expected the path of the code of an artifact", code_path
        )
    path = manifest_path(code_path)
    try:
        with open_regular(path) as (file, _):
            return read_some(file, _MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(code_path):
            raise _missing(code_path) from None
        if (owner := artifact_beside(code_path)) is not None:
            raise ArtifactError(
                "{0} is a file of {1}, and not its code", code_path.name, owner.name,
                hint=f"name {owner.name}",
            ) from None  # fmt: skip
        raise ArtifactError(
            "{0} has no manifest: expected {1}", code_path.name, path,
            hint="keep the code and its .json together",
        ) from None  # fmt: skip


def artifact_beside(path: Path) -> Path | None:
    """The code of the artifact to which a file beside it belongs: `det.so` of `det.so.part1`."""
    while path.suffix:
        path = path.with_suffix("")
        if os.path.isfile(path) and os.path.isfile(manifest_path(path)):
            return path
    return None


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """Returns the manifest in a file's content. Raises `ArtifactError`."""
    if len(content) > _MAX_MANIFEST_BYTES:
        raise ArtifactError(
            "{0} has more than {1} bytes; a manifest has fewer", path, _MAX_MANIFEST_BYTES
        )
    return Manifest.from_json(*parse_digested(content, str(path), HINT))


def check_code(code_path: Path, code: bytes, manifest: Manifest) -> None:
    """Raise `ArtifactError` unless the manifest was written for this code.

    Compares the digest and the embedded descriptions. These are read from the bytes of the file,
    not from loaded code, because loading may run code.
    """
    digest = digest_of_bytes(code)
    if digest != manifest.code.sha256:
        raise ArtifactError(
            "{0} is not the file of its manifest: expected sha256 {1}, found {2}",
            code_path,
            manifest.code.sha256,
            digest,
            hint=HINT,
        )
    carried = frozenset(_carried(code))
    for program in manifest.programs:
        expected = description(
            program.signature, manifest.target, manifest.features, program.needs, program.partition
        )
        if expected not in carried:
            raise ArtifactError(
                "{0} does not carry the description of its manifest: expected {1}, found {2}",
                code_path,
                _text(expected),
                _text(next(iter(_carried(code)), b"")) or "none",
                hint="build the artifact anew",
            )


def _carried(code: bytes) -> Iterator[bytes]:
    """The descriptions in code, with their marks and ends."""
    start = code.find(MARK)
    while start >= 0:
        end = code.find(b"\0", start, start + _MAX_MANIFEST_BYTES) + 1
        yield code[start : end or start + _MAX_MANIFEST_BYTES]
        start = code.find(MARK, start + len(MARK))


def _text(carried: bytes) -> str:
    """A description for people."""
    return carried[len(MARK) : -1].decode("ascii", errors="replace")


def _read_code(code_path: Path, expected: int) -> bytes:
    """The content of a file of `expected` bytes."""
    try:
        with open_regular(code_path) as (file, size):  # nothing is read of one of another size
            code = read_some(file, size + 1) if size == expected else b""
    except FileNotFoundError:
        raise _missing(code_path) from None
    found = size if size != expected else len(code)
    if found != expected:
        raise ArtifactError(
            "{0} is damaged: expected {1} bytes, found {2}", code_path, expected, found, hint=HINT
        )
    return code


def _missing(code_path: Path) -> ArtifactError:
    return ArtifactError("{0} does not exist", code_path, hint=HINT)
