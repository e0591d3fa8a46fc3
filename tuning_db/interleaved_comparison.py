"""Interleaved comparison: which of several finalists is the choice, and which tie with the fastest.

Measurements of finals (`finals_rule.py`) are interleaved: sample n of each was taken in round n. A
disturbance that lasts longer than a round hits all alike. Times are therefore compared by their
ratios within rounds; times of different rounds are not comparable. A schedule that was
out early has fewer samples: its median is never compared with those of others.

The fastest is found among those that have the most samples: each time is divided by the mean of
its round, and the lowest median wins, unless another is ahead of it in the median of their ratios.

Every other schedule is compared with the fastest by the median of their ratios, and by its interval
(`median_interval`). Fewer than 6 rounds have none.

A schedule *ties* with the fastest if its median ratio is at most 1.02, and the interval shows that
it takes at most 1.1 times as long. Of those that tie the simplest is the choice (`simplicity`):
noise would choose among them by lot. One whose interval says neither that it ties nor that it is
behind is *unsettled*, and so is one whose shortest time contradicts that by a factor of 2: the
machine was too busy to compare it by ratios. It is the choice only if its shortest time, of its
trials and the comparison, is below that of the fastest and of all that tie: a disturbance makes no
time shorter.

A schedule that was out early neither ties nor wins, whatever its ratio: the later fastest may have
been disturbed in the rounds of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..base.durations import median_interval
from ..base.text import count
from .canonical import Json, parse_trace
from .results import Baseline, ComparedSchedule, Verdict
from .values import Measurement, ScheduleRecord

MARGIN = 0.02
"""A schedule that ties with the fastest takes at most this share longer."""
LIMIT = 1.1
"""How many times as long as the fastest a schedule that ties may take, by its interval."""
CONTRADICTION = 2.0
"""From this factor on, the ratio of the shortest times contradicts that of the rounds: most rounds
of one of the two were disturbed."""

FINALISTS_SHOWN = 8
"""Finalists that a text lists: those that compare best."""

EarlierTimes = Callable[[], Mapping[str, Sequence[float]]]
"""Returns the times of schedules (ids) that their session measured before the comparison."""


class TimeRatio(NamedTuple):
    """The median ratio of two schedules' times, and its interval if there are enough rounds.

    `extremes` are the smallest and the largest ratio, which stand in for the interval otherwise.
    `shortest` is the ratio of their shortest times.
    """

    ratio: float
    interval: tuple[float, float] | None
    extremes: tuple[float, float] | None = None
    shortest: float = 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval, or what stands in for it."""
        return self.interval or self.extremes or (self.ratio, self.ratio)

    @property
    def verdict(self) -> Verdict:
        """A tie if it is shown to be as fast or hardly slower; unsettled if noise hides that.

        It is slower if its interval is above 1, or if its median is and the rest does not matter.
        """
        low, high = self.bounds
        near = self.ratio <= 1 + MARGIN
        if self.shortest < 1 / CONTRADICTION or (near and self.shortest > CONTRADICTION):
            return Verdict.UNSETTLED
        if self.interval is not None and low > 1:
            return Verdict.SLOWER
        if high <= LIMIT:
            return Verdict.TIE if near else Verdict.SLOWER
        return Verdict.UNSETTLED if near or low < 1 / LIMIT else Verdict.SLOWER

    @property
    def mutual_verdict(self) -> Verdict:
        """How it compares where the other one need not be the fastest.

        A tie if each ties with the other. Slower, or `FASTEST` if it is the faster one, if the
        interval excludes 1; without an interval, if the extremes exclude ties. Else unsettled.
        """
        if self.verdict is self.inverse.verdict is Verdict.TIE:
            return Verdict.TIE
        slower = self if self.ratio >= 1 else self.inverse
        limit = LIMIT if self.interval is None else 1.0
        if slower.verdict is Verdict.UNSETTLED or slower.bounds[0] <= limit:
            return Verdict.UNSETTLED
        return Verdict.SLOWER if slower is self else Verdict.FASTEST

    @property
    def decided(self) -> bool:
        """Whether more rounds would not matter: it is slower, or as fast within the margin."""
        if self.interval is None or self.verdict is Verdict.UNSETTLED:
            return False
        return self.interval[0] > 1 or self.interval[1] <= 1 + MARGIN

    @property
    def inverse(self) -> TimeRatio:
        """The ratio the other way round."""
        interval, extremes = _inverse(self.interval), _inverse(self.extremes)
        return TimeRatio(1 / self.ratio, interval, extremes, 1 / self.shortest)


def fastest_row(rows: Sequence[Sequence[float]]) -> int:
    """The position of the fastest row of times, of those that have the most."""
    most = max(map(len, rows))
    complete = [n for n, row in enumerate(rows) if len(row) == most]
    means = [statistics.fmean(times) for times in zip(*(rows[n] for n in complete), strict=True)]

    def relative_time(n: int) -> float:
        return statistics.median(t / mean for t, mean in zip(rows[n], means, strict=True))

    def over_first(n: int) -> float:
        return statistics.median(t / base for t, base in zip(rows[n], rows[first], strict=True))

    first = min(complete, key=relative_time)
    others = [n for n in complete if n != first]
    # In noise, medians may form a circle: each row is tried once.
    while others:
        ratio, ahead = min((over_first(n), n) for n in others)
        if ratio >= 1:
            break
        first = ahead
        others.remove(ahead)
    return first


