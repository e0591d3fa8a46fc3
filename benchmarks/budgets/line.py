"""A line of the table, and what the machine is worth: loops that are timed beside the lines."""

from __future__ import annotations

import resource
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Line:
    """A budget and what was measured, in `unit`; without a budget it is for information.

    What cannot be measured on this machine is `None`, and left out.
    `reference` names the loop that does similar work, if one does. `machine` is how many times as
    long that took here as on the machine of the reference.
    """

    what: str
    budget: float | None
    measured: float | None
    unit: str
    reference: str | None = None
    machine: float | None = None

    @property
    def share(self) -> float | None:
        if self.budget is None or self.measured is None:
            return None
        return self.measured / self.budget


@dataclass(frozen=True)
class Settings:
    """How much is done: `trials` of the session, `records` to look up among, `size` of matrices."""

    trials: int = 64
    records: int = 1_000_000
    size: int = 1024
    repeats: int = 15


def build_records() -> None:
    """The reference in Python: small objects are made, and looked up by type and by identity."""
    known: dict[object, int] = {}
    for number in range(2000):
        record = Line("record", None, float(number), "ms")
        known[record.unit, number] = len(known) if type(record) in _KINDS else 0


_KINDS = {Line: 0}
_TEXT = bytes((n * n // 7 + n // 64) % 251 for n in range(1 << 16))
REFERENCES: dict[str, tuple[Callable[[], object], float]] = {
    "Python": (build_records, 1.5e-3),
    "C": (partial(zlib.compress, _TEXT, 9), 1.25e-3),
}
"""Loops, and the processor seconds that they take on the machine of the reference."""


def paced(run: Callable[[Settings], Iterator[Line]], settings: Settings) -> list[Line]:
    """The lines of a group, with what the reference loops took around it."""

    def times() -> dict[str, float]:
        return {name: median(loop, 15) / usual for name, (loop, usual) in REFERENCES.items()}

    before, lines, after = times(), list(run(settings)), times()
    return [
        line
        if line.reference is None
        else replace(line, machine=(before[line.reference] + after[line.reference]) / 2)
        for line in lines
    ]


def median(run: Callable[[], Any], repeats: int) -> float:
    """The median of the processor seconds of `repeats` calls, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return statistics.median(times)


def with_children(run: Callable[[], object]) -> float:
    """The processor seconds of a call, those of the processes that it started included."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    run()
    after, spent = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time() - began
    return spent + after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
