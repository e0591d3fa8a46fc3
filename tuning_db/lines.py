"""Lines of JSON with a record each, read with distrust: types, sizes, sense and digests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO, Protocol, TypeAlias

from ..base.errors import DatabaseError
from ..base.text import short_id
from .canonical import Json, parse_json
from .codec import LONGEST_LINE, from_plain
from .values import KINDS, AnyRecord, Measurement, ScheduleRecord, Session, Workload

FORMAT = "tilewright-tuning-records"
VERSION = 7
"""Of the format. Files of versions 1 to 6 are read as well."""
NAMES_INEXACT = 3
"""The first version whose schedules name their inexact steps."""
Inexact: TypeAlias = Callable[[str], str]
"""The inexact steps of a trace (JSON text), as a schedule's record names them."""
_FORGOTTEN = "cost_model"
"""A kind of records in files before version 3, which nothing read."""
_ADDED: dict[str, tuple[tuple[int, str, str | None], ...]] = {
    Workload.kind: ((2, "family", ""),),
    Session.kind: ((6, "noise", None), (7, "elapsed", None), (7, "drift", None),
                   (7, "untuned", None)),
    Measurement.kind: ((5, "resources", None), (6, "predicted", None), (7, "elapsed", None),
                       (7, "trial", None)),
}  # fmt: skip
"""The versions that added fields, and what these are before."""


class Lines(Protocol):
    """What lines are read from, such as a text file."""

    def readline(self, size: int = -1, /) -> str:
        """The next line, of at most `size` characters; nothing at the end."""


class Utf8Lines:
    """The lines of a file of bytes: each is decoded alone, so that the first bad one is known."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readline(self, size: int = -1, /) -> str:
        """As `Lines` says, of `size` bytes at most. Raises `UnicodeDecodeError`."""
        return self._file.readline(size).decode()


def next_line(file: Lines) -> str:
    """The next line of a file. Raises `DatabaseError` at its end, and for one that is too long."""
    line = file.readline(LONGEST_LINE)
    if not line:
        raise ends_here()
    if not line.endswith("\n") and len(line) == LONGEST_LINE:
        raise DatabaseError("longer than {0} characters", LONGEST_LINE)
    return line


def ends_here() -> DatabaseError:
    return DatabaseError("the file ends here, expected an end line", hint="it is truncated")


def refusal(error: DatabaseError | UnicodeDecodeError) -> str:
    """Why a line is refused."""
    return "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def object_of(line: str) -> dict[str, Json]:
    """The object of a line. Raises `DatabaseError` for anything else."""
    fields = parse_json(line)
    if not isinstance(fields, dict):
        raise DatabaseError("expected a JSON object, found {0}", type(fields).__name__)
    return fields


def version_of(header: Mapping[str, Json]) -> int:
    """The version of a file with this first line. Raises `DatabaseError` for one of another."""
    if header.get("format") != FORMAT:
        raise DatabaseError(
            "not an export of tuning records: expected a first line with format {0!r}", FORMAT
        )
    version = header.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise DatabaseError(
            "written in version {0!r:.40} of the format; this version of Tilewright reads up to "
            "{1}",
            version,
            VERSION,
            hint="upgrade Tilewright",
        )
    return version


def record_of(
    fields: Mapping[str, Json], version: int, inexact: Inexact | None
) -> AnyRecord | None:
    """The record of a line of a version; `None` for one of a kind that nothing reads any more."""
    kind = fields.get("kind")
    if kind == _FORGOTTEN and version < NAMES_INEXACT:
        return None
    if not isinstance(kind, str) or kind not in KINDS or fields.keys() != {"kind", "id", "value"}:
        raise DatabaseError(
            "expected an object with kind (one of {0}), id and value", ", ".join(KINDS)
        )
    value, id = fields["value"], fields["id"]
    if version < VERSION and isinstance(value, dict):
        value = _of_today(kind, value, version, inexact)
    record = from_plain(KINDS[kind], value)
    if record.id != id:
        raise DatabaseError(
            "the content of {0} {1!r} has digest {2}: it was damaged or changed",
            kind,
            short_id(str(id)),
            short_id(record.id),
        )
    return record


def _of_today(
    kind: str, value: Mapping[str, Json], version: int, inexact: Inexact | None
) -> dict[str, Json]:
    """The fields of a record of an older version.

    Schedules had a parent, which is no part of their id, before they named inexact steps.
    """
    if kind == ScheduleRecord.kind and version < NAMES_INEXACT and "parent" in value:
        trace = value.get("trace")
        steps = inexact(trace) if inexact is not None and isinstance(trace, str) else ""
        value = {name: field for name, field in value.items() if name != "parent"}
        return {"inexact": steps, **value}
    added = {name: before for since, name, before in _ADDED.get(kind, ()) if version < since}
    return {**added, **value}
