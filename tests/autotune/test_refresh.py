"""What another compiler or primitive made is shown, not built, not deleted, and measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import tilewright as tw
from tilewright import Schedule, TuningDatabase, ops
from tilewright.autotune import records
from tilewright.autotune.records import schedule_record, target_record, workload_record
from tilewright.autotune.session import tuning_job
from tilewright.base.errors import NotTunedError, ScheduleError, TuningError
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import Tools
from tilewright.schedule import Trace
from tilewright.schedule.primitive import PRIMITIVES
from tilewright.schedule.primitives import split
from tilewright.tir.ir import Func, Var
from tilewright.tuning_db import Measurement, Reason, Toolchain, Workload
from tilewright.tuning_db.staleness import other_version

from ..refusals import refused
from .children import QUICK
from .recorded import Simulated

TARGET = "cpu -threads=1"
ADD = ops.add_relu_func(64)
WIDER = ops.add_relu_func(128)

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices")
Compiler = Callable[[str], None]


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built, and schedules with the primitive `halved` are the fastest."""
    seconds = Simulated(lambda trace: 1e-3 / len(trace) / (100 if "halved" in trace else 1))
    monkeypatch.setattr(tuning_job, "Measurer", seconds)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """Makes the compiler of this process one of another generation."""

    def use(generation: str) -> None:
        monkeypatch.setattr(CpuGenerator, "tools", lambda _: Tools(generation, {"llvm": "0"}))
        records._toolchain.cache_clear()

    yield use
    records._toolchain.cache_clear()


@pytest.fixture
def halved() -> Iterator[Callable[[int], None]]:
    """Registers a primitive of the user's own, of a version."""
    yield register
    del PRIMITIVES["halved"]


def register(version: int) -> None:
    @tw.primitive(version=version)
    def halved(fn: Func, loop: Var) -> tuple[Func, tuple[Var, Var]]:
        """Split a loop; another version splits it by another factor."""
        after, loops = split(fn, loop, [None, 2 * version])
        return after, (loops[0], loops[1])


def tuned(db: TuningDatabase, func: Func | Schedule = ADD, trials: int = 2) -> None:
    tw.tune(func, TARGET, database=db, trials=trials, config=QUICK, progress=False)


again = partial(tw.refresh, config=QUICK)


def with_record(db: TuningDatabase, func: Func = ADD) -> Toolchain:
    """The toolchain of the record that a build takes; else it raises `NotTunedError`."""
    explained = tw.explain(func, TARGET, database=db)
    if explained.best is None:
        tw.build(func, TARGET, database=db, allow=["record"])
    assert explained.best is not None
    assert explained.best.measurement is not None
    return db.get(Toolchain, explained.best.measurement.toolchain)


def test_the_best_of_another_generation_is_measured_again(
    db: TuningDatabase, compiler: Compiler
) -> None:
    compiler("llvm 21")
    tuned(db)
    assert with_record(db).generation == "llvm 21"
    before = {m.id for m in db.measurements()}
    compiler("llvm 22")
    with pytest.raises(NotTunedError):
        with_record(db)
    reasons = {r.reason: r.count for r in tw.explain(ADD, TARGET, database=db).refused}
    assert reasons == {Reason.OTHER_GENERATION: len(before)}
    told: list[object] = []
    (one,) = done = again(db, callback=told.append)
    assert told == done
    assert (one.why, one.refused) == ("measured with llvm 21, wanted llvm 22", None)
    assert one.result is not None
    assert one.result.best is not None
    assert with_record(db).generation == "llvm 22"
    assert before < {m.id for m in db.measurements()}
    assert again(db) == []
    assert [(p.generation, p.reverify) for p in db.places(lambda _: Toolchain("llvm 22"))] == [
        ("llvm 21", len(before)),
        ("llvm 22", 0),
    ]


