"""Records as JSON lines, out and in.

    {"format": "tilewright-tuning-records", "version": 7}
    {"kind": "workload", "id": "5e88...", "value": {...}}       one line a record, parents first
    {"end": 1234}                                               how many there were

A reader takes nothing on trust: the version, the shape of every line, types, sizes, references and
digests are checked, and one bad line refuses the whole file. Nothing in it is ever executed.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sqlalchemy import Connection

from ..base.errors import DatabaseError
from ..base.files import open_regular, require_replaceable, whole_file
from ..base.text import printable, short_id
from .codec import LONGEST_LINE, from_plain
from .connect import require_short
from .read import every
from .values import (
    KINDS,
    AnyRecord,
    Json,
    Measurement,
    ScheduleRecord,
    Session,
    Workload,
    canonical_json,
    json_text,
    parse_json,
)
from .write import BATCH, write

FORMAT = "tilewright-tuning-records"
VERSION = 7
"""Of the format. Files of versions 1 to 6 are read as well, see `_upgraded`."""
_START = canonical_json({"format": FORMAT}).rstrip("}").encode()
"""The bytes that an export of any version begins with."""
_OTHERS = "pass an open file, or `-` in the shell, for what is no regular file"
_FORGOTTEN = "cost_model"
"""A kind of records in files before version 3, which nothing read."""
_ADDED: dict[str, tuple[tuple[int, str], ...]] = {
    Session.kind: ((6, "noise"), (7, "elapsed"), (7, "drift"), (7, "untuned")),
    Measurement.kind: ((5, "resources"), (6, "predicted"), (7, "elapsed"), (7, "trial")),
}
"""The versions that added fields, which are null before."""
Inexact = Callable[[str], str]
"""The inexact steps of a trace (JSON text), as a schedule's record names them."""

_log = logging.getLogger(__name__)


def export(connection: Connection, file: str | os.PathLike[str] | IO[str]) -> int:
    """See `TuningDatabase.export_lines`. Raises `DatabaseError` for a damaged record."""
    return write_export(file, lambda lines: _write_lines(connection, lines))


def write_export(file: str | os.PathLike[str] | IO[str], write_to: Callable[[IO[str]], int]) -> int:
    """The result of `write_to` for an open file, or for a new one that replaces that at a path."""
    if not isinstance(file, str | os.PathLike):
        return write_to(file)
    path = Path(os.fsdecode(file))
    require_short(str(path), "the path of an export")
    try:
        require_replaceable(path, _START, "export", DatabaseError, _OTHERS)
        with whole_file(path) as new, new.open("x", encoding="ascii", newline="\n") as lines:
            return write_to(lines)
    except OSError as error:
        raise DatabaseError("export to {0} failed: {1}", path, error) from error


def import_lines(
    connection: Connection,
    file: str | os.PathLike[str] | IO[str],
    inexact: Inexact | None = None,
) -> dict[str, int]:
    """See `TuningDatabase.import_lines`; inside the connection's transaction."""
    if not isinstance(file, str | os.PathLike):
        return _read_lines(connection, file, str(getattr(file, "name", "the export")), inexact)
    name = os.fsdecode(file)
    require_short(name, "the path of an export")
    try:
        with open_regular(Path(name), DatabaseError, _OTHERS) as (there, _):
            lines = io.TextIOWrapper(there, encoding="utf-8", newline="\n")
            return _read_lines(connection, lines, printable(name), inexact)
    except FileNotFoundError as error:
        raise DatabaseError("import of {0} failed: {1}", file, error) from error


def _write_lines(connection: Connection, lines: IO[str]) -> int:
    count = 0
    put(lines, canonical_json({"format": FORMAT, "version": VERSION}) + "\n")
    for record in every(connection):
        kind, value = record.kind, json_text(record)
        put(lines, f'{{"id":"{record.id}","kind":"{kind}","value":{value}}}\n')
        count += 1
    put(lines, canonical_json({"end": count}) + "\n")
    return count


def put(file: IO[str], text: str) -> None:
    """Write to a file that a caller has opened. Raises `DatabaseError` where that is none."""
    try:
        file.write(text)
    except (TypeError, ValueError) as error:
        raise DatabaseError(
            "export to {0} failed: {1}",
            getattr(file, "name", "the given file"),
            error,
            hint="expected an open text file",
        ) from error


