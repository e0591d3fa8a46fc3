"""A tuning database with any number of measurements, to look things up in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import tilewright as tw
from tilewright.tuning_db import (
    Environment,
    Measurement,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    Workload,
    utc_now,
)
from tilewright.tuning_db.models import TABLES

WORKLOADS = 200
TRIALS = 250


class Filled(NamedTuple):
    """A database, and what to look up in it."""

    database: tw.TuningDatabase
    workloads: list[Workload]
    target: TargetRecord
    toolchain: Toolchain


def filled(path: Path, count: int) -> Filled:
    """A new SQLite database of `count` measurements of 200 workloads, each of another schedule.

    Sessions are of 250. One in seven failed, one in five is verified; each has a moment of its own.
    Two measurements are put, and multiplied in SQL: putting each would take minutes.
    """
    database = tw.TuningDatabase(path)
    workloads = [Workload(f"{i:064x}", "matmul", "ir", f"A[{i}]", 1, 1) for i in range(WORKLOADS)]
    target, toolchain = TargetRecord("cpu", "x86", "a model"), Toolchain("llvm 22")
    environment = Environment({})
    last = Workload("f" * 64, "matmul", "ir", "A[0]", 1, 1)
    schedules = [
        ScheduleRecord(f'[{{"tile":{i}}},{",".join(["{}"] * 24)}]', 1)
        for i in range(-(-count // WORKLOADS))
    ]
    database.put(*workloads, last, target, toolchain, environment, *schedules)
    session = database.start_session(
        last.id, target.id, trials=None, seconds=1, seed=0, search={}, model={}
    )
    where = {"workload": last.id, "target": target.id, "toolchain": toolchain.id}
    fixed: dict[str, Any] = {
        **where,
        "session": session.id,
        "environment": environment.id,
        "created": utc_now(),
    }
    good, bad = (
        Measurement(schedule=schedules[0].id, outcome=o, seconds=s, samples=t, error=e, **fixed)
        for o, s, t, e in (
            (Outcome.OK, 1e-3, (1e-3,) * 5, None),
            (Outcome.CRASH, None, (), "signal 11"),
        )
    )
    database.put(good, bad)
    _multiply(path, count, good.id, bad.id)
    return Filled(database, workloads, target, toolchain)


def _multiply(path: Path, count: int, good: str, bad: str) -> None:
    changed = {
        "id": "printf('%064x', i * 7919 % 1000003 + i / 1000003 * 1000003)",
        "schedule": "s.id",
        "session": f"printf('%064x', i % {WORKLOADS} * 1000003 + i / {WORKLOADS} / {TRIALS})",
        "workload": f"printf('%064x', i % {WORKLOADS})",
        "seconds": "m.seconds + i * 104729 % 999983 * 1e-9",
        "verified": f"i / {WORKLOADS} % 5 = 0",
        # Only what was timed in turns shares a moment.
        "created": "strftime('%Y-%m-%d %H:%M:%f000', m.created, (i * 0.01) || ' seconds')",
    }
    names = [column.name for column in TABLES["measurement"].columns]
    values = [changed.get(name, f"m.{name}") for name in names]
    statement = f"""
        WITH RECURSIVE
            n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}),
            s AS MATERIALIZED (SELECT row_number() OVER () - 1 AS k, id FROM schedule)
        INSERT INTO measurement ({", ".join(names)})
        SELECT {", ".join(values)}
        FROM n JOIN s ON s.k = i / {WORKLOADS}
        JOIN measurement m ON m.id = CASE WHEN i / {WORKLOADS} % 7 = 0 THEN ? ELSE ? END
        """
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA cache_size = -2000000")  # KiB: all of it in memory
        connection.execute(statement, (bad, good))
