"""A process that reads ranges of an export: `python -m tilewright.tuning_db.reading_process JSON`.

The file is divided into ranges of bytes; a line is of the range in which it begins. Nothing is
pickled: of each of its ranges the process says, in lines of JSON,

    {"kind": "schedule", "columns": ["id", ...], "rows": [[1, "5e88...", ...], ...], "traces": 9000}
    {"lines": 240, "count": 240, "forgotten": 0, "end": null, "more": false, "refused": null}

A row begins with its line, counted from the range's first one. So many bytes of traces follow it:
JSON would escape their quotes, and take as long as all else. At the end of the range, `refused` is
why the last of its lines was refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any, BinaryIO, NamedTuple

from ..base.errors import DatabaseError
from ..base.process import collected_later, end_with_parent
from .codec import Row, to_row
from .line_reader import LineReader
from .lines import Utf8Lines, refusal

READERS = 2
"""Processes: together they check records faster than SQLite takes the rows."""
_PIECE = 1 << 16


class Plan(NamedTuple):
    """How a file is divided. `start` is behind its first line, and `step` the bytes of a range."""

    version: int
    start: int
    size: int
    step: int

    @property
    def ranges(self) -> range:
        """Where the ranges start."""
        return range(self.start, self.size, self.step)


def main() -> None:
    """A process that reads."""
    arguments = json.loads(sys.argv[1])
    end_with_parent(arguments["parent"])
    plan = Plan(*arguments["plan"])
    with (
        os.fdopen(arguments["file"], "rb", plan.step) as file,
        suppress(BrokenPipeError),  # nobody wants to know any more
        os.fdopen(arguments["replies"], "wb") as replies,
        collected_later(),
    ):
        for start in plan.ranges[arguments["first"] :: READERS]:
            for said in read_range(file, start, plan):
                _say(said, replies)


def _say(said: dict[str, Any], replies: BinaryIO) -> None:
    traces = b""
    if "trace" in said.get("columns", ()):
        place = 1 + said["columns"].index("trace")
        traces = "\0".join([row[place] for row in said["rows"]]).encode()  # no text has a NUL
        said["traces"] = len(traces)
        for row in said["rows"]:
            row[place] = None
    replies.write(json.dumps(said).encode() + b"\n" + traces)
    replies.flush()


def read_range(file: BinaryIO, start: int, plan: Plan) -> Iterator[dict[str, Any]]:
    """What there is to say of a range: rows of a kind, those of another one, ..., the end."""
    lines = _LinesOfRange(file, start, min(start + plan.step, plan.size))
    reader = LineReader(lines)
    refused, more = None, False
    numbered: list[tuple[int, Row]] = []
    try:
        numbered.extend((reader.number, to_row(r)) for r in reader.some(plan.version, lines.more))
        more = reader.end is not None and reader.has_more()
    except (DatabaseError, UnicodeDecodeError) as error:
        refused = refusal(error)
    for kind, group in groupby(numbered, key=lambda pair: pair[1].kind):
        rows = [(number, row.columns) for number, row in group]
        yield {
            "kind": kind,
            "columns": list(rows[0][1]),
            "rows": [[number, *columns.values()] for number, columns in rows],
        }
    yield {
        "lines": reader.number,
        "count": reader.count,
        "forgotten": reader.forgotten,
        "end": reader.end,
        "more": more,
        "refused": refused,
    }


class _LinesOfRange(Utf8Lines):
    """The lines that begin in a range of a file, which is not its first line."""

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        super().__init__(file)
        self._end = end
        file.seek(start - 1)
        while self.more():  # the rest of a line that begins before
            piece = file.readline(_PIECE)
            if piece.endswith(b"\n") or not piece:
                break

    def more(self) -> bool:
        return self._file.tell() < self._end


if __name__ == "__main__":
    main()
