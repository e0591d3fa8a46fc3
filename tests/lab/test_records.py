"""Records of a database as starting points of the lab, and its choice as a pin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.records import (
    environment_record,
    schedule_record,
    target_record,
    toolchain_record,
    workload_record,
)
from tilewright.codegen.detect import resolve
from tilewright.lab.workbench import records
from tilewright.lab.workbench.workbench import Workbench
from tilewright.tir.ir import Func
from tilewright.tuning_db.values import (
    Measurement,
    Outcome,
    ScheduleRecord,
    Verification,
    utc_now,
)

from .commands import done, refused

TARGET = resolve("cpu -mcpu=znver4 -threads=2")


def tiled(func: Func, size: int) -> tw.Schedule:
    sch = tw.Schedule(func)
    sch.split(sch.get_loops(sch.get_block(0))[0], factors=[None, size], perfect=True)
    return sch


def put(
    database: tw.TuningDatabase, func: Func, record: ScheduleRecord, seconds: float,
    target: tw.Target = TARGET,
) -> Measurement:  # fmt: skip
    """A measurement of a schedule, as a session puts it."""
    subject = (
        workload_record(func),
        target_record(target),
        toolchain_record(target),
        environment_record(target),
    )
    database.put(*subject)
    session = database.start_session(
        subject[0].id, subject[1].id, trials=1, seconds=None, seed=0, search={}, model={}
    )
    measured = Measurement(
        session=session.id,
        schedule=record.id,
        workload=subject[0].id,
        target=subject[1].id,
        toolchain=subject[2].id,
        environment=subject[3].id,
        outcome=Outcome.OK,
        seconds=seconds,
        samples=(seconds,) * 3,
        error=None,
        created=utc_now(),
    )
    database.put(record, measured)
    return measured


def check(measured: Measurement, *, passed: bool = True) -> Verification:
    """A numeric check of what was measured."""
    return Verification(
        workload=measured.workload,
        target=measured.target,
        schedule=measured.schedule,
        toolchain=measured.toolchain,
        passed=passed,
        max_error=0.0,
        tolerance=0.0,
        created=utc_now(),
    )


@pytest.fixture
def database() -> tw.TuningDatabase:
    return tw.TuningDatabase("sqlite://")


def test_the_fastest_records_of_a_program_come_first(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    assert done(bench, do="records")["total"] == 0
    for size, seconds in ((8, 3e-3), (16, 1e-3), (32, 2e-3)):
        put(database, func, schedule_record(tiled(func, size).trace, f"tile{size}"), seconds)
    slow = schedule_record(tiled(func, 8).trace, "tile8")
    put(database, func, slow, 9e-3)  # the last time of a schedule counts
    other = resolve("cpu -mcpu=haswell -threads=1")
    put(database, func, schedule_record(tiled(func, 4).trace, "other"), 1e-6, other)
    elsewhere = ops.matmul_func(8, 8, 8)
    put(database, elsewhere, schedule_record(tiled(elsewhere, 2).trace), 1e-9)
    found = done(bench, do="records")
    assert [(r["generator"], r["seconds"], r["comparable"]) for r in found["records"]] == [
        ("tile16", 1e-3, True),
        ("tile32", 2e-3, True),
        ("tile8", 9e-3, True),
        ("other", 1e-6, False),
    ]
    assert found["total"] == 4
    assert found["records"][0]["record"].startswith(found["records"][0]["id"])
    assert done(bench, do="records", start=1, count=1)["records"] == found["records"][1:2]


def test_records_have_the_time_that_they_have_when_they_are_opened(
    database: tw.TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    lucky, other = (schedule_record(tiled(func, size).trace) for size in (8, 16))
    put(database, func, lucky, 1e-6)
    put(database, func, lucky, 2e-3)
    put(database, func, other, 1e-3)
    for most in (records.MOST, 1):  # a fast one is listed however old it is, by its last time
        monkeypatch.setattr(records, "MOST", most)
        rows = done(bench, do="records")["records"]
        assert [r["record"] for r in rows] == [other.id, lucky.id]
        for row in rows:
            version = done(bench, do="open", record=row["record"])["version"]
            opened = {v["id"]: v["measured"] for v in bench.state()["versions"]}[version]
            assert {k: row[k] for k in ("seconds", "interval", "text")}.items() <= opened.items()


def test_the_best_of_the_database_comes_first(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    checked, unchecked = (schedule_record(tiled(func, size).trace) for size in (8, 16))
    measured = put(database, func, checked, 2e-3)
    put(database, func, unchecked, 1e-3)
    database.put(check(measured))
    rows = done(Workbench(func, TARGET, database), do="records")["records"]
    assert [r["record"] for r in rows] == [checked.id, unchecked.id]


def test_a_record_whose_check_failed_says_so(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    right, wrong, unchecked = (schedule_record(tiled(func, size).trace) for size in (8, 16, 32))
    for record, seconds in ((right, 3e-3), (wrong, 1e-3), (unchecked, 2e-3)):
        measured = put(database, func, record, seconds)
        if record is not unchecked:
            database.put(check(measured, passed=record is right))
    rows = done(Workbench(func, TARGET, database), do="records")["records"]
    assert {r["record"]: r["failed"] for r in rows} == {
        right.id: False, wrong.id: True, unchecked.id: False
    }  # fmt: skip


def test_a_record_is_a_starting_point(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    record = schedule_record(tiled(func, 16).trace)
    measured = put(database, func, record, 1e-3)
    for id in (record.id, record.id[:12], measured.id):
        assert done(bench, do="open", record=id) == {"version": "v1"}
    version = bench.versions.current
    assert version.schedule.trace == tw.Trace.from_json(record.trace)
    data = bench.state()["versions"][1]
    assert data["text"] == f"schedule {record.id[:12]}"
    assert data["measured"]["seconds"] == 1e-3
    assert data["parent"] == "v0"


def test_a_record_of_other_sizes_says_so(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    record = schedule_record(tiled(func, 16).trace)
    put(database, func, record, 1e-3)
    bench = Workbench(ops.matmul_func(32, 64, 64), TARGET, database)
    done(bench, do="open", record=record.id)
    text = bench.state()["versions"][1]["text"]
    assert text.startswith(f"schedule {record.id[:12]} of matmul A:float32[64,64]")


def test_an_opened_record_has_the_verification_of_the_database(
    database: tw.TuningDatabase,
) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    ids = {}
    for size, passed in ((8, True), (16, None), (32, False)):
        measured = put(database, func, schedule_record(tiled(func, size).trace), 1e-3)
        ids[passed] = measured.id
        if passed is not None:
            database.put(check(measured, passed=passed))
    shown = {}
    for passed, id in ids.items():
        done(bench, do="open", record=id)
        shown[passed] = bench.versions.current.data()
    assert shown[True]["measured"]["checked"] is True
    assert shown[None]["measured"]["checked"] is False
    assert shown[False]["measured"] is None
    assert "numeric check of its results failed" in shown[False]["problem"]


def test_a_trace_that_no_longer_applies_names_its_step(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    record = schedule_record(tiled(func, 16).trace)
    put(database, func, record, 1e-3)
    bench = Workbench(ops.matmul_func(50, 64, 64), TARGET, database)
    error = refused(bench, do="open", record=record.id)
    assert "is of matmul A:float32[64,64]" in error["text"]
    assert "does not apply to matmul A:float32[50,64]" in error["text"]
    assert "factor 16 does not divide extent 50" in error["text"]
    assert error["step"]["number"] == 2
    assert "split" in error["step"]["text"]
    assert bench.state()["version"] == "v0"


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ('{"version":1,"steps":[{"op":"explode","args":{}}]}', "unknown primitive"),
        ('{"version":99,"steps":[]}', "version 99"),
        ('{"version":1,"steps":[{"op":"get_block","args":{"block":7},"out":["b0"]}]}', "block"),
    ],
)
def test_traces_that_cannot_be_read_are_errors(
    database: tw.TuningDatabase, trace: str, says: str
) -> None:
    func = ops.matmul_func(64, 64, 64)
    record = ScheduleRecord(trace, 1)
    database.put(record)
    error = refused(Workbench(func, TARGET, database), do="open", record=record.id)
    assert says in error["text"]


@pytest.mark.parametrize("record", [None, 7, "", "zz", "ab", "abcd" * 4, ["a"], "x" * 900])
def test_ids_that_are_none_are_refused_as_data(database: tw.TuningDatabase, record: Any) -> None:
    error = refused(Workbench(ops.add_relu_func(8), TARGET, database), do="open", record=record)
    assert error["kind"] in ("LabError", "DatabaseError")


def test_other_records_are_no_starting_points(database: tw.TuningDatabase) -> None:
    func = ops.add_relu_func(8)
    workload = workload_record(func)
    database.put(workload)
    error = refused(Workbench(func, TARGET, database), do="open", record=workload.id)
    assert "is the id of a workload; expected a schedule" in error["text"]


def test_a_pin_is_what_builds_take(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(16, 16, 16)
    bench = Workbench(tiled(func, 8), "cpu", database)
    error = refused(bench, do="pin")
    assert "is not verified for matmul" in error["text"]
    assert error["hint"].startswith("measure it first")
    assert database.records(ScheduleRecord) == []
    assert "true or false" in refused(bench, do="pin", unverified=1)["text"]
    found = done(bench, do="pin", unverified=True)
    best = database.best(workload_record(func).id, target_record(resolve("cpu")))
    assert best is not None
    assert best.pinned
    assert best.schedule.id == found["record"]
    module = tw.build(func, "cpu", database=database, allow=("record",))
    assert module.origin.kind == "record"
    assert done(bench, do="unpin") == {"unpinned": True}
    assert done(bench, do="unpin") == {"unpinned": False}


def test_a_verified_version_is_pinned(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    record = schedule_record(tiled(func, 16).trace)
    database.put(check(put(database, func, record, 1e-3)))
    put(database, func, schedule_record(tiled(func, 8).trace), 2e-3)
    bench = Workbench(tiled(func, 16), TARGET, database)
    assert [r["pinned"] for r in done(bench, do="records")["records"]] == [False, False]
    assert done(bench, do="pin")["record"] == record.id
    rows = done(bench, do="records")["records"]
    assert [r["record"] for r in rows if r["pinned"]] == [record.id]
    done(bench, do="unpin")
    assert [r["pinned"] for r in done(bench, do="records")["records"]] == [False, False]


def sampled(rows: int, columns: int, depth: int = 4) -> ScheduleRecord:
    """A schedule of three decisions."""
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    sizes = (rows, columns, depth)
    for loop, size in zip(sch.get_loops(sch.get_block("C")), sizes, strict=True):
        sch.split(loop, [None, sch.sample_categorical([2, 4, 8, 16], decision=[size])])
    return schedule_record(sch.trace, "tiling")


def test_records_have_the_decisions_that_tell_them_apart(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    for record, seconds in ((sampled(8, 2), 1e-3), (sampled(8, 16), 2e-3), (sampled(4, 2), 3e-3)):
        put(database, func, record, seconds)
    put(database, func, schedule_record(tiled(func, 8).trace, "by hand"), 4e-3)
    put(database, func, ScheduleRecord("{}", 1, "damaged"), 5e-3)
    rows = done(bench, do="records")["records"]
    told = [", ".join(f"{d['name']} = {d['value']}" for d in r["decisions"]) for r in rows]
    assert told == [
        "split(i) factors[1] = 8, split(j) factors[1] = 2",
        "split(i) factors[1] = 8, split(j) factors[1] = 16",
        "split(i) factors[1] = 4, split(j) factors[1] = 2",
        "",
        "",
    ], "the last factor is the same in all, and other schedules have no decisions"
    done(bench, do="open", record=rows[0]["record"])
    labels = [s["label"] for s in done(bench, do="sliders")["sliders"]]
    assert {d["name"] for d in rows[0]["decisions"]} <= set(labels), "the names of the sliders"


def test_versions_say_which_schedule_is_pinned(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(tiled(func, 16), TARGET, database)

    def pinned(bench: Workbench) -> list[str]:
        return [v["id"] for v in bench.state()["versions"] if v["pinned"]]

    assert (pinned(bench), bench.state()["pinned"]) == ([], None)
    before = bench.state()["revision"]
    found = done(bench, do="pin", unverified=True)
    assert (pinned(bench), bench.state()["pinned"]) == (["v1"], found["record"])
    assert bench.state()["revision"] > before, "there is something new to draw"
    assert pinned(Workbench(tiled(func, 16), TARGET, database)) == ["v1"]
    done(bench, do="unpin")
    assert pinned(bench) == []
    other = schedule_record(bench.versions.root.schedule.trace)
    database.pin(workload_record(func), target_record(TARGET), other, unverified=True)
    done(bench, do="records")
    assert pinned(bench) == ["v0"], "others pin too"


def test_without_a_database_there_are_no_records() -> None:
    bench = Workbench(ops.add_relu_func(8), TARGET)
    for command in ("records", "pin", "unpin"):
        assert "this lab has no database" in refused(bench, do=command)["text"]
    assert "tw.lab(" in refused(bench, do="open", record="abcd")["hint"]


def test_moves_have_the_times_that_were_measured(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    sch = tw.Schedule(func)
    sch.parallel(sch.get_loops(sch.get_block(0))[0])
    put(database, func, schedule_record(sch.trace), 1e-3)
    moves = done(bench, do="moves", place="L0")["moves"]
    known = {m["op"]: m["measured"] for m in moves if m["legal"] and m["measured"]}
    assert known == {"parallel": 1e-3}
    tried = done(bench, do="try", op="parallel", args={"loop": "L0"})
    assert tried["measured"] == 1e-3


def test_moves_at_a_measured_version_are_scaled(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    assert not any("expected" in m for m in done(bench, do="moves", place="L0")["moves"])
    as_written = schedule_record(tw.Schedule(func).trace)
    put(database, func, as_written, 3.0)
    done(bench, do="open", record=as_written.id)
    predicted = bench.versions.current.predicted
    assert predicted is not None
    moves = [m for m in done(bench, do="moves", place="L0")["moves"] if m["legal"]]
    assert moves
    for move in [*moves, done(bench, do="try", op="parallel", args={"loop": "L0"})]:
        assert move["expected"] == pytest.approx(move["predicted"] * 3.0 / predicted)
    assert [m["expected"] for m in moves] == sorted(m["expected"] for m in moves)


def test_moves_are_offered_while_the_database_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "gone.db"
    with tw.TuningDatabase(file) as database:
        bench = Workbench(ops.add_relu_func(8), TARGET, database)
        for path in tmp_path.glob("gone.db*"):
            path.unlink()
        assert done(bench, do="moves", place="L0")["total"] > 10
        for command in ("records", "pin"):
            error = refused(bench, do=command)
            assert error["kind"] == "DatabaseError"
            assert error["hint"]


def test_another_process_writes_while_the_lab_is_open(tmp_path: Path) -> None:
    file = tmp_path / "shared.db"
    func = ops.matmul_func(64, 64, 64)
    with tw.TuningDatabase(file) as ours:
        bench = Workbench(func, TARGET, ours)
        assert done(bench, do="records")["total"] == 0
        script = (
            "import sys, tilewright as tw; from tests.lab.test_records import *; "
            "func = ops.matmul_func(64, 64, 64); "
            "put(tw.TuningDatabase(sys.argv[1]), func, schedule_record(tiled(func, 8).trace), 2e-3)"
        )
        subprocess.run([sys.executable, "-c", script, str(file)], check=True, timeout=120)
        (row,) = done(bench, do="records")["records"]
        assert row["seconds"] == 2e-3
        done(bench, do="open", record=row["record"])


def test_the_roofline_has_the_times_that_the_database_has(database: tw.TuningDatabase) -> None:
    """As the list of versions has them: a version that was not measured here, too."""
    func = ops.matmul_func(64, 48, 32)
    put(database, func, schedule_record(tw.Schedule(func).trace), 3e-4)
    bench = Workbench(func, TARGET, database)
    (version,) = bench.state()["versions"]
    (point,) = done(bench, do="roofline")["points"]
    assert (point["seconds"], point["measured"]) == (version["recorded"], True) == (3e-4, True)


def test_a_hostile_database_is_text(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    bench = Workbench(func, TARGET, database)
    generator = "<script>alert(1)</script>\x1b[2J" + "x" * 900
    put(database, func, schedule_record(tiled(func, 8).trace, generator), 1e-3)
    (row,) = done(bench, do="records")["records"]
    assert "\x1b" not in row["generator"]
    assert row["generator"].startswith("<script>")  # a front end writes it as text


def test_versions_have_the_times_that_the_database_has(database: tw.TuningDatabase) -> None:
    func = ops.matmul_func(64, 64, 64)
    put(database, func, schedule_record(tw.Schedule(func).trace), 3.0)
    bench = Workbench(func, TARGET, database)
    done(bench, do="apply", op="parallel", args={"loop": "L0"})
    assert [v["recorded"] for v in bench.state()["versions"]] == [3.0, None]
