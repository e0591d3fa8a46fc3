"""A large export read by processes beside this one, which check its records.

This process reads the first ranges of the file while the others start, which take the rest in
turns. It goes through what was read in the order of the file, so that it sees the same records and
the same first error as if it had read all by itself.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from ..base.errors import DatabaseError
from ..base.files import open_regular
from ..base.process import NO_NUMPY_THREADS, search_path
from .codec import Row
from .line_reader import require_end
from .lines import NAMES_INEXACT, ends_here, object_of, version_of
from .reading_process import READERS, Plan, read_range

_log = logging.getLogger(__name__)

SMALLEST = 16_000_000
"""Bytes of a file from which on it is worth the start of processes: 0.1 s for each."""
RANGE = 1 << 18
OWN = 32
"""Ranges that this process reads."""
_HEADER = 1000
_PIPE = 1 << 20
"""Bytes that wait in a pipe: what was read while this process writes."""


def range_reader(path: Path, file: BinaryIO, size: int) -> RangeReader | None:
    """The reader of a file by processes; `None` where this process alone is to read it.

    So it is for a small file, on a machine with one processor, and for a version of the format with
    schedules that this process has to ask about. `file` is the open one, and stays where it is.
    """
    known = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    if size < SMALLEST or processors == 1 or not sys.executable:
        return None
    header = file.readline(_HEADER)
    file.seek(0)
    if not header.endswith(b"\n"):
        return None
    try:
        version = version_of(object_of(header.decode()))
    except (DatabaseError, UnicodeDecodeError):
        return None  # whoever reads it says why
    if version < NAMES_INEXACT:
        return None
    try:
        return RangeReader(path, file, Plan(version, len(header), size, RANGE))
    except _NotStartedError as error:
        _log.warning("%s is read by one process: %s", path, error)
        return None


class _NotStartedError(Exception):
    """There is no memory for another process, or a user has too many."""


class _EndedError(Exception):
    """A process ended before it had said all of a range."""


class RangeReader:
    """Reads an export as `LineReader` does, by processes that end with the context."""

    def __init__(self, path: Path, file: BinaryIO, plan: Plan) -> None:
        self.number, self.forgotten = 1, 0
        self._path = path
        self._file = file
        self._plan = plan
        with ExitStack() as opened:
            self._replies: list[BinaryIO | None] = [
                opened.enter_context(_reading(path, file, plan, OWN + n)) for n in range(READERS)
            ]
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def records(self) -> Iterator[Row]:
        """All records of an export, in order. Raises `DatabaseError` for the first bad line."""
        count = 0
        for n, start in enumerate(self._plan.ranges):
            heard = None if n < OWN else self._heard((n - OWN) % READERS)
            before = self.number
            for said in heard or read_range(self._file, start, self._plan):
                if "rows" in said:
                    for line, *values in said["rows"]:
                        self.number = before + line
                        columns = dict(zip(said["columns"], values, strict=True))
                        yield Row(said["kind"], columns["id"], columns)
                    continue
                self.number = before + said["lines"]
                self.forgotten += said["forgotten"]
                count += said["count"]
                if said["refused"] is not None:
                    raise DatabaseError("{0}", said["refused"])
                if said["end"] is not None:
                    require_end(said["end"], count, more=said["more"])
                    return
        self.number += 1
        raise ends_here()

    def _heard(self, reader: int) -> list[dict[str, Any]] | None:
        """What a process says of its next range; `None` if it has ended."""
        replies = self._replies[reader]
        if replies is None:
            return None
        try:
            return list(_heard(replies))
        except _EndedError:
            _log.warning("%s: a process that reads it ended; this one goes on", self._path)
            self._replies[reader] = None
            return None


@contextmanager
def _reading(path: Path, file: BinaryIO, plan: Plan, first: int) -> Iterator[BinaryIO]:
    """What a process says of ranges, from the `first` on; the process ends with the context."""
    with open_regular(path, DatabaseError) as (again, _), ExitStack() as opened:
        if not os.path.samestat(os.fstat(file.fileno()), os.fstat(again.fileno())):
            raise DatabaseError("{0} was replaced while it was opened", path, hint="try again")
        ours, theirs = os.pipe()
        replies = opened.enter_context(os.fdopen(ours, "rb"))
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # a user may have too many pipes
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE)
        arguments = {
            "parent": os.getpid(),
            "file": again.fileno(),
            "replies": theirs,
            "plan": plan,
            "first": first,
        }
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    f"{__package__}.reading_process",
                    json.dumps(arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs, again.fileno()],
                env={**os.environ, **NO_NUMPY_THREADS, "PYTHONPATH": search_path()},
                start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
            )
        except OSError as error:
            raise _NotStartedError(error) from error
        finally:
            os.close(theirs)
        opened.callback(process.wait)
        opened.callback(process.kill)
        yield replies


def _heard(replies: BinaryIO) -> Iterator[dict[str, Any]]:
    """What a process says of a range."""
    while True:
        line = replies.readline()
        said: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        size = said.pop("traces", 0)
        traces = replies.read(size)
        if not said or len(traces) < size:
            raise _EndedError
        if size:
            for row, trace in zip(said["rows"], traces.decode().split("\0"), strict=True):
                row[1 + said["columns"].index("trace")] = trace
        yield said
        if "lines" in said:
            return