def _read_lines(
    connection: Connection, lines: IO[str], name: str, inexact: Inexact | None
) -> dict[str, int]:
    reader = _Reader(lines, name, inexact)
    with reader.naming_the_line():
        counts = write(connection, reader.records(), repin=False)
    if reader.forgotten:
        _log.warning("%s: skipped %d cost models, which nothing reads", name, reader.forgotten)
    return counts


class _Reader:
    """The records of an export, and the line that an error is about."""

    def __init__(self, lines: IO[str], name: str, inexact: Inexact | None) -> None:
        self.forgotten = 0
        self._inexact = inexact
        self._lines = lines
        self._name = name
        self._number = 0
        self._version = VERSION
        # Records are written in batches: the lines of those that may still be waiting.
        self._pending: dict[str, int] = {}

    @contextmanager
    def naming_the_line(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise self._error("is not UTF-8 text", self._number + 1) from error
        except DatabaseError as error:
            number = self._pending.get(error.data.get("record", ""), self._number)
            raise self._error(str(error), number) from error

    def records(self) -> Iterator[AnyRecord]:
        self._header(self._next())
        count = 0
        while "end" not in (line := self._next()):
            count += 1
            kind = line.get("kind")
            if self._version < 3 and kind == _FORGOTTEN:
                self.forgotten += 1
                continue
            fields = {"kind", "id", "value"}
            if not isinstance(kind, str) or kind not in KINDS or line.keys() != fields:
                raise DatabaseError(
                    "expected an object with kind (one of {0}), id and value", ", ".join(KINDS)
                )
            record = _checked(KINDS[kind], line["id"], self._upgraded(kind, line["value"]))
            if len(self._pending) > 2 * BATCH:
                del self._pending[next(iter(self._pending))]
            self._pending[record.id] = self._number
            yield record
        if line != {"end": count}:
            raise DatabaseError("found {0} records, expected {1!r:.80}", count, line["end"])
        if self._lines.readline(1):
            raise DatabaseError("there is more after the end")

    def _upgraded(self, kind: str, value: Json) -> Json:
        """The fields of a record as this version has them.

        In version 1 workloads say nothing of families. Before version 3 schedules have a parent,
        which is no part of their id, and do not name their inexact steps. Before version 4 there
        are no machines, before version 5 measurements say nothing of resources, before version 6
        neither of predictions, nor sessions of noise, and before version 7 neither says how long
        was worked on it.
        """
        if not isinstance(value, dict):
            return value
        if self._version == 1 and kind == Workload.kind:
            return {"family": "", **value}
        if self._version < 3 and kind == ScheduleRecord.kind and "parent" in value:
            kept = {name: field for name, field in value.items() if name != "parent"}
            trace = kept.get("trace")
            inexact = self._inexact(trace) if self._inexact and isinstance(trace, str) else ""
            return {"inexact": inexact, **kept}
        added = [name for since, name in _ADDED.get(kind, ()) if self._version < since]
        return {**dict.fromkeys(added), **value} if added else value

    def _header(self, line: dict[str, Json]) -> None:
        if line.get("format") != FORMAT:
            raise DatabaseError(
                "not an export of tuning records: expected a first line with format {0!r}", FORMAT
            )
        version = line.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise DatabaseError(
                "written in version {0!r:.40} of the format; this version of Tilewright reads up "
                "to {1}",
                version,
                VERSION,
                hint="upgrade Tilewright",
            )
        self._version = version

    def _next(self) -> dict[str, Json]:
        text = self._lines.readline(LONGEST_LINE)
        self._number += 1
        if not text:
            raise DatabaseError("the file ends here, expected an end line", hint="it is truncated")
        if not text.endswith("\n") and len(text) == LONGEST_LINE:
            raise DatabaseError("longer than {0} characters", LONGEST_LINE)
        line = parse_json(text)
        if not isinstance(line, dict):
            raise DatabaseError("expected a JSON object, found {0}", type(line).__name__)
        return line

    def _error(self, what: str, number: int) -> DatabaseError:
        return DatabaseError("{0}, line {1}: {2}", self._name, number, what, line=number)


def _checked(kind: type[AnyRecord], id: Json, plain: Json) -> AnyRecord:
    record = from_plain(kind, plain)
    if record.id != id:
        raise DatabaseError(
            "the content of {0} {1!r} has digest {2}: it was damaged or changed",
            kind.kind,
            short_id(str(id)),
            short_id(record.id),
        )
    return record
