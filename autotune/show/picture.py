"""The state of a program's tuning session as people see it, collected from its events.

Whoever shows a session keeps a `Picture` of it: lines in a log, a live terminal, a notebook, a
reader of the database. It computes next to nothing when an event arrives.
"""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import islice
from typing import Protocol, runtime_checkable

from ...base.display import html
from ...base.durations import MeasuredTime, format_ratio, format_seconds
from ...base.text import LINE, count, cut, excerpt, in_lines, printable, short_id
from ...tuning_db.gains import gains_text
from ...tuning_db.results import ComparedSchedule
from ...tuning_db.values import Outcome
from ..result import origin_text, slower_finals_text
from ..session.events import Batch, Drift, Ended, Event, Final, Started, Trial, Waiting
from ..session.noise import DISTURBED, changed, uncertain_text, were_disturbed

_ERROR = 120
_PROGRAMS = 5
"""Programs that the `repr` of a run shows."""
_CALM = 0.1
"""The share by which the time of a kernel may change unmentioned."""


class Picture:
    """A session: what began (`started`), its `trials` so far, and what it is `doing`.

    `best` is the best time in seconds. `drift` has the last event that compared the machine with
    its start. `comparison` are the finalists, the choice first. `elapsed` and `budget_elapsed` are
    those of the last event. `kept` says how to go on after an interrupt. `ended` is set by `Ended`,
    and so is `noise`, if the machine was not calm, and `pinned`, if builds take another
    schedule.
    """

    def __init__(self, started: Started) -> None:
        self.started = started
        self.trials: list[Trial] = []
        self.outcomes: Counter[Outcome] = Counter()
        self.best = started.best_seconds
        self.doing = "starting"
        self.elapsed = 0.0
        self.budget_elapsed = 0.0
        self.drift: Drift | None = None
        self.comparison: tuple[ComparedSchedule, ...] = ()
        self.kept: str | None = None
        self.noise: str | None = None
        self.pinned: str | None = None
        self.ended = False
        self._done = started.done
        self._failed: Trial | None = None
        self._gains: str | None = None
        self._slower: str | None = None
        self._origin = ""
        self._time: MeasuredTime | None = None

    def add(self, event: Event) -> None:
        """Update the picture by an event; after `Ended`, others say that the session goes on."""
        if self.ended and not isinstance(event, Ended):
            self._reopen()
        match event:
            case Started():
                return
            case Batch(number=number, size=size):
                self.doing = f"batch {number}: building {size} candidates"
            case Trial():
                self._add_trial(event)
            case Waiting(what=what):
                self.doing = what
            case Drift():
                self.drift = event
                self.doing = "timing"
            case Final(comparison=comparison, gains=gains, trial_seconds=trial):
                self.doing = "compared the finalists" if comparison else "timing"
                self.comparison = comparison
                self._gains = gains_text(gains, explained=True)
                self._slower = slower_finals_text(trial, comparison)
            case Ended():
                self._end(event)
        self.elapsed = event.elapsed
        shared = event.budget_elapsed
        self.budget_elapsed = event.elapsed if shared is None else shared

    @property
    def which(self) -> str:
        """The program and a colon, where several share the budget."""
        return "" if self.started.programs == 1 else f"{self.started.workload}: "

    @property
    def calm(self) -> str | None:
        """Whether the machine is calm, as a phrase.

        `None` while it is not known, and where `noise` says it at the end.
        """
        if self.noise is not None:
            return None
        if not self.is_calm:
            drifted = changed(self.drift.ratio) if self.drift is not None and self._drifts else 1.0
            return uncertain_text(max(drifted, DISTURBED if self._disturbed else 1.0))
        if self.drift is None:
            return None
        return f"calm: the same code takes {self.drift.ratio:.2f} times as long as at the start"

    @property
    def is_calm(self) -> bool:
        """Whether nothing shows a disturbance: neither trials nor the kernel timed again."""
        return not self._drifts and not self._disturbed

    @property
    def _drifts(self) -> bool:
        """Whether the same code took longer or shorter than at the start when last timed."""
        drift = self.drift
        return drift is not None and (drift.finals or changed(drift.ratio) > 1 + _CALM)

    @property
    def _disturbed(self) -> bool:
        """Whether many trials were disturbed."""
        return were_disturbed([trial.disturbed for trial in self.trials])

    @property
    def failed(self) -> str | None:
        """The last trial that failed, in a line."""
        if self._failed is None:
            return None
        error = excerpt(self._failed.reason, _ERROR)
        return f"trial {self._failed.number} {self._failed.outcome}: {error}"

    @property
    def predicted(self) -> str | None:
        """How far predictions are from what was measured, as a phrase; `None` if unknown."""
        apart = [
            changed(t.predicted / t.seconds)
            for t in self.trials
            if t.predicted is not None and t.seconds is not None
        ]
        if not apart:
            return None
        factor = format_ratio(statistics.median(apart))
        return f"predictions are off by a factor of {factor} (median)"

    @property
    def counts(self) -> str:
        """The trials by outcome."""
        return "  ".join(f"{outcome} {n}" for outcome, n in sorted(self.outcomes.items()))

    @property
    def rate(self) -> str:
        """The best time, at the end with its interval, its floating-point rate and its session."""
        if self.best is None:
            return "no result yet"
        flops = self.started.flops
        speed = f", {flops / self.best / 1e9:.1f} GFLOP/s" if flops and self.best > 0 else ""
        return f"best {self._time or format_seconds(self.best)}{speed}{self._origin}"

    @property
    def trial(self) -> str:
        """The number of the last trial, and of how many."""
        return f"trial {self._done}{self._of}"

    @property
    def progress(self) -> tuple[float, float]:
        """The size and the used part of the budget: of trials or seconds, which will end first."""
        parts = []
        if self.started.trials:
            parts.append((float(self.started.trials), float(self._done)))
        if self.started.seconds:
            parts.append((self.started.seconds, self.budget_elapsed))
        return max(parts, key=lambda part: part[1] / part[0], default=(1.0, 0.0))

    @property
    def finalists(self) -> list[str]:
        """The finalists, a line each, the choice first."""
        return [
            f"{'  ' if n else '->'} {short_id(c.schedule)}  {c.line}"
            for n, c in enumerate(self.comparison)
        ]

    @property
    def conclusions(self) -> list[str]:
        """Why the choice is slower than in its trial, what it gained, and what went wrong."""
        texts = (self._slower, self._gains, self.pinned, self.noise, self.kept)
        return [text for text in texts if text is not None]

    def line(self, event: Event) -> str | None:
        """The line of a log for an event; `None` if there is none."""
        match event:
            case Started(workload=workload, target=target, known=known):
                kept = f", {known} schedules are known" if known else ""
                return f"tuning {workload} for {target}{kept}"
            case Trial(number=number, record=True, elapsed=elapsed):
                return f"trial {number}{self._of}: {self.which}{self.rate} after {elapsed:.1f} s"
            case Trial(number=number, error=str(), outcome=outcome):
                error = excerpt(event.reason, _ERROR)
                return f"trial {number}{self._of}: {self.which}{outcome}: {error}"
            case Final(comparison=()):
                return f"{self.which}the finals do not count: another time of the session is less"
            case Final():
                concluded = (text for text in (self._slower, self._gains) if text is not None)
                return "\n".join(
                    (f"{self.which}finals, compared with the fastest:", *self.finalists, *concluded)
                )
            case Ended(elapsed=elapsed):
                trials = count(self.outcomes.total() if self.which else self._done, "trial")
                ended = f"{self.which}{self.rate} after {trials} in {elapsed:.1f} s: {self.doing}"
                more = (self.pinned, self.noise, self.kept)
                return "\n".join((ended, *(f"{self.which}{text}" for text in more if text)))
            case _:
                return None

    @property
    def _of(self) -> str:
        return "" if self.started.trials is None else f"/{self.started.trials}"

    def _add_trial(self, event: Trial) -> None:
        self.trials.append(event)
        self._done, self.best = event.number, event.best_seconds
        self.outcomes[event.outcome] += 1
        self.doing = "timing"
        if event.error is not None:
            self._failed = event

    def _reopen(self) -> None:
        self.ended, self._origin = False, ""
        self._time = self.kept = self.noise = self.pinned = None
        self.best = self.trials[-1].best_seconds if self.trials else self.started.best_seconds
        if self.comparison:
            self.best = self.comparison[0].seconds

    def _end(self, event: Ended) -> None:
        self.doing, self.ended = event.reason, True
        self._time = event.best
        self.best = None if event.best is None else event.best.seconds
        self.kept, self.noise, self.pinned = event.kept, event.noise, event.pinned
        if event.best_session is not None:
            own = event.own_seconds
            self._origin = origin_text(event.best_session, self.started.session, own)


