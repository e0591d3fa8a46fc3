"""A small tuning database with a history that could be real, the same bytes in every run."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial

import numpy as np

from tilewright.autotune.records import target_record, toolchain_record, workload_record
from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
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
    Verification,
)

from ..schedule.random_cases import Tally, apply_random_steps
from ..schedule.random_stages import Pick
from ..schedule.random_steps import STEPS, bind
from .subjects import TARGET, subjects

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOST = Environment({"host": "here", "load": 0.25, "processors": [0, 1]})
TUNED = ("matmul", "wider", "affine")
PROCESSOR_STEPS = tuple(step for step in STEPS if step is not bind)


@cache
def here() -> tuple[TargetRecord, Toolchain]:
    """The target and the toolchain that builds look up on this machine."""
    target = resolve(TARGET)
    return target_record(target), toolchain_record(target)


@cache
def traces(name: str) -> tuple[str, ...]:
    """Schedules of a program as JSON texts: those chosen without trials, and random ones."""
    func = subjects()[name].func
    target = resolve(TARGET)
    made = [default_trace(func, target).to_json(), model_trace(func, target).to_json()]
    for seed in range(3):
        schedule = random_schedule(func, partial(_number, np.random.default_rng(seed)), 8)
        made.append(schedule.trace.to_json())
    return tuple(dict.fromkeys(made))


def _number(rng: np.random.Generator, n: int) -> int:
    return int(rng.integers(n))


def random_schedule(func: Func, pick: Pick, steps: int) -> Schedule:
    """A schedule of random steps that processors can run: they have no axes to bind loops to."""
    schedule, _ = apply_random_steps(Schedule(func), pick, steps, Tally(), PROCESSOR_STEPS)
    return schedule


@cache
def history() -> tuple[AnyRecord, ...]:
    """Every record of the database, parents first."""
    target, toolchain = here()
    found: list[AnyRecord] = [target, toolchain, HOST, *machines()]
    for number, name in enumerate(TUNED):
        found += session_of(name, number)
    affine = workload_record(subjects()["affine"].func)
    found.append(Pin(affine.id, target.id, ScheduleRecord(traces("affine")[-1], 1).id, NOON))
    return tuple(found)


def machines() -> list[Machine]:
    """Descriptions of the target, the newest last."""
    target, _ = here()
    rates = {"clock": 2.5e9, "fma": 4e10, "fork": 2e-6}
    return [
        Machine(target.id, rates, ("the clock varied by 12%",), NOON),
        Machine(target.id, {**rates, "fma": 3.9e10}, (), NOON + timedelta(hours=1)),
    ]


def session_of(name: str, number: int) -> list[AnyRecord]:
    """A session that measured every schedule of a program."""
    target, _ = here()
    workload = workload_record(subjects()[name].func)
    begun = NOON + timedelta(hours=number)
    session = Session(
        workload=workload.id,
        target=target.id,
        trials=8,
        seconds=None,
        seed=number,
        search={"pool": 512},
        model={"trees": 20},
        started=begun,
        nonce=f"{number:032x}",
        status=(SessionStatus.FINISHED, SessionStatus.INTERRUPTED)[number % 2],
        heartbeat=begun,
        ended=begun,
        host=socket.gethostname(),
        pid=1,
    )
    records: list[AnyRecord] = [workload, session]
    for k, trace in enumerate(traces(name)):
        records += measured(session, trace, (k + 2) * 1e-6, begun + timedelta(seconds=k))
    records.append(crashed(session, traces(name)[0], begun + timedelta(seconds=60)))
    return records


def measured(
    session: Session, trace: str, seconds: float, created: datetime
) -> tuple[ScheduleRecord, Measurement, Verification]:
    """A schedule that took so long and was found right."""
    target, toolchain = here()
    schedule = ScheduleRecord(trace, 1, "by/hand")
    measurement = Measurement(
        session=session.id,
        schedule=schedule.id,
        workload=session.workload,
        target=target.id,
        toolchain=toolchain.id,
        environment=HOST.id,
        outcome=Outcome.OK,
        seconds=seconds,
        samples=(seconds, seconds, seconds * 1.25),
        error=None,
        created=created,
    )
    verification = Verification(
        workload=session.workload,
        target=target.id,
        schedule=schedule.id,
        toolchain=toolchain.id,
        passed=True,
        max_error=1e-7,
        tolerance=1e-5,
        created=created,
    )
    return schedule, measurement, verification


def crashed(session: Session, trace: str, created: datetime) -> Measurement:
    """A measurement of an earlier schedule in another session, which did not finish."""
    _, measurement, _ = measured(session, trace, 1.0, created - timedelta(hours=12))
    return replace(measurement, outcome=Outcome.CRASH, seconds=None, samples=(), error="signal 11")