def time_ratio(row: Sequence[float], fastest: Sequence[float]) -> TimeRatio:
    """The times of `row` over those of `fastest`, over the rounds that both took part in."""
    rounds = min(len(row), len(fastest))
    row, fastest = row[:rounds], fastest[:rounds]
    ratios = [time / base for time, base in zip(row, fastest, strict=True)]
    extremes = min(ratios), max(ratios)
    shortest = min(row) / min(fastest)
    return TimeRatio(statistics.median(ratios), median_interval(ratios), extremes, shortest)


def compare_schedules(
    entries: Sequence[tuple[Measurement, ScheduleRecord]],
    earlier: EarlierTimes,
    untuned: object = None,
) -> list[ComparedSchedule]:
    """How interleaved measurements compare: the choice first, then the others by how they compare.

    The others are the fastest, then by their ratios: their times are of different rounds where one
    was out early. The entries are `ok`, each of another schedule; their order does not matter.
    `earlier` is called only where one of them is unsettled. `untuned` is the id of the schedule
    that a build without records chooses, if it is known.
    """
    entries = sorted(entries, key=lambda entry: entry[0].schedule)
    rows = [measured.samples for measured, _ in entries]
    most = max(map(len, rows))
    first = fastest_row(rows)
    ratios = [time_ratio(row, rows[first]) for row in rows]
    complete = [n for n, row in enumerate(rows) if n != first and len(row) == most]
    tied = [first, *(n for n in complete if ratios[n].verdict is Verdict.TIE)]
    unsettled = [n for n in complete if ratios[n].verdict is Verdict.UNSETTLED]

    def preference(n: int) -> tuple[object, ...]:
        measured, schedule = entries[n]
        return (*simplicity(schedule), measured.seconds, measured.id)

    choice = min(tied, key=preference)
    if unsettled:
        before = earlier()
        shortest = [
            min((*row, *before.get(e[1].id, ()))) for row, e in zip(rows, entries, strict=True)
        ]
        ahead = min(unsettled, key=lambda n: (shortest[n], *preference(n)))
        if shortest[ahead] < min(shortest[n] for n in tied):
            choice = ahead
    verdicts = {
        **dict.fromkeys(unsettled, Verdict.UNSETTLED),
        **dict.fromkeys(tied, Verdict.TIE),
        first: Verdict.FASTEST,
    }
    order = sorted(range(len(rows)), key=lambda n: (n != choice, n != first, ratios[n].ratio))
    compared = []
    for n in order:
        measured, schedule = entries[n]
        time = measured.time
        assert time is not None, "an ok measurement has a time"
        compared.append(
            ComparedSchedule(
                schedule=measured.schedule,
                seconds=time.seconds,
                rounds=len(measured.samples),
                seconds_interval=time.interval,
                ratio=ratios[n].ratio,
                interval=None if n == first else ratios[n].interval,
                verdict=verdicts.get(n, Verdict.SLOWER),
                of_rounds=most,
                baselines=_baselines(schedule, untuned),
            )
        )
    return compared


def is_as_written(schedule: ScheduleRecord) -> bool:
    """Whether a schedule has no steps: it is the program as written."""
    return simplicity(schedule)[:2] == (False, 0)


def simplicity(schedule: ScheduleRecord) -> tuple[bool, int, int, int]:
    """The key that sorts schedules, the simplest first.

    Fewer steps come first; then fewer decisions other than 1 (a loop of one iteration is none);
    then the smaller sum of the decisions: shorter inner loops, and less code where they are
    unrolled. A text that is no trace comes last.
    """
    trace = parse_trace(schedule.trace)
    steps = trace.get("steps") if isinstance(trace, dict) else None
    if not isinstance(steps, list):
        return True, 0, 0, 0
    sizes = [size for step in steps for size in _decided(step) if size != 1]
    return False, len(steps), len(sizes), sum(sizes)


def summary(comparison: Sequence[ComparedSchedule]) -> str:
    """The outcome for the choice, which comes first, as a phrase."""
    choice, *others = comparison
    finalists = "the other finalist" if len(others) == 1 else f"the {len(others)} other finalists"
    ties = sum(s.verdict in (Verdict.FASTEST, Verdict.TIE) for s in others)
    unsettled = sum(s.verdict is Verdict.UNSETTLED for s in others)
    behind = [s.interval for s in others if s.verdict is Verdict.SLOWER and s.interval]
    unsure = sum(low <= 1 for low, _ in behind)
    if choice.verdict is Verdict.UNSETTLED:
        ties, unsettled = 0, len(others)

    def some(number: int) -> str:
        return finalists if number == len(others) else f"{number} of {finalists}"

    if unsettled and not ties:
        who = some(unsettled)
        return f"has the shortest time, but is not told apart from {who}: too much noise"
    outcome = f"ties with {some(ties)}, and is the simplest" if ties else f"ahead of {finalists}"
    if unsure:
        outcome += f"; {count(unsure, 'finalist')} listed as behind cannot be told apart from it"
    if unsettled:
        outcome += f"; noise hides how {unsettled} compare, whose shortest times are longer"
    return outcome


def _baselines(schedule: ScheduleRecord, untuned: object) -> tuple[Baseline, ...]:
    is_baseline = {
        Baseline.WRITTEN: is_as_written(schedule),
        Baseline.UNTUNED: schedule.id == untuned,
    }
    return tuple(baseline for baseline, holds in is_baseline.items() if holds)


def _inverse(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if bounds is None else (1 / bounds[1], 1 / bounds[0])


def _decided(step: Json) -> list[int]:
    decision = step.get("decision") if isinstance(step, dict) else None
    return [v for v in decision if isinstance(v, int)] if isinstance(decision, list) else []
