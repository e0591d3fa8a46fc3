"""The results of a pack, a line at a time: what was written stays, whatever ends the process.

    {"kind": "pack", "pack": {...}}                          what was measured, all of pack.json
    {"kind": "run", "number": 0, "machine": {...}, ...}      a run of the command begins
    {"kind": "candidate", "run": 0, "candidate": 7, "outcome": "ok", "samples": [...], ...}
    {"kind": "finals", "run": 0, "samples": {"7": [...], ...}}

Each line has a digest of itself and of the line before it: a line that was changed, left out or
moved is found. A last line without its end was being written when the process ended, and is
dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

from ...base.checked_json import DIGEST, Such, between, parse_sealed, reader, sealed
from ...base.durations import LONGEST, SHORTEST
from ...base.errors import ArtifactError
from ...base.files import open_regular
from ...base.text import short_id
from .pack import COPY, MAX_BYTES, Pack

FORMAT = "tilewright-measure-results"
VERSION = 1
_MEASURE = "python -m tilewright.runtime.measure FOLDER --out FILE writes them"
Seconds: TypeAlias = Annotated[float, between(SHORTEST, LONGEST)]
_Error: TypeAlias = Annotated[float, Such("0 or more", lambda error: error >= 0)]
_BEGINNING = b'{"digest":"'


@dataclass
class Results:
    """The lines of a file: runs, candidates by number, and the finals in their order."""

    pack: Pack
    digest: str
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    candidates: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    finals: list[Mapping[str, Any]] = field(default_factory=list)
    cut: bool = False

    @property
    def missing(self) -> list[int]:
        """The candidates that were built and have no result yet."""
        built = (n for n, c in enumerate(self.pack.candidates) if c.file is not None)
        return [n for n in built if n not in self.candidates]

    @property
    def timed(self) -> dict[int, float]:
        """The seconds of the candidates that ran, the fastest first."""
        found = {n: r["seconds"] for n, r in self.candidates.items() if r["outcome"] == "ok"}
        return dict(sorted(found.items(), key=lambda pair: pair[1]))

    @property
    def accepted(self) -> dict[int, float]:
        """Those of `timed` that may be the best: inexact ones have errors within the tolerance."""
        return {n: seconds for n, seconds in self.timed.items() if self._is_accepted(n)}

    def _is_accepted(self, number: int) -> bool:
        if self.pack.candidates[number].error_factor == 1.0:
            return True
        limit = self.pack.accepted_error
        return limit is not None and self.candidates[number]["check"]["max_error"] <= limit

    def add(self, line: Mapping[str, Any], what: str) -> None:
        """Take in a line after the first. Raises `ArtifactError` where it makes no sense."""
        kind, digest = line.get("kind"), line[DIGEST]
        try:
            datetime.fromisoformat(line["created"])
            if kind == "run":
                if line["number"] != len(self.runs) or not isinstance(line["machine"], dict):
                    raise ValueError("a run out of order")
                datetime.fromisoformat(line["started"])
                self.runs.append(line)
            elif kind == "candidate":
                self._check_candidate(line)
                self.candidates[line["candidate"]] = line
            elif kind == "finals":
                self._check_finals(line)
                self.finals.append(line)
            else:
                raise ValueError(f"a line of kind {kind!r:.40}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError("{0} makes no sense: {1}", what, error) from error
        self.digest = digest

    def _check_candidate(self, line: Mapping[str, Any]) -> None:
        number = line["candidate"]
        if type(number) is not int or number not in self.missing:
            raise ValueError(f"candidate {number!r:.40} is none that is left to measure")
        self._check_run(line)
        if "check" in line:
            _require_check(line["check"])
        if line["outcome"] == "ok":
            _require_samples(line["samples"])
            passed, error = line["check"]["passed"], line["check"]["max_error"]
            if not passed or error is None or error > line["check"]["tolerance"]:
                raise ValueError("a time without a check that passed")
            if line["seconds"] != statistics.median(line["samples"]):
                raise ValueError("seconds that are not the median of the samples")
        elif not isinstance(line["error"], str):
            raise ValueError("a failure without a reason")

    def _check_finals(self, line: Mapping[str, Any]) -> None:
        self._check_run(line)
        if not isinstance(line["samples"], dict) or not line["samples"]:
            raise ValueError("finals without samples")
        if not line["samples"].keys() <= {str(n) for n in self.timed}:
            raise ValueError("finals of candidates that did not run")
        for row in line["samples"].values():
            _require_samples(row)

    def _check_run(self, line: Mapping[str, Any]) -> None:
        if type(line["run"]) is not int or not 0 <= line["run"] < len(self.runs):
            raise ValueError("a line of no run")


@dataclass(frozen=True)
class PlainCheck:
    """A `CheckResult.to_json`."""

    passed: bool
    max_error: _Error | None
    tolerance: _Error
    error: str | None


_require_check = reader(PlainCheck)
_require_samples = reader(Annotated[list[Seconds], Such("some samples", bool)])


def read_results(path: Path) -> Results:
    """The results in a file. Raises `ArtifactError` for a file that is damaged, or none."""
    try:
        with open_regular(path) as (file, _):
            return _parsed(_text(file, path), path)[0]
    except FileNotFoundError as error:
        raise ArtifactError("cannot read {0}: {1}", path, error.strerror) from error


class ResultsFile:
    """A file of results, open for more lines. Only one process has it open."""

    def __init__(self, file: FileIO, path: Path, results: Results) -> None:
        self._file, self._path, self.results = file, path, results

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line; it is on disk when this returns. Raises `ArtifactError`."""
        written = sealed({**line, "created": now()}, self.results.digest)
        self.results.add(json.loads(json.dumps(written)), str(self._path))
        _write(self._file, written, self._path)


