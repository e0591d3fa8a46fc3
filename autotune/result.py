"""The results of tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..runtime.timer import format_seconds
from ..schedule import Trace
from ..tuning_db.gains import Gains, gains_text
from ..tuning_db.values import ComparedSchedule, Outcome, SessionStatus
from .model.target_model import Roofline


@dataclass(frozen=True)
class BestResult:
    """The fastest schedule that was found correct, or the simplest of those that tie with it.

    `seconds` is the median time of one call; the ids name its records in the database. Printing
    `trace` gives runnable Python. `comparison` has the finalists and how they compare, itself
    first; it is empty where there were none. `gains` are those of the same comparison over the
    baselines that took part. `generator` names the rules of the schedule, with their options.
    """

    seconds: float
    trace: Trace
    schedule_id: str
    measurement_id: str
    comparison: tuple[ComparedSchedule, ...] = ()
    gains: Gains = field(default_factory=dict)
    generator: str = ""

    def __repr__(self) -> str:
        text = f"{format_seconds(self.seconds)}, schedule {self.schedule_id:.12}"
        return f"<BestResult: {text}, {len(self.trace.steps)} steps>"


@dataclass(frozen=True)
class Spent:
    """The seconds of a session by what took them; they add up to all of it.

    `search`: sketches and candidates. `model`: learning and predicting. `build`: waiting for
    builders, without what the search did meanwhile. `run`: loading, timing and checking candidates.
    `waiting`: waiting for the unscheduled program and for processes to start. `other`: the
    database, the callback and everything else.
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

    `best` is `None` only if no candidate is known to have run correctly. `trials` is the number of
    measurements of this call, `outcomes` counts them by outcome, and `error` is that of the last
    candidate that failed. `status` is `INTERRUPTED` if the
    budget was not used up, and `reason` says why the session ended. `seconds` is the time spent on
    this program; `roofline` is a lower bound of the time of a call. `drift` has the times of one
    kernel over its first: if they are far from 1, something else ran, and times are not comparable;
    `noise` then says so in plain words.

    `gains` are how many times as long as the best the program as written takes (`"written"`), and
    the schedule of a build without records (`"untuned"`), as far as they are known: timed
    interleaved with the best, or lower bounds.

    `doubts` says in plain words if most candidates, or one of the baselines, computed wrong
    results.
    """

    best: BestResult | None
    trials: int
    outcomes: Mapping[Outcome, int]
    error: str | None
    status: SessionStatus
    reason: str
    session: str
    seconds: float
    spent: Spent
    roofline: Roofline
    drift: tuple[float, ...]
    gains: Gains
    noise: str | None
    doubts: str | None = None

    @property
    def interrupted(self) -> bool:
        return self.status is SessionStatus.INTERRUPTED

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {outcome}" for outcome, n in self.outcomes.items())
        rest = f"{self.trials} trials ({counts}) in {self.seconds:.1f} s: {self.reason}"
        if self.best is not None:
            best = f"best {format_seconds(self.best.seconds)} after {rest}"
            lines = (best, gains_text(self.gains), self.noise, self.doubts)
            return "\n".join(filter(None, lines))
        if not self.trials:
            more = ": resume=True continues the session" if self.interrupted else ""
            return f"nothing was measured in {self.seconds:.1f} s: {self.reason}{more}"
        error = "" if self.error is None else f"\n  last error: {self.error}"
        return f"no correct candidate after {rest}{error}"

    def __repr__(self) -> str:
        return f"<TuneResult: {self}>"
