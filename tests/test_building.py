"""`build` and `build_library`: which schedule is taken, why none is, and what is written."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.records import (
    target_record,
    workload_record,
)
from tilewright.autotune.result import TuneResult
from tilewright.autotune.search import unmeasured
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.building.build import build_library
from tilewright.building.choose import Choices
from tilewright.codegen import cache as compiling
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.runtime import load
from tilewright.schedule import PRIMITIVES, Trace
from tilewright.schedule.find import path_to, rebuild
from tilewright.tir import te
from tilewright.tir.ir import Expr, For, Var
from tilewright.tuning_db import (
    Explanation,
    Reason,
    ScheduleRecord,
)

from .codegen.guarded import runs_here
from .hosts import processor
from .measured import put_measured
from .refusals import refused

SERIAL = processor("cpu -threads=1")
N, M, K = 6, 10, 4
needs_linker = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


@pytest.fixture
def func() -> tw.Func:
    return ops.matmul_func(N, M, K)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tw.TuningDatabase]:
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        yield database


@pytest.fixture
def own_primitives() -> Iterator[None]:
    """Leave the registry of primitives as it was."""
    before = dict(PRIMITIVES)
    yield
    PRIMITIVES.clear()
    PRIMITIVES.update(before)


def unrolled(func: tw.Func) -> str:
    """A trace whose effect shows: the innermost loop is gone."""
    sch = tw.Schedule(func)
    sch.unroll(sch.get_loops(sch.get_block("C"))[2])
    return sch.trace.to_json()


def record(
    db: tw.TuningDatabase,
    func: tw.Func,
    trace: str,
    *,
    seconds: float = 1e-3,
    passed: bool | None = True,
    target: tw.Target = SERIAL,
) -> tuple[str, str]:
    """Put a measurement of a trace, with a check of it; the ids of the schedule and measurement."""
    measured = put_measured(db, func, target, trace, seconds, passed=passed)
    return measured.schedule, measured.id


def computes(module: tw.Module) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((N, K), np.float32), rng.random((K, M), np.float32)
    c = np.empty((N, M), np.float32)
    module(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def loops(module: tw.Module) -> int:
    return module.source("tir").count("for ")


# Which schedule


def test_a_schedule_is_built_as_it_is(func: tw.Func, db: tw.TuningDatabase) -> None:
    record(db, func, unrolled(func))
    module = tw.build(tw.Schedule(func), SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("schedule", None)
    computes(module)


def test_without_a_database_a_prediction_is_built(func: tw.Func) -> None:
    module = tw.build(func, SERIAL)
    assert (module.origin.kind, module.origin.record_id) == ("model", None)
    assert "nothing was measured" in str(module.origin)
    computes(module)
    module = tw.build(func, SERIAL, allow=("default",))
    assert (module.origin.kind, module.origin.record_id) == ("default", None)
    assert "analytic model" in str(module.origin)
    computes(module)


def tuned_size(db: tw.TuningDatabase, func: tw.Func, *, seconds: float = 1e-3) -> tuple[str, str]:
    """Put a measurement of a schedule that a sketch gives."""
    return record(db, func, default_trace(func, SERIAL).to_json(), seconds=seconds)


def test_a_schedule_of_another_size_is_refitted(func: tw.Func, db: tw.TuningDatabase) -> None:
    slow = ops.matmul_func(2 * N, M, K)
    tuned_size(db, slow, seconds=1.0)
    _, fast = tuned_size(db, ops.matmul_func(N, 4 * M, K), seconds=1e-6)
    before = db.measurements()
    module = tw.build(func, SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("transfer", fast)
    assert "re-fitted from A:float32[6,4] B:float32[4,40]" in module.origin.detail
    assert module.origin.loss is not None
    assert f"{module.origin.loss:.0%} below the rate" in module.origin.detail
    assert db.measurements() == before
    computes(module)


def test_a_refitted_schedule_may_exceed_the_rate_of_its_record(
    func: tw.Func, db: tw.TuningDatabase
) -> None:
    tuned_size(db, ops.matmul_func(N, M, K // 2), seconds=1.0)
    origin = tw.build(func, SERIAL, db).origin
    assert (origin.kind, origin.loss) == ("transfer", 0)
    assert re.search(r", [1-9]\d*% above the rate of that record$", origin.detail)


def test_a_record_for_other_threads_is_a_transfer(func: tw.Func, db: tw.TuningDatabase) -> None:
    target = resolve("cpu -threads=2")
    trace = default_trace(func, target).to_json()
    measured = put_measured(db, func, target, trace, 1e-6)
    module = tw.build(func, SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("transfer", measured.id)
    assert str(module.origin).startswith(
        f"transfer of schedule {measured.schedule[:12]}: "
        "recorded for 2 threads and re-fitted to 1 thread, measured in "
    )
    computes(module)
    told = str(tw.explain(func, SERIAL, db))
    assert "1 record, at best 1 us: tuned for another number of threads: a build re-fits it" in told
    assert "(tuned for 2, asked for 1)" in told
    with pytest.raises(tw.NotTunedError):
        tw.build(func, SERIAL, db, allow=["record"])


def test_a_record_goes_before_other_sizes(func: tw.Func, db: tw.TuningDatabase) -> None:
    tuned_size(db, ops.matmul_func(N, 2 * M, K))
    _, own = record(db, func, unrolled(func))
    assert tw.build(func, SERIAL, db).origin.record_id == own
    assert tw.build(func, SERIAL, db, allow=("transfer",)).origin.kind == "transfer"
    assert tw.build(func, SERIAL, db, allow=("model",)).origin.kind == "model"


def test_other_programs_and_targets_are_no_other_sizes(
    func: tw.Func, db: tw.TuningDatabase
) -> None:
    tuned_size(db, ops.matmul_func(N, 2 * M, K, dtype="float64"))
    tuned_size(db, ops.matmul_func(N, 2 * M, K, transpose_b=True))
    trace = default_trace(func, SERIAL).to_json()
    record(db, ops.matmul_func(N, 2 * M, K), trace, target=SERIAL.with_threads(7))
    with pytest.raises(tw.NotTunedError):
        tw.build(func, SERIAL, db, allow=("record", "transfer"))


def test_a_schedule_that_no_sketch_takes_is_not_transferred(
    func: tw.Func, db: tw.TuningDatabase
) -> None:
    other = ops.matmul_func(N, 2 * M, K)
    record(db, other, unrolled(other))
    assert tw.build(func, SERIAL, db).origin.kind == "model"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_programs_have_a_default_too(size: int) -> None:
    module = tw.build(ops.matmul_func(size, size, size), SERIAL)
    a, c = np.full((size, size), 2, np.float32), np.empty((size, size), np.float32)
    module(a, a, c)
    np.testing.assert_array_equal(c, 4 * size)


def test_an_empty_database_gives_a_prediction(func: tw.Func, db: tw.TuningDatabase) -> None:
    assert tw.build(func, SERIAL, db).origin.kind == "model"


def test_the_fastest_record_is_built(func: tw.Func, db: tw.TuningDatabase) -> None:
    plain = tw.Schedule(func)
    record(db, func, plain.trace.to_json(), seconds=2e-3)
    schedule, fastest = record(db, func, unrolled(func), seconds=1e-3)
    module = tw.build(func, SERIAL, db)
    assert str(module.origin).startswith(f"record of schedule {schedule[:12]}: measured in ")
    assert f"from record of schedule {schedule[:12]}: " in " ".join(repr(module).split())
    assert (module.origin.kind, module.origin.record_id) == ("record", fastest)
    assert db.location in module.origin.detail
    assert loops(module) < loops(tw.build(plain, SERIAL))
    computes(module)


def test_building_measures_nothing(func: tw.Func, db: tw.TuningDatabase) -> None:
    record(db, func, unrolled(func))
    before = db.measurements()
    tw.build(func, SERIAL, db)
    tw.build(ops.matmul_func(N, M, K + 1), SERIAL, db)
    assert db.measurements() == before


def test_names_of_tensors_do_not_orphan_records(func: tw.Func, db: tw.TuningDatabase) -> None:
    _, measured = record(db, func, unrolled(func))
    te = tw.te
    x, y = te.placeholder((N, K), "float32", name="x"), te.placeholder((K, M), "float32", name="y")
    r = te.reduce_axis(K, name="inner")
    z = te.compute((N, M), lambda p, q: te.sum(x[p, r] * y[r, q], axis=r), name="z")
    module = tw.build(te.func([x, y, z], name="product"), SERIAL, db)
    assert module.origin.record_id == measured
    computes(module)


@pytest.mark.parametrize("passed", [None, False])
def test_what_was_not_found_correct_is_not_built(
    func: tw.Func, db: tw.TuningDatabase, passed: bool | None
) -> None:
    record(db, func, unrolled(func), passed=passed)
    assert tw.build(func, SERIAL, db).origin.kind == "model"


def test_a_record_of_other_threads_is_not_built(func: tw.Func, db: tw.TuningDatabase) -> None:
    record(db, func, unrolled(func), target=SERIAL.with_threads(7))
    assert tw.build(func, SERIAL, db).origin.kind == "model"


def test_a_pin_wins(func: tw.Func, db: tw.TuningDatabase) -> None:
    slow, slow_measured = record(db, func, tw.Schedule(func).trace.to_json(), seconds=9.0)
    record(db, func, unrolled(func))
    db.pin(workload_record(func).id, target_record(SERIAL), slow)
    module = tw.build(func, SERIAL, db, allow=["record"])
    assert module.origin.record_id == slow_measured
    assert "pinned" in module.origin.detail


def test_a_pin_without_measurement_names_its_schedule(
    func: tw.Func, db: tw.TuningDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = ScheduleRecord(unrolled(func), 1)
    db.pin(workload_record(func), target_record(SERIAL), schedule, unverified=True)
    module = tw.build(func, SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("record", schedule.id)
    assert module.origin.detail == f"pinned in {db.location}, not verified"
    assert "its results may be wrong: pinned, not verified" in caplog.text


def test_a_schedule_may_come_from_a_layer(func: tw.Func, tmp_path: Path) -> None:
    with tw.TuningDatabase(tmp_path / "team.db") as team:
        _, measured = record(team, func, unrolled(func))
    with tw.TuningDatabase(tmp_path / "mine.db", layers=[tmp_path / "team.db"]) as mine:
        origin = tw.build(func, SERIAL, mine).origin
    assert origin.record_id == measured
    assert "team.db" in origin.detail


# The policy


def test_an_inexact_schedule_is_built_where_its_error_is_tolerated(db: tw.TuningDatabase) -> None:
    func = ops.conv2d_func(1, 2, 5, 6, 3)
    sch = tw.Schedule(func)
    exact = sch.trace.to_json()
    sch.winograd(sch.get_block("Y"), 2)
    record(db, func, exact, seconds=1.0)
    schedule, _ = record(db, func, sch.trace.to_json(), seconds=0.5)

    def built(tolerance: float | None) -> str:
        module = tw.build(func, SERIAL, db, ("record",), tolerance=tolerance)
        return module.source("tir")

    assert "Y_tiles" not in built(None)
    assert "Y_tiles" not in built(1e-12)
    assert "Y_tiles" in built(1e-3)
    db.pin(workload_record(func).id, target_record(SERIAL), schedule)
    assert "Y_tiles" in built(None)


def test_without_a_record_an_inexact_schedule_is_chosen_where_its_bound_is_tolerated() -> None:
    program = ops.conv2d_func(1, 32, 28, 28, 32)
    target = "cpu -mcpu=haswell -threads=1"
    if not runs_here(target):
        pytest.skip("this machine does not run code for haswell")
    names = {}
    for tolerance in (None, 2e-5, 1e-3, 1e-3):  # the last is remembered
        built = tw.build(program, target, tolerance=tolerance)
        tir = built.source("tir")
        names[tolerance] = "tolerance" in built.origin.detail, "Y_tiles" in tir
    assert names == {None: (False, False), 2e-5: (True, False), 1e-3: (True, True)}


def test_an_inexact_schedule_alone_is_no_record(db: tw.TuningDatabase) -> None:
    func = ops.conv2d_func(1, 2, 5, 6, 3)
    sch = tw.Schedule(func)
    sch.winograd(sch.get_block("Y"), 2)
    record(db, func, sch.trace.to_json())
    with pytest.raises(tw.NotTunedError):
        tw.build(func, SERIAL, db, ("record",))
    with pytest.raises(tw.BuildError):
        tw.build(func, SERIAL, db, tolerance=0)


@pytest.mark.parametrize("tolerance", [None, 1e-2])
def test_a_record_that_hides_its_inexact_steps_is_set_aside(
    tmp_path: Path, tolerance: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The database takes a record's word; who applies its trace does not."""
    func = ops.conv2d_func(1, 2, 5, 6, 3)
    sch = tw.Schedule(func)
    exact = sch.trace.to_json()
    sch.winograd(sch.get_block("Y"), 2)
    with tw.TuningDatabase(tmp_path / "tuning.db") as db:
        slow, _ = record(db, func, exact, seconds=1.0)
        record(db, func, sch.trace.to_json(), seconds=0.5)
    with sqlite3.connect(tmp_path / "tuning.db") as raw:
        raw.execute("UPDATE schedule SET inexact = ''")
    raw.close()
    with tw.TuningDatabase(tmp_path / "tuning.db") as db:
        choice = next(Choices(func, SERIAL, db, ("record",), tolerance))
        story = tw.explain(func, SERIAL, db, tolerance=tolerance)
    reason = "it has inexact steps (winograd), which its record does not name"
    assert choice.schedule_id == slow
    assert reason in caplog.text
    assert [g.detail for g in story.refused] == [reason]


