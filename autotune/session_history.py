"""What a database has of a session, in the order of time: its trials, its finals, its clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from ..errors import DatabaseError
from ..tuning_db import TuningDatabase
from ..tuning_db.tally import Trials
from ..tuning_db.values import Measurement, Outcome, ScheduleRecord, Session, TargetRecord
from .budget import running
from .events import Trial
from .measure.numeric_check import require_tolerance
from .noise import was_disturbed
from .session_finals import SessionFinals, session_finals

_TICK = timedelta(microseconds=1)
"""The resolution of times in a database."""


class RecordedTrial(NamedTuple):
    """A trial with its record, and the generator of its schedule."""

    trial: Trial
    measurement: Measurement
    generator: str


class SessionHistory:
    """Reads a session from a database, from the beginning at first and then what is new.

    Which measurements are trials, `Trials` says. One of the same schedule that follows a trial at
    once replaces it: the trial was timed again. Measurements of one moment are finals. `trials` is
    the number of trials, `trial_seconds` their best time, `None` if none ran; those with larger
    errors than the session permits do not count for it. `elapsed` is the
    duration up to the `last` measurement; older versions did not record it, and long pauses are
    then left out. `toolchain` is the id of that of the first. `in_finals` has the last measurement
    in finals of each schedule (id) that ran there, with its generator.
    """

    def __init__(self, database: TuningDatabase, session: Session) -> None:
        self.elapsed = 0.0
        self.trial_seconds: float | None = None
        self.toolchain: str | None = None
        self.in_finals: dict[str, tuple[Measurement, str]] = {}
        self._database = database
        self._session = session
        self.last: datetime | None = None
        self._counted = Trials(session.trials)
        self._latest: str | None = None
        self._fastest_before: float | None = None
        self._finalists: list[Measurement] = []
        self._finals: SessionFinals | None = None
        self._later: dict[str, float] = {}
        """The times of trials (schedules) since the last finals."""

    @property
    def trials(self) -> int:
        return len(self._counted)

    @property
    def finals(self) -> SessionFinals | None:
        """How the last finals ended; `None` without any, or if a later trial is faster."""
        if self._finals is None and self._finalists:
            self._finals = session_finals(self._database, self._finalists)
        later = min(self._later.values(), default=math.inf)
        return None if self._finals is None or later < self._finals.seconds else self._finals

    @property
    def own_seconds(self) -> float | None:
        """The best time of the session: finals replace the trials before them."""
        if self.finals is not None:
            return self.finals.seconds
        if self._finals is not None:
            return min(self._later.values())
        return self.trial_seconds

    def read(self) -> Iterator[RecordedTrial]:
        """The trials since the last call; they are to be read to their end."""
        since = None if self.last is None else self.last + _TICK
        rows = self._database.each(session=self._session.id, since=since)
        pending: RecordedTrial | None = None
        for created, group in groupby(rows, key=lambda row: row[0].created):
            together = list(group)
            measurement, generator = together[0]
            if measurement.elapsed is None:
                self.elapsed += running([self.last or self._session.started, created])
            else:
                self.elapsed = measurement.elapsed
            self.last = created
            self.toolchain = self.toolchain or measurement.toolchain
            if len(together) > 1:
                ran = {m.schedule: (m, made) for m, made in together if m.outcome is Outcome.OK}
                self._finalists = [m for m, _ in ran.values()]
                self.in_finals |= ran
                self._finals, self._later = None, {}
            elif measurement.trial and measurement.schedule == self._latest:
                self.trial_seconds = self._fastest_before
                again = RecordedTrial(self._trial(measurement), measurement, generator)
                pending = None if pending is None else again
            elif self._counted.add(measurement.schedule, measurement.trial, alone=True):
                if pending is not None:
                    yield pending
                self._latest, self._fastest_before = measurement.schedule, self.trial_seconds
                pending = RecordedTrial(self._trial(measurement), measurement, generator)
        if pending is not None:
            yield pending

    def _trial(self, measured: Measurement) -> Trial:
        seconds = measured.seconds if self._permits(measured) else None
        self._later.pop(measured.schedule, None)
        self.in_finals.pop(measured.schedule, None)
        if seconds is not None:
            self._later[measured.schedule] = seconds
        record = seconds is not None and (
            self.trial_seconds is None or seconds < self.trial_seconds
        )
        self.trial_seconds = seconds if record else self.trial_seconds
        return Trial(
            number=self.trials,
            outcome=measured.outcome,
            seconds=measured.seconds,
            best_seconds=self.trial_seconds,
            record=record,
            error=measured.error,
            schedule=measured.schedule,
            elapsed=self.elapsed,
            predicted=measured.predicted,
            disturbed=was_disturbed(measured.samples),
        )

    def _permits(self, measured: Measurement) -> bool:
        """Whether the errors of inexact steps are within the tolerance of the session."""
        tolerance = tolerance_of(self._session)
        if tolerance is None:
            return True  # it tried no inexact steps
        with suppress(DatabaseError):
            if not self._database.get(ScheduleRecord, measured.schedule).inexact:
                return True
        target = self._database.get(TargetRecord, measured.target)
        checks = self._database.verifications(measured.workload, target, measured.schedule)
        return all(
            check.max_error is not None and check.max_error <= tolerance
            for check in checks
            if (check.target, check.toolchain) == (measured.target, measured.toolchain)
        )


def tolerance_of(session: Session) -> float | None:
    """The tolerance that a session says it had, if `tune` takes it; anybody may have written it."""
    found = session.search.get("tolerance")
    try:
        require_tolerance(found, DatabaseError)
    except DatabaseError:
        return None
    return found
