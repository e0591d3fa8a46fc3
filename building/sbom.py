"""Bills of materials: what went into an artifact, as CycloneDX has it (JSON).

Its own facts are those of the manifest, so that equal artifacts have equal bills: no time is in
them, and their serial numbers are of the manifest's digest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from .. import __version__
from ..base.errors import BuildError, checked_call
from ..runtime.artifact import part_place
from ..runtime.library import ArtifactContent
from ..runtime.loader import read_content
from ..runtime.manifest import Manifest
from ..runtime.stored_partition import part_path
from ..runtime.weights_file import digest_of_bytes, weights_path
from .build import Library

_REGISTRIES = {
    "jax": "pypi",
    "libgomp": "generic",
    "llvm": "generic",
    "llvmlite": "pypi",
    "numpy": "pypi",
    "nvcc": "generic",
    "nvrtc": "generic",
    "onnx_ir": "pypi",
    "onnxruntime": "pypi",
    "openvino": "pypi",
    "python": "generic",
    "tilewright": "pypi",
    "torch": "pypi",
}
"""The types of package URLs, by names in manifests: what is not here has none."""
_IMPORTERS = ("jax", "onnx_ir", "torch")
"""Of what a manifest says of importers the packages, with their versions."""


@checked_call(BuildError, 'tw.sbom("matmul.so")')
def sbom(library: Library | str | os.PathLike[str]) -> str:
    """The bill of materials of a built library, or of its path: CycloneDX 1.6, as JSON text.

    It has the files of the artifact with their SHA-256; its programs and models with the digests of
    what they were made of; the compiler, LLVM and the importers by version and purl, whose scope is
    `excluded` as nothing of them is in the artifact; and as `required` the OpenMP runtime and
    the libraries of other providers that calls take. Equal artifacts have equal bills.

    Raises `ArtifactError` for a damaged artifact, and `BuildError` where cyclonedx-python-lib is
    not installed.
    """
    if not isinstance(library, Library | str | os.PathLike):
        raise BuildError("expected a library or its path, found {0!r:.80}", library)
    path = Path(library.files[0] if isinstance(library, Library) else library).absolute()
    cyclonedx()
    return _text(path, read_content(path, ()))


def cyclonedx() -> ModuleType:
    """The library that writes bills. Raises `BuildError` where it is not installed."""
    try:
        import cyclonedx
    except ImportError as error:
        raise BuildError(
            "cyclonedx-python-lib is not installed", hint="pip install 'tilewright[sbom]'"
        ) from error
    return cyclonedx  # type: ignore[no-any-return]


def _text(path: Path, content: ArtifactContent) -> str:
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion

    manifest = content.manifest
    digest = manifest.to_json()["digest"]
    facts = {"target": str(manifest.target), "manifest": digest}
    code = _component("library", path.name, sha256=manifest.code.sha256, facts=facts)
    writer = _component("application", "tilewright", __version__, ref="writer")
    metadata = BomMetaData(component=code, tools=ToolRepository(components=[writer]))
    metadata.timestamp = None  # which would differ from bill to bill
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"tilewright:{digest}"),
        metadata=metadata,
        components=[*_files(path, content), *_programs(manifest), *_tools(manifest)],
    )
    bom.register_dependency(code, bom.components)
    made = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return f"{made.output_as_string(indent=2)}\n"


def _files(path: Path, content: ArtifactContent) -> Iterator[Any]:
    """The files beside the code."""
    manifest = content.manifest
    if manifest.header is not None:
        name = path.with_suffix(".h").name
        yield _component("file", name, sha256=manifest.header.sha256)
    if content.weights is not None:
        digest = digest_of_bytes(content.weights.data)
        yield _component("data", weights_path(path).name, sha256=digest)
    for program in manifest.programs:
        if program.partition is not None:
            place = part_place(path, manifest, program.name)
            for number, part in program.partition.files.items():
                yield _component("data", part_path(place, number).name, sha256=part.content.sha256)


def _programs(manifest: Manifest) -> Iterator[Any]:
    """What was compiled: models with the digests of their files, where these are known."""
    for program in manifest.programs:
        source = program.provenance.source
        facts = {} if source is None else {"kind": source.kind, "digest": source.digest}
        facts |= {} if source is None else source.importer or {}
        sha256 = facts.get("sha256")
        kind = "data" if program.weights is None else "machine-learning-model"
        yield _component(kind, program.name, sha256=sha256, facts=facts)


def _tools(manifest: Manifest) -> Iterator[Any]:
    """What made the code, and what calls take that is in none of the files."""
    made: dict[str, str | None] = {**manifest.toolchain}
    needed: dict[str, str | None] = {}
    for program in manifest.programs:
        source, partition = program.provenance.source, program.partition
        if source is not None:
            facts = source.importer or {}
            made |= {name: facts[name] for name in _IMPORTERS if name in facts}
        if partition is not None:
            for part, own in zip(partition.plan.parts, partition.parts, strict=True):
                if own.file is not None:
                    needed[part.provider] = own.file.version
        if program.needs.get("openmp"):
            needed["libgomp"] = None  # or another that has `GOMP_parallel`
    for name, version in sorted(made.items()):
        yield _component("application", name, version, scope="excluded", ref="tool")
    for name, version in sorted(needed.items()):
        yield _component("library", name, version, scope="required", ref="runtime")


def _component(
    kind: str,
    name: str,
    version: str | None = None,
    *,
    sha256: str | None = None,
    scope: str | None = None,
    facts: Mapping[str, str] | None = None,
    ref: str | None = None,
) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from packageurl import PackageURL

    registry = _REGISTRIES.get(name) if ref is not None else None
    package = name.replace("_", "-")
    return Component(
        type=ComponentType(kind),
        name=name,
        version=version,
        bom_ref=f"{ref or kind}:{name}",
        purl=None if registry is None else PackageURL(registry, None, package, version),
        scope=None if scope is None else ComponentScope(scope),
        hashes=[] if sha256 is None else [HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
        properties=[
            Property(name=f"tilewright:{key}", value=value) for key, value in (facts or {}).items()
        ],
    )
