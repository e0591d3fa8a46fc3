"""Artifacts: a shared library, the manifest that describes it, and a C header.

`matmul.so` comes with `matmul.so.json` and `matmul.h`. The manifest has all that loading needs to
know before the library is opened, and its digest, so that no other file is taken for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ..errors import ArtifactError
from ..target import FEATURES, Target
from .module import Origin, OriginKind
from .signature import ABI_VERSION, OK, OUT_OF_MEMORY, Argument, Signature

FORMAT_VERSION = 2
_MAX_MANIFEST_BYTES = 1 << 20
_KINDS = get_args(OriginKind)


@dataclass(frozen=True)
class Manifest:
    """What is known of a shared library.

    `target` is a target's text and `features` the instruction set extensions that its code uses
    (LLVM's names); `openmp` whether it calls OpenMP's runtime; `toolchain` versions by name, and
    `schedule_id` and `measurement_id` digests in the tuning database that it was built from.
    """

    signature: Signature
    target: str
    features: tuple[str, ...]
    sha256: str
    size: int
    openmp: bool
    origin: Origin
    schedule_id: str | None = None
    measurement_id: str | None = None
    toolchain: Mapping[str, str] = field(default_factory=dict)
    abi_version: int = ABI_VERSION

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "abi": self.abi_version,
            "signature": self.signature.to_json(),
            "target": self.target,
            "features": list(self.features),
            "sha256": self.sha256,
            "size": self.size,
            "openmp": self.openmp,
            "origin": {
                "kind": self.origin.kind,
                "record_id": self.origin.record_id,
                "detail": self.origin.detail,
                "loss": self.origin.loss,
            },
            "schedule_id": self.schedule_id,
            "measurement_id": self.measurement_id,
            "toolchain": dict(self.toolchain),
        }

    @staticmethod
    def from_json(data: object) -> Manifest:
        """The manifest of its JSON form.

        Raises `ArtifactError` for a version that is not known and for anything malformed.
        """
        if not isinstance(data, dict):
            raise ArtifactError(
                "expected a manifest as a JSON object, found {0}", type(data).__name__
            )
        _check_version("format", data.get("format"), FORMAT_VERSION)
        _check_version("abi", data.get("abi"), ABI_VERSION)
        fields = _Fields(data)
        return Manifest(
            signature=Signature.from_json(data.get("signature")),
            target=fields.get("target", str),
            features=_known_features(fields.get("features", list)),
            sha256=fields.get("sha256", str),
            size=fields.get("size", int),
            openmp=fields.get("openmp", bool),
            origin=_origin(_Fields(fields.get("origin", dict))),
            schedule_id=fields.optional("schedule_id"),
            measurement_id=fields.optional("measurement_id"),
            toolchain={str(k): str(v) for k, v in fields.get("toolchain", dict).items()},
        )


def manifest_path(library: Path) -> Path:
    """Where the manifest of a library is: `matmul.so.json` beside `matmul.so`."""
    return library.with_name(library.name + ".json")


def write_artifact(
    library: Path,
    signature: Signature,
    target: Target,
    *,
    openmp: bool,
    origin: Origin,
    schedule_id: str | None = None,
    measurement_id: str | None = None,
    toolchain: Mapping[str, str] | None = None,
) -> Manifest:
    """Write the manifest and the C header of an existing shared library beside it.

    Raises `ArtifactError` for what could not be read back, a name that is none in C for instance.
    """
    code = library.read_bytes()
    manifest = Manifest(
        signature=signature,
        target=str(target),
        features=target.features,
        sha256=hashlib.sha256(code).hexdigest(),
        size=len(code),
        openmp=openmp,
        origin=origin,
        schedule_id=schedule_id,
        measurement_id=measurement_id,
        toolchain=toolchain or {},
    )
    Manifest.from_json(manifest.to_json())
    library.with_suffix(".h").write_text(c_header(signature), encoding="utf-8")
    text = json.dumps(manifest.to_json(), indent=2) + "\n"
    manifest_path(library).write_text(text, encoding="utf-8")
    return manifest


def read_manifest(library: Path) -> Manifest:
    """The manifest of a library, checked for form. Raises `ArtifactError`."""
    path = manifest_path(library)
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise ArtifactError(
            "{0} has no manifest: expected {1}",
            library.name,
            path,
            hint="keep the library and its .json together",
        ) from None
    except OSError as error:
        raise ArtifactError("cannot read {0}: {1}", path, error.strerror) from error
    if len(content) > _MAX_MANIFEST_BYTES:
        raise ArtifactError("{0}: more than {1} bytes is no manifest", path, _MAX_MANIFEST_BYTES)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ArtifactError("{0} is damaged: not a JSON text ({1})", path, error) from error
    return Manifest.from_json(data)


def check_library(library: Path, manifest: Manifest) -> None:
    """Raise `ArtifactError` unless the file is the one that the manifest was written for."""
    try:
        code = library.read_bytes()
    except OSError as error:
        raise ArtifactError("cannot read {0}: {1}", library, error.strerror) from error
    hint = "copy the library and its manifest again, or build them anew"
    if len(code) != manifest.size:
        raise ArtifactError(
            "{0} is damaged: expected {1} bytes, found {2}",
            library,
            manifest.size,
            len(code),
            hint=hint,
        )
    digest = hashlib.sha256(code).hexdigest()
    if digest != manifest.sha256:
        raise ArtifactError(
            "{0} is not the file of its manifest: expected sha256 {1}, found {2}",
            library,
            manifest.sha256,
            digest,
            hint=hint,
        )


def c_header(signature: Signature) -> str:
    """A C header that declares the kernel and what packs for it, and says what arguments are."""
    guard = f"TILEWRIGHT_{signature.name.upper()}_H"
    lines = [_describe(a).replace("*/", "* /") for a in signature.arguments]
    return "\n".join(
        [
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/*",
            *(f" * {line}" for line in lines),
            " *",
            f" * Returns {OK}, or {OUT_OF_MEMORY} if an internal buffer could not be allocated.",
            " * Outputs must not overlap with any other argument. Calls are thread-safe.",
            " */",
            f"{signature.c_declaration()};",
            *(f"{packer.c_declaration()};" for packer in signature.packers),
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            f"#endif /* {guard} */",
            "",
        ]
    )


def _describe(argument: Argument) -> str:
    text = f"{argument.name}: {argument.role} {argument.kind} {_elements(argument)}"
    packing = argument.packing
    if packing is None:
        return text
    return f"{text}, as {packing.packer} makes it of {_elements(packing.operand)}: {packing.layout}"


def _elements(argument: Argument) -> str:
    shape = "".join(f"[{n}]" for n in argument.shape)
    strides = "" if argument.strides is None else f", strides {argument.strides} elements"
    return f"{argument.dtype}{shape}{strides}"


def _check_version(what: str, found: object, known: int) -> None:
    if type(found) is not int or found < 1:
        raise ArtifactError("manifest: expected a version of its {0}, found {1!r}", what, found)
    if found > known:
        raise ArtifactError(
            "manifest: {0} version {1} is newer than {2}, the newest that is known here",
            what,
            found,
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
                "manifest: {0}: expected {1}, found {2!r}", key, kind.__name__, value
            )
        return value

    def optional(self, key: str) -> str | None:
        return None if self.data.get(key) is None else self.get(key, str)


def _known_features(names: list[Any]) -> tuple[str, ...]:
    unknown = [name for name in names if not isinstance(name, str) or name not in FEATURES]
    if unknown:
        raise ArtifactError("manifest: unknown processor features {0!r}", unknown)
    return tuple(names)


def _origin(fields: _Fields) -> Origin:
    kind = fields.get("kind", str)
    if kind not in _KINDS:
        raise ArtifactError("manifest: origin: expected one of {0}, found {1!r}", _KINDS, kind)
    loss = None if fields.data.get("loss") is None else fields.get("loss", float)
    return Origin(kind, fields.optional("record_id"), fields.get("detail", str), loss)
