"""Artifacts: a file of code, and the manifest that describes it.

That of a processor is a shared library: `matmul.so` comes with `matmul.so.json` and `matmul.h`. A
model has the file of `weights_file.py` besides, and a partitioned one those of its parts, see
`stored_partition.py`. The manifest has everything that loading needs to
know before the code is opened, digests of code and weights, and a digest of itself. The first word
of its target is the kind of target, which says what else the manifest has. The facts that a safe
call depends on are embedded in the code too, so that a manifest written for other code is detected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ..base.checked_json import (
    between,
    canonical_json,
    parse_digested,
    read,
    require_digest,
    sealed,
    show,
)
from ..base.errors import ArtifactError, TargetError
from ..base.files import File, open_regular, read_some
from ..target import Target, registered_kinds
from .guards import Guard, check_guards
from .module import Origin
from .signature import ABI_VERSION, Signature
from .stored_partition import StoredPartition, part_path, stored_functions
from .target_runtime import TargetRuntime, runtime_for
from .weights_file import Array, WeightsFile, digest_of_bytes, weights_path

FORMAT_VERSION = 5
PLAIN_VERSION = 4
"""Of artifacts without a partition, which older versions read too."""
MAX_CODE_BYTES = 256 << 20
_MAX_MANIFEST_BYTES = 16 << 20
"""The evidence of ten thousand nodes has 3 MB."""
_MARK = b"tilewright kernel: "
_HINT = "copy the code and its manifest again, or build them anew"


class Provenance(NamedTuple):
    """Where the schedule of a kernel comes from, and what it was made with.

    `schedule_id` and `measurement_id` are the records in the tuning database that it was built
    from. `toolchain` has versions by name. Of several, `kernels` has where their schedules come
    from, by their names; `evidence` is the JSON form of what is known of a model.
    """

    origin: Origin
    schedule_id: str | None
    measurement_id: str | None
    toolchain: Mapping[str, str]
    kernels: Mapping[str, Origin] = {}
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Manifest:
    """The description of the code of an artifact.

    `features` are those of the target that the code uses. `needs` are the facts that the runtime of
    its kind asks for: that of processors whether the code calls `openmp`. Models have `weights`,
    which are their last argument if there are any, and `guards` of their indices. The signature of
    one that has a `partition` is that of a function that does nothing: its parts have their own.
    """

    signature: Signature
    target: Target
    features: tuple[str, ...]
    sha256: str
    size: int
    needs: Mapping[str, Any]
    provenance: Provenance
    weights: WeightsFile | None = None
    guards: tuple[Guard, ...] = ()
    partition: StoredPartition | None = None

    def to_json(self) -> dict[str, Any]:
        origin, schedule_id, measurement_id, toolchain, kernels, evidence = self.provenance
        data = {
            "format": PLAIN_VERSION if self.partition is None else FORMAT_VERSION,
            "abi": ABI_VERSION,
            "signature": self.signature.to_json(),
            "target": str(self.target),
            "features": list(self.features),
            "sha256": self.sha256,
            "size": self.size,
            "origin": asdict(origin),
            "schedule_id": schedule_id,
            "measurement_id": measurement_id,
            "toolchain": dict(toolchain),
        }
        if self.weights is not None:
            data["weights"] = asdict(self.weights)
            data["guards"] = [asdict(guard) for guard in self.guards]
            data["evidence"] = evidence
        if self.partition is not None:
            data["partition"] = self.partition.to_json()
        if kernels:
            data["schedules"] = {name: asdict(origin) for name, origin in kernels.items()}
        return sealed(_with_needs(data, self.needs))

    @staticmethod
    def from_json(data: Mapping[str, Any], digest: str) -> Manifest:
        """Returns the manifest of a JSON object; `digest` is that of the object.

        Raises `ArtifactError` for an unknown version or target, and for malformed content.
        """
        _check_version("format", data.get("format"), FORMAT_VERSION, PLAIN_VERSION)
        _check_version("abi", data.get("abi"), ABI_VERSION, ABI_VERSION)
        require_digest(data, digest, "the manifest", _HINT)
        names = [field.name for field in fields(_Fields)]
        found = read(_Fields, {name: data.get(name) for name in names}, "manifest")
        target, runtime = _kind_of(found.target)
        unknown = [name for name in found.features if name not in target.feature_names]
        if unknown:
            raise ArtifactError("manifest: unknown features {0} of {1}", show(unknown), target.kind)
        if found.weights is not None:
            _check_weights(found.signature, found.weights)
            check_guards(found.signature, found.guards or ())
        if found.partition is not None:
            found.partition.check(0 if found.weights is None else found.weights.size)
        return Manifest(
            signature=found.signature,
            target=target,
            features=found.features,
            sha256=found.sha256,
            size=found.size,
            needs=runtime.needs(data),
            provenance=Provenance(
                found.origin,
                found.schedule_id,
                found.measurement_id,
                found.toolchain,
                found.schedules or {},
                found.evidence,
            ),
            weights=found.weights,
            guards=found.guards or (),
            partition=found.partition,
        )


@dataclass(frozen=True)
class _Fields:
    """The fields of the manifests of all kinds of targets, beside versions and digest."""

    signature: Signature
    target: str
    features: tuple[str, ...]
    sha256: str
    size: Annotated[int, between(0, MAX_CODE_BYTES)]
    origin: Origin
    schedule_id: str | None
    measurement_id: str | None
    toolchain: Mapping[str, str]
    weights: WeightsFile | None
    guards: tuple[Guard, ...] | None
    partition: StoredPartition | None
    schedules: Mapping[str, Origin] | None
    evidence: Mapping[str, Any] | None


def manifest_path(code: Path) -> Path:
    """The path of the manifest of a file of code: `matmul.so.json` beside `matmul.so`."""
    return code.with_name(code.name + ".json")


def description(
    signature: Signature,
    target: Target,
    features: Sequence[str],
    needs: Mapping[str, Any],
    partition: StoredPartition | None = None,
) -> bytes:
    """The embedded description: a NUL-terminated text of all that a safe call depends on.

    It stands anywhere in the code: in a shared library, it is the constant `<kernel>.description`.
    It is `_MARK`, then as JSON the calling convention, the signature, the target, the required
    features, what the code needs to be called, and the functions of the parts of a partition.
    Raises `ArtifactError` for needs that have names of the others.
    """
    data = {
        "abi": ABI_VERSION,
        "signature": signature.to_json(),
        "target": str(target),
        "features": features,
    }
    if partition is not None:
        data["functions"] = stored_functions(partition.parts)
    return _MARK + canonical_json(_with_needs(data, needs)).encode() + b"\0"


def _with_needs(data: Mapping[str, Any], needs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of all kinds of targets, and beside them those of one kind."""
    if shared := needs.keys() & {*data, "digest"}:
        raise ArtifactError(
            "what code for {0} needs has names of fields of all manifests: {1}",
            data["target"],
            ", ".join(sorted(shared)),
            hint="name them otherwise in `TargetRuntime.needs`",
        )
    return {**data, **needs}


