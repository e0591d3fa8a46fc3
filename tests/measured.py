"""Measurements that never ran: a program, a schedule of it, and how long that is said to take."""

from __future__ import annotations

import json

from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.records import (
    environment_record,
    inexact_steps,
    target_record,
    toolchain_record,
    workload_record,
)
from tilewright.target import Target
from tilewright.tir.ir import Func
from tilewright.tuning_db import (
    Measurement,
    Outcome,
    ScheduleRecord,
    TuningDatabase,
    Verification,
    utc_now,
)


def put_measured(
    db: TuningDatabase,
    func: Func,
    target: Target,
    trace: str,
    seconds: float | None,
    *,
    passed: bool | None = True,
    generator: str = "",
    features: tuple[float, ...] | None = None,
) -> Measurement:
    """Record that a trace was measured, and whether it was found right; `None` if not checked.

    Without seconds it crashed.
    """
    workload, where = workload_record(func), target_record(target)
    toolchain = toolchain_record(target)
    environment = environment_record(target)
    schedule = ScheduleRecord(trace, json.loads(trace)["version"], generator, inexact_steps(trace))
    db.put(workload, where, toolchain, environment, schedule)
    session = db.start_session(
        workload.id, where.id, trials=1, seconds=None, seed=0, search={}, model={}
    )
    measured = Measurement(
        session=session.id,
        schedule=schedule.id,
        workload=workload.id,
        target=where.id,
        toolchain=toolchain.id,
        environment=environment.id,
        outcome=Outcome.CRASH if seconds is None else Outcome.OK,
        seconds=seconds,
        samples=() if seconds is None else (seconds,),
        error="running it: signal 11" if seconds is None else None,
        created=utc_now(),
        features=features,
        feature_version=None if features is None else MODEL.feature_version,
    )
    db.put(measured)
    if passed is not None and seconds is not None:
        check = (workload.id, where.id, schedule.id, toolchain.id)
        db.put(Verification(*check, passed, 1e-7 if passed else 3.0, 1e-5, utc_now()))
    return measured
