"""The pictures of a database, its records, and what lookups return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tilewright import Trace, ops
from tilewright.codegen.detect import resolve
from tilewright.lab.pictures.database import view
from tilewright.lab.pictures.decisions import DecisionNames, printed_decisions
from tilewright.lab.workbench.sliders import Sliders
from tilewright.tir.printer import func_text
from tilewright.tuning_db import Best, ScheduleRecord, Session, TuningDatabase, Workload

from .checks import checked, words
from .databases import CPU, FUNC, HOSTILE, LLVM, Tuning, tuned

TARGET = resolve(CPU.text)


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
        "9 measurements, of which 6 trials · 1 program · 1 session",
        "matmul A:float32[64,64] B:float32[64,64] C:float32[64,64]",
        "cpu -mcpu=znver4 -threads=2 llvm 22 1.11 ms (1.1 to 1.12) 472 MFLOP/s "
        "7.27x faster 2.00x faster 6 2",
        f"{session.id[:12]} matmul",
        "finished 2026-03-01 12:00 8 s 4 2",
        "Outcomes of trials",
        "build_timeout 1",
    ):
        assert expected in text


def test_an_empty_database_says_so(tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "empty.db") as database:
        assert shown(database) == f"{database.location} no measurements"


def test_the_best_shows_its_time_finals_and_steps(database: TuningDatabase, tmp_path: Path) -> None:
    (workload,) = database.records(Workload)
    best = database.best(workload.id, CPU, LLVM)
    assert isinstance(best, Best)
    text = shown(best)
    assert f"1.11 ms (1.1 to 1.12) · schedule {best.schedule.id[:12]} · fastest verified" in text
    assert "chosen; fastest" in text
    plain = Tuning(tmp_path / "other.db").schedule(0).id[:12]
    assert f"{plain}, the program as written 7.273 7.27x slower" in text
    assert "The schedule: 4 steps by tiling(vector=True)" in text
    assert best._repr_html_().startswith('<div class="tw">')


def test_a_lookup_and_its_explanation_say_the_same_of_a_tie(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    simple = tuning.schedule(0).id
    # Of equal times the first by its id is the fastest.
    other = next(tile for tile in (2, 4, 8, 32) if tuning.schedule(tile).id < simple)
    for tile in (0, other, 16):
        tuning.trial(session, tile, 1e-3)
    tuning.finals(session, {0: 1e-3, other: 1e-3, 16: 3e-3})
    best = tuning.database.best(tuning.workload.id, CPU, LLVM)
    story = tuning.database.explain(tuning.workload, CPU, LLVM)
    why = "ties with 1 of the 2 other finalists, and is the simplest; timed interleaved in 9 rounds"
    chosen = "as fast as the fastest verified, and at least as simple"
    assert f", {chosen}, 1.01 ms" in str(story)
    assert f"\n  {why}; compared with the fastest:\n" in str(story)
    for text in (shown(best), shown(story)):
        assert f" · {chosen} · " in text
        assert why[1:] in text
        assert "fastest verified" not in text.replace(chosen, "")
    headline, _, rest = shown(story).partition(" Ties with")
    assert "3.00x faster than the untuned build" in headline
    assert "3.00x faster than the untuned build" not in rest


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
        "7.27x faster than the program as written",
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


def test_decisions_have_the_names_of_sliders(database: TuningDatabase) -> None:
    (workload,) = database.records(Workload)
    best = database.best(workload.id, CPU, LLVM)
    assert best is not None
    trace = Trace.from_json(best.schedule.trace)
    (slider,) = Sliders(trace.apply(FUNC), TARGET).sliders
    names = DecisionNames.of(workload)
    assert names.decisions(trace) == {slider.label: 8} == {"split(i) factors[1]": 8}
    assert names.uses(trace)[slider.label].startswith("sch.split(")
    assert names.decisions(trace.opened()) == {}
    (printed,) = printed_decisions(trace)
    assert f"{printed} = sch.sample_categorical" in str(trace)
    assert printed in names.uses(trace)[slider.label]


@pytest.mark.parametrize("ir", ["@tw.script", func_text(ops.add_relu_func(8))])
def test_where_a_trace_does_not_apply_decisions_are_those_of_the_trace(
    database: TuningDatabase, ir: str
) -> None:
    (workload,) = database.records(Workload)
    names = DecisionNames.of(replace(workload, ir=ir))
    best = database.best(workload.id, CPU, LLVM)
    assert best is not None
    trace = Trace.from_json(best.schedule.trace)
    assert names.decisions(trace) == printed_decisions(trace)


def test_names_of_decisions_are_unique() -> None:
    sch = tw.Schedule(FUNC)
    (i, j, _) = sch.get_loops(sch.get_block("C"))
    a, b, c = (sch.sample_categorical([2, 4, 8], decision=[n]) for n in (2, 4, 8))
    sch.split(i, [None, a * b])
    sch.split(j, [None, c])
    assert DecisionNames(FUNC).decisions(sch.trace) == {
        "split(i of C) factors[1]": 2,
        "split(i of C) factors[1] #2": 4,
        "split(j) factors[1]": 8,
    }


def test_steps_of_one_name_are_told_apart_by_their_arguments() -> None:
    sch = tw.Schedule(FUNC)
    block = sch.get_block("C")
    for operand, layout in enumerate(("ABa", "BAb")):
        size = sch.sample_categorical([8, 16], decision=[8])
        sch.pack(block, operand, layout, [size])
    names = DecisionNames(FUNC).decisions(sch.trace)
    assert list(names) == ["pack(C, 0, 'ABa') factors[0]", "pack(C, 1, 'BAb') factors[0]"]
