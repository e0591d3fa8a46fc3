"""Records to test with: small, deterministic, and complete enough to refer to each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from statistics import median

from tilewright.tuning_db import (
    AnyRecord,
    Environment,
    Machine,
    Measurement,
    Outcome,
    Pin,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Toolchain,
    TuningDatabase,
    Verification,
    Workload,
)
from tilewright.tuning_db.tables import TABLES

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

MATMUL = Workload("a" * 64, "matmul", "def matmul(): ...", "A[64,64] B[64,64]", 524288, 49152)
WIDER = Workload("b" * 64, "matmul", "def matmul(): ...", "A[64,64] B[64,128]", 1048576, 98304)
SOFTMAX = Workload("c" * 64, "softmax", "def softmax(): ...", "A[64,64]", 20480, 32768)
CPU = TargetRecord("cpu -threads=2", "x86_64 avx512f", "Xeon, 2 threads", {"l2": 1048576})
SAME_CPU = TargetRecord("cpu -mcpu=cascadelake", "x86_64 avx512f", "Xeon, 2 threads")
SLOW_CPU = TargetRecord("cpu -threads=1", "x86_64 avx512f", "Xeon, 1 thread")
ARM = TargetRecord("cpu", "aarch64 neon", "Graviton, 2 threads")
LLVM = Toolchain("llvm 22", {"llvmlite": "0.50.0"})
OLD_LLVM = Toolchain("llvm 21", {"llvmlite": "0.49.0"})
HOST = Environment({"host": "a", "load": 0.25, "numa": [0, 1]})
MACHINE = Machine(CPU.id, {"fma": 3.5e10, "clock": 2.6e9}, ("the clock varied by 12%",), NOON)
SESSION = Session(
    workload=MATMUL.id,
    target=CPU.id,
    trials=64,
    seconds=None,
    seed=7,
    search={"population": 512, "mutation": 0.5},
    model={"trees": 100},
    started=NOON,
    nonce="0123",
    status=SessionStatus.RUNNING,
    heartbeat=NOON,
    ended=None,
    host="elsewhere",
    pid=4711,
)
BASE: tuple[AnyRecord, ...] = (MATMUL, CPU, LLVM, HOST, SESSION)
DRIFT = (1.0, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.03, 0.97)
"""Of the rounds: it is the same for all."""


@dataclass
class Clock:
    """A clock that stands still until it is told to move."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: float = 1.0) -> None:
        self.now += timedelta(seconds=seconds)


def schedule(tile: int) -> ScheduleRecord:
    return ScheduleRecord(json.dumps([{"step": "split", "factor": tile}]), 1, "tiling/random")


def measurement(
    tile: int,
    seconds: float | None,
    *,
    workload: Workload = MATMUL,
    target: TargetRecord = CPU,
    toolchain: Toolchain = LLVM,
    outcome: Outcome | None = None,
    after: float = 0.0,
) -> Measurement:
    """The measurement of `schedule(tile)`; it crashed if it has no time and no other outcome.

    No two tiles are measured at one moment, which would make them a comparison.
    """
    return Measurement(
        session=SESSION.id,
        schedule=schedule(tile).id,
        workload=workload.id,
        target=target.id,
        toolchain=toolchain.id,
        environment=HOST.id,
        outcome=outcome or (Outcome.CRASH if seconds is None else Outcome.OK),
        seconds=seconds,
        samples=() if seconds is None else (seconds, seconds * 1.5, seconds / 2),
        error="signal 11" if seconds is None else None,
        created=NOON + timedelta(seconds=after, microseconds=tile - 8),
    )


def verification(
    tile: int,
    passed: bool = True,
    *,
    workload: Workload = MATMUL,
    target: TargetRecord = CPU,
    toolchain: Toolchain = LLVM,
) -> Verification:
    return Verification(
        workload=workload.id,
        target=target.id,
        schedule=schedule(tile).id,
        toolchain=toolchain.id,
        passed=passed,
        max_error=1e-6 if passed else 3.0,
        tolerance=1e-4,
        created=NOON,
    )


def verified(
    tile: int,
    seconds: float,
    *,
    workload: Workload = MATMUL,
    target: TargetRecord = CPU,
    toolchain: Toolchain = LLVM,
) -> tuple[AnyRecord, ...]:
    """A schedule, its measurement and a numeric check that passed."""
    return (
        schedule(tile),
        measurement(tile, seconds, workload=workload, target=target, toolchain=toolchain),
        verification(tile, workload=workload, target=target, toolchain=toolchain),
    )


def winograd(
    tile: int, seconds: float, max_error: float
) -> tuple[ScheduleRecord, Measurement, Verification]:
    """A schedule with an inexact step, its measurement and its check."""
    steps = [{"op": "winograd", "args": {"block": "b0", "tile": tile}}]
    made = ScheduleRecord(json.dumps({"version": 1, "steps": steps}), 1, inexact="winograd")
    return (
        made,
        replace(measurement(tile, seconds), schedule=made.id),
        replace(verification(tile), schedule=made.id, max_error=max_error, tolerance=max_error),
    )


def timed(
    schedule: ScheduleRecord,
    seconds: float,
    noise: Sequence[float] = DRIFT,
    after: float = 0.0,
) -> tuple[Measurement, ScheduleRecord]:
    """Measurements of a comparison: samples of so many seconds, times the factors `noise`."""
    samples = tuple(seconds * factor for factor in noise)
    measured = Measurement(
        session=SESSION.id,
        schedule=schedule.id,
        workload=MATMUL.id,
        target=CPU.id,
        toolchain=LLVM.id,
        environment=HOST.id,
        outcome=Outcome.OK,
        seconds=median(samples),
        samples=samples,
        error=None,
        created=NOON + timedelta(seconds=after),
    )
    return measured, schedule


ONE_OF_EACH: tuple[AnyRecord, ...] = (
    *BASE,
    MACHINE,
    schedule(8),
    measurement(8, 0.125),
    verification(8),
    Pin(MATMUL.id, CPU.id, schedule(8).id, NOON),
)


def fill(db: TuningDatabase) -> None:
    """Everything that measurements refer to."""
    db.put(*BASE, WIDER, SOFTMAX, SAME_CPU, SLOW_CPU, ARM, OLD_LLVM)


def delete(db: TuningDatabase, *ids: str) -> None:
    """Delete records that nothing refers to, as another program may."""
    with db._layers[0].writing(into_file=True) as connection:
        for table in TABLES.values():
            connection.execute(table.delete().where(table.c.id.in_(ids)))