class Pictures:
    """The pictures of all programs of a run, as one value that a notebook shows.

    `error` is what ended the run.
    """

    def __init__(self) -> None:
        self.pictures: dict[int, Picture] = {}
        self.error: str | None = None

    def add(self, event: Event) -> None:
        """Update the picture of the event's program."""
        if isinstance(event, Started):
            # A new mapping, for those who go through the one before in another thread.
            self.pictures = {**self.pictures, event.program: Picture(event)}
        self.pictures[event.program].add(event)

    def fail(self, error: BaseException) -> None:
        """Show what has ended the run."""
        self.error = ": ".join(filter(None, (type(error).__name__, str(error))))

    @property
    def ended(self) -> bool:
        """Whether nothing is to come: all sessions have ended, or an error ended the run."""
        sessions = self.pictures.values()
        return self.error is not None or (bool(sessions) and all(p.ended for p in sessions))

    def __repr__(self) -> str:
        return self.text()

    def text(self, room: int = LINE) -> str:
        """A line or two for each of the first programs, of at most `room` cells."""
        told = [
            f"{excerpt(p.started.workload)}: {p.trial}, {p.rate}: {p.doing}"
            for p in islice(self.pictures.values(), _PROGRAMS)
        ]
        if len(self.pictures) > _PROGRAMS:
            told.append(f"and {len(self.pictures) - _PROGRAMS} more programs")
        told += [] if self.error is None else [self.error]
        both = 2 * room - 8
        # Cut twice: before, as an error may be very long, and after, as a mark becomes a character.
        shown = (cut(printable(cut(line, both)), both) for line in told)
        lines = (in_lines(line.split(), room) for line in shown)
        return "\n".join(lines) or "tuning: starting"

    _repr_html_ = html


class Moment:
    """Pictures that are drawn once while their run goes on; `why` says what is drawn elsewhere."""

    def __init__(self, pictures: Pictures, why: str) -> None:
        self.pictures = pictures
        self.why = why

    def __repr__(self) -> str:
        return self.pictures.text()

    _repr_html_ = html


@runtime_checkable
class HasPictures(Protocol):
    """A run that shows itself: of `tune(..., background=True)`, or one that `open_run` reads."""

    @property
    def pictures(self) -> Pictures: ...
