"""Models that were built before: what makes an entry count, and bad entries and folders."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.records import target_record, workload_record
from tilewright.autotune.rules.user_rules import SKETCH_RULES
from tilewright.autotune.search.remembered import chosen
from tilewright.base.errors import ArtifactError, ModelError
from tilewright.building import model_cache
from tilewright.building.build_program import Ways
from tilewright.building.model_cache import FROM_CACHE, KIND, KeptModel, kept_model
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.codegen.generator import Tools
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.operator import OPERATORS
from tilewright.schedule.primitive import PRIMITIVES
from tilewright.target import Target
from tilewright.tir.instruction_set import instructions_of
from tilewright.tir.ir import Func
from tilewright.tuning_db import ScheduleRecord

from ..measured import put_measured

TARGET = "cpu -threads=1"
NO_STEPS = '{"version":1,"steps":[]}'


def layer(name: str = "layer", scale: float = 1.0, last: str = "relu", rows: int = 4) -> Graph:
    rng = np.random.default_rng(0)
    b = Builder(name)
    x = b.input("x", TensorType("float32", (rows, 16)))
    w = b.constant(scale * rng.standard_normal((16, 16)), "float32")
    return b.graph({"y": b.add(last, b.add("matmul", x, w))})


def row_of(graph: Graph) -> np.ndarray:
    return np.linspace(-1, 1, graph.inputs["x"].type.size, dtype=np.float32).reshape(-1, 16)


def check(model: tw.Model, graph: Graph) -> None:
    x = row_of(graph)
    np.testing.assert_allclose(model(x), graph.reference(x)[0], rtol=1e-5, atol=1e-6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the models of this test go."""
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    return tmp_path / "cache" / f"{KIND}s"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tw.TuningDatabase]:
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        yield database


def entry_in(folder: Path) -> Path:
    (entry,) = folder.glob("*.model")
    return entry


def test_a_model_that_was_built_before_is_all_that_it_was(folder: Path) -> None:
    graph = layer()
    first, again = (tw.build(graph, TARGET) for _ in range(2))
    assert (first.kept, again.kept) == (False, True)
    check(again, graph)
    check(tw.build(layer(), TARGET), graph)
    assert again.kernels == first.kernels
    assert again.module.origin == first.module.origin
    assert again.module.signature == first.module.signature
    assert again.module.source("llvm") == first.module.source("llvm")
    assert again.inputs == first.inputs
    assert list(again.evidence.seconds) == [FROM_CACHE]
    assert FROM_CACHE in str(again.evidence)
    assert replace(again.evidence, seconds={}) == replace(first.evidence, seconds={})
    assert len(again.profile(row_of(graph)).kernels) == 1
    assert again.weights is not None
    assert again.weights.ctypes.data % 64 == 0
    assert not again.weights.flags.writeable


