"""Which of the schedules that were timed in turns is taken, and which cannot be told apart.

Measurements of one session that were made at one moment are a *contest*: sample n of each was taken
in round n. What disturbs the machine for longer than a round hits all alike, so that the ratios
within rounds compare them; times of different rounds do not. One that was out early has fewer
samples.

Of those that stayed to the end the fastest is the one whose times, each over the mean of its round,
have the lowest median. Each other one is compared with it by the median of the ratios, and by the
interval of the sign test, which holds for any distribution: the true median is between the k-th
smallest and the k-th largest of n ratios unless fewer than k of n coins show heads, or tails
(Thompson, "On confidence ranges for the median", Ann. Math. Statist. 7, 1936). k is the largest for
which that is less likely than 5%: of 9 rounds the second, so that one round in either direction may
be spoilt. Fewer than 6 rounds have no interval.

One that may be as fast as the first, and takes at most 2% longer as far as is known, *ties* with
it. Of those that tie the simplest is taken, see `simplicity`: noise would choose among them by lot.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from .values import Json, Measurement, ScheduleRecord, Standing, Verdict, parse_trace

MARGIN = 0.02
"""What a simpler schedule may take longer, where it is not known to take longer at all."""
_CHANCE = 20
"""An interval misses the truth at most once in so many times."""


class Compared(NamedTuple):
    """The median of one over another's times, and an interval for it where there are enough."""

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
    def settled(self) -> bool:
        """Whether more rounds would not matter: it is slower, or as fast within the margin."""
        return self.interval is not None and (self.slower or self.interval[1] <= 1 + MARGIN)


def leader(rows: Sequence[Sequence[float]]) -> int:
    """The position of the fastest, of those that have the most samples."""
    most = max(map(len, rows))
    last = [n for n, row in enumerate(rows) if len(row) == most]
    means = [statistics.fmean(times) for times in zip(*(rows[n] for n in last), strict=True)]

    def place(n: int) -> float:
        return statistics.median(t / mean for t, mean in zip(rows[n], means, strict=True))

    return min(last, key=place)


def compare(row: Sequence[float], first: Sequence[float]) -> Compared:
    """Times in turn with those of `first`, over the rounds that both took part in."""
    ratios = sorted(mine / its for mine, its in zip(row, first, strict=False))
    k = _spared(len(ratios))
    return Compared(statistics.median(ratios), (ratios[k - 1], ratios[-k]) if k else None)


def rank(entries: Sequence[tuple[Measurement, ScheduleRecord]]) -> list[Standing]:
    """The standings of a contest: first the one that is taken, then the others by their ratio.

    The entries are of different schedules, and ran; their order does not matter.
    """
    entries = sorted(entries, key=lambda entry: entry[0].schedule)
    rows = [measured.samples for measured, _ in entries]
    first = leader(rows)
    compared = [compare(row, rows[first]) for row in rows]
    tied = [n for n, c in enumerate(compared) if n == first or c.ties]

    def choice(n: int) -> tuple[object, ...]:
        measured, schedule = entries[n]
        return (*simplicity(schedule), measured.seconds, measured.id)

    taken = min(tied, key=choice)
    order = sorted(range(len(rows)), key=lambda n: (n != taken, n != first, compared[n].ratio))
    standings = []
    for n in order:
        verdict = Verdict.FASTEST if n == first else Verdict.TIE if n in tied else Verdict.SLOWER
        measured = entries[n][0]
        assert measured.seconds is not None, "what takes part has run"
        standings.append(
            Standing(
                schedule=measured.schedule,
                seconds=measured.seconds,
                rounds=len(measured.samples),
                ratio=compared[n].ratio,
                interval=None if n == first else compared[n].interval,
                verdict=verdict,
            )
        )
    return standings


def simplicity(schedule: ScheduleRecord) -> tuple[bool, int, int, int]:
    """What orders schedules, the simplest first.

    Fewer steps; then fewer decisions other than 1 (a loop of one iteration is none); then the
    smaller sum of the decisions: shorter inner loops, and less code where they are unrolled. What
    is no trace comes last.
    """
    trace = parse_trace(schedule.trace)
    steps = trace.get("steps") if isinstance(trace, dict) else None
    if not isinstance(steps, list):
        return True, 0, 0, 0
    sizes = [size for step in steps for size in _decided(step) if size != 1]
    return False, len(steps), len(sizes), sum(sizes)


def summary(standings: Sequence[Standing]) -> str:
    """What came of a contest, of the one that is taken."""
    others = standings[1:]
    ties = sum(s.verdict is not Verdict.SLOWER for s in others)
    if ties == 0:
        return f"ahead of {_counted(len(others))} timed in turns with it"
    return (
        f"ties with {ties} of {_counted(len(others))} timed in turns with it, and is the simplest"
    )


def _counted(others: int) -> str:
    return "the other" if others == 1 else f"the {others} others"


def _decided(step: Json) -> list[int]:
    decision = step.get("decision") if isinstance(step, dict) else None
    return [v for v in decision if isinstance(v, int)] if isinstance(decision, list) else []


def _spared(rounds: int) -> int:
    """The k of the interval: how many ratios at either end are counted, 0 if there is none."""
    k, tail = 0, 1
    while 2 * _CHANCE * tail <= 2**rounds:
        k += 1
        tail += comb(rounds, k)
    return k
