"""A tuning database with any number of measurements, to look things up in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Boolean, DateTime

import tilewright as tw
from tilewright.tuning_db import (
    Environment,
    Measurement,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    Verification,
    Workload,
    canonical_json,
    to_plain,
    utc_now,
)
from tilewright.tuning_db.canonical import digest
from tilewright.tuning_db.tables import TABLES

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
    Two measurements are put, and multiplied in SQL, with ids of their own: a lookup checks those.
    Putting each would take minutes.
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
    fixed: dict[str, Any] = {
        "session": session.id,
        "workload": last.id,
        "target": target.id,
        "toolchain": toolchain.id,
        "schedule": schedules[0].id,
        "created": utc_now(),
    }
    good, bad = (
        Measurement(outcome=o, seconds=s, samples=t, error=e, environment=environment.id, **fixed)
        for o, s, t, e in (
            (Outcome.OK, 1e-3, (1e-3,) * 5, None),
            (Outcome.CRASH, None, (), "signal 11"),
        )
    )
    del fixed["session"]
    check = Verification(passed=True, max_error=0.0, tolerance=1e-5, **fixed)
    database.put(good, bad, check)
    _multiply(path, count, good, bad, check)
    return Filled(database, workloads, target, toolchain)


@contextmanager
def copied(path: Path, server: tw.TuningDatabase) -> Iterator[None]:
    """The rows of a SQLite database in an empty one of a server, until the block ends.

    They refer to sessions that are not there, which a superuser may copy.
    """
    engine = server._layers[0].engine
    tables = ", ".join(TABLES)
    with closing(sqlite3.connect(path)) as source, engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        cursor: Any = connection.connection.cursor()
        for name, table in TABLES.items():
            columns = ", ".join(column.name for column in table.columns)
            converts = [_CONVERT.get(type(column.type)) for column in table.columns]
            with cursor.copy(f"COPY {name} ({columns}) FROM STDIN") as rows:
                for row in source.execute(f"SELECT {columns} FROM {name}"):
                    values = zip(row, converts, strict=True)
                    rows.write_row([v if v is None or c is None else c(v) for v, c in values])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"TRUNCATE {tables}")


_CONVERT: dict[type, Callable[[Any], Any]] = {Boolean: bool, DateTime: lambda time: f"{time}+00"}


def _multiply(
    path: Path, count: int, good: Measurement, bad: Measurement, check: Verification
) -> None:
    changed = {
        "schedule": "s.id",
        "session": f"printf('%064x', i % {WORKLOADS} * 1000003 + i / {WORKLOADS} / {TRIALS})",
        "workload": f"printf('%064x', i % {WORKLOADS})",
        "seconds": "m.seconds + i * 104729 % 999983 * 1e-9",
        "verified": f"i / {WORKLOADS} % 5 = 0",
        # Only interleaved measurements share a moment.
        "created": "strftime('%Y-%m-%d %H:%M:%f000', m.created, (i * 0.01) || ' seconds')",
    }
    names = [column.name for column in TABLES["measurement"].columns]
    values = [f"{changed.get(name, f'm.{name}')} AS {name}" for name in names]
    given = {
        "samples": "samples(seconds)",
        "id": "measurement_id(outcome, session, schedule, workload, seconds, created)",
    }
    statement = f"""
        WITH RECURSIVE
            n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}),
            s AS MATERIALIZED (SELECT row_number() OVER () - 1 AS k, id FROM schedule),
            made AS (
                SELECT {", ".join(values)}
                FROM n JOIN s ON s.k = i / {WORKLOADS}
                JOIN measurement m ON m.id = CASE WHEN i / {WORKLOADS} % 7 = 0 THEN ? ELSE ? END
            )
        INSERT INTO measurement ({", ".join(names)})
        SELECT {", ".join(given.get(name, name) for name in names)} FROM made
        """
    checks = [column.name for column in TABLES["verification"].columns]
    own = {"id": "verification_id(m.schedule, m.workload)"}
    own |= {name: f"m.{name}" for name in ("schedule", "workload")}
    verified = f"""
        INSERT INTO verification ({", ".join(checks)})
        SELECT {", ".join(own.get(name, f"v.{name}") for name in checks)}
        FROM measurement m JOIN verification v ON v.id = ?
        WHERE m.verified AND m.outcome = 'ok' AND m.workload <> v.workload
        """
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA cache_size = -2000000")  # KiB: all of it in memory
        connection.create_function("samples", 1, _samples)
        kinds = {m.outcome.value: m for m in (good, bad)}

        def measurement_id(outcome: str, session: str, *rest: Any) -> str:
            schedule, workload, seconds, created = rest
            like = kinds[outcome]
            plain = {k: v for k, v in to_plain(like).items() if k not in like.added_later}
            plain |= {"session": session, "schedule": schedule, "workload": workload}
            plain |= {"seconds": seconds, "created": f"{created.replace(' ', 'T')}+00:00"}
            return digest({**plain, "samples": [] if seconds is None else [seconds] * 5})

        def verification_id(schedule: str, workload: str) -> str:
            return digest({**to_plain(check), "schedule": schedule, "workload": workload})

        connection.create_function("measurement_id", 6, measurement_id)
        connection.create_function("verification_id", 2, verification_id)
        connection.execute(statement, (bad.id, good.id))
        connection.execute(verified, (check.id,))


def _samples(seconds: float | None) -> str:
    return canonical_json([] if seconds is None else [seconds] * 5)
