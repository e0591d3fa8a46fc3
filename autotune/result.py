"""What tuning gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..runtime.timer import format_seconds
from ..schedule import Trace
from ..tuning_db.values import ComparedSchedule, Outcome, SessionStatus
from .model.roofline import Roofline


@dataclass(frozen=True)
class BestResult:
    """The fastest schedule that was found correct, or the simplest of those that tie with it.

    `seconds` is the median time of one call; the ids name its records in the database. Printing
    `trace` gives runnable Python. `comparison` has the finalists and how they compare, itself
    first; it is empty where there were none.
    """

    seconds: float
    trace: Trace
    schedule_id: str
    measurement_id: str
    comparison: tuple[ComparedSchedule, ...] = ()


@dataclass(frozen=True)
class Spent:
    """Where the time of a session went, in seconds, which add up to all of it.

    `search` is making sketches and candidates, `model` learning and predicting. `build` is waiting
    for builders, without what the search did meanwhile. `run` is loading, timing and checking
    candidates, `waiting` that for the unscheduled program (and for processes to start), `other` the
    database, the callback and whatever else.
    """

    search: float
    model: float
    build: float
    run: float
    waiting: float
    other: float


@dataclass(frozen=True)
class TuneResult:
    """The outcome of a tuning session.

    `best` is `None` only where nothing is known that ran correctly. `trials` were measured by this
    call, with these `outcomes`. `status` is `INTERRUPTED` if the budget was not used up, and
    `reason` says why it ended. `seconds` is what this program took, of those that share a budget;
    `roofline` is the least time that a call can take. `drift` has the times of one kernel during
    the session over its first: far from 1, the machine was not calm and times do not compare well.
    """

    best: BestResult | None
    trials: int
    outcomes: Mapping[Outcome, int]
    status: SessionStatus
    reason: str
    session: str
    seconds: float
    spent: Spent
    roofline: Roofline
    drift: tuple[float, ...]

    @property
    def interrupted(self) -> bool:
        return self.status is SessionStatus.INTERRUPTED

    def __str__(self) -> str:
        best = "nothing ran" if self.best is None else f"best {format_seconds(self.best.seconds)}"
        counts = ", ".join(f"{n} {outcome}" for outcome, n in self.outcomes.items())
        return (
            f"{best} after {self.trials} trials ({counts}) in {self.seconds:.1f} s: {self.reason}"
        )
