"""Databases of tuning that never ran: programs with trials, failures and finals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import tilewright as tw
from tilewright import ops
from tilewright.autotune.records import schedule_record, workload_record
from tilewright.tuning_db import (
    AnyRecord,
    Environment,
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Toolchain,
    TuningDatabase,
    Verification,
    Workload,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPU = TargetRecord("cpu -mcpu=znver4 -threads=2", "x86_64", "some processor")
LLVM = Toolchain("llvm 22", {"llvmlite": "0.50"})
HOST = Environment({"host": "a"})
FUNC = ops.matmul_func(64, 64, 64)
HOSTILE = "<script>document.title = 'run'</script>\"'&<!--\x1b[2J\u202e</style></table>"
"""What a foreign database may call things; no NUL, which no database takes."""


class Tuning:
    """Writes sessions; each trial is a second after the one before."""

    def __init__(self, path: Path, func: tw.Func = FUNC) -> None:
        self.now = NOON
        self.database = TuningDatabase(path, clock=lambda: self.now)
        self.workload = workload_record(func)
        self._func = func
        self.database.put(self.workload, CPU, LLVM, HOST)

    def start(
        self, workload: Workload | None = None, untuned: int = 16, trials: int | None = 64
    ) -> Session:
        """Begin a session of the program or another one."""
        session = self.database.start_session(
            (workload or self.workload).id,
            CPU.id,
            trials=trials,
            seconds=None,
            seed=0,
            search={},
            model={},
            preparing=True,
        )
        return self.database.prepared_session(session.id, self.schedule(untuned).id)

    def schedule(self, tile: int) -> ScheduleRecord:
        """A schedule that took one decision; none for a tile of 0."""
        sch = tw.Schedule(self._func)
        if tile:
            loop, *_ = sch.get_loops(sch.get_block("C"))
            size = sch.sample_categorical([2, 4, 8, 16, 32], decision=[tile])
            sch.split(loop, [None, size])
        return schedule_record(sch.trace, f"tiling(vector={tile > 4})")

    def schedules(self, count: int) -> list[ScheduleRecord]:
        """So many schedules that differ in the decision they took."""
        first = self.schedule(2)
        return [
            replace(first, trace=first.trace.replace('"decision":[2]', f'"decision":[{n}]'))
            for n in range(count)
        ]

    def trial(
        self,
        session: Session,
        tile: int,
        seconds: float | None,
        error: str = "",
        outcome: Outcome = Outcome.CRASH,
        predicted: float | None = None,
    ) -> None:
        """Record a trial, checked if it ran."""
        self.now += timedelta(seconds=1)
        self.database.heartbeat(session.id)
        schedule = self.schedule(tile)
        records: list[AnyRecord] = [schedule]
        if seconds is not None:
            outcome = Outcome.OK
            records.append(self.verification(session, schedule.id))
        samples = () if seconds is None else (seconds,)
        records.append(self._measurement(session, schedule.id, samples, error, outcome, predicted))
        self.database.put(*records)

    def finals(self, session: Session, times: dict[int, float]) -> None:
        """Time tiles interleaved; the noise of a round is the same for all."""
        self.now += timedelta(seconds=1)
        self.database.heartbeat(session.id)
        for tile, seconds in times.items():
            samples = tuple(seconds * (1 + n % 3 / 100) for n in range(9))
            id = self.schedule(tile).id
            self.database.put(self._measurement(session, id, samples, "", Outcome.OK, None))

    def verification(self, session: Session, schedule: str) -> Verification:
        """A numeric check of a schedule (id) that passed."""
        return Verification(session.workload, CPU.id, schedule, LLVM.id, True, 1e-7, 1e-5, self.now)

    def end(self, session: Session) -> None:
        self.now += timedelta(seconds=1)
        self.database.finish_session(session.id, SessionStatus.FINISHED)

    def _measurement(
        self,
        session: Session,
        schedule: str,
        samples: tuple[float, ...],
        error: str,
        outcome: Outcome,
        predicted: float | None,
    ) -> Measurement:
        return Measurement(
            session=session.id,
            schedule=schedule,
            workload=session.workload,
            target=CPU.id,
            toolchain=LLVM.id,
            environment=HOST.id,
            outcome=outcome,
            seconds=sorted(samples)[len(samples) // 2] if samples else None,
            samples=samples,
            error=None if outcome is Outcome.OK else error,
            created=self.now,
            predicted=predicted,
            elapsed=self.database.get(Session, session.id).duration,
        )


def tuned(path: Path) -> TuningDatabase:
    """A database of one finished session: times, failures for two reasons, and finals."""
    tuning = Tuning(path)
    session = tuning.start()
    tuning.trial(session, 0, 8e-3, predicted=5e-3)
    tuning.trial(session, 2, 4e-3, predicted=4e-3)
    tuning.trial(session, 4, None, f"signal 11\nmore of {HOSTILE}")
    tuning.trial(session, 32, None, "longer than 20 s", Outcome.BUILD_TIMEOUT)
    tuning.trial(session, 16, 2e-3, predicted=3e-3)
    tuning.trial(session, 8, 1e-3, predicted=2e-3)
    tuning.finals(session, {0: 8e-3, 16: 2.2e-3, 8: 1.1e-3})
    tuning.end(session)
    return tuning.database
