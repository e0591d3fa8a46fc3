"""Records as JSON lines, out and in.

    {"format": "tilewright-tuning-records", "version": 7}
    {"kind": "workload", "id": "5e88...", "value": {...}}       one line a record, parents first
    {"end": 1234}                                               how many there were

A reader takes nothing on trust: the version, the shape of every line, types, sizes, references and
digests are checked, and one bad line refuses the whole file. Nothing in it is ever executed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from sqlalchemy import Connection

from ..base.errors import DatabaseError
from ..base.files import open_regular, require_replaceable, whole_file
from ..base.text import printable
from .canonical import canonical_json
from .codec import LONGEST_LINE, Row
from .connect import require_short
from .line_reader import LineReader
from .lines import FORMAT, VERSION, Inexact, Utf8Lines, object_of, refusal, version_of
from .range_reader import RangeReader, range_reader
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


@contextmanager
def ready_to_import(file: str | os.PathLike[str] | IO[str]) -> Iterator[Path]:
    """A path from which `file` can be read without waiting for whoever writes it.

    What is open, such as a pipe, is copied to its end, into a temporary file: others write to the
    database meanwhile. Raises `DatabaseError` as `import_lines` does.
    """
    if isinstance(file, str | os.PathLike):
        require_short(os.fsdecode(file), "the path of an export")
        yield Path(os.fsdecode(file))
        return
    try:
        folder = TemporaryDirectory()
    except OSError as error:
        raise DatabaseError("import of {0} failed: {1}", name_of(file), error) from error
    with folder:
        path = Path(folder.name, "records.jsonl")
        _copy(file, path)
        yield path


def _copy(file: IO[str], path: Path) -> None:
    """Copy the lines of an open file: up to the first one, if that begins no export, and to one
    that is longer than any. Raises `DatabaseError`."""
    number = 0
    try:
        # A surrogate, which is no text, is refused where the copy is read.
        with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as copy:
            while True:
                number += 1
                with reading_open_file():
                    line = "" + file.readline(LONGEST_LINE)
                copy.write(line)
                cut = len(line) >= LONGEST_LINE and not line.endswith("\n")
                if not line or cut or (number == 1 and not _begins(line)):
                    return
    except DatabaseError as error:
        raise DatabaseError(
            "{0}, line {1}: {2}", name_of(file), number, error, line=number
        ) from error
    except OSError as error:
        raise DatabaseError("import of {0} failed: {1}", name_of(file), error) from error


def _begins(line: str) -> bool:
    try:
        version_of(object_of(line))
    except DatabaseError:  # whoever reads the copy says why
        return False
    return True


def import_lines(
    connection: Connection, path: Path, name: str, inexact: Inexact | None
) -> dict[str, int]:
    """See `TuningDatabase.import_lines`; inside the connection's transaction."""
    try:
        with open_regular(path, DatabaseError, _OTHERS) as (there, size):
            by_processes = range_reader(path, there, size)
            if by_processes is not None:
                with by_processes:
                    return _write_records(connection, by_processes, name)
            return _write_records(connection, LineReader(Utf8Lines(there), inexact), name)
    except FileNotFoundError as error:
        raise DatabaseError("import of {0} failed: {1}", name, error) from error


def name_of(file: str | os.PathLike[str] | IO[str]) -> str:
    """What messages call a file that is read."""
    if isinstance(file, str | os.PathLike):
        return printable(os.fsdecode(file))
    return str(getattr(file, "name", "the export"))


@contextmanager
def reading_open_file() -> Iterator[None]:
    """Raise `DatabaseError` for whatever a file raises that a caller has opened."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DatabaseError("{0}", refusal(error)) from error
    except Exception as error:  # of a file that is closed, of bytes, compressed, of a network
        raise DatabaseError(
            "cannot be read: {0}", error, hint="expected an open text file"
        ) from error


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


def _write_records(
    connection: Connection, reader: LineReader | RangeReader, name: str
) -> dict[str, int]:
    # Records are written in batches: the lines of those that may still be waiting.
    pending: dict[str, int] = {}
    try:
        counts = write(connection, _noting(reader, pending), repin=False)
    except (DatabaseError, UnicodeDecodeError) as error:
        record = error.data.get("record", "") if isinstance(error, DatabaseError) else ""
        number = pending.get(record, reader.number)
        raise DatabaseError(
            "{0}, line {1}: {2}", name, number, refusal(error), line=number
        ) from error
    if reader.forgotten:
        _log.warning("%s: skipped %d cost models, which nothing reads", name, reader.forgotten)
    return counts


def _noting(reader: LineReader | RangeReader, pending: dict[str, int]) -> Iterator[AnyRecord | Row]:
    """The records of a reader, whose lines are kept for a while."""
    for record in reader.records():
        if len(pending) > 2 * BATCH:
            del pending[next(iter(pending))]
        pending[record.id] = reader.number
        yield record