def test_only_what_is_allowed(func: tw.Func, db: tw.TuningDatabase) -> None:
    record(db, func, unrolled(func))
    assert tw.build(func, SERIAL, db, allow=["default"]).origin.kind == "default"
    assert tw.build(func, SERIAL, db, allow=["record"]).origin.kind == "record"


def test_nothing_allowed_is_explained(func: tw.Func, db: tw.TuningDatabase) -> None:
    _, measured = record(db, func, unrolled(func), passed=None)
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build(func, SERIAL, db, allow=["record"])
    text = str(caught.value)
    assert "allow=['record']" in text
    reason = "not verified: its results were not compared with the program as written"
    assert f"{reason}: {measured[:12]}" in text
    assert "tune the program" in text
    explanation = caught.value.data["explanation"]
    assert isinstance(explanation, Explanation)
    assert [group.count for group in explanation.refused] == [1]


def test_a_miss_names_near_shapes(func: tw.Func, db: tw.TuningDatabase) -> None:
    record(db, func, unrolled(func))
    with pytest.raises(tw.NotTunedError):
        tw.build(ops.matmul_func(N, M, 2 * K), SERIAL, db, allow=["record"])


def test_without_a_database_there_is_no_record(func: tw.Func) -> None:
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build(func, SERIAL, allow=["record"])
    assert caught.value.data["explanation"] is None
    with pytest.raises(tw.NotTunedError):
        tw.build(func, SERIAL, allow=[])


