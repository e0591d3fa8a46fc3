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
from typing import Annotated, Any, TypeAlias

from ...base.checked_json import DIGEST, Such, between, parse_sealed, read, sealed, show
from ...base.errors import ArtifactError
from ...base.files import open_regular, read_some
from ..artifact import read_artifact
from ..manifest import Manifest
from ..module import Module
from ..target_runtime import runtime_for
from ..timer import TimingOptions

FORMAT = "tilewright-measure-pack"
VERSION = 2
"""What is written. Version 1, which accepts exact schedules alone, is read too."""
PACK = "pack.json"
MAX_BYTES = 256 << 20
COPY = "copy it again from where it was written"
MOST = 10_000_000
"""The largest limit of a pack, in seconds or another unit: some months."""
_NAME = re.compile(r"[a-z][a-z0-9]{0,30}\.[a-z0-9]{1,10}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_IS_LIMIT = Such(f"more than 0, and at most {MOST}", lambda n: 0 < n <= MOST)
Count: TypeAlias = Annotated[int, _IS_LIMIT]
Amount: TypeAlias = Annotated[float, _IS_LIMIT]


@dataclass(frozen=True)
class PackedFile:
    """The code of an artifact in the folder, by name, and its digest."""

    name: Annotated[str, Such("the name of a file in the folder", _NAME.fullmatch)]
    sha256: Annotated[str, Such("a sha256", _SHA256.fullmatch)]


@dataclass(frozen=True)
class PackedCandidate:
    """A candidate: its code, or the `outcome` and `error` of building it.

    For the database are `schedule`, its record, the `features` of the search and the seconds that
    it `predicted`, and `resources`, what the compiler reports. Errors of inexact schedules may be
    `error_factor` times as large.
    """

    schedule: Mapping[str, Any]
    features: tuple[float, ...]
    error_factor: Annotated[float, Such("1 or more", lambda factor: factor >= 1)]
    file: PackedFile | None
    outcome: str | None = None
    error: str | None = None
    resources: Mapping[str, Any] | None = None
    predicted: float | None = None

    def validate(self) -> None:
        """Raise `ValueError` unless it has either a file, or an outcome and an error."""
        if {self.outcome is None, self.error is None} != {self.file is not None}:
            raise ValueError("expected a file, or an outcome and an error")


@dataclass(frozen=True)
class Limits:
    """How candidates are timed; as in `MeasureConfig` and `TuneConfig` of tuning sessions.

    A candidate may take `run_timeout` seconds by the clock, and the reference `reference_timeout`.
    """

    min_samples: Count
    max_samples: Count
    sample_seconds: Amount
    timing_seconds: Amount
    slack: Amount
    run_timeout: Amount
    reference_timeout: Amount
    finalists: Count
    margin: Amount
    rounds: Count
    final_seconds: Amount

    def timing(self, stop_above: float | None) -> TimingOptions:
        """How a candidate is timed that may be dropped once it is slower than `stop_above`."""
        return {
            "min_samples": self.min_samples,
            "max_samples": self.max_samples,
            "budget_seconds": self.timing_seconds,
            "min_sample_seconds": self.sample_seconds,
            "stop_above": stop_above,
        }


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
    seed: Annotated[int, between(0, (1 << 64) - 1)]
    positive: bool
    tolerance: Annotated[float, Such("at least 0", lambda error: error >= 0)]
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
        if data.get("format") != FORMAT:
            raise ArtifactError("no pack: expected the format {0}", FORMAT)
        if data.get("version") not in (1, VERSION):
            raise ArtifactError(
                "pack: of version {0}, expected 1 to {1}",
                show(data.get("version")),
                VERSION,
                hint="pack and measure with one version of tilewright",
            )
        outside = ("format", "version", DIGEST)
        return read(Pack, {k: v for k, v in data.items() if k not in outside}, "pack")


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
        return Pack.from_json(parse_sealed(text, str(path), COPY))
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
    if manifest.code.sha256 != file.sha256:
        raise ArtifactError(
            "{0} is not the file that was packed: expected sha256 {1}, found {2}",
            path,
            file.sha256,
            manifest.code.sha256,
            hint="copy the folder again",
        )
    return manifest, code


def load_packed(folder: Path, file: PackedFile, packed: tuple[Manifest, bytes]) -> Module:
    """The module of `read_packed`. Raises `ArtifactError` where this machine does not run it."""
    manifest, code = packed
    runtime = runtime_for(manifest.target)
    # The arguments are made here: nothing is out of range.
    return runtime.load(manifest, manifest.program, code, folder / file.name, trust_indices=True)
