"""The finals of a session: its fastest kernels are timed interleaved until the slower are known.

`Fastest` keeps the finalists while candidates are measured, `InterleavedTiming` times them. Those
that are far slower take part in a few rounds (`short_heat`), for the ratio.

How the finals of a session ended, from its records: the comparison, and what was gained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...base.errors import DatabaseError
from ...runtime.timer import CALM_PAUSES, DISTURBED_FINALS, slowdown, turn_seconds
from ...schedule import Trace
from ...tuning_db import TuningDatabase
from ...tuning_db.gains import Gains, gains_of, untuned_of
from ...tuning_db.interleaved_comparison import (
    TimeRatio,
    compare_schedules,
    fastest_row,
    time_ratio,
)
from ...tuning_db.results import ComparedSchedule, Verdict
from ...tuning_db.values import Measurement, Outcome, ScheduleRecord, Session
from ..measure.measure_result import Kernel

_log = logging.getLogger(__name__)
_KEPT = 32
FAR = 2.0
"""How many times as long as the fastest one takes that is out after any number of rounds."""

Interleave = Callable[[Sequence[Kernel], int], list[tuple[float, ...]] | None]
"""`Measurer.interleave`: samples of kernels, none of one that found no memory beside others."""


class Finalist(NamedTuple):
    """A candidate that ran, with its code to time it again.

    `checked` says that its results were compared.
    """

    seconds: float
    schedule: ScheduleRecord
    trace: Trace
    kernel: Kernel
    checked: bool


class Fastest:
    """The fastest candidates of a session, the fastest first."""

    def __init__(self) -> None:
        self._ranked: list[Finalist] = []

    def add(self, finalist: Finalist) -> None:
        self._ranked.append(finalist)
        self._ranked.sort(key=lambda f: f.seconds)
        del self._ranked[_KEPT:]

    @property
    def first(self) -> Finalist | None:
        return self._ranked[0] if self._ranked else None

    def of(self, schedule: str) -> Finalist | None:
        """The candidate with that schedule (id)."""
        return next((f for f in self._ranked if f.schedule.id == schedule), None)

    def finalists(self, most: int, margin: float, least: int = 1) -> list[Finalist]:
        """At most `most` that are within `margin` times the first, and the `least` fastest."""
        limit = margin * self._ranked[0].seconds if self._ranked else 0.0
        return [f for n, f in enumerate(self._ranked[:most]) if n < least or f.seconds <= limit]


def short_heat(
    slow: Sequence[Finalist], rounds: int, seconds: float, sample_seconds: float
) -> tuple[list[Finalist], int, float]:
    """Those of `slow` finalists that can be timed within `seconds`.

    Also for how many rounds, at most `rounds`, and the seconds of these.
    """
    timed = sorted(slow, key=lambda f: f.seconds)
    while timed:
        turns = sum(turn_seconds(f.seconds, sample_seconds) for f in timed)
        once = sum(f.seconds for f in timed)
        # Each is called once to check it, and once to see how long it takes.
        affordable = int((seconds - 2 * once) / turns)
        if affordable > 0:
            rounds = min(rounds, affordable)
            return timed, rounds, rounds * turns
        timed.pop()
    return [], rounds, 0.0


def attempts(
    timing: Callable[[], InterleavedTiming], pause: Callable[[], None]
) -> Iterator[InterleavedTiming]:
    """Timings to run: one, and after a few pauses another if that was disturbed.

    The last says whether it may be recorded: not if it was `disturbed` too.
    """
    first = timing()
    yield first
    if first.disturbed:
        _log.info("the finals took %.3g times as long as the trials", first.slowdown)
        wait_for_calm(pause)
        yield timing()


def wait_for_calm(pause: Callable[[], None]) -> None:
    """Pause before disturbed times are taken again."""
    for _ in range(CALM_PAUSES):
        pause()


class InterleavedTiming:
    """The timing of finalists, interleaved: at first `rounds` rounds, in all about `seconds`.

    `first` is the number of rounds of the first heat, if that is shorter. A finalist that
    `interleaved_comparison` finds slower than the fastest takes no part in later rounds, nor one
    that took twice as long in its trial and in each of too few rounds to be sure. The number of
    rounds doubles until the comparison of the others is decided. Where noise leaves it unsettled,
    timing goes on for as many seconds again. `samples` has the times of each finalist, also if
    timing was interrupted; none of those for which there was no memory beside the others.

    Finalists of the same machine code are timed once and share the samples: between them, noise
    would be taken for a difference. A sample takes at least `sample_seconds`.
    """

    def __init__(
        self,
        finalists: Sequence[Finalist],
        rounds: int,
        seconds: float,
        sample_seconds: float,
        first: int | None = None,
    ) -> None:
        self.samples: list[tuple[float, ...]] = [()] * len(finalists)
        self._finalists = finalists
        kernels = [f.kernel for f in finalists]
        self._timed_as = [kernels.index(kernel) for kernel in kernels]
        self._running = sorted(set(self._timed_as)) if len(finalists) > 1 else []
        self._rounds = rounds
        self._next = rounds if first is None else first
        self._left = seconds
        self._reserve = seconds
        self._unsettled = False
        self._sample_seconds = sample_seconds

    @property
    def rounds(self) -> int:
        """The number of rounds that come next; 0 if it would be less than two of several."""
        if not self._running:
            return 0
        left = self._left + (self._reserve if self._unsettled else 0.0)
        rounds = min(self._next, int(left / self._round_seconds()))
        return rounds if rounds >= min(2, self._next) else 0

    @property
    def slowdown(self) -> float:
        """How many times as long they took as when they were candidates (see `slowdown`)."""
        return slowdown(self.samples, [f.seconds for f in self._finalists])

    @property
    def disturbed(self) -> bool:
        """Whether they took so long that they choose nothing."""
        return self.slowdown >= DISTURBED_FINALS

    def run(self, interleave: Interleave) -> None:
        """Time them until the comparison is settled, the time is over, or one of them fails."""
        while rounds := self.rounds:
            rows = interleave([self._finalists[n].kernel for n in self._running], rounds)
            if rows is None:
                return
            self._left -= rounds * self._round_seconds()
            new = dict(zip(self._running, rows, strict=True))
            self.samples = [
                samples + new.get(timed, ())
                for samples, timed in zip(self.samples, self._timed_as, strict=True)
            ]
            # There was no memory for those that have no samples, beside the faster ones.
            self._running = [n for n in self._running if self.samples[n]]
            self._next = max(self._rounds, len(self.samples[self._running[0]]))
            self._drop_slower()

    def _drop_slower(self) -> None:
        first = fastest_row(self.samples)
        ratios = {n: time_ratio(self.samples[n], self.samples[first]) for n in self._running}
        self._running = [
            n for n, ratio in ratios.items() if n == first or not self._is_out(n, first, ratio)
        ]
        others = [ratios[n] for n in self._running if n != first]
        self._unsettled = any(ratio.verdict is Verdict.UNSETTLED for ratio in others)
        if all(ratio.decided for ratio in others):
            self._running = []

    def _is_out(self, n: int, first: int, ratio: TimeRatio) -> bool:
        """Whether it is surely slower, or far behind where rounds are too few to be sure."""
        if ratio.interval is not None:
            return ratio.decided and ratio.verdict is Verdict.SLOWER
        in_trials = self._finalists[n].seconds / self._finalists[first].seconds
        return min(in_trials, *ratio.bounds) > FAR

    def _round_seconds(self) -> float:
        """About how long a round takes."""
        seconds = [self._finalists[n].seconds for n in self._running]
        return max(1e-9, sum(turn_seconds(s, self._sample_seconds) for s in seconds))


class SessionFinals(NamedTuple):
    """How finalists compare, the choice first, and its gains over the baselines among them."""

    comparison: tuple[ComparedSchedule, ...]
    gains: Gains

    @property
    def seconds(self) -> float:
        """The time of the choice."""
        return self.comparison[0].seconds


def session_finals(
    database: TuningDatabase, finalists: Sequence[Measurement]
) -> SessionFinals | None:
    """How interleaved measurements of a session compare; `None` for fewer than two.

    Those whose schedule is damaged are left out.
    """
    entries = []
    for measured in finalists:
        with suppress(DatabaseError):
            entries.append((measured, database.get(ScheduleRecord, measured.schedule)))
    if len(entries) < 2:
        return None
    untuned = untuned_of(database.get(Session, finalists[0].session))
    comparison = compare_schedules(entries, partial(_earlier, database, finalists[0]), untuned)
    choice = next(m for m, _ in entries if m.schedule == comparison[0].schedule)
    return SessionFinals(tuple(comparison), gains_of(choice, entries, untuned))


def _earlier(database: TuningDatabase, final: Measurement) -> dict[str, list[float]]:
    """The times of schedules (ids) that the session of a finalist measured before its finals."""
    times: dict[str, list[float]] = {}
    for m in database.measurements(session=final.session, outcome=Outcome.OK):
        same = (m.workload, m.target, m.toolchain) == (
            final.workload,
            final.target,
            final.toolchain,
        )
        if same and m.created < final.created:
            times.setdefault(m.schedule, []).extend(m.samples)
    return times
