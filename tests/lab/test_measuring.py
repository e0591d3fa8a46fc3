"""Measurements of the lab: checked, recorded, interleaved, cancelled; faults of databases."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig, MeasureResult
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.measure.pack_import import import_results
from tilewright.autotune.measure.worker_pool import Built
from tilewright.autotune.records import schedule_record, target_record, workload_record
from tilewright.autotune.session import finals
from tilewright.autotune.session.noise import Plausibility
from tilewright.lab.workbench import unsaved
from tilewright.lab.workbench.measuring import GENERATOR, LabRun, VersionResults
from tilewright.lab.workbench.versions import Comparison, Timing
from tilewright.lab.workbench.workbench import Workbench
from tilewright.runtime.measure.pack import read_pack
from tilewright.schedule.primitive import PRIMITIVES
from tilewright.tuning_db.codec import from_plain
from tilewright.tuning_db.results import Verdict
from tilewright.tuning_db.values import (
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    Verification,
    utc_now,
)

from .commands import done, refused

WRONG = "tests.lab.wrong_primitive"
QUICK = TuneConfig(
    rounds=6,
    pause=0.0,
    final_seconds=0.05,
    measure=MeasureConfig(
        builders=1, min_samples=2, max_samples=2, sample_seconds=1e-5, timing_seconds=1e-3
    ),
)
Data = dict[str, Any]


DOUBTS = Plausibility.doubts


@pytest.fixture(autouse=True)
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is measured again because the machine is busy."""
    monkeypatch.setattr(Plausibility, "doubts", lambda *_: False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lab.db"


@pytest.fixture
def bench(file: Path) -> Iterator[Workbench]:
    with tw.TuningDatabase(file) as database:
        yield from lab(database)


def lab(database: tw.TuningDatabase, **options: Any) -> Iterator[Workbench]:
    bench = Workbench(ops.add_relu_func(64), "cpu -threads=1", database, config=QUICK, **options)
    done(bench, do="apply", op="vectorize", args={"loop": "L0"})
    yield bench
    bench.close()


def measured(bench: Workbench, *versions: str) -> Data:
    """The state after a run of versions."""
    done(bench, do="measure", versions=list(versions))
    assert bench.measurements.wait(120)
    return json.loads(json.dumps(bench.state(), allow_nan=False))  # type: ignore[no-any-return]


def test_a_measurement_is_checked_timed_and_recorded(bench: Workbench) -> None:
    state = measured(bench, "v1")
    assert state["run"]["error"] is None
    assert state["run"]["says"] == "done"
    timing = state["versions"][1]["measured"]
    assert timing["checked"]
    assert timing["seconds"] > 0
    assert timing["samples"] == 2
    assert state["versions"][0]["measured"] is None
    database = bench.database
    assert database is not None
    (record,) = database.records(Measurement)
    assert record.seconds == timing["seconds"]
    assert record.workload == state["program"]["workload"]
    assert record.predicted == bench.versions.current.predicted
    assert record.features is not None
    (check,) = database.records(Verification)
    assert check.passed
    (schedule,) = database.records(ScheduleRecord)
    assert schedule.generator == GENERATOR
    assert tw.Trace.from_json(schedule.trace) == bench.versions.current.schedule.trace
    (session,) = database.records(Session)
    assert session.status is SessionStatus.FINISHED
    assert session.search == {"lab": True, "tolerance": None}


def test_the_best_of_the_lab_is_what_builds_take(bench: Workbench) -> None:
    measured(bench, "v1")
    module = tw.build(bench.func, "cpu -threads=1", database=bench.database, allow=("record",))
    assert module.origin.kind == "record"


def test_versions_are_compared_interleaved(bench: Workbench) -> None:
    state = measured(bench, "v0", "v1")
    (compared,) = state["compared"]
    assert (compared["a"], compared["b"]) == ("v0", "v1")
    assert compared["ratio"] > 0
    low, high = compared["interval"]
    assert low <= compared["ratio"] <= high
    assert compared["verdict"] in ("faster", "slower", "tie", "unsettled")
    says = r"v1 (is [\d.]+x (faster|slower) than|takes the same time as) v0( \(|$)"
    assert re.match(says, compared["text"])
    first, second = (v["measured"] for v in state["versions"])
    assert first["samples"] >= 6
    assert second["interval"]
    assert bench.database is not None
    times = [m.created for m in bench.database.records(Measurement) if len(m.samples) >= 6]
    assert len(times) == 2
    assert len(set(times)) == 1  # rounds are those of one comparison


def test_the_fastest_is_that_of_the_comparison(bench: Workbench) -> None:
    """The median of the other is of rounds in which the machine was faster."""
    assert bench.state()["fastest"] is None
    v0, v1 = bench.versions
    one, other = Timing(1e-4, (1e-4,) * 9, True), Timing(1.5e-4, (1.5e-4,) * 9, True)
    bench._measured(LabRun([v0, v1], 0.0, ended=1.0), VersionResults({v0: one, v1: other}, {}, []))
    assert bench.state()["fastest"] == "v0"
    for a, b, ratio, first in ((v0, v1, 0.98, "v1"), (v1, v0, 0.98, "v0"), (v1, v0, 1.02, "v1")):
        compared = Comparison(a.id, b.id, ratio, None, Verdict.UNSETTLED)
        bench._measured(LabRun([a, b], 0.0, ended=1.0), VersionResults({}, {}, [compared]))
        assert bench.state()["fastest"] == first


@pytest.mark.parametrize(
    ("ratio", "interval", "text"),
    [
        (1.01235, (1.01234, 1.01238), "v2 is 1.01x slower than v1"),
        (1.0, (1.0, 1.0), "v2 takes the same time as v1"),
        (0.5, (0.4, 0.6), "v2 is 2.00x faster than v1 (1.67x to 2.50x)"),
        (1.0004, (0.9, 1.1), "v2 is 1.0004x slower than v1 (1.11x faster to 1.10x slower)"),
        (1.1, None, "v2 is 1.10x slower than v1 (too few rounds)"),
    ],
)
def test_a_comparison_says_nothing_twice(
    ratio: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert Comparison("v1", "v2", ratio, interval, Verdict.TIE).data()["text"] == text


def test_two_versions_have_one_comparison_in_the_order_that_was_asked(bench: Workbench) -> None:
    measured(bench, "v0", "v1")
    (again,) = measured(bench, "v1", "v0")["compared"]
    assert (again["a"], again["b"]) == ("v1", "v0")
    assert again["text"].startswith("v0 ")


@pytest.fixture
def skip_half() -> Iterator[None]:
    """A primitive whose programs are wrong, of a module that builders import."""
    import_module(WRONG)
    yield
    del PRIMITIVES["skip_half"], sys.modules[WRONG]


@pytest.mark.usefixtures("skip_half")
def test_what_a_wrong_kernel_computes_has_no_time(bench: Workbench) -> None:
    done(bench, do="apply", op="skip_half", args={"loop": "L0"})
    state = measured(bench, "v2", "v1")
    assert state["versions"][2]["measured"] is None
    assert "wrong_result: " in state["versions"][2]["problem"]
    assert state["versions"][1]["measured"]["checked"]
    assert state["compared"] == []
    assert bench.database is not None
    outcomes = {m.outcome for m in bench.database.records(Measurement)}
    assert outcomes == {Outcome.OK, Outcome.WRONG_RESULT}
    # A run that does not come to it leaves it failed.
    done(bench, do="pack", versions=["v2"], folder=str(Path(bench.database.location).parent))
    assert bench.measurements.wait(120)
    assert bench.state()["run"]["says"] == "failed"
    assert bench.state()["versions"][2]["problem"] == state["versions"][2]["problem"]


def test_a_primitive_that_builders_cannot_import_is_an_error(bench: Workbench) -> None:
    source = Path(str(find_spec(WRONG).origin)).read_text()  # type: ignore[union-attr]
    exec(source, {"__name__": "nowhere_to_be_found"})
    try:
        done(bench, do="apply", op="skip_half", args={"loop": "L0"})
        state = measured(bench, "v2")
    finally:
        del PRIMITIVES["skip_half"]
    assert state["run"]["says"] == "failed"
    assert "nowhere_to_be_found" in state["run"]["error"]["text"]


def test_a_run_can_be_cancelled(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go = threading.Event(), threading.Event()
    build = Measurer.build

    def slow(measurer: Measurer, *args: Any) -> Any:
        reached.set()
        assert go.wait(60)
        return build(measurer, *args)

    monkeypatch.setattr(Measurer, "build", slow)
    done(bench, do="measure", versions=["v0", "v1"])
    assert reached.wait(60)
    assert bench.state()["run"]["running"]
    assert "goes on" in refused(bench, do="measure", versions=["v1"])["text"]
    done(bench, do="cancel")
    go.set()
    assert bench.measurements.wait(60)
    run = bench.state()["run"]
    assert run["says"] == "cancelled"
    assert run["error"] is None
    assert bench.database is not None
    (session,) = bench.database.records(Session)
    assert session.status is SessionStatus.INTERRUPTED
    assert "no run" in refused(bench, do="cancel")["text"]


def test_without_a_database_nothing_is_measured() -> None:
    bench = Workbench(ops.add_relu_func(8), "cpu -threads=1")
    error = refused(bench, do="measure")
    assert "this lab has none" in error["text"]
    assert "tw.lab(" in error["hint"]


def test_a_target_elsewhere_says_so() -> None:
    bench = Workbench(ops.matmul_func(8, 8, 8), "cuda -arch=sm_90", tw.TuningDatabase("sqlite://"))
    if bench.state()["target"]["runs_here"]:
        pytest.skip("this machine has such a GPU")
    error = refused(bench, do="measure")
    assert error["kind"] == "TargetError"
    assert error["text"]


@pytest.mark.parametrize("versions", [None, "v0", [], ["v9"], [7], [["v0"]], ["v0"] * 99], ids=str)
def test_hostile_versions_are_refused_as_data(bench: Workbench, versions: Any) -> None:
    assert refused(bench, do="measure", versions=versions)["kind"] == "LabError"


def test_nothing_is_measured_for_a_database_that_was_deleted(file: Path) -> None:
    database = tw.TuningDatabase(file)
    bench = next(lab(database))
    for path in file.parent.glob("lab.db*"):
        path.unlink()
    state = measured(bench, "v1")
    assert "deleted" in state["run"]["error"]["text"]
    assert state["run"]["error"]["hint"]
    assert bench.do({"do": "moves", "place": "L0"})["ok"]


def measured_while_locked(bench: Workbench, file: Path) -> sqlite3.Connection:
    """Measure a version while another connection writes from the first build on."""
    lock = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    told = bench.on_change

    def locked() -> None:
        run = bench.measurements.run
        if run is not None and run.says == "building" and not lock.in_transaction:
            lock.execute("BEGIN IMMEDIATE")
        told()

    bench.on_change = locked
    state = measured(bench, "v1")
    bench.on_change = told
    assert state["run"]["error"] is None
    assert state["run"]["unsaved"] == 2  # the measurement, and the end of the session
    assert state["versions"][1]["measured"]["checked"]
    return lock


def unlock(lock: sqlite3.Connection) -> None:
    lock.execute("ROLLBACK")
    lock.close()


def test_a_locked_database_keeps_measurements_for_later(file: Path) -> None:
    database = tw.TuningDatabase(f"sqlite:///{file}?timeout=0")
    bench = next(lab(database))
    lock = measured_while_locked(bench, file)
    assert database.records(Measurement) == []
    then = utc_now()
    unlock(lock)
    state = measured(bench, "v0")
    assert state["run"]["unsaved"] == 0
    assert {m.outcome for m in database.records(Measurement)} == {Outcome.OK}
    first, second = sorted(database.records(Measurement), key=lambda m: m.created)
    assert first.created < then < second.created  # of the moment that it was measured
    assert {s.status for s in database.records(Session)} == {SessionStatus.FINISHED}
    bench.close()


def test_what_waits_for_a_database_is_tried_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsaved, "RETRY", 0.01)
    database = tw.TuningDatabase(f"sqlite:///{file}?timeout=0")
    bench = next(lab(database))
    lock = measured_while_locked(bench, file)
    written = threading.Event()

    def look() -> None:
        if bench.state()["run"]["unsaved"] == 0:
            written.set()

    bench.on_change = look
    unlock(lock)
    assert written.wait(60)
    assert len(database.records(Measurement)) == 1
    bench.close()


def test_closing_writes_what_waits(file: Path) -> None:
    database = tw.TuningDatabase(f"sqlite:///{file}?timeout=0")
    bench = next(lab(database))
    unlock(measured_while_locked(bench, file))
    bench.close()
    assert len(database.records(Measurement)) == 1


def test_a_process_that_ends_writes_what_waits(file: Path, root: Path) -> None:
    ending = [sys.executable, "-m", "tests.lab.ending", str(file)]
    done = subprocess.run(ending, cwd=root, capture_output=True, text=True, timeout=300, check=True)
    assert "unsaved 2" in done.stdout
    assert done.stderr == ""
    with tw.TuningDatabase(file) as database:
        assert [m.outcome for m in database.records(Measurement)] == [Outcome.OK]
        assert {s.status for s in database.records(Session)} == {SessionStatus.FINISHED}


def test_closing_says_what_is_lost(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = tw.TuningDatabase(f"sqlite:///{file}?timeout=0")
    bench = next(lab(database))
    lock = measured_while_locked(bench, file)
    bench.close()
    unlock(lock)
    assert "2 writes of the lab are lost" in caplog.text


def test_a_session_of_the_lab_beats(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.autotune.session.recorder.BEAT", 0.0)
    beats: list[str] = []
    monkeypatch.setattr(
        tw.TuningDatabase, "heartbeat", lambda _, session, *__: beats.append(session)
    )
    measured(bench, "v1")
    assert bench.database is not None
    (session,) = bench.database.records(Session)
    assert set(beats) == {session.id}


def test_nothing_computes_while_a_candidate_is_timed(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go, order = threading.Event(), threading.Event(), list[str]()
    run = Measurer.run

    def slow(measurer: Measurer, *args: Any) -> Any:
        reached.set()
        assert go.wait(60)
        try:
            return run(measurer, *args)
        finally:
            order.append("timed")

    def ask() -> None:
        done(bench, do="moves", place="L0")
        order.append("answered")

    monkeypatch.setattr(Measurer, "run", slow)
    done(bench, do="measure", versions=["v1"])
    assert reached.wait(60)
    asking = threading.Thread(target=ask)
    asking.start()
    done(bench, do="cancel")  # is answered at once
    go.set()
    asking.join(60)
    assert order == ["timed", "answered"]
    assert bench.measurements.wait(60)


def test_a_machine_that_is_not_calm_is_told(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([1e-6, *[5e-6] * 4])
    interleave = Measurer.interleave

    def disturbed(measurer: Measurer, kernels: Any, rounds: int) -> Any:
        assert interleave(measurer, kernels, rounds) is not None
        return [(next(times),) * rounds]

    monkeypatch.setattr(Measurer, "interleave", disturbed)
    says = measured(bench, "v1")["run"]["says"]
    assert says.startswith("noisy machine: times uncertain by up to 5x; ")
    assert bench.database is not None
    (session,) = bench.database.records(Session)
    assert session.noise == says
    assert says.endswith("; measure again when calm")
    assert list(times) == []  # it waited, and timed again


@pytest.mark.parametrize("disturbed", [1, 2])
def test_disturbed_finals_are_held_again_and_else_not_recorded(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, disturbed: int
) -> None:
    timings: list[finals.InterleavedTiming] = []
    run = finals.InterleavedTiming.run

    def counted(timing: finals.InterleavedTiming, interleave: finals.Interleave) -> None:
        timings.append(timing)
        run(timing, interleave)

    def factor(*_: object) -> float:
        return 200.0 if len(timings) <= disturbed else 1.0

    monkeypatch.setattr(finals.InterleavedTiming, "run", counted)
    monkeypatch.setattr(finals, "slowdown", factor)
    state = measured(bench, "v0", "v1")
    assert bench.database is not None
    records = bench.database.records(Measurement)
    (session,) = bench.database.records(Session)
    held = disturbed == 1
    assert len(timings) == 2
    assert bool(state["compared"]) is held
    assert len(records) == (4 if held else 2)
    assert ("finals took 200x as long" in (session.noise or "")) is not held
    if not held:
        assert session.noise is not None
        assert state["run"]["says"] == session.noise
        assert session.noise.endswith("; measure again when calm")
        trials = {m.schedule: m.seconds for m in records}
        shown = {v["measured"]["seconds"] for v in state["versions"]}
        assert shown == set(trials.values())


@pytest.mark.parametrize(
    ("factors", "left"),
    [
        ([1e4, 1.0], []),  # something disturbed it
        ([1e4, 9e3, 1.0], []),  # for longer
        ([1e4, 9e3, 8e3, 1.0], [1.0]),  # the prediction is off
        ([2.0, 1.0], [1.0]),  # it is plausible
    ],
)
def test_a_time_that_is_not_plausible_is_measured_again(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, factors: list[float], left: list[float]
) -> None:
    predicted = bench.versions.current.predicted
    assert predicted is not None
    assert predicted * max(factors) < 0.1, "it is a short call"
    times = [predicted * factor for factor in factors]
    upcoming = iter(times)
    run = Measurer.run

    def disturbed(measurer: Measurer, built: Built, best: float | None = None) -> MeasureResult:
        seconds = next(upcoming)
        return replace(run(measurer, built, best), seconds=seconds, samples=(seconds,) * 2)

    monkeypatch.setattr(Measurer, "run", disturbed)
    monkeypatch.setattr(Plausibility, "doubts", DOUBTS)
    timing = measured(bench, "v1")["versions"][1]["measured"]
    assert list(upcoming) == [predicted * factor for factor in left]
    ran = times[: len(times) - len(left)]
    assert timing["seconds"] == ran[-1]
    database = bench.database
    assert database is not None
    assert sorted(m.seconds or 0.0 for m in database.records(Measurement)) == sorted(ran)
    best = database.best(workload_record(bench.func).id, target_record(bench.target))
    assert best is not None
    assert best.seconds == ran[-1]


def test_two_labs_share_a_database(file: Path) -> None:
    with tw.TuningDatabase(file) as one, tw.TuningDatabase(file) as two:
        (first,), (second,) = lab(one), lab(two)
        done(first, do="measure", versions=["v0"])
        done(second, do="measure", versions=["v1"])
        assert first.measurements.wait(120)
        assert second.measurements.wait(120)
        assert len(one.records(Measurement)) == 2
        assert len(two.records(Session)) == 2


def test_versions_are_packed_for_a_machine_elsewhere(bench: Workbench, tmp_path: Path) -> None:
    folder, results = tmp_path / "a pack; true", tmp_path / "results.jsonl"
    done(bench, do="pack", versions=["v0", "v1"], folder=str(folder))
    assert bench.measurements.wait(120)
    run = bench.state()["run"]
    assert run["error"] is None
    assert "2 of 2 are in" in run["says"]
    command = run["says"].partition("there: ")[2].partition(" --out")[0]
    assert shlex.split(command) == ["python", "-m", "tilewright.runtime.measure", str(folder)]
    ids = [schedule_record(v.schedule.trace).id for v in bench.versions]
    packed = [from_plain(ScheduleRecord, c.schedule).id for c in read_pack(folder).candidates]
    assert packed == ids
    measure = [sys.executable, "-m", "tilewright.runtime.measure", str(folder), "--out"]
    subprocess.run([*measure, str(results)], check=True, capture_output=True, timeout=120)
    database = bench.database
    assert database is not None
    import_results(results, database)
    assert {m.schedule for m in database.records(Measurement)} == set(ids)
    done(bench, do="open", record=ids[1])
    assert bench.versions.current.timing is not None


def test_a_folder_that_is_there_is_not_written(bench: Workbench, tmp_path: Path) -> None:
    done(bench, do="pack", folder=str(tmp_path))
    assert bench.measurements.wait(120)
    run = bench.state()["run"]
    assert run["says"] == "failed"
    assert "is there already" in run["error"]["text"]


@pytest.mark.parametrize("folder", [None, "", 7, "x" * 5000])
def test_hostile_folders_are_refused_as_data(bench: Workbench, folder: Any) -> None:
    assert refused(bench, do="pack", folder=folder)["kind"] == "LabError"


def test_closing_ends_a_run(bench: Workbench) -> None:
    done(bench, do="measure", versions=["v0", "v1"])
    bench.close()
    assert not bench.state()["run"]["running"]
