"""The events of a tuning session: frozen values, passed to a callback while it runs.

`program` is the position among the programs that share a budget, 0 for one alone; all of them start
before the first candidate and end after the last. A run that is interrupted while it is prepared
sends none. `elapsed` is the duration of the program's own session, with that of the calls that this
one continues, as the database has it. `budget_elapsed` are the seconds of all programs, which the
budget limits; `None` if a database was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...base.durations import MeasuredTime, format_ratio, format_seconds
from ...base.text import count, excerpt, short_id
from ...tuning_db.gains import Gains
from ...tuning_db.results import ComparedSchedule
from ...tuning_db.values import Outcome

_TEXT = 40
"""Characters of a name or of the reason of a failure that `repr` tells."""


@dataclass(frozen=True)
class Started:
    """A session begins.

    `done` is the number of trials that a resumed session has spent. `known` is the number of
    schedules of this program in the database, `best_seconds` the time of the fastest. `flops` are
    those of one call. `programs` is the number of programs that share the budget.
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

    def __repr__(self) -> str:
        return f"<Started {short_id(self.session)}: {excerpt(self.workload, _TEXT)}>"


@dataclass(frozen=True)
class Batch:
    """The next `size` candidates are being built."""

    number: int
    size: int
    elapsed: float
    program: int = 0
    budget_elapsed: float | None = None

    def __repr__(self) -> str:
        return f"<Batch {self.number}: {count(self.size, 'candidate')}>"


@dataclass(frozen=True)
class Trial:
    """A candidate was measured, and is in the database.

    `number` counts the trials of the budget from 1. `record` is set if it is checked and the best
    so far. `best_seconds` is the best time now. `error` is the reason of an outcome that is not ok.
    `predicted` is the time in seconds that the cost model expected, `None` if it was not asked.
    `disturbed` says whether its samples show that something disturbed it, `None` if they are few.
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
    predicted: float | None = None
    disturbed: bool | None = None
    budget_elapsed: float | None = None

    def __repr__(self) -> str:
        time = None if self.seconds is None else format_seconds(self.seconds)
        return f"<Trial {self.number}: {self.outcome}, {time or excerpt(self.reason, _TEXT)}>"

    @property
    def reason(self) -> str:
        """The first line of its error, by which failures are counted; empty without one."""
        return (self.error or "").strip().partition("\n")[0]


@dataclass(frozen=True)
class Waiting:
    """Sent about once a second while nothing is timed, so that a display can show activity."""

    what: str
    elapsed: float
    program: int = 0
    budget_elapsed: float | None = None

    def __repr__(self) -> str:
        return f"<Waiting: {excerpt(self.what, _TEXT)}>"


@dataclass(frozen=True)
class Drift:
    """A kernel was timed again: `ratio` is its time now over its first time.

    With `finals`, it is the time of the finalists over that of their trials.
    """

    ratio: float
    elapsed: float
    program: int = 0
    finals: bool = False
    budget_elapsed: float | None = None

    def __repr__(self) -> str:
        of = " of the finals" if self.finals else ""
        return f"<Drift {format_ratio(self.ratio, 3)}{of}>"


@dataclass(frozen=True)
class Final:
    """The fastest candidates were timed interleaved: how they compare, the choice first.

    `gains` are those of the choice over the program as written and the untuned build.
    `trial_seconds` is the time of the fastest trial of this session, `None` if none ran. An empty
    `comparison` says that the finals do not count: another time of the session is less.
    """

    comparison: tuple[ComparedSchedule, ...]
    elapsed: float
    program: int = 0
    gains: Gains = field(default_factory=dict)
    trial_seconds: float | None = None
    budget_elapsed: float | None = None

    def __repr__(self) -> str:
        if not self.comparison:
            return "<Final: it does not count>"
        choice = self.comparison[0]
        of = f"schedule {short_id(choice.schedule)} of {len(self.comparison)}"
        return f"<Final {format_seconds(choice.seconds)}: {of}>"


@dataclass(frozen=True)
class Ended:
    """The session is over, for `reason`; `interrupted` if its budget was not used up.

    `best_session` is the session that measured the best, `own_seconds` the best time of this one.
    `kept` says in plain words what the database has of an interrupted session, and how to go on;
    `noise` that the machine was not calm; `pinned` that builds take another schedule.
    """

    reason: str
    interrupted: bool
    trials: int
    best: MeasuredTime | None
    elapsed: float
    program: int = 0
    best_session: str | None = None
    own_seconds: float | None = None
    kept: str | None = None
    noise: str | None = None
    pinned: str | None = None
    budget_elapsed: float | None = None

    def __repr__(self) -> str:
        best = "no time" if self.best is None else f"best {format_seconds(self.best.seconds)}"
        return f"<Ended: {best}, {excerpt(self.reason, _TEXT)}>"


Event = Started | Batch | Trial | Waiting | Drift | Final | Ended
Callback = Callable[[Event], object]


def ignore(_: Event) -> None:
    """The default callback, which does nothing."""
