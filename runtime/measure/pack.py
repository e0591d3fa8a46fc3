"""A pack: a folder of compiled candidates, to be measured on another machine.

    matmul-pack/
        pack.json                      what is to be measured, and the digests of the other files
        reference.so  .json            the unscheduled program, whose results are expected
        wide.so  .json                 the same in float64, for results that deviate (if it exists)
        c0000.so  .json ...            the candidates, each an artifact (`runtime/artifact.py`)

Names in `pack.json` are names of files in the folder, and nothing outside of it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base.errors import ArtifactError
from ..artifact import Manifest, read_artifact
from ..files import open_regular, read_some
from ..module import Module
from ..signature import show
from ..target_runtime import runtime_for
from .checked_json import as_float, field, parse_sealed, sealed

FORMAT = "tilewright-measure-pack"
VERSION = 2
"""What is written. Version 1, which accepts exact schedules alone, is read too."""
PACK = "pack.json"
MAX_BYTES = 256 << 20
_NAME = re.compile(r"[a-z][a-z0-9]{0,30}\.[a-z0-9]{1,10}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PackedFile:
    """The code of an artifact in the folder, by name, and its digest."""

    name: str
    sha256: str

    @staticmethod
    def from_json(data: object) -> PackedFile:
        """The file of its JSON form. Raises `ArtifactError`, also for a path."""
        if not isinstance(data, dict):
            raise ArtifactError("pack: expected a file, found {0}", show(data))
        name, sha256 = (field(data, key, str, "pack: a file") for key in ("name", "sha256"))
        if not _NAME.fullmatch(name):
            raise ArtifactError(
                "pack: expected the name of a file in the folder, found {0}", show(name)
            )
        if not _SHA256.fullmatch(sha256):
            raise ArtifactError("pack: {0}: expected a sha256, found {1}", name, show(sha256))
        return PackedFile(name, sha256)


@dataclass(frozen=True)
class PackedCandidate:
    """A candidate: its code, or the `outcome` and `error` of building it.

    For the database are `schedule`, its record, the `features` of the search and the seconds that
    it `predicted`, and `resources`, what the compiler reports. Errors of inexact schedules may be
    `error_factor` times as large.
    """

    schedule: Mapping[str, Any]
    features: tuple[float, ...]
    error_factor: float
    file: PackedFile | None
    outcome: str | None = None
    error: str | None = None
    resources: Mapping[str, Any] | None = None
    predicted: float | None = None

    @staticmethod
    def from_json(data: object) -> PackedCandidate:
        """The candidate of its JSON form. Raises `ArtifactError`."""
        what = "pack: a candidate"
        if not isinstance(data, dict):
            raise ArtifactError("{0}: expected an object, found {1}", what, show(data))
        built = data.get("file") is not None
        features = list(map(as_float, field(data, "features", list, what)))
        if any(type(f) is not float for f in features):
            raise ArtifactError("{0}: features: expected numbers, found {1}", what, show(features))
        factor = field(data, "error_factor", float, what)
        if factor < 1:
            raise ArtifactError("{0}: error_factor: expected 1 or more, found {1}", what, factor)
        return PackedCandidate(
            field(data, "schedule", dict, what),
            tuple(features),
            factor,
            PackedFile.from_json(data["file"]) if built else None,
            None if built else field(data, "outcome", str, what),
            None if built else field(data, "error", str, what),
            None if data.get("resources") is None else field(data, "resources", dict, what),
            None if data.get("predicted") is None else field(data, "predicted", float, what),
        )


@dataclass(frozen=True)
class Limits:
    """How candidates are timed; as in `MeasureConfig` and `TuneConfig` of tuning sessions.

    A candidate may take `run_timeout` seconds by the clock, and the reference `reference_timeout`.
    """

    min_samples: int
    max_samples: int
    sample_seconds: float
    timing_seconds: float
    slack: float
    run_timeout: float
    reference_timeout: float
    finalists: int
    margin: float
    rounds: int
    final_seconds: float

    @staticmethod
    def from_json(data: object) -> Limits:
        """The limits of their JSON form.

        Raises `ArtifactError` unless all are positive, and no larger than `MOST`.
        """
        if not isinstance(data, dict):
            raise ArtifactError("pack: limits: expected an object, found {0}", show(data))
        kinds = {name: {"int": int, "float": float}[kind] for name, kind in _LIMITS.items()}
        values = {name: field(data, name, kind, "pack: limits") for name, kind in kinds.items()}
        wrong = [name for name, value in values.items() if not 0 < value <= MOST]
        if wrong:
            raise ArtifactError(
                "pack: limits: expected more than 0, and at most {0}, of {1}",
                MOST,
                ", ".join(wrong),
            )
        return Limits(**values)


MOST = 10_000_000
"""The largest limit of a pack, in seconds or another unit: some months."""
_LIMITS: Mapping[str, str] = Limits.__annotations__


@dataclass(frozen=True)
class Pack:
    """What is to be measured.

    `records` are the workload, target, toolchain and session for the database, by kind, and
    `feature_version` is that of the candidates' features. Inputs are random data of `seed`; floats
    are `positive` where the program needs that. `samples` are elements of each output, computed on
    the host (`OutputSample.to_json`), or `None`. `tolerance` is the largest error that rounding
    explains (`comparison.py`), `accepted_error` that of inexact schedules that may be the best; all
    are exact where it is `None`.
    """

    records: Mapping[str, Mapping[str, Any]]
    feature_version: str | None
    created: str
    seed: int
    positive: bool
    tolerance: float
    accepted_error: float | None
    limits: Limits
    reference: PackedFile
    wide: PackedFile | None
    candidates: tuple[PackedCandidate, ...]
    samples: list[Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Its JSON form, with a digest of all of it."""
        return sealed(
            {"format": FORMAT, "version": VERSION, **json.loads(json.dumps(asdict(self)))}
        )

    @property
    def digest(self) -> str:
        return str(self.to_json()["digest"])

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Pack:
        """The pack of its JSON form, whose digest was checked. Raises `ArtifactError`."""
        what = "pack"
        if data.get("format") != FORMAT:
            raise ArtifactError("no pack: expected the format {0}", FORMAT)
        if data.get("version") not in (1, VERSION):
            raise ArtifactError(
                "pack: of version {0}, expected 1 to {1}",
                show(data.get("version")),
                VERSION,
                hint="pack and measure with one version of tilewright",
            )
        records = field(data, "records", dict, what)
        if any(not isinstance(record, dict) for record in records.values()):
            raise ArtifactError("pack: records: expected objects, found {0}", show(records))
        version, accepted = data.get("feature_version"), data.get("accepted_error")
        seed, tolerance = field(data, "seed", int, what), field(data, "tolerance", float, what)
        if not 0 <= seed < 1 << 64:
            raise ArtifactError("pack: seed: expected one of 64 bits, found {0}", show(seed))
        if tolerance < 0:
            raise ArtifactError("pack: tolerance: expected at least 0, found {0}", tolerance)
        return Pack(
            records=records,
            feature_version=None if version is None else field(data, "feature_version", str, what),
            created=field(data, "created", str, what),
            seed=seed,
            positive=field(data, "positive", bool, what),
            tolerance=tolerance,
            accepted_error=None if accepted is None else field(data, "accepted_error", float, what),
            limits=Limits.from_json(data.get("limits")),
            reference=PackedFile.from_json(data.get("reference")),
            wide=None if data.get("wide") is None else PackedFile.from_json(data["wide"]),
            candidates=tuple(map(PackedCandidate.from_json, field(data, "candidates", list, what))),
            samples=None if data.get("samples") is None else field(data, "samples", list, what),
        )