def test_the_best_of_an_older_version_of_a_primitive_is_measured_again(
    db: TuningDatabase, halved: Callable[[int], None]
) -> None:
    halved(1)
    schedule = Schedule(ADD)
    schedule.halved(schedule.get_loops(schedule.get_block("C"))[0])
    old = schedule_record(schedule.trace)
    tuned(db, schedule, trials=4)
    halved(2)
    with pytest.raises(ScheduleError) as made:
        Trace.from_json(old.trace)
    assert made.value.data == {"primitive": "halved", "found": 1, "expected": 2}
    explained = tw.explain(ADD, TARGET, database=db)
    assert Reason.OTHER_VERSION in {r.reason for r in explained.refused}
    assert explained.best is None or explained.best.schedule.id != old.id
    (one,) = again(db, ADD)
    assert one.why == "made with version 1 of halved, wanted 2"
    assert one.result is not None
    new = schedule_record(Trace.from_json(old.trace, older=True))
    assert json.loads(new.trace)["steps"][-1]["version"] == 2
    assert {m.schedule for m in db.measurements()} >= {old.id, new.id}
    (place,) = db.places(lambda _: records.toolchain_record(resolve(TARGET)))
    assert place.reverify == len(db.measurements(schedule=old.id)) > 0
    assert again(db) == []
    halved(1)
    with pytest.raises(ScheduleError) as made:
        Trace.from_json(new.trace, older=True)
    assert made.value.data == {"primitive": "halved", "found": 2, "expected": 1}


@pytest.mark.parametrize("version", [0, 1.0, True, "1"])
def test_versions_are_integers_from_1_on(version: object) -> None:
    with pytest.raises(ScheduleError):
        register(version)  # type: ignore[arg-type]
    trace = json.dumps({"version": 1, "steps": [{"op": "split", "args": {}, "version": version}]})
    with refused(ScheduleError, version):
        Trace.from_json(trace)


@pytest.mark.parametrize(
    ("step", "versions", "is_other"),
    [
        ({"op": "halved"}, {}, False),
        ({"op": "halved"}, {"primitive halved": 2}, True),
        ({"op": "halved", "version": 2}, {"primitive halved": 2}, False),
        ({"op": "halved", "version": 2}, {}, True),
        ({"op": "split", "args": {"version": 7}}, {"primitive halved": 2}, False),
        ("split", {"primitive halved": 2}, False),
    ],
)
def test_steps_are_of_versions(step: object, versions: dict[str, int], is_other: bool) -> None:
    trace = json.dumps({"steps": [step], "version": 1})
    assert (other_version(trace, Toolchain("llvm 22", versions)) is not None) == is_other


def test_most_used_first_and_no_longer_than_asked(db: TuningDatabase, compiler: Compiler) -> None:
    compiler("llvm 21")
    tuned(db, WIDER)
    tuned(db, ADD)
    tuned(db, ADD, trials=3)
    compiler("llvm 22")
    waiting = again(db, seconds=0)
    assert [(one.workload, one.result) for one in waiting] == [
        (workload_record(func).text, None) for func in (ADD, WIDER)
    ]
    assert [one.workload for one in again(db, [WIDER, ADD, WIDER], seconds=0)] == [
        one.workload for one in reversed(waiting)
    ]


def test_what_cannot_be_measured_is_said(db: TuningDatabase, compiler: Compiler) -> None:
    compiler("llvm 21")
    tuned(db)
    compiler("llvm 22")
    other = Workload(**{**vars(workload_record(ADD)), "ir": "def nothing(): ..."})
    with TuningDatabase("sqlite://") as foreign:
        foreign.put(other)
        foreign.merge(db)
        (one,) = again(foreign)
        assert one.result is None
        assert one.refused is not None
        assert len(again(foreign, ADD)) == 1
    with pytest.raises(TuningError):
        again(db, "add")  # type: ignore[arg-type]


def test_records_of_other_machines_wait_for_those(db: TuningDatabase, compiler: Compiler) -> None:
    compiler("llvm 21")
    tuned(db)
    (measured, *_) = db.records(Measurement)
    here = target_record(resolve(TARGET))
    assert db.get(type(here), measured.target) == here
    compiler("llvm 22")
    assert again(db, target="cpu -threads=2") == []
