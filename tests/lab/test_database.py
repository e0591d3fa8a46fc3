"""The pictures of a database, its records, and what lookups return."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright import Trace
from tilewright.lab.database import view
from tilewright.lab.decisions import decisions_of, uses_of
from tilewright.tuning_db import Best, ScheduleRecord, Session, TuningDatabase, Workload

from .checks import checked, words
from .databases import CPU, HOSTILE, LLVM, Tuning, tuned


@pytest.fixture
def database(tmp_path: Path) -> TuningDatabase:
    return tuned(tmp_path / "tuning.db")


def shown(value: object) -> str:
    return " ".join(" ".join(checked(view(value)).itertext()).split())  # type: ignore[arg-type]


def test_a_database_shows_programs_sessions_and_outcomes(database: TuningDatabase) -> None:
    text = shown(database)
    (session,) = database.records(Session)
    for expected in (
        database.location,
        "9 measurements · 1 program · 1 session",
        "matmul A:float32[64,64] B:float32[64,64] C:float32[64,64]",
        "cpu -mcpu=znver4 -threads=2 llvm 22 1.11 ms (1.1 to 1.12) 472 M 7.27 2 9 2",
        f"{session.id[:12]} matmul",
        "finished 2026-03-01 12:00 8 s 7 2",
        "Outcomes",
        "build_timeout 1",
    ):
        assert expected in text


def test_an_empty_database_says_so(tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "empty.db") as database:
        assert shown(database) == f"{database.location} no measurements"


def test_the_best_shows_its_time_finals_and_steps(database: TuningDatabase) -> None:
    (workload,) = database.records(Workload)
    best = database.best(workload.id, CPU, LLVM)
    assert isinstance(best, Best)
    text = shown(best)
    assert f"1.11 ms (1.1 to 1.12) · schedule {best.schedule.id[:12]} · fastest verified" in text
    assert "chosen; fastest" in text
    assert "slower, 7.273 times the fastest" in text
    assert "The schedule: 4 steps by tiling(vector=True)" in text
    assert best._repr_html_().startswith('<div class="tw">')


def test_a_pinned_best_has_no_time(database: TuningDatabase) -> None:
    (workload,) = database.records(Workload)
    pinned = ScheduleRecord('{"version":1,"steps":[{"op":"none","args":{}}]}', 1)
    database.put(pinned)
    database.pin(workload.id, CPU, pinned.id, unverified=True)
    best = database.best(workload.id, CPU, LLVM)
    assert "no usable time" in shown(best)
    assert "pinned, not verified" in shown(best)
    assert "its trace cannot be read" in shown(best)
    assert "pinned" in shown(database)


def test_an_explanation_shows_the_reasons(database: TuningDatabase) -> None:
    (workload,) = database.records(Workload)
    text = shown(database.explain(workload, CPU, LLVM))
    for expected in (
        f"matmul ({workload.id[:12]})",
        "7.3x the program as written",
        "it failed: crash 1",
        "its schedule was measured again later 3 1 ms",
    ):
        assert expected in text
    unknown = database.explain("0" * 64, CPU, LLVM)
    assert "a workload never seen (000000000000)" in shown(unknown)
    assert "nothing usable" in shown(unknown)


def test_records_show_their_fields(database: TuningDatabase) -> None:
    (workload,) = database.records(Workload)
    measured = database.measurements(limit=1)[0]
    assert "@tw.script def matmul(" in shown(workload)
    text = shown(measured)
    assert f"measurement {measured.id[:12]}" in text
    assert f"session {measured.session[:12]}" in text
    assert measured.session not in text
    bad = ScheduleRecord("{}", 1, HOSTILE)
    assert "its trace cannot be read" in shown(bad)


def test_hostile_names_are_only_text(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    workload = Workload("a" * 64, HOSTILE[:900], HOSTILE, HOSTILE, 1, 1)
    tuning.database.put(workload)
    tuning.trial(tuning.start(workload), 2, 1e-3)
    tuning.trial(tuning.start(workload), 2, None, HOSTILE)
    for value in (tuning.database, workload, tuning.database.explain(workload, CPU, LLVM)):
        main = checked(view(value))
        assert "<script>document.title = 'run'" in words(main)


def test_decisions_have_the_names_of_the_printed_trace(database: TuningDatabase) -> None:
    (workload,) = database.records(Workload)
    best = database.best(workload.id, CPU, LLVM)
    assert best is not None
    trace = Trace.from_json(best.schedule.trace)
    (name,) = decisions_of(trace)
    assert decisions_of(trace) == {name: 8}
    assert f"{name} = sch.sample_categorical" in str(trace)
    assert uses_of(trace)[name].startswith("sch.split(")
    assert name in uses_of(trace)[name]
    assert decisions_of(trace.opened()) == {}
