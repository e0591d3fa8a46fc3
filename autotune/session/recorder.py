"""Puts what a session measures into the database, each as soon as it is known."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ...runtime.measure.comparison import CheckResult
from ...schedule import Trace
from ...tuning_db import TuningDatabase
from ...tuning_db.canonical import Json
from ...tuning_db.values import (
    Environment,
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Toolchain,
    Verification,
    Workload,
    utc_now,
)
from ..measure.measure_result import MeasureResult
from ..result import BestResult
from ..search.history import best_known
from ..search.replay import Replays
from .finals import SessionFinals, session_finals
from .session_history import SessionHistory, tolerance_of

BEAT = 15.0
"""Seconds between heartbeats of a session."""


class Subject(NamedTuple):
    """The program, target, toolchain and environment of a session."""

    workload: Workload
    target: TargetRecord
    toolchain: Toolchain
    environment: Environment


class Earlier(NamedTuple):
    """A schedule that an earlier call of the session measured, with its last time there."""

    seconds: float
    schedule: ScheduleRecord
    trace: Trace


class Recorder:
    """Writes the records of a session. What a method has written is durable when it returns.

    `replays` decides which schedules of the database apply to the program. `feature_version` is
    that of the features of candidates.
    """

    def __init__(
        self,
        database: TuningDatabase,
        subject: Subject,
        session: Session,
        replays: Replays,
        feature_version: str,
        tolerance: float | None = None,
        together: Collection[str] = (),
    ) -> None:
        self.subject = subject
        self.together = together
        self._tolerance = tolerance
        self._replays = replays
        self._feature_version = feature_version
        self.session = session
        self._database = database
        before, began = session.duration, time.monotonic()
        self.elapsed: Callable[[], float] = lambda: before + time.monotonic() - began
        """The duration of the session by now; of several that share a budget, each has its own."""
        self._resources: dict[str, Mapping[str, Json] | None] = {}
        self._last_beat = time.monotonic()
        self._began = utc_now()
        self._history = SessionHistory(database, session)

    def trial(
        self,
        schedule: ScheduleRecord,
        measured: MeasureResult,
        features: tuple[float, ...] = (),
        predicted: float | None = None,
    ) -> Measurement:
        """Record a schedule, its measurement, and its check if there was one."""
        return self._put(self.trial_records(schedule, measured, features, predicted))

    def rival(self, schedule: ScheduleRecord, measured: MeasureResult) -> Measurement:
        """As `trial`, of what the finals compare with; the budget does not pay for it."""
        return self._put(self.trial_records(schedule, measured, trial=False))

    def trial_records(
        self,
        schedule: ScheduleRecord,
        measured: MeasureResult,
        features: tuple[float, ...] = (),
        predicted: float | None = None,
        *,
        trial: bool = True,
    ) -> tuple[ScheduleRecord, Measurement, *tuple[Verification, ...]]:
        """What `trial` and `rival` record, of this moment."""
        if measured.kernel is not None:
            self._resources[schedule.id] = measured.kernel.resources
        measurement = self._measurement(
            schedule.id,
            measured.outcome,
            measured.seconds,
            measured.samples,
            utc_now(),
            measured.error,
            features,
            predicted,
            trial=trial,
        )
        measurement = _measured_in(measurement, measured.environment)
        if measured.check is None:
            return schedule, measurement
        return schedule, measurement, self._verification(schedule.id, measured.check)

    def check(self, schedule: str, result: CheckResult) -> None:
        """Record that the results of a schedule (id) were compared."""
        self._database.put(self._verification(schedule, result))

    def finals(
        self,
        timed: Sequence[tuple[ScheduleRecord, tuple[float, ...]]],
        environment: str | None = None,
    ) -> SessionFinals | None:
        """Record interleaved samples of schedules; return how they compare, if they are several.

        They are of the session's environment, or of another one (id).
        """
        entries = [(_measured_in(m, environment), s) for m, s in self.final_entries(timed)]
        self._database.put(*(measurement for measurement, _ in entries))
        return session_finals(self._database, [m for m, _ in entries])

    def final_entries(
        self, timed: Sequence[tuple[ScheduleRecord, tuple[float, ...]]]
    ) -> list[tuple[Measurement, ScheduleRecord]]:
        """Interleaved samples of schedules as measurements of this moment."""
        now = utc_now()
        return [
            (self._measurement(s.id, Outcome.OK, statistics.median(row), row, now, trial=False), s)
            for s, row in timed
        ]

    def best(self) -> BestResult | None:
        """The best checked schedule in the database, whoever measured it."""
        return best_known(self._database, *self.subject[:3], self._tolerance, replays=self._replays)

    @property
    def history(self) -> SessionHistory:
        """What the database has of the session by now."""
        deque(self._history.read(), maxlen=0)
        return self._history

    @property
    def pinned(self) -> str | None:
        """The schedule (id) that is pinned for the program; `None` if none is."""
        pin = self._database.pinned(self.subject.workload.id, self.subject.target)
        return None if pin is None else pin.schedule

    def known_seconds(self, schedule: str) -> float | None:
        """The last time of a schedule (id) here; `None` if it never ran."""
        workload, target, toolchain, _ = self.subject
        measured = self._database.measurements(
            workload=workload.id, target=target, schedule=schedule, outcome=Outcome.OK
        )
        same = (m.seconds for m in measured if m.toolchain == toolchain.id)
        return next(same, None)

    def earlier(self, most: int, margin: float) -> list[Earlier]:
        """The fastest schedules of the session so far, at most `most` within `margin` of the first.

        Those that do not apply to the program are left out.
        """
        found: list[Earlier] = []
        for seconds, schedule, *_ in self.history.fastest():
            if len(found) == most or (found and seconds > margin * found[0].seconds):
                break
            record = self._database.get(ScheduleRecord, schedule)
            if self._replays(record) is None:
                found.append(Earlier(seconds, record, self._replays.schedule(record).trace))
        self._replays.warn(self._database.location)
        return found

    def beat(self) -> None:
        """Write a heartbeat of the session, if the last is some time ago."""
        if time.monotonic() - self._last_beat > BEAT:
            self._beat()

    def drift(self, ratio: float) -> None:
        """Record the time of the reference kernel over its first."""
        self._beat(ratio)

    def others(self) -> list[Session]:
        """The other sessions at work on this machine since this one, as far as its database knows.

        Of programs that share a budget one is at work: theirs do not disturb one another.
        """
        ids = {self.session.id, *self.together}
        return [s for s in self._database.sessions_beside(self._began) if s.id not in ids]

    @property
    def trials(self) -> int:
        """How many trials the session has, with those of earlier calls."""
        return self._database.trials(self.session.id)

    @property
    def kept(self) -> str:
        """What the database has of the session, and how to go on, in plain words."""
        return kept_text(self._database, self.session.id)

    def end(self, status: SessionStatus, noise: str | None = None) -> Session:
        """End the session; `noise` marks it, in plain words, if the machine was not calm."""
        return self._database.finish_session(self.session.id, status, noise, self.elapsed())

    def _put(
        self, records: tuple[ScheduleRecord, Measurement, *tuple[Verification, ...]]
    ) -> Measurement:
        self._database.put(*records)
        self._beat()
        return records[1]

    def _beat(self, drift: float | None = None) -> None:
        self._last_beat = time.monotonic()
        self._database.heartbeat(self.session.id, self.elapsed(), drift)

    def _verification(self, schedule: str, result: CheckResult) -> Verification:
        return Verification(
            workload=self.subject.workload.id,
            target=self.subject.target.id,
            schedule=schedule,
            toolchain=self.subject.toolchain.id,
            passed=result.passed,
            max_error=result.max_error,
            tolerance=result.tolerance,
            created=utc_now(),
        )

    def _measurement(
        self,
        schedule: str,
        outcome: Outcome,
        seconds: float | None,
        samples: tuple[float, ...],
        created: datetime,
        error: str | None = None,
        features: tuple[float, ...] = (),
        predicted: float | None = None,
        *,
        trial: bool,
    ) -> Measurement:
        return Measurement(
            session=self.session.id,
            schedule=schedule,
            workload=self.subject.workload.id,
            target=self.subject.target.id,
            toolchain=self.subject.toolchain.id,
            environment=self.subject.environment.id,
            outcome=outcome,
            seconds=seconds,
            samples=samples,
            error=error,
            created=created,
            features=features or None,
            feature_version=self._feature_version if features else None,
            resources=self._resources.get(schedule),
            predicted=predicted,
            elapsed=self.elapsed(),
            trial=trial,
        )


def _measured_in(measurement: Measurement, environment: str | None) -> Measurement:
    """A measurement in an environment (id) other than the session's, unless it is `None`."""
    return measurement if environment is None else replace(measurement, environment=environment)


def kept_text(database: TuningDatabase, session: str) -> str:
    """What a database has of a session (id), and how to go on, in plain words."""
    trials = database.trials(session)
    some = "1 trial is" if trials == 1 else f"{trials} trials are"
    tolerance = tolerance_of(database.get(Session, session))
    same = "target and budget" if tolerance is None else "target, budget and tolerance"
    return (
        f"{some} kept in {database.location}; resume=True (--resume) with the same {same} "
        "continues the session"
    )
