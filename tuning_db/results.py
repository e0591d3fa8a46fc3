"""What lookups return: the best schedule, and how those compare that were timed with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..base.display import html
from ..base.durations import MeasuredTime, format_change_between, format_changes
from ..base.text import count, short_id
from .values import Measurement, ScheduleRecord, Workload


class Verdict(StrEnum):
    """How a schedule compares with the fastest of an interleaved comparison.

    `SLOWER` is out or behind, surely so if its interval is above 1. For `UNSETTLED`, noise hides
    whether it is faster, as fast or slower.
    """

    FASTEST = "fastest"
    TIE = "tie"
    SLOWER = "slower"
    UNSETTLED = "unsettled"


class Baseline(StrEnum):
    """A schedule that the best one of a program is compared with.

    `phrase` names it in sentences, `label` in lists.
    """

    WRITTEN = "written"
    UNTUNED = "untuned"

    @property
    def phrase(self) -> str:
        return "the program as written" if self is Baseline.WRITTEN else "the untuned build"

    @property
    def label(self) -> str:
        return "as written" if self is Baseline.WRITTEN else "untuned"


@dataclass(frozen=True)
class ComparedSchedule:
    """A schedule (id) in an interleaved comparison.

    `seconds` is the time of its measurement: the median in its `rounds`. `seconds_interval`
    contains the true one with a confidence of 95%. `ratio` is its time over that of the fastest:
    the median over the rounds in which both took part, which is not the ratio of the two medians.
    `interval` contains the true ratio with the same confidence. It is None for the fastest; both
    intervals are if there were too few rounds. `of_rounds` are those of the fastest: one that was
    out early has a time of other rounds than that, and its `ratio` says which is faster.
    `baselines` says what else it is: the program as written, the untuned build, or both.
    """

    schedule: str
    seconds: float
    rounds: int
    ratio: float
    interval: tuple[float, float] | None
    verdict: Verdict
    seconds_interval: tuple[float, float] | None = None
    of_rounds: int | None = None
    baselines: tuple[Baseline, ...] = ()

    @property
    def time(self) -> MeasuredTime:
        return MeasuredTime(self.seconds, self.seconds_interval, self.rounds)

    @property
    def early(self) -> bool:
        """Whether it was out early: its time is that of fewer rounds than those of the fastest."""
        return self.of_rounds is not None and self.rounds < self.of_rounds

    @property
    def rounds_text(self) -> str:
        """The rounds that its time is of: `36 rounds`, or `6 of 36 rounds`."""
        of = f"{self.rounds} of " if self.early else ""
        return f"{of}{count(self.of_rounds or self.rounds, 'round')}"

    @property
    def shown_time(self) -> MeasuredTime | None:
        """The time that a list of finalists shows: that of the fastest alone.

        The others are told by their ratios to it, which decide. Their own times may contradict
        these, since a disturbance that lasts longer than a round is in them.
        """
        return self.time if self.verdict is Verdict.FASTEST else None

    @property
    def line(self) -> str:
        """What a list of finalists says of it: `fastest, 1.02 ms (1 to 1.03)`, or `str` of it."""
        verdict, *names = [self.versus, *(baseline.label for baseline in self.baselines)]
        time = self.shown_time
        return ", ".join([verdict, *([] if time is None else [str(time)]), *names])

    def __repr__(self) -> str:
        """A line; what it is compared with is the fastest."""
        return f"<ComparedSchedule {short_id(self.schedule)}: {self.line}>"

    @property
    def versus(self) -> str:
        """How it compares with the fastest: `1.05x slower (1.03x to 1.24x)`, or a `tie`.

        `behind` is what may be as fast by its interval: like ties and what noise hides, it has that
        alone. What was out early says in how many rounds.
        """
        early = f", {count(self.rounds, 'round')}" if self.early else ""
        return f"{self._verdict_text}{early}"

    def __str__(self) -> str:
        return ", ".join([self.versus, *(baseline.label for baseline in self.baselines)])

    @property
    def _verdict_text(self) -> str:
        between = "too few rounds" if self.interval is None else format_changes(*self.interval)
        if self.verdict is Verdict.FASTEST:
            return "fastest"
        if self.verdict is not Verdict.SLOWER:
            return f"{self.verdict} ({between})"
        if self.ratio < 1:
            return f"out early ({between})"
        differs = format_change_between(self.ratio, self.interval)
        if self.interval is None:
            return f"behind, {differs}"
        return differs if self.interval[0] > 1 else f"behind ({between})"


@dataclass(frozen=True)
class Best:
    """The result of a lookup.

    `measurement` is None only for a pinned schedule that has no usable measurement. `layer` is the
    location of the database that the choice came from. `comparison` has the schedules that were
    timed interleaved with it, the choice first; it is empty where there are none. `verified` is not
    True only for a pinned schedule: `None` if no numeric check was made of it, `False` if they
    failed.
    """

    schedule: ScheduleRecord
    measurement: Measurement | None
    pinned: bool
    layer: str
    comparison: tuple[ComparedSchedule, ...] = ()
    verified: bool | None = True

    _repr_html_ = html

    def __repr__(self) -> str:
        time = self.time or "not measured"
        pinned = f", {self.how}" if self.pinned else ""
        return f"<Best {time}: schedule {short_id(self.schedule.id)}{pinned}>"

    @property
    def how(self) -> str:
        """Why it is the choice, in words, and what speaks against it."""
        if not self.pinned:
            return "verified"
        return f"pinned, {self.doubt}" if self.doubt else "pinned"

    @property
    def doubt(self) -> str | None:
        """Why its results may be wrong, in words; `None` if it is verified."""
        doubts = {True: None, None: "not verified", False: "though a numeric check of it failed"}
        return doubts[self.verified]

    @property
    def seconds(self) -> float | None:
        """Median time of one call, where it was measured."""
        return None if self.measurement is None else self.measurement.seconds

    @property
    def time(self) -> MeasuredTime | None:
        """The time with its interval; `None` if not measured."""
        return None if self.measurement is None else self.measurement.time


@dataclass(frozen=True)
class Relative:
    """A schedule that was good for other sizes of a program: its usable measurement.

    `layer` is the location of the database that it came from.
    """

    workload: Workload
    schedule: ScheduleRecord
    measurement: Measurement
    layer: str
