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
from ..base.text import printable
from .canonical import canonical_json
from .connect import require_short
from .lines import (
    FORMAT,
    NAMES_INEXACT,
    VERSION,
    Inexact,
    exported_schedule,
    next_line,
    object_of,
    record_of,
    version_of,
)
from .read import every
from .values import AnyRecord, json_text
from .write import BATCH, write

_START = canonical_json({"format": FORMAT}).rstrip("}").encode()
"""The bytes that an export of any version begins with."""
_OTHERS = "pass an open file, or `-` in the shell, for what is no regular file"
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
        # Records are written in batches: the lines of those that may still be waiting.
        self._pending: dict[str, int] = {}

    @contextmanager
    def naming_the_line(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise self._error("is not UTF-8 text", self._number) from error
        except DatabaseError as error:
            number = self._pending.get(error.data.get("record", ""), self._number)
            raise self._error(str(error), number) from error

    def records(self) -> Iterator[AnyRecord]:
        version = version_of(object_of(self._next()))
        count = 0
        while True:
            text = self._next()
            record: AnyRecord | None
            record = exported_schedule(text) if version >= NAMES_INEXACT else None
            if record is None:
                line = object_of(text)
                if "end" in line:
                    break
                record = record_of(line, version, self._inexact)
            count += 1
            if record is None:
                self.forgotten += 1
                continue
            if len(self._pending) > 2 * BATCH:
                del self._pending[next(iter(self._pending))]
            self._pending[record.id] = self._number
            yield record
        if line != {"end": count}:
            raise DatabaseError("found {0} records, expected {1!r:.80}", count, line["end"])
        if self._lines.readline(1):
            raise DatabaseError("there is more after the end")

    def _next(self) -> str:
        self._number += 1
        return next_line(self._lines)

    def _error(self, what: str, number: int) -> DatabaseError:
        return DatabaseError("{0}, line {1}: {2}", self._name, number, what, line=number)
