"""Records read from the lines of an export, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..base.errors import DatabaseError
from .exported import exported
from .lines import (
    VERSION,
    Inexact,
    Lines,
    next_line,
    object_of,
    record_of,
    version_of,
)
from .values import AnyRecord


class LineReader:
    """Reads an export, or a part of one.

    `number` is that of the last line read, `count` how many were of records, `forgotten` how many
    of those were of a kind that nothing reads. `end` is what the last line says, `None` before it.
    """

    def __init__(self, lines: Lines, inexact: Inexact | None = None) -> None:
        self.number = self.count = self.forgotten = 0
        self.end: object = None
        self._lines = lines
        self._inexact = inexact

    def records(self) -> Iterator[AnyRecord]:
        """All records of an export, in order. Raises `DatabaseError` for the first bad line."""
        yield from self.some(version_of(object_of(self.next_line())), lambda: True)
        require_end(self.end, self.count, more=self.has_more())

    def some(self, version: int, more: Callable[[], bool]) -> Iterator[AnyRecord]:
        """The records of lines from the next one on, to that of the end or while there are more."""
        while self.end is None and more():
            text = self.next_line()
            record: AnyRecord | None = exported(text) if version == VERSION else None
            if record is None:
                fields = object_of(text)
                if "end" in fields:
                    whole = fields.keys() == {"end"} and type(fields["end"]) is int
                    self.end = fields["end"] if whole else f"{fields['end']!r:.80}"
                    return
                record = record_of(fields, version, self._inexact)
            self.count += 1
            if record is None:
                self.forgotten += 1
            else:
                yield record

    def next_line(self) -> str:
        self.number += 1
        return next_line(self._lines)

    def has_more(self) -> bool:
        """Whether a line follows."""
        return self._lines.readline(1) != ""


def require_end(end: object, count: int, *, more: bool) -> None:
    """Raise `DatabaseError` unless the last line says how many records there were."""
    if end != count:
        raise DatabaseError("found {0} records, expected {1!r:.80}", count, end)
    if more:
        raise DatabaseError("there is more after the end")