OTHERS: dict[str, Callable[[], tw.Model]] = {
    "other weights": lambda: tw.build(layer(scale=2.0), TARGET),
    "another operator": lambda: tw.build(layer(last="tanh"), TARGET),
    "another shape": lambda: tw.build(layer(rows=5), TARGET),
    "another name": lambda: tw.build(layer(name="other"), TARGET),
    "other threads": lambda: tw.build(layer(), "cpu -threads=2"),
    "strict floats": lambda: tw.build(layer(), TARGET, strict_fp=True),
    "another policy": lambda: tw.build(layer(), TARGET, allow=["default"]),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_determines_a_model_is_part_of_its_name(folder: Path, what: str) -> None:
    tw.build(layer(), TARGET)
    assert not OTHERS[what]().kept
    assert OTHERS[what]().kept
    assert len([*folder.iterdir()]) == 2


def test_code_of_another_compiler_is_not_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tw.build(layer(), TARGET)
    tools = CpuGenerator().tools()
    monkeypatch.setattr(CpuGenerator, "tools", lambda _: Tools("another", tools.versions))
    assert not tw.build(layer(), TARGET).kept
    assert len([*folder.iterdir()]) == 2


def test_instructions_of_a_user_are_part_of_the_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tw.build(layer(), TARGET)
    (other, *_) = instructions_of(resolve(TARGET))
    monkeypatch.setattr(model_cache, "user_instructions", lambda: [other])
    assert not tw.build(layer(), TARGET).kept


@pytest.mark.parametrize("known", [True, False], ids=["kept", "new"])
def test_a_constant_that_was_written_is_refused(folder: Path, known: bool) -> None:
    weights = np.ones((16, 16), np.float32)
    b = Builder("layer")
    x = b.input("x", TensorType("float32", (4, 16)))
    graph = b.graph({"y": b.add("matmul", x, b.constant(weights))})
    if known:
        tw.build(graph, TARGET)
    weights[3, 4] = 2
    with pytest.raises(ModelError):
        tw.build(graph, TARGET)
    assert len([*folder.glob("*.model")]) == known


# Databases


@pytest.mark.usefixtures("folder")
def test_versions_of_primitives_of_a_user_are_part_of_the_name() -> None:
    names = set()
    try:
        for version in (1, 2, 3, 3):

            @tw.primitive(version=version)
            def as_it_was(fn: Func) -> tuple[Func, None]:
                return fn, None

            names.add(place(layer())._name)
    finally:
        del PRIMITIVES["as_it_was"]
    assert len(names) == 3


def test_records_of_its_kernels_are_seen_and_others_are_not(
    folder: Path, db: tw.TuningDatabase
) -> None:
    graph, target = layer(), resolve(TARGET)
    (func,) = graph.kernels()
    (unlike,) = layer(last="tanh").kernels()
    (size,) = layer(rows=7).kernels()

    def origins() -> tuple[bool, str, str | None]:
        model = tw.build(graph, TARGET, db)
        check(model, graph)
        (origin,) = model.kernels.values()
        return model.kept, origin.kind, origin.record_id

    assert [origins()[:2] for _ in range(2)] == [(False, "model"), (True, "model")]
    put_measured(db, unlike, target, NO_STEPS, 1e-6)
    assert origins()[0]
    put_measured(db, size, target, NO_STEPS, 1e-6)
    assert not origins()[0]
    assert origins()[0]
    record = put_measured(db, func, target, NO_STEPS, 1e-6)
    assert [origins() for _ in range(2)] == [(kept, "record", record.id) for kept in (False, True)]
    assert not tw.build(graph, TARGET).kept  # without the database
    assert not tw.build(graph, TARGET, db, allow=["record"]).kept
    db.pin(workload_record(func).id, target_record(target), record.schedule)
    assert [origins()[0] for _ in range(2)] == [False, True]
    trace = chosen(func, target, "default").trace.to_json()
    other = put_measured(db, func, target, trace, 2e-6)
    assert origins()[2] == record.id
    db.pin(workload_record(func).id, target_record(target), other.schedule)
    assert [origins() for _ in range(2)] == [(kept, "record", other.id) for kept in (False, True)]
    db.unpin(workload_record(func).id, target_record(target))
    assert not origins()[0]


def test_records_of_a_layer_are_seen(folder: Path, tmp_path: Path) -> None:
    (func,) = layer().kernels()
    below = tmp_path / "team.db"
    with (
        tw.TuningDatabase(below) as team,
        tw.TuningDatabase(tmp_path / "mine.db", layers=[below]) as mine,
    ):
        assert [tw.build(layer(), TARGET, mine).kept for _ in range(2)] == [False, True]
        put_measured(team, func, resolve(TARGET), NO_STEPS, 1e-6)
        for kept in (False, True):
            model = tw.build(layer(), TARGET, mine)
            assert (model.kept, model.module.origin.kind) == (kept, "record")


def test_a_record_that_comes_during_a_build_is_seen_by_the_next(
    folder: Path, db: tw.TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, target = layer(), resolve(TARGET)
    (func,) = graph.kernels()
    kept = KeptModel.note

    def late(self: KeptModel, programs: list[tw.Func]) -> None:
        kept(self, programs)
        monkeypatch.setattr(KeptModel, "note", kept)
        put_measured(db, func, target, NO_STEPS, 1e-6)

    monkeypatch.setattr(KeptModel, "note", late)
    for _ in range(2):
        assert not tw.build(graph, TARGET, db).kept
    assert tw.build(graph, TARGET, db).kept


def test_a_build_that_has_warned_warns_again(
    folder: Path, db: tw.TuningDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    (func,) = layer().kernels()
    where = target_record(resolve(TARGET))
    db.pin(workload_record(func), where, ScheduleRecord(NO_STEPS, 1), unverified=True)
    for _ in range(2):
        caplog.clear()
        assert not tw.build(layer(), TARGET, db).kept
        assert "its results may be wrong" in caplog.text
    logging.getLogger("tilewright").setLevel(logging.ERROR)
    try:
        assert not tw.build(layer(), TARGET, db).kept
    finally:
        logging.getLogger("tilewright").setLevel(logging.NOTSET)
    assert not tw.build(layer(), TARGET, db).kept


def test_a_build_that_has_left_out_a_damaged_record_warns_again(
    folder: Path, db: tw.TuningDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (func,) = layer().kernels()
    put_measured(db, func, resolve(TARGET), NO_STEPS, 1e-6)
    with closing(sqlite3.connect(tmp_path / "tuning.db")) as connection, connection:
        connection.execute("UPDATE measurement SET samples = 'x'")
    for _ in range(2):
        caplog.clear()
        assert not tw.build(layer(), TARGET, db).kept
        assert "measurement.samples" in caplog.text


# What of a user's own may depend on anything


def test_with_an_operator_from_outside_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relu = OPERATORS["relu"]

    def own(*given: Any) -> Any:
        assert relu.lower is not None
        return relu.lower(*given)

    monkeypatch.setitem(OPERATORS, "relu", replace(relu, lower=own, outside=True))
    for _ in range(2):
        assert not tw.build(layer(), TARGET).kept
    assert not folder.exists()


def test_with_a_rule_from_outside_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tw.build(layer(), TARGET)
    monkeypatch.setitem(SKETCH_RULES, "own", object())
    assert kept_model(layer(), ways()) is None


# Entries and folders that are bad


def ways(target: Target | None = None) -> Ways:
    return Ways(resolve(TARGET) if target is None else target, None, ["model"], None)


def place(graph: Graph) -> KeptModel:
    found = kept_model(graph, ways())
    assert found is not None
    return found


def test_a_damaged_entry_is_built_anew_and_replaced(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = layer()
    tw.build(graph, TARGET, allow=["model"])
    path = entry_in(folder)
    whole = path.read_bytes()
    kept = place(graph)
    assert kept.recalled() is not None
    for start in range(0, len(whole), 50):
        damaged = bytearray(whole)
        damaged[start] ^= 0xFF
        path.write_bytes(damaged)
        caplog.clear()
        assert kept.recalled() is None
        assert "malformed" in caplog.text
    everywhere = np.frombuffer(whole, np.uint8).copy()
    everywhere[::50] ^= 0xFF
    for content in (everywhere.tobytes(), b"", whole[:-1], whole + b"\0"):
        path.write_bytes(content)
        model = tw.build(graph, TARGET, allow=["model"])
        assert not model.kept
        check(model, graph)
        assert tw.build(graph, TARGET, allow=["model"]).kept


def test_random_damage_under_a_right_digest_is_a_typed_error(folder: Path) -> None:
    tw.build(layer(), TARGET, allow=["model"])
    kept, path = place(layer()), entry_in(folder)
    body = kept._entries.unseal(path.stem, path.read_bytes())
    rng = np.random.default_rng(0)
    told, code = model_cache._LENGTHS.unpack_from(body)
    facts = model_cache._LENGTHS.size + told
    refused = 0
    for n in range(200):
        damaged = np.frombuffer(body, np.uint8).copy()
        reach = (model_cache._LENGTHS.size, facts, facts + 200)[n % 3]
        damaged[rng.integers(reach, size=2)] = rng.integers(256, size=2)
        try:
            kept._decoded(0.0, damaged.tobytes())
        except ArtifactError:
            refused += 1
    assert refused > 150
    for cut in (0, 5, facts, facts + code, len(body) - 1):
        with pytest.raises(ArtifactError):
            kept._decoded(0.0, body[:cut])


@pytest.mark.parametrize("other", [layer(rows=5), layer(last="tanh"), layer(scale=3.0)])
def test_an_entry_of_another_graph_is_refused(folder: Path, other: Graph) -> None:
    tw.build(layer(), TARGET, allow=["model"])
    path = entry_in(folder)
    content = path.read_bytes()
    kept = place(other)
    path.rename(folder / f"{kept._name}.{KIND}")
    assert kept.recalled() is None
    if other.inputs["x"].shape != layer().inputs["x"].shape:
        with pytest.raises(ArtifactError):
            kept._decoded(0.0, kept._entries.unseal(path.stem, content))


def test_large_models_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cache, "MAX_ENTRY_BYTES", 16 * 16 * 4 - 1)
    for _ in range(2):
        assert not tw.build(layer(), TARGET).kept
    assert not folder.exists()


def test_without_a_cache_nothing_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATION, "")
    for _ in range(2):
        assert not tw.build(layer(), TARGET).kept
    assert not folder.exists()


def test_a_folder_that_cannot_be_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(LOCATION, str(tmp_path / "file" / "cache"))
    for _ in range(2):
        model = tw.build(layer(), TARGET)
        assert not model.kept
        check(model, layer())
    assert "models are not cached" in caplog.text


IN_ITS_OWN = """
import resource, sys
import numpy as np
import tilewright as tw
from tests.graph.test_model_cache import layer, check, TARGET
if "full" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for graph in (layer(), layer(last="tanh")):
    model = tw.build(graph, TARGET)
    check(model, graph)
    print(model.kept)
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, LOCATION: str(folder.parent), "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", IN_ITS_OWN, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def told(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out.split(), err


def test_processes_share_a_folder(folder: Path) -> None:
    for process in [started(folder) for _ in range(4)]:
        assert told(process)[1] == ""
    assert told(started(folder)) == (["True", "True"], "")
    assert sorted(path.suffix for path in folder.iterdir()) == [".model"] * 2


def test_a_full_disk_is_a_warning(folder: Path) -> None:
    lines, problems = told(started(folder, "full"))
    assert lines == ["False", "False"]
    assert "models are not cached" in problems
    assert [*folder.iterdir()] == []
    assert told(started(folder))[0] == ["False", "False"]
