"""The results of tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from ..base.display import html
from ..base.durations import MeasuredTime, format_seconds
from ..base.errors import TuningError
from ..base.hints import Hinted
from ..base.text import LINE, count, excerpt, in_lines, printable, short_id
from ..schedule import Trace
from ..tuning_db.canonical import Json
from ..tuning_db.gains import Gains, gains_text
from ..tuning_db.results import ComparedSchedule
from ..tuning_db.values import Outcome, SessionStatus
from ..tuning_db.views import required_pandas
from .model.target_model import Roofline
from .session.events import Trial
from .session.own_sketches import (
    HintUse,
    RuleUse,
    ScheduleUse,
    hints_text,
    rules_text,
    schedules_text,
)

if TYPE_CHECKING:
    import pandas

_TOLD = 5
"""Lines that `repr` tells."""
_LONGER = 1.01
"""From this factor on, finals that are slower than the trials are explained."""


@dataclass(frozen=True)
class BestResult(Hinted):
    """The fastest schedule that was found correct, or the simplest of those that tie with it.

    `time` is the median time of one call with its interval, `seconds` that alone; the ids name its
    records in the database. Printing `trace` gives runnable Python. `comparison` has the finalists
    and how they compare, itself first; it is empty where there were none. `gains` are those of the
    same comparison over the baselines that took part. `generator` names the rules of the schedule,
    with their options. `session` is the one that measured it. `resources` are what its kernels
    take, as the compiler reports it (see `Measurement`).
    """

    time: MeasuredTime
    trace: Trace
    schedule_id: str
    measurement_id: str
    comparison: tuple[ComparedSchedule, ...] = ()
    gains: Gains = field(default_factory=dict)
    generator: str = ""
    session: str = ""
    resources: Mapping[str, Json] | None = None

    _repr_html_ = html

    @property
    def seconds(self) -> float:
        return self.time.seconds

    def __repr__(self) -> str:
        text = f"{self.time}, schedule {short_id(self.schedule_id)}"
        return f"<BestResult: {text}, {count(len(self.trace.steps), 'step')}>"


@dataclass(frozen=True)
class Spent:
    """The seconds of a session by what took them; they add up to all of it.

    `search`: sketches and candidates. `model`: learning and predicting. `build`: waiting for
    builders, without what the search did meanwhile. `run`: loading, timing and checking candidates.
    `waiting`: waiting for the unscheduled program and for processes to start. `other`: measuring
    the machine, the database, the callback and everything else. `earlier`: the calls that this one
    continues.
    """

    search: float
    model: float
    build: float
    run: float
    waiting: float
    other: float
    earlier: float = 0.0

    def __repr__(self) -> str:
        parts = vars(self)
        named = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts.items() if seconds)
        return f"<Spent {sum(parts.values()):.1f} s: {named or 'nothing'}>"


class Failure(NamedTuple):
    """The candidates that failed for one reason: the first line of their errors.

    `example` is the schedule (id) of the first.
    """

    outcome: Outcome
    reason: str
    trials: int
    example: str


@dataclass(frozen=True)
class TuneResult(Hinted):
    """The outcome of a tuning session.

    `workload` is the name of the program with its shape, `target` the text of the target, and
    `flops` are those of a call.

    `kernels` has, of a program that is built as several kernels, their results by name. These have
    `best`, sessions, histories and all else of which there is one for each kernel.

    `best` is otherwise `None` only if no candidate is known to have run correctly. `trials` is the
    number of measurements of this call, `outcomes` counts them by outcome, and `error` is that of
    the last candidate that failed. `status` is `INTERRUPTED` if the budget was not used up, and
    `reason` says why the session ended. `seconds` is the `duration` of the session: the time spent
    on this program, with that of calls which this one continues. `roofline` is a lower bound of the
    time of a call. `drift` has the times of one kernel over its first: if they are far from 1,
    something else ran, and times are not comparable. `noise` then says so in plain words, and also
    if the finals were too disturbed for a sure choice.

    `gains` are how many times as long as the best the program as written takes (`"written"`), and
    the schedule of a build without records (`"untuned"`), as far as they are known: timed
    interleaved with the best, or lower bounds.

    `best` may be of an earlier session, which `best.session` names; `own_seconds` is the best time
    of this one, `None` if nothing ran. `trial_seconds` is that of its trials, which finals replace.

    `earlier_trials` are those that a resumed session had measured before this call.

    `rules` says what became of each rule that users registered: trials, or why it did not apply.

    `schedules` says how each schedule that `tune` was given ranked: the first is `own0`.

    `hints` says what became of the records of other tuners that `tune` was given, `None` if none.

    `kept` says in plain words what the database has of an interrupted session, and how to go on.

    `pinned` is the schedule (id) that is pinned for the program, `None` if none is: builds take it,
    whatever the best is.

    `doubts` says in plain words if most candidates, or one of the baselines, computed wrong
    results.

    `history` has the trials of this call in order, each with its time, the best time after it, the
    prediction and the reason of a failure (see `Trial`). `finals` are the schedules that were timed
    interleaved at the end of this session, the choice first; empty if there were no finals.
    """

    workload: str
    target: str
    flops: int
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
    own_seconds: float | None = None
    trial_seconds: float | None = None
    rules: Mapping[str, RuleUse] = field(default_factory=dict)
    schedules: Mapping[str, ScheduleUse] = field(default_factory=dict)
    hints: HintUse | None = None
    kept: str | None = None
    earlier_trials: int = 0
    history: tuple[Trial, ...] = ()
    finals: tuple[ComparedSchedule, ...] = ()
    pinned: str | None = None
    kernels: Mapping[str, TuneResult] = field(default_factory=dict)

    _repr_html_ = html

    @property
    def call_seconds(self) -> float | None:
        """The best time of a call, of all kernels together; `None` if it is not known."""
        if self.kernels:
            each = [result.call_seconds for result in self.kernels.values()]
            return None if None in each else sum(s for s in each if s is not None)
        return None if self.best is None else self.best.seconds

    @property
    def interrupted(self) -> bool:
        return self.status is SessionStatus.INTERRUPTED

    @property
    def failures(self) -> list[Failure]:
        """The trials that failed, by outcome and reason, the most frequent first."""
        groups: dict[tuple[Outcome, str], list[str]] = {}
        for trial in self.history:
            if trial.outcome is not Outcome.OK:
                groups.setdefault((trial.outcome, trial.reason), []).append(trial.schedule)
        failures = [Failure(*why, len(ids), ids[0]) for why, ids in groups.items()]
        return sorted(failures, key=lambda f: -f.trials)

    def to_pandas(self) -> pandas.DataFrame:
        """The trials as a data frame, a row each, by their numbers.

        The columns are those of `Trial`: `outcome`, `seconds`, `predicted`, `best_seconds`,
        `record`, `error`, `schedule` and `elapsed`; all times are in seconds. Raises `TuningError`
        where pandas is not installed.
        """
        return trials_frame(self.history)

    @property
    def lines(self) -> list[str]:
        """What is said of it in texts and pictures, the most important first."""
        trials = "trial" if self.trials == 1 else "trials"
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in self.outcomes.items()) or "none"
        before = self.earlier_trials
        more = f"; {before} more before the interruption" if before else ""
        after = f"after {self.trials} {trials} ({outcomes}{more})" if self.trials else ""
        ended = f"{after} in {self.seconds:.1f} s: {self.reason}".lstrip()
        if self.kernels:
            seconds = self.call_seconds
            time = "not known" if seconds is None else format_seconds(seconds)
            each = (f"{name}: {result.lines[0]}" for name, result in self.kernels.items())
            head = f"best of {count(len(self.kernels), 'kernel')} together {time} {ended}"
            return [head, *each, *self.warnings]
        own, given = (
            rules_text(self.rules, self.trials),
            schedules_text(self.schedules, self.trials),
        )
        rules = None if own is None else f"rules of your own: {own}"
        schedules = None if given is None else f"schedules of your own: {given}"
        told = hints_text(self.hints)
        hints = None if told is None else f"hints: {told}"
        gains = gains_text(self.gains, explained=True)
        if self.best is None:
            head = "no correct candidate" if self.trials else "nothing was measured"
            error = None if self.error is None else f"  last error: {self.error}"
            lines = [f"{head} {ended}", error if self.trials else None, schedules, hints]
        else:
            best, session = self.best, self.session
            share = f"{self.roofline.seconds / best.seconds:.0%} of the roofline ({self.roofline})"
            lines = [
                f"best {best.time}{origin_text(best.session, session, self.own_seconds)} {ended}",
                slower_finals_text(self.trial_seconds, self.finals),
                None if gains is None else f"{gains}{origin_text(best.session, session)}",
                share,
                instead_text(self.pinned, best.schedule_id),
                rules,
                schedules,
                hints,
            ]
        return [line for line in (*lines, *self.warnings, self.kept) if line]

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the session: its noise and its doubts, those that there are."""
        own = [text for text in (self.noise, self.doubts) if text]
        return own + [f"{n}: {text}" for n, r in self.kernels.items() for text in r.warnings]

    def __str__(self) -> str:
        return printable("\n".join(self.lines))

    def __repr__(self) -> str:
        first = in_lines(f"<TuneResult of {excerpt(self.workload)}".split())
        lines = (printable(excerpt(line)) for line in self.lines[:_TOLD])
        rest = "\n".join(in_lines(line.split(), LINE - 3) for line in lines)
        return f"{first}\n{indent(rest, '  ')}>"


