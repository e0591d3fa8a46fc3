"""A small database for the tables of the shell: names of all kinds, and the same in every run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from tilewright import ops
from tilewright.autotune.records import workload_record
from tilewright.tuning_db import (
    AnyRecord,
    Outcome,
    ScheduleRecord,
    TuningDatabase,
    Verification,
    Workload,
)

from .lab.databases import Tuning, tuned
from .tuning_db.samples import (
    ARM,
    BASE,
    CPU,
    LLVM,
    MATMUL,
    NOON,
    OLD_LLVM,
    SESSION,
    SLOW_CPU,
    measurement,
)

NAMES = {
    "conv2d": "X:float32[1,64,112,112] W:float32[128,64,3,3] Y:float32[1,128,110,110]",
    "\u77e9\u9635\u4e58\u6cd5": "\uff21:float32[64,64] \uff22:float32[64,64]",  # wide characters
    "so\u0302ftm\u0301ax": "X:float32[64]",  # combining characters
    "<script>alert(1)</script>": "\x1b[2J\x1b]0;owned\x07 \u202eA:float32[8]\nB",
    "x" * 1000: "A:float32[8]",
}
"""Names and shapes of programs."""
RULES = "contraction(blocked=false, local=true, pack=[A,B], vector=1); elementwise(form=rows)"
ERRORS = {
    Outcome.OUT_OF_MEMORY: "building it takes more than 2 GiB",
}


def fill(path: Path) -> TuningDatabase:
    """Make the database: each program has a schedule on a target, the first one more of them."""
    db = TuningDatabase(path, clock=lambda: NOON + timedelta(days=1))
    programs = [
        replace(MATMUL, id=f"{n + 1:x}" * 64, name=name, shape=shape)
        for n, (name, shape) in enumerate(NAMES.items())
    ]
    empty = replace(SESSION, nonce="empty", trials=8, search={"population": 64, "batch": 2})
    db.put(*BASE, SLOW_CPU, *programs, empty)
    first = programs[0]
    db.put(*_measured(first, [4, 8, 2], 1.234e-6), *_measured(first, [4, 4, 4], 1.5e-6))
    db.put(*_measured(first, [16, 8, 1], 1e-6, "winograd"), *_measured(first, [1, 1, 1], None))
    db.put(*_measured(first, [4, 8, 2], 1.1e-6, minutes=13))  # it is superseded
    for n, program in enumerate(programs[1:]):
        db.put(*_measured(program, [n, 2], 0.0123 / (n + 1)))
    return db


def fill_session(path: Path) -> TuningDatabase:
    """Make a database of a matmul that was tuned, here and elsewhere, and of one of other sizes."""
    with patch("uuid.uuid4", lambda: SimpleNamespace(hex="0123")):
        db = tuned(path)
        wider = Tuning(path, ops.matmul_func(64, 64, 128))
        session = wider.start()
    wider.trial(session, 8, 2e-3)
    wider.trial(session, 16, 2.5e-3)
    wider.end(session)
    wider.database.close()
    ran = [m for m in db.measurements(workload=wider.workload.id) if m.seconds is not None]
    program = workload_record(ops.matmul_func(64, 64, 64))
    here = [replace(m, workload=program.id) for m in ran]
    db.put(workload_record(ops.matmul_func(32, 32, 32)), ARM, SLOW_CPU, OLD_LLVM)
    db.put(*(replace(m, target=ARM.id) for m in here), replace(here[0], toolchain=OLD_LLVM.id))
    return db


def _measured(
    program: Workload,
    decisions: Sequence[int],
    seconds: float | None,
    inexact: str = "",
    minutes: int | None = None,
) -> list[AnyRecord]:
    """A schedule with decisions, its measurement, and the check that it passed if it ran.

    It is so many `minutes` past noon, those of its decisions if that is `None`.
    """
    steps = [
        {
            "op": "sample_categorical",
            "args": {"candidates": [decision]},
            "out": [f"t{n}"],
            "decision": [decision],
        }
        for n, decision in enumerate(decisions)
    ]
    schedule = ScheduleRecord(json.dumps({"version": 1, "steps": steps}), 1, RULES, inexact)
    outcome = Outcome.OUT_OF_MEMORY if seconds is None else Outcome.OK
    measured = replace(
        measurement(8, seconds, workload=program, outcome=outcome),
        schedule=schedule.id,
        error=ERRORS.get(outcome),
        created=NOON + timedelta(minutes=sum(decisions) if minutes is None else minutes),
    )
    if seconds is None:
        return [schedule, measured]
    ids = (program.id, CPU.id, schedule.id, LLVM.id)
    return [schedule, measured, Verification(*ids, True, 1e-7, 1e-5, NOON)]
