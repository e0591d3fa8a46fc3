"""What a tuning session tells while it runs: frozen values, one at a time, to a callback.

`program` is the position among the programs that share a budget, 0 for one alone; all of them start
before the first candidate and end after the last. `elapsed` are the seconds of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..tuning_db.values import ComparedSchedule, Outcome


@dataclass(frozen=True)
class Started:
    """A session begins.

    `done` trials of its budget are done already where it is resumed; `known` schedules of this
    program are in the database, the fastest with `best_seconds`. `flops` are of one call.
    `programs` is how many share the budget.
    """

    session: str
    workload: str
    target: str
    trials: int | None
    seconds: float | None
    done: int
    known: int
    flops: int
    best_seconds: float | None
    programs: int = 1
    program: int = 0


@dataclass(frozen=True)
class Batch:
    """The next `size` candidates are being built."""

    number: int
    size: int
    elapsed: float
    program: int = 0


@dataclass(frozen=True)
class Trial:
    """A candidate was measured, and is in the database.

    `number` counts the trials of the budget from 1. `record` says that it is the best so far, and
    checked; `best_seconds` is the best now. `error` is the reason of an outcome that is not ok.
    """

    number: int
    outcome: Outcome
    seconds: float | None
    best_seconds: float | None
    record: bool
    error: str | None
    schedule: str
    elapsed: float
    program: int = 0


@dataclass(frozen=True)
class Waiting:
    """Nothing new, about once a second while nothing is timed: a display may say that it lives."""

    what: str
    elapsed: float
    program: int = 0


@dataclass(frozen=True)
class Drift:
    """A kernel that was timed before was timed again: `ratio` is its time now over that then."""

    ratio: float
    elapsed: float
    program: int = 0


@dataclass(frozen=True)
class Final:
    """The fastest candidates were timed interleaved: how they compare, the choice first."""

    comparison: tuple[ComparedSchedule, ...]
    elapsed: float
    program: int = 0


@dataclass(frozen=True)
class Ended:
    """The session is over: `reason` says why, `interrupted` whether before its budget was used."""

    reason: str
    interrupted: bool
    trials: int
    best_seconds: float | None
    elapsed: float
    program: int = 0


Event = Started | Batch | Trial | Waiting | Drift | Final | Ended
Callback = Callable[[Event], object]


def ignore(_: Event) -> None:
    """The callback of those who do not want to know."""
