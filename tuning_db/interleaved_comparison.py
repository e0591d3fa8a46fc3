"""Interleaved comparison: which of several finalists is the choice, and which tie with the fastest.

Measurements of one session with the same `created` are interleaved: sample n of each was taken in
round n. A disturbance that lasts longer than a round hits all alike. Times are therefore compared
by their ratios within rounds; times of different rounds are not comparable. A schedule that was
out early has fewer samples.

The fastest is found among those that have the most samples: each time is divided by the mean of
its round, and the lowest median wins, unless another is ahead of it in the median of their ratios.
Every other schedule is compared with it by the median of
the ratios, and by the interval of the sign test, which holds for any distribution: the true median
lies between the k-th smallest and the k-th largest of n ratios unless fewer than k of n coins show
heads, or tails (Thompson, "On confidence ranges for the median", Ann. Math. Statist. 7, 1936). k
is the largest for which that is less likely than 5%. For 9 rounds k is 2: one round in either
direction may be spoilt. Fewer than 6 rounds have no interval.

A schedule *ties* with the fastest if it may be as fast, and its median ratio is at most 1.02. Of
those that tie the simplest is the choice (`simplicity`): noise would choose among them by lot.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from .values import ComparedSchedule, Json, Measurement, ScheduleRecord, Verdict, parse_trace

MARGIN = 0.02
"""A schedule that ties with the fastest takes at most this share longer."""
_CHANCE = 20
"""An interval misses the true median at most once in so many times."""


class TimeRatio(NamedTuple):
    """The median ratio of two schedules' times, and its interval if there are enough rounds."""

    ratio: float
    interval: tuple[float, float] | None

    @property
    def slower(self) -> bool:
        """Whether it is known to take longer."""
        return self.interval is not None and self.interval[0] > 1

    @property
    def ties(self) -> bool:
        return not self.slower and self.ratio <= 1 + MARGIN

    @property
    def inverse(self) -> TimeRatio:
        """The ratio the other way round."""
        interval = None if self.interval is None else (1 / self.interval[1], 1 / self.interval[0])
        return TimeRatio(1 / self.ratio, interval)

    @property
    def settled(self) -> bool:
        """Whether more rounds would not matter: it is slower, or as fast within the margin."""
        return self.interval is not None and (self.slower or self.interval[1] <= 1 + MARGIN)


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
    ratios = sorted(time / base for time, base in zip(row, fastest, strict=False))
    k = _interval_rank(len(ratios))
    return TimeRatio(statistics.median(ratios), (ratios[k - 1], ratios[-k]) if k else None)


def compare_schedules(
    entries: Sequence[tuple[Measurement, ScheduleRecord]],
) -> list[ComparedSchedule]:
    """How interleaved measurements compare: the choice first, then the others by their ratio.

    The entries are `ok`, each of another schedule; their order does not matter.
    """
    entries = sorted(entries, key=lambda entry: entry[0].schedule)
    rows = [measured.samples for measured, _ in entries]
    first = fastest_row(rows)
    ratios = [time_ratio(row, rows[first]) for row in rows]
    tied = [n for n, ratio in enumerate(ratios) if n == first or ratio.ties]

    def preference(n: int) -> tuple[object, ...]:
        measured, schedule = entries[n]
        return (*simplicity(schedule), measured.seconds, measured.id)

    choice = min(tied, key=preference)
    order = sorted(range(len(rows)), key=lambda n: (n != choice, n != first, ratios[n].ratio))
    compared = []
    for n in order:
        verdict = Verdict.FASTEST if n == first else Verdict.TIE if n in tied else Verdict.SLOWER
        measured = entries[n][0]
        assert measured.seconds is not None, "an ok measurement has a time"
        compared.append(
            ComparedSchedule(
                schedule=measured.schedule,
                seconds=measured.seconds,
                rounds=len(measured.samples),
                ratio=ratios[n].ratio,
                interval=None if n == first else ratios[n].interval,
                verdict=verdict,
            )
        )
    return compared


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
    others = comparison[1:]
    ties = sum(s.verdict is not Verdict.SLOWER for s in others)
    finalists = "the other finalist" if len(others) == 1 else f"the {len(others)} other finalists"
    if ties == 0:
        return f"ahead of {finalists}"
    some = "" if ties == len(others) else f"{ties} of "
    return f"ties with {some}{finalists}, and is the simplest"


def _decided(step: Json) -> list[int]:
    decision = step.get("decision") if isinstance(step, dict) else None
    return [v for v in decision if isinstance(v, int)] if isinstance(decision, list) else []


def _interval_rank(rounds: int) -> int:
    """The k of the interval: it begins at the k-th smallest ratio; 0 if there is no interval."""
    k, tail = 0, 1
    while 2 * _CHANCE * tail <= 2**rounds:
        k += 1
        tail += comb(rounds, k)
    return k
