"""Which schedules of records apply to the programs of their records, remembered on disk.

To replay a schedule takes longer than to look one up, and loads all that schedules programs. The
answer depends on the texts of the program and the trace and on the sources of this package. It is
for processes in which no user has registered primitives or instructions.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import TilewrightError
from ...codegen.disk_cache import DiskCache, location, sources_digest
from ...tuning_db.values import ScheduleRecord, Workload

if TYPE_CHECKING:
    from .replay import Replays

KIND = "verdict"
LIMIT_BYTES = 4 << 20
_VERSION = 1
_ENTRY_BYTES = 4096
_SOURCES = (
    "autotune/search/replay.py",
    "schedule/**/*.py",
    "tir/**/*.py",
    "base/dtypes.py",
    "base/errors.py",
    "target/*.py",
)


def replays_of(workload: Workload) -> Replays | None:
    """Decides which schedules apply to the program of a record; `None` if that cannot be read."""
    from ...tir.parser import parse
    from .replay import Replays

    try:
        return Replays(parse(workload.ir))
    except TilewrightError:
        return None


class RememberedReplays:
    """`replays_of(workload)`, for `TuningDatabase.best`, whose answers are remembered on disk."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._replays: list[Replays | None] = []  # one, where one was needed

    def __call__(self, record: ScheduleRecord) -> str | None:
        """The reason why a schedule does not apply; `None` if it does."""
        folder = location(os.environ, KIND)
        if folder is None:
            return self._decided(record)
        verdicts = _shared(folder)
        name = _name(self._workload, record)
        reason = verdicts.get(name, lambda content: content.decode("utf-8", "replace"))
        if reason is None:
            reason = self._decided(record) or ""
            verdicts.put(name, reason.encode())
        return reason or None

    def _decided(self, record: ScheduleRecord) -> str | None:
        if not self._replays:
            self._replays.append(replays_of(self._workload))
        (replays,) = self._replays
        return None if replays is None else replays(record)


def _name(workload: Workload, record: ScheduleRecord) -> str:
    """The digest (SHA-256, hex) of what determines the answer."""
    parts = (sources_digest(*_SOURCES), workload.ir, record.trace, record.inexact)
    lengths = " ".join(str(len(part)) for part in parts)
    return hashlib.sha256("\0".join((lengths, *parts)).encode("utf-8", "replace")).hexdigest()


@cache
def _shared(folder: Path) -> DiskCache:
    return DiskCache(folder, KIND, _VERSION, LIMIT_BYTES, _ENTRY_BYTES)
