"""A database that older versions tuned into: the same records are found, replayed and built."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune import records
from tilewright.autotune.search.transfer import transferred
from tilewright.schedule import Trace
from tilewright.target import Target
from tilewright.tir.equality import structural_hash
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tuning_db import (
    Measurement,
    ScheduleRecord,
    Session,
    TargetRecord,
    Toolchain,
    TuningDatabase,
    Verification,
    Workload,
)
from tilewright.tuning_db.values import KINDS

from ..hosts import runs

KEPT = Path(__file__).parent / "kept"
EXPECTED: list[dict[str, Any]] = json.loads((KEPT / "expected.json").read_text(encoding="utf-8"))
CASES = pytest.mark.parametrize(
    "case",
    EXPECTED,
    ids=lambda c: f"{c['name']}-{c['workload'][:4]}-{c['target'][:4]}-{c['tolerance']}",
)
OTHER_SIZES = [
    ("cpu -mcpu=x86-64-v3 -threads=1", ops.matmul_func(40, 40, 40)),
    ("cpu -mcpu=x86-64-v3 -threads=1", ops.softmax_func(24, 96)),
    ("cpu -mcpu=x86-64-v3 -threads=1", ops.conv2d_func(1, 16, 10, 10, 16, 3)),
    ("cpu -mcpu=x86-64-v3 -threads=1", ops.add_relu_func(8192)),
    ("cpu -mcpu=x86-64-v3 -threads=1", ops.int8_matmul_func(32, 48, 64)),
    ("cpu -mcpu=x86-64-v2 -threads=1", ops.matmul_func(40, 40, 40)),
    ("cpu -mcpu=x86-64-v2 -threads=1", ops.softmax_func(24, 96)),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(KEPT / "tuned.sqlite", tmp_path / "tuning.db"))


@pytest.fixture
def kept(file: Path) -> Iterator[TuningDatabase]:
    with TuningDatabase(file) as db:
        yield db


def toolchain(kept: TuningDatabase) -> Toolchain:
    """Of the one generation that there is."""
    (tools,) = {t.generation: t for t in kept.records(Toolchain)}.values()
    return tools


@pytest.fixture
def measured_here(kept: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets this machine and its tools pass for those of a target (id): their times compare."""

    def pass_for(target: str) -> None:
        record = kept.get(TargetRecord, target)
        monkeypatch.setattr(records, "target_record", lambda _: record)
        monkeypatch.setattr(records, "toolchain_record", lambda _: toolchain(kept))

    return pass_for


def program(kept: TuningDatabase, workload: str) -> Func:
    func = parse(kept.get(Workload, workload).ir)
    assert structural_hash(func) == workload
    return func


def test_every_record_is_read_with_its_id(file: Path) -> None:
    with sqlite3.connect(file) as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
        assert set(KINDS) - tables == {"machine"}, "there was no such kind then"
        ids = {
            kind: {id for (id,) in raw.execute(f"SELECT id FROM {kind}")}
            for kind in tables & set(KINDS)
        }
    raw.close()
    kinds = (Workload, ScheduleRecord, Session, Measurement, Verification, TargetRecord, Toolchain)
    assert all(ids[kind.kind] for kind in kinds)
    with TuningDatabase(file) as db:
        for name, kind in KINDS.items():
            assert {record.id for record in db.records(kind)} == ids.get(name, set())


@CASES
def test_the_same_records_are_found(kept: TuningDatabase, case: dict[str, Any]) -> None:
    target = kept.get(TargetRecord, case["target"])
    tools = toolchain(kept)
    asked = kept.get(Workload, case["workload"]), target, tools
    story = kept.explain(*asked, tolerance=case["tolerance"])
    best = kept.best(asked[0].id, target, tools, tolerance=case["tolerance"])
    assert best == story.best
    assert (best and best.schedule.id) == case["schedule"]
    assert (best and best.measurement and best.measurement.id) == case["measurement"]
    compared = [] if best is None else best.comparison
    assert [[s.schedule, s.verdict] for s in compared] == case["compared"]
    refused: Counter[str] = Counter()
    for group in story.refused:
        refused[group.reason.name] += group.count
    assert refused == case["refused"]


def test_every_trace_applies_to_its_program(kept: TuningDatabase) -> None:
    replayed = set()
    for measured, schedule in kept.history():
        scheduled = Trace.from_json(schedule.trace).apply(program(kept, measured.workload))
        assert json.loads(scheduled.trace.to_json(notes=False)) == json.loads(schedule.trace)
        replayed.add(schedule.id)
    assert len(replayed) > 15


@pytest.mark.part(5)
@CASES
def test_builds_take_the_same_records(
    kept: TuningDatabase, measured_here: Callable[[str], None], case: dict[str, Any]
) -> None:
    measured_here(case["target"])
    func, target = program(kept, case["workload"]), case["text"]
    story = tw.explain(func, target, kept, tolerance=case["tolerance"])
    assert (story.best and story.best.schedule.id) == case["schedule"]
    if not runs(target):
        pytest.skip(f"looked up, not built: this machine does not run {target}")

    def build() -> tw.Module:
        return tw.build(func, target, kept, allow=("record",), tolerance=case["tolerance"])

    if case["schedule"] is None:
        with pytest.raises(tw.NotTunedError):
            build()
        return
    origin = build().origin
    assert (origin.kind, origin.record_id) == ("record", case["measurement"])


@pytest.mark.parametrize(
    ("text", "func"), OTHER_SIZES, ids=lambda v: getattr(v, "name", str(v)[10:19])
)
def test_other_sizes_take_over_their_schedules(
    kept: TuningDatabase, measured_here: Callable[[str], None], text: str, func: Func
) -> None:
    perf = "cpu/znver5/AMD EPYC/threads=1"
    measured_here(
        next(t.id for t in kept.records(TargetRecord) if (t.text, t.perf) == (text, perf))
    )
    target = Target.parse(text)
    workload = records.workload_record(func)
    where, tools = records.target_record(target), records.toolchain_record(target)
    known = {r.schedule.id for r in kept.relatives(workload, where, tools)}
    assert known
    chosen = transferred(func, target, kept, workload, where, tools)
    assert chosen is not None
    assert chosen.source.schedule.id in known
    assert chosen.schedule.original is func