def slower_finals_text(
    trial_seconds: float | None, finals: Sequence[ComparedSchedule]
) -> str | None:
    """Which time counts where finals, the choice first, took longer than the fastest trial."""
    if trial_seconds is None or not finals or finals[0].seconds <= _LONGER * trial_seconds:
        return None
    before, after = format_seconds(trial_seconds), format_seconds(finals[0].seconds)
    return (
        f"The fastest trial took {before}; the winner of the finals takes {after}. "
        "The finals count."
    )


def instead_text(pinned: str | None, best: str) -> str | None:
    """That builds take a `pinned` schedule (id) instead of the `best`, as a sentence, if so."""
    if pinned in (None, best):
        return None
    return f"Builds take schedule {short_id(pinned)} instead: it is pinned."


def origin_text(best: str, session: str, own_seconds: float | None = None) -> str:
    """Words to append to what is of the session `best` in a report of another `session`.

    `own_seconds` is the best time of the reported session.
    """
    if best == session:
        return ""
    own = "" if own_seconds is None else f"; this session's: {format_seconds(own_seconds)}"
    return f", of session {short_id(best)}{own}"


_COLUMNS = (
    "number", "outcome", "seconds", "predicted", "best_seconds", "record", "error", "schedule",
    "elapsed",
)  # fmt: skip


def trials_frame(trials: Sequence[Trial]) -> pandas.DataFrame:
    """A row for each trial, by its number. Raises `TuningError` where pandas is not installed."""
    module = required_pandas(TuningError)
    rows = [{**asdict(trial), "outcome": trial.outcome.value} for trial in trials]
    frame: pandas.DataFrame = module.DataFrame(rows, columns=list(_COLUMNS))
    return frame.set_index("number")
