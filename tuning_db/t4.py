"""Records as a T4 file, out and in: the results format that tuners share.

    {"format": "tilewright-tuning-records", "version": 7,                 how to read `record`s
     "schema_version": "1.0.0",
     "results": [{"configuration": {"program": "matmul A:...", "trace": "..."},
                  "times": {"runtimes": [...]}, "invalidity": "correct", ...,
                  "record": {...}}],                                      one for a measurement
     "metadata": {"timeunit": "seconds", "records": [{"kind": "workload", ...}]}}

T4 (version 1.0.0, github.com/odgaard/TuningSchema) has parameters and times, and neither programs
nor schedules. So a configuration has the trace as text, and what else a record holds stands beside
it, where the schema allows more: nothing is lost on the way there and back. An import reads these
parts as `json_lines.py` reads its lines, with all of its checks. What other tuners wrote names no
program that could be run and compared, and is refused.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection

from ..base.errors import DatabaseError
from ..base.files import open_regular
from ..base.text import printable
from .canonical import Json, canonical_json, parse_json, parse_trace
from .connect import require_short
from .json_lines import put, reading_open_file, write_export
from .lines import FORMAT, VERSION
from .outcome import Outcome
from .read import every
from .values import KINDS, Measurement, ScheduleRecord, TargetRecord, Workload, to_plain

SCHEMA_VERSION = "1.0.0"
LARGEST = 256 << 20
"""Characters of a file: it is read as one JSON value, which takes a multiple of its size."""
_PART = 1 << 20
"""Characters that are copied at a time."""
INVALIDITY = {
    Outcome.OK: "correct",
    Outcome.ILLEGAL: "constraints",
    Outcome.BUILD_ERROR: "compile",
    Outcome.BUILD_TIMEOUT: "timeout",
    Outcome.RUN_TIMEOUT: "timeout",
    Outcome.CRASH: "runtime",
    Outcome.OUT_OF_MEMORY: "runtime",
    Outcome.WRONG_RESULT: "correctness",
}
"""What T4 calls the outcomes."""
_START = f'{{"format":"{FORMAT}","version":{VERSION},"schema_version":"{SCHEMA_VERSION}","results":'
_HINT = (
    "a T4 file of `tilewright db export --format t4` is read; what other tuners measured is no "
    "evidence here, since it names no program and schedule that could be run and checked"
)
_NO_LIMIT = "JSON lines have no such limit: `export_lines` and `import_lines`, or `--format lines`"


def export(connection: Connection, file: str | os.PathLike[str] | IO[str]) -> int:
    """See `TuningDatabase.export_t4`.

    Raises `DatabaseError` for a damaged record, and for more than an import would read. Nothing is
    written then.
    """
    if isinstance(file, str | os.PathLike):
        path = os.fsdecode(file)
        return write_export(path, lambda new: _write(connection, _Limited(new, path)))
    name = str(getattr(file, "name", "the file"))
    try:
        with tempfile.TemporaryFile("w+", encoding="ascii", newline="\n") as whole:
            count = _write(connection, _Limited(whole, name))
            whole.seek(0)
            while part := whole.read(_PART):
                put(file, part)
    except OSError as error:
        raise DatabaseError("export to {0} failed: {1}", name, error) from error
    return count


def read_t4(file: str | os.PathLike[str] | IO[str]) -> IO[str]:
    """The JSON lines of a T4 file. Raises `DatabaseError`."""
    if isinstance(file, str | os.PathLike):
        name = printable(os.fsdecode(file))
        require_short(name, "the path of an import")
        try:
            with open_regular(Path(os.fsdecode(file)), DatabaseError) as (there, _):
                text = io.TextIOWrapper(there, encoding="utf-8").read(LARGEST + 1)
        except (FileNotFoundError, UnicodeDecodeError) as error:
            raise DatabaseError("import of {0} failed: {1}", name, error) from error
    else:
        name = str(getattr(file, "name", "the file"))
        try:
            with reading_open_file():
                text = "" + file.read(LARGEST + 1)
        except DatabaseError as error:
            raise DatabaseError("import of {0} failed: {1}", name, error) from error
    if len(text) > LARGEST:
        raise DatabaseError("{0} has more than {1} characters", name, LARGEST, hint=_NO_LIMIT)
    lines = _Lines("".join(canonical_json(line) + "\n" for line in _as_lines(text, name)))
    lines.name = f"{name} as JSON lines"
    return lines


class _Lines(io.StringIO):
    """Text with a name, which errors begin with."""

    name = ""


class _Limited:
    """A file that takes as many characters as an import reads."""

    def __init__(self, file: IO[str], name: str) -> None:
        self._file, self._name = file, name
        self._left = LARGEST

    def write(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise DatabaseError(
                "{0} would have more than {1} characters, and could not be read back",
                self._name,
                LARGEST,
                hint=_NO_LIMIT,
            )
        self._file.write(text)


def _write(connection: Connection, file: _Limited) -> int:
    texts = {
        record.id: record.text
        for record in every(connection, ("workload", "target"))
        if isinstance(record, Workload | TargetRecord)
    }
    schedules = {record.id: record for record in every(connection, ("schedule",))}
    measured, count = set[str](), 0
    file.write(_START)
    for record in every(connection, ("measurement",)):
        assert isinstance(record, Measurement)
        schedule = schedules[record.schedule]
        assert isinstance(schedule, ScheduleRecord)
        file.write(",\n" if measured else "[\n")
        file.write(canonical_json(_result(record, schedule, texts)))
        measured.add(schedule.id)
        count += 1
    file.write("" if measured else "[")
    file.write('],"metadata":{"timeunit":"seconds","records":')
    separator = "[\n"
    for record in every(connection, [kind for kind in KINDS if kind != "measurement"]):
        value = to_plain(record)
        if record.id in measured:  # a configuration has it
            del value["trace"]
        line = {"kind": record.kind, "id": record.id, "value": value}
        file.write(separator + canonical_json(line))
        separator = ",\n"
        count += 1
    file.write("[]}}\n" if separator == "[\n" else "]}}\n")
    return count


def _result(measured: Measurement, schedule: ScheduleRecord, texts: Mapping[str, str]) -> Json:
    """A result of T4: its part of the record is that less the samples."""
    value = to_plain(measured)
    seconds = value["seconds"]
    timed = [] if seconds is None else [{"name": "time", "value": seconds, "unit": "s"}]
    return {
        "timestamp": value["created"],
        "configuration": {
            "program": texts[measured.workload],
            "target": texts[measured.target],
            "generator": schedule.generator,
            "trace": schedule.trace,
            **_decisions(schedule.trace),
        },
        "objectives": ["time"],
        "times": {"runtimes": value.pop("samples")},
        "invalidity": INVALIDITY[measured.outcome],
        "correctness": int(measured.outcome is Outcome.OK),
        "measurements": timed,
        "record": {"id": measured.id, "value": value},
    }


def _decisions(trace: str) -> dict[str, Json]:
    """The decisions of a trace as parameters, for those who compare configurations."""
    decided: list[Json] = []
    content = parse_trace(trace)
    for step in content.get("steps", ()) if isinstance(content, dict) else ():
        found = step.get("decision") if isinstance(step, dict) else None
        decided += found if isinstance(found, list) else ()
    return {f"decision{n}": value for n, value in enumerate(decided)}


def _as_lines(text: str, name: str) -> Iterable[Json]:
    """A T4 file as the values of JSON lines, parents first."""
    try:
        document = parse_json(text)
    except DatabaseError as error:
        raise DatabaseError("{0}: {1}", name, error) from error
    match document:
        case {
            "format": str(found),
            "version": version,
            "results": list(results),
            "metadata": {"records": list(others)},
        } if found == FORMAT:
            pass
        case {"results": list(results)}:
            raise DatabaseError(
                "{0} has {1} results of another tuner", name, len(results), hint=_HINT
            )
        case _:
            raise DatabaseError("{0} is no T4 file: expected an object with results", name)
    traces: dict[Any, Json] = {}
    measured: list[Json] = []
    for place, result in enumerate(results):
        match result:
            case {
                "configuration": {"trace": str(trace)},
                "times": {"runtimes": samples},
                "record": {"id": id, "value": {"schedule": str(schedule), **value}},
            }:
                traces[schedule] = trace
                value |= {"schedule": schedule, "samples": samples}
                measured.append({"kind": "measurement", "id": id, "value": value})
            case _:
                raise DatabaseError("{0}: results[{1}] has no record", name, place, hint=_HINT)
    lines = [*_with_traces(others, traces), *measured]
    order = {kind: rank for rank, kind in enumerate(KINDS)}
    lines.sort(key=lambda line: order.get(_kind(line), 0))
    return [{"format": FORMAT, "version": version}, *lines, {"end": len(lines)}]


def _with_traces(others: list[Json], traces: Mapping[Any, Json]) -> Iterator[Json]:
    for line in others:
        match line:
            case {"kind": "schedule", "id": str(id), "value": {**value}} if "trace" not in value:
                yield {**line, "value": {**value, "trace": traces.get(id)}}
            case _:
                yield line


def _kind(line: Json) -> str:
    kind = line.get("kind") if isinstance(line, dict) else None
    return kind if isinstance(kind, str) else ""
