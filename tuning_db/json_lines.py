"""Records as JSON lines, out and in.

    {"format": "tilewright-tuning-records", "version": 2}
    {"kind": "workload", "id": "5e88...", "value": {...}}       one line a record, parents first
    {"end": 1234}                                               how many there were

A reader takes nothing on trust: the version, the shape of every line, types, sizes, references and
digests are checked, and one bad line refuses the whole file. Nothing in it is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sqlalchemy import Connection

from ..errors import DatabaseError
from .codec import LONGEST_LINE, from_plain
from .read import scan
from .values import KINDS, AnyRecord, Json, Workload, canonical_json, parse_json, to_plain
from .write import BATCH, write

FORMAT = "tilewright-tuning-records"
VERSION = 2
"""Of the format. Files of version 1, which are read as well, say nothing of families."""


def export(connection: Connection, file: str | os.PathLike[str] | IO[str]) -> int:
    """Write every record of a database; return how many. A path is replaced only when complete.

    Raises `DatabaseError` for a damaged record, which no import takes.
    """
    if not isinstance(file, str | os.PathLike):
        return _write_lines(connection, file)
    path = Path(file)
    if path.exists() and not path.is_file():
        raise DatabaseError(
            "export to {0} failed: it is there, and no regular file",
            path,
            hint="pass an open file, or `-` in the shell, for what is not to be replaced",
        )
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="ascii", newline="\n") as lines:
            count = _write_lines(connection, lines)
        partial.replace(path)
    except OSError as error:
        raise DatabaseError("export to {0} failed: {1}", path, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def import_lines(connection: Connection, file: str | os.PathLike[str] | IO[str]) -> dict[str, int]:
    """Write the records of an export inside the connection's transaction.

    Returns how many of each kind were new. Raises `DatabaseError` that names the line.
    """
    if not isinstance(file, str | os.PathLike):
        return _read_lines(connection, file, str(getattr(file, "name", "the export")))
    try:
        with Path(file).open(encoding="utf-8", newline="\n") as lines:
            return _read_lines(connection, lines, str(file))
    except OSError as error:
        raise DatabaseError("import of {0} failed: {1}", file, error) from error


def every(connection: Connection) -> Iterator[AnyRecord]:
    """Every record of a database, parents first. Raises `DatabaseError` for a damaged one."""
    for kind in KINDS.values():
        yield from scan(connection, kind)


def _write_lines(connection: Connection, lines: IO[str]) -> int:
    count = 0
    lines.write(canonical_json({"format": FORMAT, "version": VERSION}) + "\n")
    for record in every(connection):
        line = {"kind": record.kind, "id": record.id, "value": to_plain(record)}
        lines.write(canonical_json(line) + "\n")
        count += 1
    lines.write(canonical_json({"end": count}) + "\n")
    return count


def _read_lines(connection: Connection, lines: IO[str], name: str) -> dict[str, int]:
    reader = _Reader(lines, name)
    with reader.naming_the_line():
        return write(connection, reader.records(), repin=False)


class _Reader:
    """The records of an export, and the line that an error is about."""

    def __init__(self, lines: IO[str], name: str) -> None:
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
            fields = {"kind", "id", "value"}
            if not isinstance(kind, str) or kind not in KINDS or line.keys() != fields:
                raise DatabaseError(
                    "expected an object with kind (one of {0}), id and value", ", ".join(KINDS)
                )
            value = line["value"]
            if self._version == 1 and kind == Workload.kind and isinstance(value, dict):
                value = {"family": "", **value}
            record = _checked(KINDS[kind], line["id"], value)
            if len(self._pending) > 2 * BATCH:
                del self._pending[next(iter(self._pending))]
            self._pending[record.id] = self._number
            yield record
        if line != {"end": count}:
            raise DatabaseError("found {0} records, expected {1!r:.80}", count, line["end"])
        if self._lines.readline(1):
            raise DatabaseError("there is more after the end")

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
            "the content of {0} {1!r:.20} has digest {2:.12}: it was damaged or changed",
            kind.kind,
            id,
            record.id,
        )
    return record