def test_unknown_policy(func: tw.Func) -> None:
    with refused(tw.BuildError, "guess"):
        tw.build(func, SERIAL, allow=["record", "guess"])
    with pytest.raises(tw.BuildError, match=r"found 'record'\n  hint: allow=\['record'\]"):
        tw.build(func, SERIAL, allow="record")
    with pytest.raises(tw.BuildError):
        tw.build(func, SERIAL, allow=None)  # type: ignore[call-overload]
    with refused(tw.BuildError, "guess"):
        tw.build_all([], SERIAL, allow=["guess"])


# Records that do not apply


def step(op: str, loop: str) -> str:
    """The trace of a program's first block, its three loops, and one step on one of them."""
    block = {"op": "get_block", "args": {"block": 0}, "out": ["b0"]}
    loops = {"op": "get_loops", "args": {"block": {"v": "b0"}}, "out": ["l1", "l2", "l3"]}
    last = {"op": op, "args": {"loop": {"v": loop}}}
    return json.dumps({"version": 1, "steps": [block, loops, last]})


BAD_TRACES = {
    "a primitive that there is not": (step("explode", "l1"), "'explode'"),
    "of a newer version": (json.dumps({"version": 99, "steps": []}), "version 99"),
    "a block that there is not": (
        '{"version":1,"steps":[{"op":"get_block","args":{"block":7},"out":["b0"]}]}',
        "there is no block 7",
    ),
    "a step that is illegal here": (step("parallel", "l3"), "cannot run in parallel"),
    "a loop that there is not": (step("unroll", "l9"), "l9"),
}