@contextmanager
def results_of(path: Path, pack: Pack) -> Iterator[ResultsFile]:
    """The file of a pack's results: a new one, or one that goes on.

    Raises `ArtifactError` for results of another pack and for a damaged file, which stay as they
    are, and where another process writes to it.
    """
    try:
        # Without a buffer nothing is left to be written when it is closed. Nobody waits for a pipe.
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        file = open(descriptor, "a+b", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise ArtifactError("cannot write {0}: {1}", path, error.strerror or error) from error
    with file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ArtifactError("{0} is no regular file, expected one for results", path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArtifactError("{0} is being written by another process", path) from None
        except OSError:
            pass  # some network file systems have no locks
        text = _text(file, path)
        if b"\n" not in text:
            _require_new(text, path)
            file.truncate(0)
            first = sealed(
                {"kind": "pack", "format": FORMAT, "version": VERSION, "pack": pack.to_json()}
            )
            _write(file, first, path)
            yield ResultsFile(file, path, Results(pack, first[DIGEST]))
            return
        results, end = _parsed(text, path)
        if results.pack.digest != pack.digest:
            raise ArtifactError(
                "{0} has the results of another pack: expected {1}, found {2}",
                path,
                short_id(pack.digest),
                short_id(results.pack.digest),
                hint="name another file with --out",
            )
        file.truncate(end)
        yield ResultsFile(file, path, results)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _require_new(text: bytes, path: Path) -> None:
    """Refuse what has no whole line, unless its first line was being written."""
    if not _BEGINNING.startswith(text[: len(_BEGINNING)]):
        raise ArtifactError("{0} is there, and has no results", path, hint="name another file")


def _text(file: IO[bytes], path: Path) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > 4 * MAX_BYTES:
        raise ArtifactError("{0} has more than {1} bytes", path, 4 * MAX_BYTES)
    file.seek(0)
    return file.read(size)


def _parsed(text: bytes, path: Path) -> tuple[Results, int]:
    """The results, and where the last whole line ends."""
    end = text.rfind(b"\n") + 1
    lines = text[:end].splitlines()
    if not lines:
        raise ArtifactError("{0} has no results", path, hint=_MEASURE)
    first = parse_sealed(lines[0], f"{path}, line 1", COPY)
    if first.get("format") != FORMAT or first.get("version") != VERSION:
        raise ArtifactError(
            "{0} has no results: expected the format {1}, version {2}",
            path,
            FORMAT,
            VERSION,
            hint=_MEASURE,
        )
    given = first.get("pack")
    packed = parse_sealed(json.dumps(given).encode(), f"{path}, line 1: the pack", COPY)
    results = Results(Pack.from_json(packed), first[DIGEST])
    for number, line in enumerate(lines[1:], 2):
        what = f"{path}, line {number}"
        results.add(parse_sealed(line, what, COPY, results.digest), what)
    results.cut = end < len(text)
    return results, end


def _write(file: FileIO, line: Mapping[str, Any], path: Path) -> None:
    text = json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    try:
        while text:
            text = text[file.write(text) :]
        os.fsync(file.fileno())
    except OSError as error:
        raise ArtifactError("cannot write {0}: {1}", path, error.strerror or error) from error