def read_pack(folder: Path) -> Pack:
    """The pack of a folder. Raises `ArtifactError` for what is none, and for one that changed."""
    path = folder / PACK
    try:
        with open_regular(path) as (file, _):
            text = read_some(file, MAX_BYTES + 1)
    except FileNotFoundError:
        raise ArtifactError(
            "{0} is no pack: there is no {1}", folder, PACK, hint="tilewright measure pack"
        ) from None
    if len(text) > MAX_BYTES:
        raise ArtifactError("{0} has more than {1} bytes; a pack has fewer", path, MAX_BYTES)
    try:
        return Pack.from_json(parse_sealed(text, str(path)))
    except ArtifactError as error:
        error.hint = error.hint or "pack the candidates again: tilewright measure pack"
        raise


def read_packed(folder: Path, file: PackedFile) -> tuple[Manifest, bytes]:
    """An artifact of a pack, as it was packed. Raises `ArtifactError`, also for a link."""
    path = folder / file.name
    for part in (path, path.with_name(path.name + ".json")):
        if part.is_symlink():
            raise ArtifactError(
                "{0} is a link, expected a file of the pack", part, hint="copy the folder again"
            )
    manifest, code = read_artifact(path)
    if manifest.sha256 != file.sha256:
        raise ArtifactError(
            "{0} is not the file that was packed: expected sha256 {1}, found {2}",
            path,
            file.sha256,
            manifest.sha256,
            hint="copy the folder again",
        )
    return manifest, code


def load_packed(folder: Path, file: PackedFile, packed: tuple[Manifest, bytes]) -> Module:
    """The module of `read_packed`. Raises `ArtifactError` where this machine does not run it."""
    manifest, code = packed
    runtime = runtime_for(manifest.target)
    # The arguments are made here: nothing is out of range.
    return runtime.load(manifest, code, folder / file.name, trust_indices=True)