def artifact_files(
    code: File,
    signature: Signature,
    target: Target,
    needs: Mapping[str, Any],
    provenance: Provenance,
    beside: Sequence[File] = (),
    weights: Array | None = None,
    guards: Sequence[Guard] = (),
    partition: tuple[StoredPartition, Mapping[int, bytes]] | None = None,
) -> tuple[File, ...]:
    """Returns the code, the weights of a model, the parts of a partition that others run, by their
    numbers, the files `beside` and the manifest, to be written by `replace_files`.

    The manifest comes last: while they are replaced, no manifest is newer than the others. `needs`
    are those of `TargetRuntime.needs`. Raises `ArtifactError` for what could not be read back, for
    instance a name that is not valid in C, or code without its `description`.
    """
    content = bytes(code.content)
    stored, parts = (None, {}) if partition is None else partition
    manifest = Manifest(
        signature=signature,
        target=target,
        features=target.features,
        sha256=digest_of_bytes(content),
        size=len(content),
        needs=needs,
        provenance=provenance,
        weights=None
        if weights is None
        else WeightsFile(weights.nbytes, digest_of_bytes(weights.data)),
        guards=tuple(guards),
        partition=stored,
    )
    path = manifest_path(code.path)
    try:
        text = json.dumps(manifest.to_json(), indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ArtifactError("the manifest of {0} is not JSON: {1}", code.path, error) from error
    parse_manifest(text.encode(), path)
    check_code(code.path, content, manifest)
    held = []
    if weights is not None and weights.nbytes:
        held = [File(weights_path(code.path), weights.data)]
    held += [File(part_path(code.path, number), part) for number, part in parts.items()]
    return (code, *held, *beside, File(path, text.encode()))


def read_artifact(code_path: Path) -> tuple[Manifest, bytes]:
    """Returns the manifest of an artifact and its code, checked against each other.

    The returned bytes are the checked ones, whatever happens to the files. Raises `ArtifactError`.
    """
    manifest = read_manifest(code_path)
    code = _read_code(code_path, manifest.size)
    check_code(code_path, code, manifest)
    return manifest, code


def read_manifest(code_path: Path) -> Manifest:
    """Returns the manifest of an artifact, checked for form. Raises `ArtifactError`."""
    if not code_path.name:
        raise ArtifactError(
            "{0} is a folder; expected the path of the code of an artifact", code_path
        )
    path = manifest_path(code_path)
    try:
        with open_regular(path) as (file, _):
            content = read_some(file, _MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(code_path):
            raise _missing(code_path) from None
        raise ArtifactError(
            "{0} has no manifest: expected {1}",
            code_path.name,
            path,
            hint="keep the code and its .json together",
        ) from None
    return parse_manifest(content, path)


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """Returns the manifest in a file's content. Raises `ArtifactError`."""
    if len(content) > _MAX_MANIFEST_BYTES:
        raise ArtifactError(
            "{0} has more than {1} bytes; a manifest has fewer", path, _MAX_MANIFEST_BYTES
        )
    return Manifest.from_json(*parse_digested(content, str(path), _HINT))


def check_code(code_path: Path, code: bytes, manifest: Manifest) -> None:
    """Raise `ArtifactError` unless the manifest was written for this code.

    Compares the digest and the embedded description. The description is read from the bytes of the
    file, not from loaded code, because loading may run code.
    """
    digest = digest_of_bytes(code)
    if digest != manifest.sha256:
        raise ArtifactError(
            "{0} is not the file of its manifest: expected sha256 {1}, found {2}",
            code_path,
            manifest.sha256,
            digest,
            hint=_HINT,
        )
    expected = description(
        manifest.signature, manifest.target, manifest.features, manifest.needs, manifest.partition
    )
    if expected not in code:
        raise ArtifactError(
            "{0} does not carry the description of its manifest: expected {1}, found {2}",
            code_path,
            expected[len(_MARK) : -1].decode(),
            _carried(code),
            hint="build the artifact anew",
        )


def _carried(code: bytes) -> str:
    """The first description in code, for people."""
    start = code.find(_MARK)
    if start < 0:
        return "none"
    text = code[start + len(_MARK) : start + _MAX_MANIFEST_BYTES].partition(b"\0")[0]
    return text.decode("ascii", errors="replace")


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
            "{0} is damaged: expected {1} bytes, found {2}", code_path, expected, found, hint=_HINT
        )
    return code


def _check_weights(signature: Signature, weights: WeightsFile) -> None:
    """Raise `ArtifactError` unless the last argument takes all of the weights, and no other."""
    arguments = signature.arguments
    found = {n: (a.dtype, a.shape) for n, a in enumerate(arguments) if a.constant}
    wanted = {len(arguments) - 1: ("uint8", (weights.size,))} if weights.size else {}
    if found != wanted:
        raise ArtifactError(
            "manifest: {0} bytes of weights, and the arguments that take them are {1}",
            weights.size, show(found), hint=_HINT,
        )  # fmt: skip


def _missing(code_path: Path) -> ArtifactError:
    return ArtifactError("{0} does not exist", code_path, hint=_HINT)


def _check_version(what: str, found: object, known: int, oldest: int) -> None:
    if type(found) is not int or found < 1:
        raise ArtifactError("manifest: expected a version of its {0}, found {1}", what, show(found))
    if found > known:
        raise ArtifactError(
            "manifest: {0} version {1} is newer than {2}, the newest that is known here",
            what,
            show(found),
            known,
            hint="update tilewright, or build the artifact with this version",
        )
    if found < oldest:
        raise ArtifactError(
            "manifest: {0} version {1} is not supported any more, expected {2}",
            what,
            found,
            oldest if oldest == known else f"{oldest} to {known}",
            hint="build the artifact anew",
        )


def _kind_of(text: str) -> tuple[Target, TargetRuntime]:
    """The target of its text, and the runtime of its kind."""
    kind = text.partition(" ")[0]
    if kind not in registered_kinds():
        raise ArtifactError(
            "the artifact is for targets of kind {0}, expected one of {1}",
            show(kind),
            ", ".join(registered_kinds()),
            hint="import the module that registers the kind before you load it, or update "
            "tilewright",
        )
    try:
        target = Target.parse(text)
        return target, runtime_for(target)
    except TargetError as error:
        raise ArtifactError("manifest: target: {0}", error) from error
