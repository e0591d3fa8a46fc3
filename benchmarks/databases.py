"""What tuning databases cost: a lookup among many measurements, their size, import and exchange.

    python -m benchmarks.databases --records 1000000
    python -m benchmarks.databases --server postgresql+psycopg://db.example/scratch

The records of an import are those of trials: a schedule of 24 steps and its measurement, with the
features of a model. Steps repeat as those of searches do: of 575,384 steps that this project has
recorded 3,393 were distinct. They go into a new SQLite database, and with `--server` into that
database, which has to be empty: lookups are timed on the server too, among as many measurements
(a superuser copies them), and what both lack is exchanged.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import event

import tilewright as tw
from tilewright.tuning_db import (
    AnyRecord,
    Environment,
    Json,
    Measurement,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    TuningDatabase,
    Verification,
    Workload,
    canonical_json,
    utc_now,
)

from .filled import copied, filled

TARGET, TOOLCHAIN = TargetRecord("cpu", "x86", "a model"), Toolchain("llvm 22")
ENVIRONMENT = Environment({})
PROGRAMS = 10
TILES = [
    [64 // (b * c * d), b, c, d]
    for b, c, d in itertools.product((1, 2, 4, 8, 16, 32, 64), repeat=3)
    if b * c * d <= 64
]
"""The decisions of a loop of 64 that is tiled."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000, help="measurements to look among")
    parser.add_argument("--imported", type=int, default=20_000, help="records to import")
    parser.add_argument("--server", help="the URL of an empty database of a server")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many = filled(folder / "many.db", options.records)
        wanted = ([w.id for w in many.workloads], many.target, many.toolchain)
        times = lookups(many.database, *wanted)
        many.database.close()
        size = (folder / "many.db").stat().st_size
        print(f"{options.records:,} measurements in SQLite: {size / 1e6:,.0f} MB")
        print(f"  the best of a program: {times}")
        if options.server is not None:
            with (
                tw.TuningDatabase(options.server) as server,
                copied(folder / "many.db", server),
            ):
                print(f"  the best of a program on the server: {lookups(server, *wanted)}")
                print(f"  of which there: {at_server(server, *wanted):.2f} ms")
        lines = folder / "records.jsonl"
        with tw.TuningDatabase(folder / "source.db") as source:
            fill(source, options.imported // 2)
            count = source.export_lines(lines)
        with tw.TuningDatabase(folder / "one.db") as one, timed("import into SQLite", count):
            one.import_lines(lines)
        if options.server is None:
            return
        with tw.TuningDatabase(options.server) as server:
            with timed("import into the server", count):
                server.import_lines(lines)
            with tw.TuningDatabase(folder / "two.db") as two:
                with timed("sync of what only the server has", count):
                    two.sync(server)
                with timed("sync of nothing", count):
                    two.sync(server)


def lookups(
    database: TuningDatabase, ids: list[str], target: TargetRecord, toolchain: Toolchain
) -> str:
    """The median time of a lookup once statements are prepared, and the processor's of one."""
    for id in ids:
        database.best(id, target, toolchain)
    times, worked = [], time.process_time()
    for id in ids * -(-200 // len(ids)):
        began = time.perf_counter()
        found = database.best(id, target, toolchain)
        times.append(time.perf_counter() - began)
        assert found is not None
    worked = (time.process_time() - worked) / len(times)
    return f"{statistics.median(times) * 1e3:.2f} ms, {worked * 1e3:.2f} ms of this process"


def at_server(
    database: TuningDatabase, ids: list[str], target: TargetRecord, toolchain: Toolchain
) -> float:
    """The median milliseconds in which a server executes the statement of a lookup."""
    asked: list[tuple[str, dict[str, Any]]] = []
    engine = database._layers[0].engine

    def note(_c: object, _cursor: object, text: str, values: dict[str, Any], *_: object) -> None:
        asked.append((text, values))

    event.listen(engine, "before_cursor_execute", note)
    database.best(ids[0], target, toolchain)
    event.remove(engine, "before_cursor_execute", note)
    ((text, values),) = asked
    with engine.connect() as connection:
        plans = [
            connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", {**values, "workload": id}
            ).scalar_one()
            for id in ids
        ]
    return statistics.median(float(plan[0]["Execution Time"]) for plan in plans)


def fill(database: TuningDatabase, trials: int) -> None:
    """Put trials of programs."""
    began = utc_now()
    programs = [Workload(f"{n:064x}", "matmul", "ir", f"A[{n}]", 1, 1) for n in range(PROGRAMS)]
    database.put(*programs, TARGET, TOOLCHAIN, ENVIRONMENT)
    for n, program in enumerate(programs):
        session = database.start_session(
            program.id, TARGET.id, trials=None, seconds=1, seed=0, search={}, model={}
        )
        records: list[AnyRecord] = []
        for k in range(n, trials, PROGRAMS):
            schedule = ScheduleRecord(trace(k), 1, "rules")
            of = (session.id, schedule.id, program.id, TARGET.id, TOOLCHAIN.id, ENVIRONMENT.id)
            seconds = 1e-3 + k * 1e-7
            records += [
                schedule,
                Measurement(
                    *of, Outcome.OK, seconds, (seconds,) * 5, None, began + timedelta(seconds=k),
                    features=tuple(j * 0.37 + k * 1e-5 for j in range(30)), feature_version="1",
                ),
            ]  # fmt: skip
            if k < 5 * PROGRAMS:
                keys = (program.id, TARGET.id, schedule.id, TOOLCHAIN.id)
                records.append(Verification(*keys, True, 0.0, 1e-5, began))
        database.put(*records)
        database.finish_session(session.id)


def trace(k: int) -> str:
    """The trace of the trial of a number: 12 loops are tiled, as decided."""
    decisions = np.random.default_rng(k).integers(len(TILES), size=12)
    steps: list[Json] = []
    for j in range(12):
        sizes = [f"t{j}_{n}" for n in range(4)]
        sampled = {"loop": {"v": f"l{j}"}, "n": 4, "max_inner": 16}
        factors = {"loop": {"v": f"l{j}"}, "factors": [{"v": size} for size in sizes]}
        steps += [
            {"op": "sample_perfect_tile", "args": sampled, "decision": TILES[decisions[j]],
             "out": sizes},
            {"op": "split", "args": factors, "out": [f"l{j}_{n}" for n in range(4)]},
        ]  # fmt: skip
    return canonical_json({"version": 1, "steps": steps})


@contextmanager
def timed(what: str, count: int) -> Iterator[None]:
    """Print the records of a second, of the clock and of processor time, its children's too."""
    began, worked = time.perf_counter(), sum(os.times()[:4])
    yield
    seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - worked
    load = os.getloadavg()[0]
    print(
        f"  {what}: {count / seconds:,.0f} records/s, {count / cpu:,.0f} per s of processor "
        f"time (load {load:.1f})"
    )


if __name__ == "__main__":
    main()
