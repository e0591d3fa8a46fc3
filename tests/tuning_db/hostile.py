"""Random damage to a database, and everything that reads one: `python -m tests.tuning_db.hostile`.

    python -m tests.tuning_db.hostile FOLDER SEED COUNT

Makes a small database with measurements of a real program, damages copies of it (bits, pages, its
end, values of any column), and uses each in every way there is. Whatever the damage, the answer is
the truth or a `DatabaseError`; anything else ends with a traceback that follows the seed. Prints
how many of the copies were refused, and how many of the uses.
"""

from __future__ import annotations

import io
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import numpy as np

import tilewright as tw
from tilewright import ops
from tilewright.autotune.model.cpu.estimate import FEATURES
from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.records import target_record, toolchain_record, workload_record
from tilewright.autotune.search import history, transfer
from tilewright.autotune.search.replay import Replays
from tilewright.autotune.search.search import Search, SearchConfig
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.errors import DatabaseError
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.tuning_db import (
    AnyRecord,
    Machine,
    Measurement,
    ScheduleRecord,
    TuningDatabase,
)
from tilewright.tuning_db.values import KINDS

from ..measured import put_measured

TARGET = resolve("cpu -threads=1")
N, M, K = 6, 10, 4
FUNC, OTHER = ops.matmul_func(N, M, K), ops.matmul_func(2 * N, M, K)
SUBJECT = workload_record(FUNC), target_record(TARGET), toolchain_record(TARGET)
VALUES: tuple[object, ...] = (
    *(-1, 0, 1, None, 2**63 - 1, -(2**63), -1.0, 1e-300, 1e-9, 0.5, 1e300, float("inf")),
    *(float("-inf"), "", "x", "soon", "nan", "today", "9999-99-99 00:00:00.000000", "\0", "ok"),
    *("0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", "2026-01-01T00:00:00+14:00"),
    *("[", "[]", "{}", "null", "[NaN]", "[1e999]", "[-1]", "[1e308]", '["a"]', '{"a":1,"a":2}'),
    *('{"version":1,"steps":[]}', '{"version":99,"steps":[]}', "[" * 100_000, "9" * 5000),
    *("0" * 64, "x" * 2_000_000, "A[" + "9" * 5000 + "]", b"\xff", b"", "\U0001f600" * 1001),
)


def make(path: Path) -> None:
    """A new database with what was measured of two sizes of a program."""
    path.unlink(missing_ok=True)
    features = tuple(-10.0 + n for n in range(len(FEATURES)))
    sch = tw.Schedule(FUNC)
    sch.unroll(sch.get_loops(sch.get_block("C"))[2])
    with TuningDatabase(path) as db:
        trace = default_trace(FUNC, TARGET).to_json()
        put_measured(db, FUNC, TARGET, trace, 1e-3, features=features)
        put_measured(db, FUNC, TARGET, sch.trace.to_json(), 2e-3, features=features)
        put_measured(db, FUNC, TARGET, tw.Schedule(FUNC).trace.to_json(), None)
        trace = default_trace(OTHER, TARGET).to_json()
        put_measured(db, OTHER, TARGET, trace, 1e-3, features=features)
        for clock in (1e9, 2e9):
            created = datetime.fromtimestamp(clock, UTC)
            db.put(Machine(SUBJECT[1].id, {"clock": clock}, (f"{clock} Hz",), created))


