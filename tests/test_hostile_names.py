"""Names of 10 MB and of control characters: refused in few words, or shown cut and harmless."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import TilewrightError
from tilewright.lab.report import report
from tilewright.tuning_db import (
    Environment,
    Measurement,
    ScheduleRecord,
    Session,
    TargetRecord,
    Toolchain,
    TuningDatabase,
    Workload,
)
from tilewright.tuning_db.values import KINDS

from .lab import databases
from .lab.databases import FUNC, Tuning
from .lab.test_plot import SCHEDULE
from .lab.test_result import RESULT

LONG = "n" * 10_000_000
CONTROL = "E\x1b[2J\x1b]0;owned\x07\u202e\x9b31m\r\nL2"
"""Clears a terminal, names its window, reverses what follows, and begins a line."""
NAME = (CONTROL + "n" * 1000)[:1000]
"""As long a name as a database takes."""
DIGEST = "ab" * 32

WRITES: dict[str, Callable[[str], Any]] = {
    "name": lambda text: Workload(DIGEST, text, "ir", "shape", 1, 1),
    "shape": lambda text: Workload(DIGEST, "name", "ir", text, 1, 1),
    "ir": lambda text: Workload(DIGEST, "name", text, "shape", 1, 1),
    "id": lambda text: Workload(text, "name", "ir", "shape", 1, 1),
    "family": lambda text: Workload(DIGEST, "name", "ir", "shape", 1, 1, text),
    "target": lambda text: TargetRecord(text, "a", "b"),
    "compat": lambda text: TargetRecord("cpu", text, "b"),
    "facts": lambda text: TargetRecord("cpu", "a", "b", {text: text}),
    "compiler": Toolchain,
    "versions": lambda text: Toolchain("llvm", {"llvm": text}),
    "host": lambda text: Environment({"host": text}),
    "trace": lambda text: ScheduleRecord(f'"{text}"', 1),
    "rules": lambda text: ScheduleRecord("{}", 1, text),
    "inexact": lambda text: ScheduleRecord("{}", 1, "", text),
}
"""Records with a text in one of their fields."""
CALLS: dict[str, Callable[[TuningDatabase, str], Any]] = {
    "find": lambda db, text: db.find(text),
    "get": lambda db, text: db.get(Workload, text),
    "to_pandas": lambda db, text: db.to_pandas(text),
    "start_session": lambda db, text: db.start_session(
        text, DIGEST, trials=1, seconds=None, seed=0, search={}, model={}
    ),
    "finish_session": lambda db, text: db.finish_session(text),
    "merge": lambda db, text: db.merge(text),
    "import": lambda db, text: db.import_lines(text),
    "export": lambda db, text: db.export_lines(f"missing/{text}"),
    "open": lambda db, text: TuningDatabase(text, create=False),
    "url": lambda db, text: TuningDatabase(f"sqlite:///{db.location}?{text.splitlines()[0]}=1"),
    "run": tw.open_run,
    "build": lambda db, text: tw.build(FUNC, text, db),
    "plot": lambda db, text: tw.plot.convergence(text),
    "session": lambda db, text: tw.plot.convergence(db, session=text),
    "version": lambda db, text: tw.plot.roofline(FUNC, {text: 0}),
    "steps": lambda db, text: tw.plot.ablation(FUNC, SCHEDULE, steps=text),  # type: ignore[arg-type]
}


def harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


@pytest.mark.parametrize("field", WRITES)
def test_a_text_of_10_mb_is_no_field(field: str) -> None:
    with TuningDatabase("sqlite://") as db:
        with pytest.raises(TilewrightError) as refused:
            db.put(WRITES[field](LONG))
        assert len(str(refused.value)) < 300
        record = ScheduleRecord if field == "trace" else type(WRITES[field](""))
        assert db.records(record) == []


@pytest.mark.parametrize("text", [LONG, CONTROL], ids=["long", "control"])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_refused_is_told_in_few_words(call: str, text: str, tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "tuning.db") as db:
        with pytest.raises(TilewrightError) as refused:
            CALLS[call](db, text)
        told = str(refused.value)
        assert len(told) < 1000
        if call not in PATHS:
            assert harmless(told), told
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"tuning.db"}


FORGED: dict[str, tuple[str, str]] = {
    "revision": ("UPDATE tuning_db_revision SET version_num = '{0}'", "does not say what revision"),
    "revisions": ("INSERT INTO tuning_db_revision VALUES ('{0}')", "does not say what revision"),
    "trigger": (
        'CREATE TRIGGER "{0}" AFTER INSERT ON measurement BEGIN SELECT 1; END',
        "drop it; else take another copy",
    ),
    "column": ('ALTER TABLE measurement ADD COLUMN "{0}" TEXT', "the further columns"),
    "computed column": (
        'ALTER TABLE measurement ADD COLUMN "{0}" TEXT AS (1)',
        "of table measurement is computed",
    ),
    "table": ("UPDATE sqlite_master SET name = '{0}', sql = 'x' WHERE name = 'pin'", "is damaged"),
}
"""Statements that forge a database of ours, and what is said of it."""


@pytest.mark.parametrize("text", ["n" * 1_000_000, CONTROL], ids=["long", "control"])
@pytest.mark.parametrize("what", FORGED)
def test_a_forged_database_is_refused_in_few_words(what: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    databases.tuned(path).close()
    statement, says = FORGED[what]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(statement.format(text))
    for read_only in (True, False):
        with pytest.raises(TilewrightError) as refused:
            TuningDatabase(path, read_only=read_only)
        told = str(refused.value)
        assert says in told
        assert len(told) < 1000
        assert harmless(told), told


def test_a_table_of_somebody_else_is_named_in_few_words(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f'CREATE TABLE "{"n" * 1_000_000}" (x)')
    with pytest.raises(TilewrightError, match="of something else") as refused:
        TuningDatabase(path)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("step", [{"op": "n" * 100_000, "args": {}}, {"n" * 100_000: 1}])
def test_a_forged_trace_is_refused_in_few_words(step: dict[str, object]) -> None:
    with pytest.raises(TilewrightError, match="unknown primitive|not a step") as refused:
        tw.Trace.from_json(json.dumps({"version": 1, "steps": [step]}))
    assert len(str(refused.value)) < 1500  # it lists all primitives


PATHS = frozenset({"merge", "open", "plot", "export", "url", "import"})
"""Calls whose error names a path of the caller's, as it is."""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TuningDatabase]:
    """A database in which everything has the longest name, of control characters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(databases, "CPU", TargetRecord(NAME, "x86_64", "p"))
        patch.setattr(databases, "LLVM", Toolchain(NAME, {"llvm": NAME}))
        tuning = Tuning(tmp_path_factory.mktemp("hostile") / "tuning.db")
        tuning.workload = replace(tuning.workload, id=DIGEST, name=NAME, shape=NAME, ir=NAME)
        tuning.database.put(tuning.workload)
        session = tuning.start()
        for tile, seconds in ((8, 2e-3), (16, 1e-3)):
            tuning.trial(session, tile, seconds)
        tuning.trial(session, 32, None, error=NAME)
        tuning.database.finish_session(session.id, noise=NAME)
        yield tuning.database
        tuning.database.close()


def shown(db: TuningDatabase) -> Iterator[tuple[str, str]]:
    """Each view of what is in the database, by a name."""
    first, second, *_ = db.measurements()
    workload = db.get(Workload, first.workload)
    target = db.get(TargetRecord, first.target)
    session = db.get(Session, first.session)
    values: dict[str, Any] = {
        "database": db,
        "explanation": db.explain(workload, target),
        "best": db.best(workload.id, target),
        "prune": db.prune(dry_run=True),
        "difference": db.diff(first.id, second.id),
        "run": tw.open_run(db),
        "pictures": tw.open_run(db).pictures,
        "result": replace(RESULT, workload=NAME, target=NAME, error=NAME, noise=NAME),
        "without": replace(RESULT, workload=NAME, best=None, error=NAME, doubts=NAME),
        **{f"{r.kind} {r.id}": r for kind in KINDS.values() for r in db.records(kind)},
    }
    for name, value in values.items():
        yield f"repr of {name}", repr(value)
        if not isinstance(value, (Measurement, ScheduleRecord, Workload)):
            yield f"str of {name}", str(value)
        if hasattr(value, "_repr_html_"):
            yield f"picture of {name}", value._repr_html_()
    yield "report", report(db)
    yield "report of a session", report(db, session)


def test_no_view_has_control_characters(tuned: TuningDatabase) -> None:
    views = dict(shown(tuned))
    assert len(views) > 40
    assert [name for name, text in views.items() if not harmless(text)] == []
    lengths = {n: len(t) for n, t in views.items() if n.startswith(("repr", "str"))}
    assert max(lengths.values()) < 6000, lengths


def test_no_plot_has_control_characters(tuned: TuningDatabase) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from matplotlib import pyplot as plt
    from matplotlib.text import Text

    matplotlib.use("Agg")
    axes = [tw.plot.convergence(tuned), tw.plot.predictions(tuned), tw.plot.decisions(tuned)]
    axes += [tw.plot.pairs(tuned)[0, 0], tw.plot.roofline(FUNC, {NAME: 1e-3}, target=TARGET)]
    for ax in axes:
        texts = [text.get_text() for text in ax.figure.findobj(Text)]
        assert all(map(harmless, texts))
        assert max(map(len, texts)) < 200
    plt.close("all")


TARGET = "cpu -mcpu=skylake-avx512 -threads=2"
COMMANDS = (
    "db list", "db list --wide", "db best", "db prune", "db show {measurement}",
    "db show {workload}", "db show {target}", "db show {session}", "db diff {measurement} {other}",
    "db list --workload zzz", "watch --once", "report -o -",
)  # fmt: skip


@pytest.mark.parametrize("width", ["60", ""])
def test_no_command_prints_control_characters(width: str, tuned: TuningDatabase) -> None:
    """Neither for a terminal nor for a pipe."""
    first, other, *_ = tuned.measurements()
    ids = {
        "measurement": first.id,
        "other": other.id,
        "workload": first.workload,
        "target": first.target,
        "session": first.session,
    }
    environment = {**os.environ, "COLUMNS": width, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [(*c.format(**ids).split(), "--db", tuned.location) for c in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", RUN, repr(words)],
        env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.count("--- ") == len(COMMANDS), done.stderr
    assert harmless(done.stdout)
    assert harmless(done.stderr)


RUN = """
import ast, sys
from tilewright.cli.main import main

for words in ast.literal_eval(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit:
        pass
    print("--- ", flush=True)
"""
"""Commands one after the other: a process for each would take long."""
