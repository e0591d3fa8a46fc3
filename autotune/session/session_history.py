"""What a database has of a session, in the order of time: its trials, its finals, its clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import NamedTuple

from ...base.errors import DatabaseError
from ...tuning_db import TuningDatabase
from ...tuning_db.finals_rule import finals_key, of_finals
from ...tuning_db.tally import Trials
from ...tuning_db.values import Measurement, ScheduleRecord, Session, TargetRecord, Toolchain
from ..measure.numeric_check import require_tolerance
from ..running_time import running
from .events import Final, Trial
from .finals import SessionFinals, session_finals
from .noise import was_disturbed

_PAGE = 1000
_TICK = timedelta(microseconds=1)
"""The resolution of times in a database."""


class RecordedTrial(NamedTuple):
    """A trial with its record, and the generator of its schedule."""

    trial: Trial
    measurement: Measurement
    generator: str


class Ran(NamedTuple):
    """A schedule (id) that ran, with its last time, and where."""

    seconds: float
    schedule: str
    target: str
    toolchain: str

    @staticmethod
    def of(measured: Measurement) -> Ran | None:
        """`None` for a failure."""
        if measured.seconds is None:
            return None
        return Ran(measured.seconds, measured.schedule, measured.target, measured.toolchain)


@dataclass(eq=False)
class _Times:
    """What a toolchain measured in a session, by schedule (id): all, and its trials alone.

    `later` are all since its finals, which outdate what it measured before them, as in lookups.
    """

    all: dict[str, Ran] = field(default_factory=dict)
    trials: dict[str, Ran] = field(default_factory=dict)
    later: dict[str, Ran] = field(default_factory=dict)
    finalists: Sequence[Measurement] = ()
    finals: SessionFinals | None = None

    def add(self, measured: Measurement, *, trial: bool) -> Ran | None:
        """Add a measurement in the place of earlier ones of its schedule; a failure has no time."""
        ran = Ran.of(measured)
        for times in (self.all, self.later, *((self.trials,) if trial else ())):
            times.pop(measured.schedule, None)
            if ran is not None:
                times[ran.schedule] = ran
        return ran

    def add_finals(self, finalists: Sequence[Measurement]) -> None:
        self.finalists, self.finals, self.later = finalists, None, {}


class SessionHistory:
    """Reads a session from a database, from the beginning at first and then what is new.

    Which measurements are trials, `Trials` says. One of the same schedule that follows a trial at
    once replaces it: the trial was timed again. `tuning_db.finals_rule` says which are finals.
    `trials` is the number of trials. `elapsed` is the duration up to the `last` measurement; older
    versions did not record it, and long pauses are then left out. `toolchain` is the id of that of
    the last: times of other generations are not compared with its, here as in lookups. `in_finals`
    has the last measurement in finals of each schedule (id) that ran there, with its generator.
    """

    def __init__(self, database: TuningDatabase, session: Session) -> None:
        self.elapsed = 0.0
        self.toolchain: str | None = None
        self.in_finals: dict[str, tuple[Measurement, str]] = {}
        self._database = database
        self._session = session
        self.last: datetime | None = None
        self._counted = Trials(session.trials)
        self._latest: str | None = None
        self._best: float | None = None
        """The best time of the trials that have been read."""
        self._best_before: float | None = None
        """The same without the latest trial."""
        self._times: dict[str, _Times] = {}
        """What each toolchain (id) measured, the one used last at the end."""
        self._generations: dict[str, str] = {}

    @property
    def trials(self) -> int:
        return len(self._counted)

    @property
    def trial_seconds(self) -> float | None:
        """The best time of the trials; `None` if none of them counts."""
        return self._fastest(ran for times in self._comparable() for ran in times.trials.values())

    @property
    def finals(self) -> SessionFinals | None:
        """How the last finals ended; `None` without any, or if another time of it is less."""
        return self._choice()[1]

    def final(self, elapsed: float | None = None) -> Final:
        """How the last finals ended, as an event; those that do not count have no comparison."""
        finals, when = self.finals, self.elapsed if elapsed is None else elapsed
        if finals is None:
            return Final((), when)
        return Final(finals.comparison, when, gains=finals.gains, trial_seconds=self.trial_seconds)

    @property
    def own_seconds(self) -> float | None:
        """The best time of the session: finals replace the trials before them."""
        seconds, _ = self._choice()
        return None if seconds == math.inf else seconds

    def fastest(self) -> Iterator[Ran]:
        """The schedules that may be its best, by their last times, the fastest first."""
        last: dict[str, Ran] = {}
        for times in self._comparable():
            last |= times.all
        return filter(self._counts, sorted(last.values()))

    def read(self) -> Iterator[RecordedTrial]:
        """The trials since the last call; they are to be read to their end."""
        pending: RecordedTrial | None = None
        for together in self._moments():
            created = together[0][0].created
            measurement, generator = together[0]
            if measurement.elapsed is None:
                self.elapsed += running([self.last or self._session.started, created])
            else:
                self.elapsed = measurement.elapsed
            self.last = created
            self._use(measurement.toolchain)
            in_finals = of_finals((finals_key(m), m.outcome) for m, _ in together)
            final = [entry for entry, yes in zip(together, in_finals, strict=True) if yes]
            if final:
                self._add_finals(final)
            for measurement, generator in (e for e in together if e not in final):
                if measurement.trial and measurement.schedule == self._latest:
                    self._best = self._best_before
                    again = RecordedTrial(self._trial(measurement), measurement, generator)
                    pending = None if pending is None else again
                elif self._counted.add(measurement.schedule, measurement.trial, finals=False):
                    if pending is not None:
                        yield pending
                    self._latest, self._best_before = measurement.schedule, self._best
                    pending = RecordedTrial(self._trial(measurement), measurement, generator)
                else:
                    self._add(measurement, trial=bool(measurement.trial))
        if pending is not None:
            yield pending

    def _moments(self) -> Iterator[list[tuple[Measurement, str]]]:
        """The measurements of each moment since the last that was read, with their generators.

        The database may be asked meanwhile: pages are read, as one in memory has one connection.
        """
        size = _PAGE
        while True:
            since = None if self.last is None else self.last + _TICK
            with closing(self._database.each(session=self._session.id, since=since)) as rows:
                page = list(islice(rows, size))
            moments = [list(group) for _, group in groupby(page, key=lambda row: row[0].created)]
            if len(page) < size:
                yield from moments
                return
            yield from moments[:-1]  # the last may go on
            size = _PAGE if len(moments) > 1 else 2 * size

    def _use(self, toolchain: str) -> None:
        """Note whose measurements follow. The best of another generation is no best of theirs."""
        before, self.toolchain = self.toolchain, toolchain
        if before is not None and self._generation(before) != self._generation(toolchain):
            self._best = self._best_before = self.own_seconds

    def _add_finals(self, final: Iterable[tuple[Measurement, str]]) -> None:
        """Add interleaved measurements with their generators."""
        together = {m.schedule: (m, made) for m, made in final}
        self.in_finals |= together
        finalists = [measured for measured, _ in together.values()]
        for measured in finalists:
            self._add(measured, trial=False)
        self._times[finalists[0].toolchain].add_finals(finalists)
        self._best = self._best_before = self.own_seconds

    def _add(self, measured: Measurement, *, trial: bool) -> Ran | None:
        """Add a measurement; returns its time, if it ran."""
        times = self._times.pop(measured.toolchain, None) or _Times()
        self._times[measured.toolchain] = times
        return times.add(measured, trial=trial)

    def _trial(self, measured: Measurement) -> Trial:
        self.in_finals.pop(measured.schedule, None)
        ran = self._add(measured, trial=True)
        record = False
        if ran is not None:
            faster = self._best is None or ran.seconds < self._best
            record = faster and self._counts(ran)
        self._best = measured.seconds if record else self._best
        return Trial(
            number=self.trials,
            outcome=measured.outcome,
            seconds=measured.seconds,
            best_seconds=self._best,
            record=record,
            error=measured.error,
            schedule=measured.schedule,
            elapsed=self.elapsed,
            predicted=measured.predicted,
            disturbed=was_disturbed(measured.samples),
        )

    def _choice(self) -> tuple[float, SessionFinals | None]:
        """The best time, infinite if none counts, and the finals whose choice has it."""
        best: tuple[float, SessionFinals | None] = math.inf, None
        for times in self._comparable():
            if times.finals is None and times.finalists:
                times.finals = session_finals(self._database, times.finalists)
            finals = times.finals
            later = self._fastest((times.all if finals is None else times.later).values())
            seconds = math.inf if later is None else later
            if finals is not None and finals.seconds <= seconds:
                seconds = finals.seconds
            else:
                finals = None
            if seconds < best[0] or (seconds == best[0] < math.inf and finals is not None):
                best = seconds, finals
        return best

    def _comparable(self) -> Iterator[_Times]:
        """What was measured by toolchains of the generation of the last one."""
        for toolchain, times in self._times.items():
            if self._generation(toolchain) == self._generation(self.toolchain):
                yield times

    def _generation(self, toolchain: str | None) -> str | None:
        """The generation of a toolchain (id); its id where the record of it is damaged."""
        if toolchain is not None and toolchain not in self._generations:
            generation = toolchain
            with suppress(DatabaseError):
                generation = self._database.get(Toolchain, toolchain).generation
            self._generations[toolchain] = generation
        return self._generations.get(toolchain or "")

    def _fastest(self, ran: Iterable[Ran]) -> float | None:
        """The best time of those that count."""
        return next((r.seconds for r in sorted(ran) if self._counts(r)), None)

    def _counts(self, ran: Ran) -> bool:
        """Whether it may be the best of the session.

        No check of it failed, and if it has inexact steps, checks found errors within the tolerance
        of the session. It may be unchecked, as what is slower than the best known is. What is
        damaged does not count.
        """
        try:
            target = self._database.get(TargetRecord, ran.target)
            inexact = self._database.get(ScheduleRecord, ran.schedule).inexact
        except DatabaseError:
            return False
        checks = [
            check
            for check in self._database.verifications(self._session.workload, target, ran.schedule)
            if (check.target, check.toolchain) == (ran.target, ran.toolchain)
        ]
        if not all(check.passed for check in checks):
            return False
        if not inexact:
            return True
        tolerance = tolerance_of(self._session)
        return tolerance is not None and all(
            check.max_error is not None and check.max_error <= tolerance for check in checks
        )


def tolerance_of(session: Session) -> float | None:
    """The tolerance that a session says it had, if `tune` takes it; anybody may have written it."""
    found = session.search.get("tolerance")
    try:
        require_tolerance(found, DatabaseError)
    except DatabaseError:
        return None
    return found