def damage_bytes(path: Path, rng: np.random.Generator) -> None:
    """Bits, a page, or all that comes after some place."""
    content = bytearray(path.read_bytes())
    match int(rng.integers(4)):
        case 0:
            for _ in range(rng.choice([1, 8, 64])):
                content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        case 1:
            del content[rng.integers(len(content)) :]
        case 2:
            page = 4096 * int(rng.integers(len(content) // 4096))
            content[page : page + 4096] = bytes(4096)
        case _:
            one, two = (4096 * int(n) for n in rng.integers(len(content) // 4096, size=2))
            content[one : one + 4096] = content[two : two + 4096]
    path.write_bytes(content)


def damage_values(path: Path, rng: np.random.Generator) -> None:
    """Values of any column: hostile ones, or those of another row or column."""
    with closing(sqlite3.connect(path)) as raw, raw:
        columns = [
            (table, column[1])
            for table in KINDS
            for column in raw.execute(f"PRAGMA table_info({table})")
        ]
        for _ in range(rng.choice([1, 2, 6])):
            table, column = columns[rng.integers(len(columns))]
            some = rng.choice(["", f" WHERE rowid % 2 = {rng.integers(2)}"])
            with suppress(sqlite3.IntegrityError):
                if rng.random() < 0.25:
                    other = rng.choice([c for t, c in columns if t == table])
                    given = f"(SELECT {other} FROM {table} ORDER BY rowid LIMIT 1)"
                    raw.execute(f"UPDATE {table} SET {column} = {given}{some}")
                else:
                    value = VALUES[rng.integers(len(VALUES))]
                    cast = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
                    raw.execute(f"UPDATE {table} SET {column} = {cast}{some}", (value,))


def intact(path: Path) -> dict[str, AnyRecord]:
    with TuningDatabase(path) as db:
        return {record.id: record for kind in KINDS.values() for record in db.records(kind)}


def uses(db: TuningDatabase, known: dict[str, AnyRecord]) -> dict[str, Callable[[], None]]:
    """Every use of a database, each of which asserts what has to hold of what comes out."""

    def same(record: AnyRecord | None) -> None:
        if isinstance(record, Measurement | Machine):
            assert record == known[record.id]
        if isinstance(record, ScheduleRecord):  # what made it is no part of it
            assert record.trace == cast(ScheduleRecord, known[record.id]).trace

    def records() -> None:
        for kind in KINDS.values():
            for record in db.records(kind):
                same(record)

    def best() -> None:
        found = db.best(SUBJECT[0].id, *SUBJECT[1:])
        if found is not None:
            same(found.measurement)
            same(found.schedule)

    def machine() -> None:
        same(db.machine(SUBJECT[1].id))

    def explain() -> None:
        assert "searched: " in str(db.explain(SUBJECT[0], *SUBJECT[1:]))
        assert "searched: " in str(tw.explain(FUNC, TARGET, db))

    def move() -> None:
        lines = io.StringIO()
        db.export_lines(lines)
        lines.seek(0)
        with TuningDatabase("sqlite://") as other:
            other.import_lines(lines)
            assert {m.id for m in other.records(Measurement)} <= known.keys()
            other.merge(db)

    def build() -> None:
        module = tw.build(FUNC, TARGET, db)
        a = np.arange(N * K, dtype=np.float32).reshape(N, K)
        b = np.arange(K * M, dtype=np.float32).reshape(K, M)
        c = np.empty((N, M), np.float32)
        module(a, b, c)
        np.testing.assert_array_equal(c, a @ b)

    def tune() -> None:
        replays = Replays(FUNC)
        found = history.best_known(db, *SUBJECT, replays=replays)
        assert found is None or found.measurement_id in known
        observed = history.known(db, *SUBJECT, MODEL, without=replays.refused)
        config = SearchConfig(pool=200)
        search = Search(FUNC, TARGET, seed=0, config=config, known=observed)
        transfer.warm(search, db, *SUBJECT)
        assert search.ask(4)

    def write() -> None:
        put_measured(db, FUNC, TARGET, '{"version":1,"steps":[]}', 1.0)

    return {f.__name__: f for f in (records, best, machine, explain, move, build, tune, write)}


def run(folder: Path, seed: int, count: int) -> Counter[str]:
    """Use damaged copies; how many openings and uses were refused, and how many were not."""
    whole = folder / "whole.db"
    make(whole)
    known = intact(whole)
    content = whole.read_bytes()
    counts: Counter[str] = Counter()
    for n in range(seed, seed + count):
        sys.stderr.write(f"seed {n}\n")
        rng = np.random.default_rng(n)
        path = folder / f"{n}.db"
        path.write_bytes(content)
        (damage_bytes if n % 4 == 0 else damage_values)(path, rng)
        try:
            with TuningDatabase(path) as db:
                counts["opened"] += 1
                for name, use in uses(db, known).items():
                    try:
                        use()
                        counts[name] += 1
                    except DatabaseError:
                        counts[f"{name} refused"] += 1
        except DatabaseError as error:
            if str(path) not in str(error):
                raise
            counts["refused"] += 1
        for file in folder.glob(f"{n}.db*"):
            file.unlink()
    return counts


if __name__ == "__main__":
    where = Path(sys.argv[1])
    os.environ[LOCATION] = str(where / "cache")
    for what, number in sorted(run(where, int(sys.argv[2]), int(sys.argv[3])).items()):
        sys.stdout.write(f"{what}: {number}\n")
