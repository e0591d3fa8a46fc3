"""Artifacts of processors: a shared library, the manifest that describes it, and a C header.

`matmul.so` comes with `matmul.so.json` and `matmul.h`. The manifest has everything that loading
needs to know before the library is opened, a digest of the library, and a digest of itself. The
facts that a safe call depends on are embedded in the library too, so that a manifest written for
another library is detected.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ..errors import ArtifactError
from ..target import FEATURES, CpuTarget
from .files import File, open_regular, read_some
from .header import c_header
from .module import Origin, OriginKind
from .signature import ABI_VERSION, Signature, show

FORMAT_VERSION = 4
MAX_LIBRARY_BYTES = 256 << 20
_MAX_MANIFEST_BYTES = 1 << 20
_MARK = b"tilewright kernel: "
_HINT = "copy the library and its manifest again, or build them anew"
_KINDS = get_args(OriginKind)


class Provenance(NamedTuple):
    """Where the schedule of a kernel comes from, and what it was made with.

    `schedule_id` and `measurement_id` are the records in the tuning database that it was built
    from. `toolchain` has versions by name.
    """

    origin: Origin
    schedule_id: str | None
    measurement_id: str | None
    toolchain: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """The description of a shared library for processors.

    `target` is a target's text and `features` the instruction set extensions that its code uses
    (LLVM's names). `openmp` says whether it calls OpenMP's runtime.
    """

    signature: Signature
    target: str
    features: tuple[str, ...]
    sha256: str
    size: int
    openmp: bool
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        origin, schedule_id, measurement_id, toolchain = self.provenance
        data = {
            "format": FORMAT_VERSION,
            "abi": ABI_VERSION,
            "signature": self.signature.to_json(),
            "target": self.target,
            "features": list(self.features),
            "sha256": self.sha256,
            "size": self.size,
            "openmp": self.openmp,
            "origin": asdict(origin),
            "schedule_id": schedule_id,
            "measurement_id": measurement_id,
            "toolchain": dict(toolchain),
        }
        return {**data, "digest": _digest(data)}

    @staticmethod
    def from_json(data: object, digest: str) -> Manifest:
        """Returns the manifest of a JSON text; `digest` is that of the text.

        Raises `ArtifactError` for an unknown version and for malformed content.
        """
        if not isinstance(data, dict):
            raise ArtifactError(
                "expected a manifest as a JSON object, found {0}", type(data).__name__
            )
        _check_version("format", data.get("format"), FORMAT_VERSION)
        _check_version("abi", data.get("abi"), ABI_VERSION)
        fields = _Fields(data)
        if fields.get("digest", str) != digest:
            raise ArtifactError(
                "the manifest was changed: expected the digest {0}, found {1}",
                show(data["digest"]),
                digest,
                hint=_HINT,
            )
        return Manifest(
            signature=Signature.from_json(data.get("signature")),
            target=fields.get("target", str),
            features=_known_features(fields.get("features", list)),
            sha256=fields.get("sha256", str),
            size=_size(fields.get("size", int)),
            openmp=fields.get("openmp", bool),
            provenance=Provenance(
                _origin(_Fields(fields.get("origin", dict))),
                fields.optional("schedule_id"),
                fields.optional("measurement_id"),
                _texts(fields.get("toolchain", dict)),
            ),
        )


def manifest_path(library: Path) -> Path:
    """The path of a library's manifest: `matmul.so.json` beside `matmul.so`."""
    return library.with_name(library.name + ".json")


def description(
    signature: Signature, target: str, features: Sequence[str], *, openmp: bool
) -> bytes:
    """The embedded description: a NUL-terminated text of all that a safe call depends on.

    It is the constant `<kernel>.description` of the library: `_MARK`, then as JSON the calling
    convention, the signature, the target, the required features and whether the code calls OpenMP's
    runtime.
    """
    data = {
        "abi": ABI_VERSION,
        "signature": signature.to_json(),
        "target": target,
        "features": features,
        "openmp": openmp,
    }
    return _MARK + _canonical(data) + b"\0"


def artifact_files(
    library: Path,
    code: bytes,
    signature: Signature,
    target: CpuTarget,
    *,
    openmp: bool,
    provenance: Provenance,
) -> tuple[File, File, File]:
    """Returns the library with content `code`, its C header and manifest, for `replace_files`.

    The manifest comes last: while the three are replaced, no manifest is newer than its library or
    header. Raises `ArtifactError` for what could not be read back, for instance a name that is not
    valid in C, or code without its `description`.
    """
    manifest = Manifest(
        signature=signature,
        target=str(target),
        features=target.features,
        sha256=hashlib.sha256(code).hexdigest(),
        size=len(code),
        openmp=openmp,
        provenance=provenance,
    )
    try:
        text = json.dumps(manifest.to_json(), indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ArtifactError("the manifest of {0} is not JSON: {1}", library, error) from error
    parse_manifest(text.encode(), manifest_path(library))
    check_code(library, code, manifest)
    return (
        File(library, code, 0o777),
        File(library.with_suffix(".h"), c_header(signature).encode()),
        File(manifest_path(library), text.encode()),
    )


def read_artifact(library: Path) -> tuple[Manifest, bytes]:
    """Returns the manifest of a library and its code, checked against each other.

    The returned bytes are the checked ones, whatever happens to the files. Raises `ArtifactError`.
    """
    manifest = read_manifest(library)
    code = _read_code(library, manifest.size)
    check_code(library, code, manifest)
    return manifest, code


def read_manifest(library: Path) -> Manifest:
    """Returns the manifest of a library, checked for form. Raises `ArtifactError`."""
    if not library.name:
        raise ArtifactError("{0} is a folder; expected the path of a shared library", library)
    path = manifest_path(library)
    try:
        with open_regular(path) as (file, _):
            content = read_some(file, _MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(library):
            raise _missing(library) from None
        raise ArtifactError(
            "{0} has no manifest: expected {1}",
            library.name,
            path,
            hint="keep the library and its .json together",
        ) from None
    return parse_manifest(content, path)


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """Returns the manifest in a file's content. Raises `ArtifactError`."""
    if len(content) > _MAX_MANIFEST_BYTES:
        raise ArtifactError(
            "{0} has more than {1} bytes; a manifest has fewer", path, _MAX_MANIFEST_BYTES
        )
    try:
        data = json.loads(
            content.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant
        )
        digest = _digest(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError("{0} is damaged: not a JSON text ({1})", path, error) from error
    return Manifest.from_json(data, digest)


def check_code(library: Path, code: bytes, manifest: Manifest) -> None:
    """Raise `ArtifactError` unless the manifest was written for this library.

    Compares the digest and the embedded description. The description is read from the bytes of the
    file, not from the loaded library, because loading may run code.
    """
    digest = hashlib.sha256(code).hexdigest()
    if digest != manifest.sha256:
        raise ArtifactError(
            "{0} is not the file of its manifest: expected sha256 {1}, found {2}",
            library,
            manifest.sha256,
            digest,
            hint=_HINT,
        )
    expected = description(
        manifest.signature, manifest.target, manifest.features, openmp=manifest.openmp
    )
    if expected not in code:
        raise ArtifactError(
            "{0} does not carry the description of its manifest: expected {1}, found {2}",
            library,
            expected[len(_MARK) : -1].decode(),
            _carried(code),
            hint="build the artifact anew",
        )


def _carried(code: bytes) -> str:
    """The first description in the code of a library, for people."""
    start = code.find(_MARK)
    if start < 0:
        return "none"
    text = code[start + len(_MARK) : start + _MAX_MANIFEST_BYTES].partition(b"\0")[0]
    return text.decode("ascii", errors="replace")


def _read_code(library: Path, expected: int) -> bytes:
    """The content of a library of `expected` bytes."""
    try:
        with open_regular(library) as (file, size):  # nothing is read of one of another size
            code = read_some(file, size + 1) if size == expected else b""
    except FileNotFoundError:
        raise _missing(library) from None
    found = size if size != expected else len(code)
    if found != expected:
        raise ArtifactError(
            "{0} is damaged: expected {1} bytes, found {2}", library, expected, found, hint=_HINT
        )
    return code


def _missing(library: Path) -> ArtifactError:
    return ArtifactError("{0} does not exist", library)


def _digest(data: object) -> str:
    """The SHA-256 (hex) of a manifest's JSON form without the digest field."""
    covered = {k: v for k, v in data.items() if k != "digest"} if isinstance(data, dict) else data
    return hashlib.sha256(_canonical(covered)).hexdigest()


def _canonical(data: object) -> bytes:
    """The canonical text of JSON data: sorted keys, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _check_version(what: str, found: object, known: int) -> None:
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
    if found < known:
        raise ArtifactError(
            "manifest: {0} version {1} is not supported any more, expected {2}",
            what,
            found,
            known,
            hint="build the artifact anew",
        )


class _Fields:
    """Typed access to the fields of a JSON object."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def get(self, key: str, kind: type[Any]) -> Any:
        value = self.data.get(key)
        if type(value) is not kind:
            raise ArtifactError(
                "manifest: {0}: expected {1}, found {2}", key, kind.__name__, show(value)
            )
        return value

    def optional(self, key: str) -> str | None:
        return None if self.data.get(key) is None else self.get(key, str)


def _known_features(names: list[Any]) -> tuple[str, ...]:
    unknown = [name for name in names if not isinstance(name, str) or name not in FEATURES]
    if unknown:
        raise ArtifactError("manifest: unknown processor features {0}", show(unknown))
    return tuple(names)


def _origin(fields: _Fields) -> Origin:
    kind = fields.get("kind", str)
    if kind not in _KINDS:
        raise ArtifactError("manifest: origin: expected one of {0}, found {1}", _KINDS, show(kind))
    loss = None if fields.data.get("loss") is None else fields.get("loss", float)
    return Origin(kind, fields.optional("record_id"), fields.get("detail", str), loss)


def _size(size: int) -> int:
    if not 0 <= size <= MAX_LIBRARY_BYTES:
        raise ArtifactError(
            "manifest: size: expected at most {0} bytes, found {1}", MAX_LIBRARY_BYTES, show(size)
        )
    return size


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    fields = _Fields(values)
    return {key: fields.get(key, str) for key in values}