@pytest.mark.parametrize("what", BAD_TRACES)
def test_a_record_that_does_not_apply_is_set_aside(
    func: tw.Func, db: tw.TuningDatabase, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next best record is built, with one warning."""
    trace, says = BAD_TRACES[what]
    bad, _ = record(db, func, trace, seconds=1e-9)
    _, good = record(db, func, unrolled(func), seconds=1e-3)
    before = db.measurements()
    module = tw.build(func, SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("record", good)
    computes(module)
    (warning,) = caplog.messages
    assert f"set aside 1 of the best schedules in {db.location}, which do not apply" in warning
    assert f"schedule {bad[:12]}: " in warning
    assert says in warning
    assert db.measurements() == before, "nothing is written for it"


def test_a_record_whose_program_does_not_verify_is_set_aside(
    func: tw.Func,
    db: tw.TuningDatabase,
    caplog: pytest.LogCaptureFixture,
    own_primitives: None,
) -> None:
    """Of a step that forgets a condition: here it lets a loop run beyond its array."""

    @tw.primitive
    def overrun(fn: tw.Func, loop: Var) -> tuple[tw.Func, None]:
        """Double a loop."""
        path = path_to(fn, loop)
        old = path[-1]
        assert isinstance(old, For)
        return rebuild(fn, path, replace(old, extent=old.extent * 2)), None

    bad, _ = record(db, func, step("overrun", "l1"), seconds=1e-9)
    _, good = record(db, func, unrolled(func), seconds=1e-3)
    module = tw.build(func, SERIAL, db)
    assert module.origin.record_id == good
    computes(module)
    (warning,) = caplog.messages
    assert f"schedule {bad[:12]}: VerifyError: " in warning


def test_records_that_do_not_apply_go_before_what_else_is_allowed(
    func: tw.Func, db: tw.TuningDatabase
) -> None:
    for n, (trace, _) in enumerate(BAD_TRACES.values()):
        record(db, func, trace, seconds=1e-9 * (n + 1))
    assert tw.build(func, SERIAL, db).origin.kind == "model"
    assert tw.build(func, SERIAL, db, allow=("record", "default")).origin.kind == "default"
    _, other = tuned_size(db, ops.matmul_func(2 * N, M, K))
    module = tw.build(func, SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("transfer", other)
    computes(module)


@pytest.mark.parametrize("what", BAD_TRACES)
def test_why_records_were_set_aside_is_explained(
    func: tw.Func, db: tw.TuningDatabase, what: str
) -> None:
    trace, says = BAD_TRACES[what]
    _, bad = record(db, func, trace, seconds=1e-9)
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build(func, SERIAL, db, allow=["record"])
    told: Explanation = caught.value.data["explanation"]
    assert told == tw.explain(func, SERIAL, db)
    (group,) = told.refused
    assert (group.reason, group.examples) == (Reason.NOT_APPLICABLE, (bad,))
    assert says in group.detail
    assert "its schedule does not apply to the program" in str(caught.value)
    _, good = record(db, func, unrolled(func))
    told = tw.explain(func, SERIAL, db)
    assert told.best is not None
    assert told.best.measurement is not None
    assert told.best.measurement.id == good
    assert [g.reason for g in told.refused] == [Reason.NOT_APPLICABLE]


@pytest.mark.parametrize("what", BAD_TRACES)
def test_a_pinned_schedule_that_does_not_apply_is_an_error(
    func: tw.Func, db: tw.TuningDatabase, what: str
) -> None:
    """Nothing else was asked for, whatever is allowed and was measured."""
    trace, says = BAD_TRACES[what]
    schedule, _ = record(db, func, trace)
    record(db, func, unrolled(func))
    workload, where = workload_record(func).id, target_record(SERIAL)
    db.pin(workload, where, schedule)
    with pytest.raises(tw.BuildError) as caught:
        tw.build(func, SERIAL, db)
    text = str(caught.value)
    assert f"the schedule {schedule[:12]} that is pinned in {db.location} does not apply" in text
    assert says in text
    assert "database.unpin" in text
    db.unpin(workload, where)
    assert tw.build(func, SERIAL, db).origin.kind == "record"


def test_a_lookup_gives_up_after_many_records_that_do_not_apply(
    func: tw.Func, db: tw.TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.tuning_db.lookup.MOST_REFUSED", 3)
    for n in range(2):
        record(db, func, step("unroll", f"l{7 + n}"), seconds=1e-9 * (n + 1))
    record(db, func, unrolled(func))
    assert tw.build(func, SERIAL, db).origin.kind == "record"
    record(db, func, step("unroll", "l20"), seconds=1e-9)
    assert tw.build(func, SERIAL, db).origin.kind == "model"


# Options


def test_strict_fp_is_passed_on(func: tw.Func) -> None:
    sch = tw.Schedule(func)
    assert "llvm.fmuladd" in tw.build(sch, SERIAL).source("llvm")
    strict = tw.build(sch, SERIAL, strict_fp=True).source("llvm")
    assert "llvm.fma" not in strict
    assert "contract" not in strict


def test_unknown_target(func: tw.Func) -> None:
    with pytest.raises(tw.TargetError):
        tw.build(func, "gpu")
    with pytest.raises(tw.TargetError):
        tw.build(func, target=None)  # type: ignore[call-overload]


class Untold:
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({1: 2}, r"found \{1: 2\}\n.*\"cpu -1=2\""),
        ({"kind": "cpu", "threads": 2}, 'write it as a text: "cpu -threads=2"'),
        (Untold(), r"found a Untold without a text \(ValueError\)"),
        ({"mcpu": Untold()}, r"-mcpu=a Untold without a text"),
    ],
)
def test_what_is_no_target_is_told(func: tw.Func, given: Any, said: str) -> None:
    with pytest.raises(tw.TargetError, match=said):
        tw.build(func, given)


def test_kernels_come_from_the_cache(
    func: tw.Func, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATION, str(tmp_path))
    first = tw.build(tw.Schedule(func), SERIAL)
    (entry,) = (tmp_path / "kernels").iterdir()
    second = tw.build(tw.Schedule(func), SERIAL)
    assert list((tmp_path / "kernels").iterdir()) == [entry]
    assert first.source("asm") == second.source("asm")
    computes(second)


# In a child


OTHER = "cpu -mcpu=neoverse-n1 -threads=1"


def recorded_elsewhere(db: tw.TuningDatabase, func: tw.Func, monkeypatch: Any) -> None:
    """Put a record whose session ran on another host, as one that was imported or merged."""
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "elsewhere")
        record(db, func, unrolled(func))


def test_a_record_from_elsewhere_is_compiled_in_a_child(
    func: tw.Func, db: tw.TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_elsewhere(db, func, monkeypatch)
    module = tw.build(func, SERIAL, db)
    assert module.origin.kind == "record"
    computes(module)


@pytest.mark.usefixtures("aborting_llvm")
def test_a_record_from_elsewhere_on_which_llvm_aborts_is_set_aside(
    func: tw.Func,
    db: tw.TuningDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next choice is compiled in a child as well: LLVM may abort on the program itself."""
    recorded_elsewhere(db, func, monkeypatch)
    with pytest.raises(tw.BuildError, match=r"SIGABRT.*LLVM ERROR: Cannot select"):
        tw.build(func, SERIAL, db)
    assert "is set aside: it does not compile: cannot compile matmul" in caplog.text
    with pytest.raises(tw.NotTunedError) as caught:
        tw.build(func, SERIAL, db, allow=["record"])
    (group,) = caught.value.data["explanation"].refused
    assert group.reason is Reason.NOT_APPLICABLE
    assert "SIGABRT" in group.detail


def test_what_does_not_compile_is_followed_by_the_next_best(
    func: tw.Func, db: tw.TuningDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a build and for a library alike; after a few no other record is tried."""
    real, refused = compiling.compile_cached, str(Trace.from_json(unrolled(func)).apply(func).func)

    def compile_cached(given: tw.Func, *args: Any, **kwargs: Any) -> Any:
        if str(given) == refused:
            raise tw.BuildError("no code for {0}", given.name)
        return real(given, *args, **kwargs)

    monkeypatch.setattr(compiling, "compile_cached", compile_cached)
    record(db, func, unrolled(func), seconds=1e-9)
    _, good = record(db, func, tw.Schedule(func).trace.to_json())
    module = tw.build(func, SERIAL, db)
    assert (module.origin.kind, module.origin.record_id) == ("record", good)
    computes(module)
    library = build_library(func, tmp_path / "m.o", SERIAL, db, object_file=True)
    assert library.origin.record_id == module.origin.record_id
    assert library.origin.schedule_id == module.origin.schedule_id
    monkeypatch.setattr("tilewright.building.choose.MOST_UNFIT", 1)
    assert tw.build(func, SERIAL, db).origin.kind == "model"


def test_a_refitted_schedule_that_does_not_compile_is_set_aside(
    func: tw.Func,
    db: tw.TuningDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tuned_size(db, ops.matmul_func(N, 4 * M, K), seconds=1e-6)
    assert tw.build(func, SERIAL, db).origin.kind == "transfer"
    real, refusals = compiling.compile_cached, iter([True, True])

    def compile_cached(given: tw.Func, *args: Any, **kwargs: Any) -> Any:
        if next(refusals, False):
            raise tw.BuildError("no code for {0}", given.name)
        return real(given, *args, **kwargs)

    monkeypatch.setattr(compiling, "compile_cached", compile_cached)
    with refused(tw.BuildError, "matmul"):
        tw.build(func, SERIAL, db, allow=["transfer"])
    module = tw.build(func, SERIAL, db)
    assert module.origin.kind == "model"
    assert (
        "re-fitted from other sizes or threads is set aside: it does not compile: no code"
        in caplog.text
    )
    computes(module)


@pytest.mark.parametrize("fails", ["compile", "search"])
def test_a_choice_of_the_model_that_fails_is_followed_by_the_default(
    fails: str, func: tw.Func, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, refusals = compiling.compile_cached, iter([True])

    def compile_cached(given: tw.Func, *args: Any, **kwargs: Any) -> Any:
        if next(refusals, False):
            raise tw.BuildError("no code for {0}", given.name)
        return real(given, *args, **kwargs)

    def model_trace(*_: object, **__: object) -> Trace:
        raise tw.TuningError("no model")

    if fails == "compile":
        monkeypatch.setattr(compiling, "compile_cached", compile_cached)
    else:
        monkeypatch.setattr(unmeasured, "model_trace", model_trace)
    module = tw.build(func, SERIAL)
    assert module.origin.kind == "default"
    reason = "it does not compile: no code" if fails == "compile" else "it is not found: no model"
    assert f"cost model, nothing was measured, is set aside: {reason}" in caplog.text
    computes(module)
    refusals = iter([True])
    with pytest.raises(tw.TilewrightError, match="no code|no model"):
        tw.build(func, SERIAL, allow=["model"])


@pytest.mark.usefixtures("aborting_llvm")
def test_a_pin_that_nothing_was_measured_of_is_compiled_in_a_child(
    func: tw.Func, db: tw.TuningDatabase
) -> None:
    schedule = ScheduleRecord(unrolled(func), 1)
    db.pin(workload_record(func), target_record(SERIAL), schedule, unverified=True)
    with pytest.raises(tw.BuildError, match="SIGABRT"):
        tw.build(func, SERIAL, db)


@pytest.mark.usefixtures("aborting_llvm")
def test_what_is_of_this_host_and_for_it_needs_no_child(
    func: tw.Func, db: tw.TuningDatabase
) -> None:
    record(db, func, unrolled(func))
    computes(tw.build(func, SERIAL, db))
    computes(tw.build(tw.Schedule(func), SERIAL))
    computes(tw.build(func, SERIAL))


@pytest.mark.usefixtures("aborting_llvm")
def test_code_for_another_processor_is_compiled_in_a_child(func: tw.Func, tmp_path: Path) -> None:
    with pytest.raises(tw.BuildError, match="SIGABRT"):
        build_library(tw.Schedule(func), tmp_path / "m.o", OTHER, object_file=True)
    assert not (tmp_path / "m.o").exists()


def test_what_is_in_the_cache_needs_no_child(
    func: tw.Func, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    first = build_library(tw.Schedule(func), tmp_path / "a.o", OTHER, object_file=True)
    request.getfixturevalue("aborting_llvm")
    again = build_library(tw.Schedule(func), tmp_path / "b.o", OTHER, object_file=True)
    assert again.files[0].read_bytes() == first.files[0].read_bytes()


# Libraries


@needs_linker
def test_a_library_says_what_it_was_built_from(
    func: tw.Func, db: tw.TuningDatabase, tmp_path: Path
) -> None:
    schedule, measured = record(db, func, unrolled(func))
    made = build_library(func, tmp_path / "matmul.so", SERIAL, db)
    assert [path.name for path in made.files] == ["matmul.so", "matmul.so.json", "matmul.h"]
    assert made.origin.record_id == measured
    manifest = json.loads(made.files[1].read_text())
    stored = manifest["programs"][0]["provenance"]["schedules"]["matmul"]
    assert (stored["origin"]["schedule_id"], stored["measured"]["id"]) == (schedule, measured)
    assert stored["measured"]["seconds"] > 0
    assert tw.Trace.from_json(stored["trace"]).apply(func).func is not func
    assert manifest["toolchain"].keys() >= {"llvm", "tilewright"}
    module = load(made.files[0])
    assert module.origin == made.origin
    computes(module)


ALONE = """
import sys
sys.modules.update(dict.fromkeys(["llvmlite", "sqlalchemy", "xgboost", "psutil", "typer", "rich"]))
import numpy as np
from tilewright.runtime import load
from tilewright.tir import te
from tilewright.tir.ir import Expr, For, Var
module = load(sys.argv[1])
a, b = np.ones((6, 4), np.float32), np.ones((4, 10), np.float32)
c = np.empty((6, 10), np.float32)
module(a, b, c)
assert (c == 4).all()
"""


@needs_linker
def test_a_library_needs_only_the_runtime(func: tw.Func, tmp_path: Path) -> None:
    made = build_library(tw.Schedule(func), tmp_path / "matmul.so")
    subprocess.run([sys.executable, "-c", ALONE, made.files[0]], check=True, timeout=600)


def test_an_object_file_takes_no_linker(
    func: tw.Func, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    made = build_library(tw.Schedule(func), tmp_path / "matmul.o", SERIAL, object_file=True)
    assert [path.name for path in made.files] == ["matmul.o", "matmul.o.json", "matmul.h"]
    assert made.files[0].read_bytes()[:4] == b"\x7fELF"
    assert "int32_t matmul(" in made.files[2].read_text()
    with pytest.raises(tw.BuildError):
        build_library(tw.Schedule(func), tmp_path / "matmul.so", SERIAL)
    assert not (tmp_path / "matmul.so").exists()


def test_an_object_file_for_another_machine(func: tw.Func, tmp_path: Path) -> None:
    made = build_library(tw.Schedule(func), tmp_path / "m.o", OTHER, object_file=True)
    machine = int.from_bytes(made.files[0].read_bytes()[18:20], "little")
    assert machine == 183  # EM_AARCH64


def test_an_object_file_is_asked_for_by_name_or_option(func: tw.Func, tmp_path: Path) -> None:
    named, asked = tmp_path / "matmul.o", tmp_path / "matmul"
    build_library(tw.Schedule(func), named, SERIAL)
    build_library(tw.Schedule(func), asked, SERIAL, object_file=True)
    assert named.read_bytes() == asked.read_bytes()
    with refused(tw.BuildError, "ld"):
        build_library(tw.Schedule(func), named, SERIAL, linker="ld")


def test_a_library_that_cannot_be_written(func: tw.Func, tmp_path: Path) -> None:
    with pytest.raises(tw.BuildError, match="there is no folder"):
        build_library(tw.Schedule(func), tmp_path / "nowhere" / "matmul.so")
    (tmp_path / "matmul.o").mkdir()
    with pytest.raises(tw.BuildError):
        build_library(tw.Schedule(func), tmp_path / "matmul.o", object_file=True)
    for path in ("", "/", "matmul\0.so"):
        with pytest.raises(tw.BuildError):
            build_library(tw.Schedule(func), path)


def test_a_program_that_breaks_a_rule_is_not_built() -> None:
    x = te.placeholder((8,), "float32", name="X")
    y = te.compute((8,), lambda i: x[i + 1], name="Y")
    with pytest.raises(tw.VerifyError, match=r"X in dimension 0"):
        tw.build(te.func([x, y], name="shift"))


def test_padding_by_reflection_is_built() -> None:
    def reflected(i: Expr, n: int) -> Expr:
        return te.select(i < 2, 2 - i, te.select(i < n + 2, i - 2, 2 * n - i))

    x = te.placeholder((3, 19, 34), "float32", name="x")
    y = te.compute((3, 23, 38), lambda c, i, j: x[c, reflected(i, 19), reflected(j, 34)], name="y")
    given = np.random.default_rng(0).random((3, 19, 34), np.float32)
    found = np.empty((3, 23, 38), np.float32)
    tw.build(te.func([x, y]), "cpu -threads=1")(given, found)
    np.testing.assert_array_equal(found, np.pad(given, ((0, 0), (2, 2), (2, 2)), mode="reflect"))


@pytest.mark.parametrize("program", ["x", 3, None])
def test_what_is_no_program(program: Any) -> None:
    with pytest.raises(tw.BuildError):
        tw.build(program)


def test_a_schedule_of_several_programs(func: tw.Func) -> None:
    sch = tw.Schedule({"one": func, "two": ops.add_relu_func(8)})
    with pytest.raises(tw.BuildError) as refusal:
        tw.build(sch, "cpu -threads=1")
    assert "build(Schedule(sch.funcs['one'])) builds one as is" in str(refusal.value)
    for program in sch.funcs.values():
        module = tw.build(tw.Schedule(program), "cpu -threads=1")
        assert module.origin.kind == "schedule"


def test_a_symbolic_schedule() -> None:
    x = te.placeholder((8,), "float32", name="X")
    y = te.compute((8,), lambda i: x[i] + 1, name="Y")
    sch = tw.Schedule(te.func([x, y], name="inc"), symbolic=True)
    with pytest.raises(tw.BuildError):
        tw.build(sch)


def test_what_is_no_database() -> None:
    x = te.placeholder((8,), "float32", name="X")
    y = te.compute((8,), lambda i: x[i] + 1, name="Y")
    with refused(tw.BuildError, "3"):
        tw.build(te.func([x, y], name="inc"), database=3)  # type: ignore[call-overload]
    with refused(tw.BuildError, "None"):
        tw.explain(te.func([x, y], name="inc"), "cpu", None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("jit", "write tw.build(func), of a program that te.func or tw.script makes"),
        ("compile", "write tw.build(func)"),
        ("biuld", "did you mean build?"),
    ],
)
def test_names_that_are_spelt_otherwise_here(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(tw, name)
    assert str(error.value).endswith(f"has no attribute {name!r}; {hint}")


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (TuneResult, "fials", "did you mean finals"),
        (tw.TuningDatabase, "exprt_lines", "did you mean export_lines"),
    ],
)
def test_attributes_that_are_spelt_otherwise_here(kind: type[Any], name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(object.__new__(kind), name)
    text = str(error.value)
    assert text.startswith(f"{kind.__name__!r} object has no attribute {name!r}; {hint}")
