"""A kind of target that is added from outside: named, built for, called, timed and measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure import worker_pool
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureConfig
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.measure.program_text import program_fields
from tilewright.autotune.measure.protocol import Message
from tilewright.autotune.measure.reference import new_memory
from tilewright.autotune.measure.runner import Runner
from tilewright.autotune.model import base_model, samples
from tilewright.autotune.model.profile import profile
from tilewright.autotune.model.target_model import _MODELS, model_for, register_model
from tilewright.autotune.records import environment_record, target_record, toolchain_record
from tilewright.autotune.rules import fusion_groups, plans, register_rules
from tilewright.autotune.rules.draft import Draft, Drafts
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.remembered import chosen, recalled
from tilewright.autotune.search.search import Search, SearchConfig
from tilewright.autotune.search.sketch import sketches
from tilewright.base.errors import ArtifactError, TargetError, TuningError
from tilewright.cli import models
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cache import KernelCache, key
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.codegen.generator import generator_for, outside_modules, register_generator
from tilewright.runtime import load
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.target_runtime import register_runtime, runtime_for
from tilewright.runtime.workspace import shared_pool
from tilewright.target import CpuTarget, Target, register_kind, registered_kinds
from tilewright.tir.evaluate import Columns
from tilewright.tir.ir import Func, product
from tilewright.tuning_db.values import Measurement, Outcome, Session

from .autotune.checking import arguments, expected, some_rows
from .refusals import refused
from .toy_target import (
    MEMORY,
    MODEL,
    NOTES,
    RULES,
    VISIT,
    ToyArray,
    ToyGenerator,
    ToyMemory,
    ToyRuntime,
    ToyTarget,
    ToyTimer,
)

N = 6


@pytest.fixture
def program() -> Func:
    a = te.placeholder((N,), "float32", name="A")
    return te.func([a, te.compute((N,), lambda i: a[i] * 2.0 + 1.0, name="B")], name="affine")


@pytest.mark.parametrize("text", ["toy", "toy -order=forward", "toy -order=shuffled"])
def test_its_text_reads_back(text: str) -> None:
    target = Target.parse(text)
    assert isinstance(target, ToyTarget)
    assert str(target) == text
    assert Target.parse(str(target)) == target
    assert target.resolved is (text != "toy")
    assert resolve(target).resolved


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("toys", ["'toys'", "known: cpu, cuda, toy", "did you mean toy?"]),
        ("toy -mcpu=haswell", ["'-mcpu=haswell'", "known: -order="]),
        ("toy -order=backward", ["-order=backward", "shuffled"]),
    ],
)
def test_a_wrong_text_says_what_is_known(text: str, words: list[str]) -> None:
    with pytest.raises(TargetError) as error:
        Target.parse(text)
    for word in words:
        assert word in str(error.value)


def test_a_kind_has_one_record_and_one_generator() -> None:
    assert set(registered_kinds()) >= {"cpu", "toy"}
    register_kind(ToyTarget)
    with pytest.raises(TargetError):
        register_kind(type("Other", (ToyTarget,), {}))
    with pytest.raises(TargetError):
        register_generator("toy", type("Other", (ToyGenerator,), {}))
    with pytest.raises(TargetError):
        register_runtime("toy", type("Other", (ToyRuntime,), {}))
    with pytest.raises(TargetError):
        register_rules("toy", lambda: RULES)
    with pytest.raises(TargetError):
        register_model("toy", lambda: MODEL)


def defined() -> tuple[type[ToyTarget], type[ToyGenerator]]:
    """A kind of target and its generator, as a notebook's cell defines them that runs twice."""

    @register_kind
    class CellTarget(ToyTarget):
        kind: ClassVar[str] = "cell"

    class CellGenerator(ToyGenerator):
        def host(self) -> ToyTarget:
            return CellTarget(order="forward")

    register_generator("cell", CellGenerator)
    return CellTarget, CellGenerator


def test_a_kind_that_is_defined_again_takes_the_place_of_the_former() -> None:
    for _ in range(2):
        record, generator = defined()
        target = Target.parse("cell")
        assert type(target) is record
        assert type(generator_for(target)) is generator


def test_a_kind_that_a_script_defines_is_built_for_here_alone(
    program: Func, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyTarget, "__module__", "__main__")
    with pytest.raises(TuningError):
        program_fields(program, resolve("toy"))
    monkeypatch.setattr(worker_pool, "Worker", None)
    schedules = [tw.Schedule(program), tw.Schedule(ops.add_relu_func(3))]
    assert len(tw.build_all(schedules, "toy", jobs=2)) == 2


def test_facts_of_one_kind_are_not_asked_of_another() -> None:
    assert ToyTarget.of(Target.parse("toy")) == ToyTarget.parse("toy")
    with pytest.raises(TargetError):
        CpuTarget.parse("toy")


@pytest.mark.parametrize("text", ["toy", "toy -order=shuffled"])
def test_a_schedule_is_built_called_and_timed(text: str, program: Func) -> None:
    schedule = tw.Schedule(program)
    schedule.split(schedule.get_loops(schedule.get_block("B"))[0], [None, 4])
    module = tw.build(schedule, text)
    check_affine(module)
    a, b = arrays()
    assert module.time(a, b, budget_seconds=0.01).samples
    assert "def affine(" in module.source("script")
    assert module.target == resolve(text)


def arrays() -> tuple[ToyArray, ToyArray]:
    return ToyArray.of(np.arange(N, dtype=np.float32)), ToyArray.of(np.zeros(N, np.float32))


def check_affine(module: tw.Module) -> None:
    a, b = arrays()
    module(a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(N) * 2 + 1)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: np.zeros(N, np.float32),
        "argument A: expected memory on ext_dev, found an array on c",
    ),
    (
        lambda: [0.0] * N,
        r"argument A: expected an array, found list\n.*pass ToyArray.of.A.",
    ),
    (lambda: ToyArray.of(np.zeros(N)), r"found float64\n.*pass A.astype.toys.float32."),
    (lambda: ToyArray.of(np.zeros(2 * N, np.float32)), r"expected shape \(6,\), found \(12,\)"),
    (
        lambda: ToyArray.of(np.zeros(N + 1, np.float32)).part(1),
        "argument A: expected an address that is a multiple of 16 bytes",
    ),
]


@pytest.mark.parametrize(("value", "words"), REFUSED)
def test_arrays_that_its_kernels_cannot_use_are_refused(
    value: Callable[[], Any], words: str, program: Func
) -> None:
    module = tw.build(tw.Schedule(program), "toy")
    _, b = arrays()
    with pytest.raises(tw.ArgumentError, match=words):
        module(value(), b)
    assert (b.numpy() == 0).all()


def test_arrays_of_one_kind_are_not_taken_by_another(program: Func) -> None:
    a, b = arrays()
    with pytest.raises(tw.ArgumentError):
        tw.build(tw.Schedule(program), "cpu")(a, b)
    with pytest.raises(tw.ArgumentError):
        tw.build(tw.Schedule(program), "toy")(a, a)


def test_arrays_with_other_strides_are_refused() -> None:
    a = te.placeholder((2, 3), name="A")
    func = te.func([a, te.compute((2, 3), lambda i, j: a[i, j] + 1, name="B")])
    module = tw.build(tw.Schedule(func), "toy")
    columns = ToyArray.of(np.zeros((3, 2), np.float32)).transposed()
    with pytest.raises(tw.ArgumentError):
        module(columns, ToyArray.of(np.zeros((2, 3), np.float32)))


def test_its_kernels_compute_in_workspaces_of_its_memory(program: Func) -> None:
    module = tw.build(tw.Schedule(program), "toy")
    a, b = arrays()
    assert module.workspace_bytes == NOTES
    memory = module.workspace()
    assert isinstance(memory, ToyArray)
    module(a, b, workspace=memory)
    np.testing.assert_array_equal(b.numpy(), np.arange(N) * 2 + 1)
    with refused(tw.ArgumentError, "workspace", "ext_dev"):
        module(a, b, workspace=np.zeros(NOTES, np.uint8))
    check_affine(module)  # by the pool, which keeps its own
    pool = shared_pool(MEMORY)
    assert [len(memory) for memory in pool] == [NOTES]
    check_affine(module)
    assert len(pool) == 1
    assert not any(isinstance(memory, ToyArray) for memory in shared_pool(HOST_MEMORY))


def test_indices_in_its_memory_are_checked() -> None:
    x = te.placeholder((5,), name="X")
    idx = te.placeholder((3,), "int32", name="idx", value_range=(0, 5))
    func = te.func([x, idx, te.compute((3,), lambda i: x[idx[i]], name="Y")], name="take")
    module, y = tw.build(tw.Schedule(func), "toy"), ToyArray.of(np.zeros(3, np.float32))
    values = ToyArray.of(np.arange(5, dtype=np.float32))
    module(values, ToyArray.of(np.array([4, 0, 2], np.int32)), y)
    assert y.numpy().tolist() == [4, 0, 2]
    with refused(tw.ArgumentError, "idx", "0", "4", "5"):
        module(values, ToyArray.of(np.array([4, 5, 2], np.int32)), y)


def test_an_array_that_the_host_has_no_memory_to_read_is_an_error_of_two_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    x = te.placeholder((5,), name="X")
    idx = te.placeholder((3,), "int32", name="idx", value_range=(0, 5))
    func = te.func([x, idx, te.compute((3,), lambda i: x[idx[i]], name="Y")], name="take")
    monkeypatch.setattr(ToyMemory, "read", fail)
    module, given = tw.build(tw.Schedule(func), "toy"), [ToyArray.of(np.zeros(5, np.float32))]
    given += [ToyArray.of(np.zeros(3, np.int32)), ToyArray.of(np.zeros(3, np.float32))]
    with pytest.raises(tw.OutOfMemoryError):
        module(*given)


def test_its_calls_are_waited_for(program: Func) -> None:
    module = tw.build(tw.Schedule(program), "toy")
    before = MEMORY.synchronized
    module.synchronize()
    assert MEMORY.synchronized == before + 1
    runner, outputs = Runner(), new_memory(signature_of(program))
    fields = {**program_fields(program, resolve("toy")), "seed": 0, "memory": 0}
    try:
        runner.answer(Message({"do": "program", **fields, "outputs": outputs}))
        answer = runner.answer(Message({"do": "reference", **fields}))
    finally:
        os.close(outputs)
    assert answer.fields["seconds"] > 0
    assert MEMORY.synchronized == before + 2


def test_its_code_is_kept_on_disk(program: Func, tmp_path: Path) -> None:
    target = resolve("toy")
    kernels, name = KernelCache(tmp_path / "kernels"), key(program, target, strict_fp=False)
    compiled = compile_func(program, target)
    kernels.put(name, compiled)
    again = kernels.get(name, program, target)
    assert again is not None
    assert (again.image, again.launches) == (compiled.image, compiled.launches)
    assert again.source("script") == compiled.source("script")
    assert name != key(program, resolve("toy -order=shuffled"), strict_fp=False)


def artifact(program: Func, folder: Path, target: str = "toy") -> Path:
    """The path of the code of an artifact."""
    path = folder / "affine.toy"
    made = tw.build_library(tw.Schedule(program), path, target)
    assert made.files == (path, folder / "affine.toy.json")
    assert path.read_bytes().startswith(compile_func(program, target).image)
    return path


def test_its_artifacts_have_one_program(program: Func, tmp_path: Path) -> None:
    several = {"one": program, "two": program}
    with refused(tw.BuildError, 2):
        tw.build_library(several, tmp_path / "affine.toy", "toy")


@pytest.mark.parametrize("text", ["toy", "toy -order=shuffled"])
def test_its_kernels_become_artifacts(text: str, program: Func, tmp_path: Path) -> None:
    module = load(artifact(program, tmp_path, text))
    check_affine(module)
    assert module.target == resolve(text)
    before = ToyTimer.flushed
    assert len(module.time(*arrays(), flush_cache=True).samples) == ToyTimer.flushed - before > 0


def test_its_artifacts_are_checked_for_the_machine(
    program: Func, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = artifact(program, tmp_path, "toy -order=shuffled")
    monkeypatch.setattr(ToyRuntime, "orders", ("forward",))
    with refused(ArtifactError, "shuffled"):
        load(path)
    path.write_bytes(path.read_bytes().replace(b"affine", b"define"))
    with pytest.raises(ArtifactError, match="is not the file of its manifest"):
        load(path)
    manifest = path.with_name("affine.toy.json")
    manifest.write_text(manifest.read_text().replace('"shuffled"', '"forward"'))
    with refused(ArtifactError, "the manifest"):
        load(path)


def test_an_artifact_of_an_unknown_kind_says_what_to_do(program: Func, tmp_path: Path) -> None:
    """In a process that has not imported the module that registers it."""
    path = artifact(program, tmp_path)
    lines = [
        "from tilewright.base.errors import ArtifactError",
        "from tilewright.runtime import load",
        "try:",
        f"    load({str(path)!r})",
        "except ArtifactError as error:",
        "    print(error)",
        f"import {ToyTarget.__module__}",
        f"print(load({str(path)!r}).target)",
    ]
    root = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    *refused, loaded = run.stdout.splitlines()
    assert "for targets of kind 'toy', expected one of cpu" in refused[0]
    assert "import the module that registers the kind" in refused[1]
    assert loaded == "toy -order=forward"


def test_its_measurements_are_records_of_their_own() -> None:
    target = resolve("toy")
    record = target_record(target)
    assert (record.text, record.compat, record.perf) == ("toy -order=forward", "toy", "toy/forward")
    assert toolchain_record(target).generation == "toy 1"
    assert toolchain_record(target).versions["toy"] == "1.0"
    assert environment_record(target).facts["model"] == "interpreter"


class Abacus(ToyTarget):
    """A kind of which nothing else is known."""

    kind: ClassVar[str] = "abacus"


class Slate(ToyTarget):
    """A kind that has a code generator alone."""

    kind: ClassVar[str] = "slate"


register_generator(Slate.kind, ToyGenerator)


def test_what_a_kind_lacks_is_named(program: Func) -> None:
    with pytest.raises(TargetError):
        generator_for(Abacus())
    with pytest.raises(TargetError):
        runtime_for(Slate())
    with pytest.raises(TargetError):
        next(plans(Draft(tw.Schedule(program), Slate()), Drafts()))
    with pytest.raises(TargetError):
        fusion_groups(program, Slate())
    with pytest.raises(TargetError):
        model_for(Slate())


def product_of(n: int) -> Func:
    """A product that processors take the digits of rows apart for, and what follows it."""
    x, w = te.placeholder((n, 4), name="X"), te.placeholder((4, 2, 6), name="W")
    k = te.reduce_axis(4, name="k")
    y = te.compute((2 * n, 6), lambda i, j: te.sum(x[i // 2, k] * w[k, i % 2, j], axis=k), name="Y")
    z = te.compute((2 * n, 6), lambda i, j: te.exp(y[i, j]), name="Z")
    return te.func([x, w, z], name="mixed")


def check_product(module: tw.Module, n: int) -> None:
    rng = np.random.default_rng(0)
    hosts = rng.random((n, 4), np.float32), rng.random((4, 2, 6), np.float32)
    x, w, z = map(ToyArray.of, (*hosts, np.zeros((2 * n, 6), np.float32)))
    module(x, w, z)
    expected = np.exp(np.einsum("ik,krj->irj", *hosts)).reshape(2 * n, 6)
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-5)
    before = ToyTimer.flushed
    timed = module.time(x, w, z, min_samples=5, max_samples=5, flush_cache=True)
    assert len(timed.samples) == ToyTimer.MOST == ToyTimer.flushed - before


def test_its_rules_and_estimate_choose_a_schedule(caplog: pytest.LogCaptureFixture) -> None:
    func, target = product_of(3), resolve("toy")
    made = sketches(func, target)
    assert {c.rule for sketch in made for c in sketch.choices} == {"toy_cut"}
    assert fusion_groups(func, target).groups
    for allow in (["model"], ["default"]):
        module = tw.build(func, target, allow=allow)
        assert module.origin.kind == allow[0]
        check_product(module, 3)
    assert not caplog.text


@pytest.mark.parametrize(
    ("func", "kinds"),
    [
        (ops.matmul_func(8, 8, 8), ("CONTRACTION", "CONTRACTION")),
        (ops.matmul_func(8, 8, 8, epilogue="relu"), ("CONTRACTION", "CONTRACTION")),
        (ops.attention_func(1, 2, 32, 16), ("ATTENTION", "ATTENTION")),
        (ops.reduction_func(n=8, m=64, axis=0), ("ROWS", "CONTRACTION")),
        (ops.softmax_func(4, 8), ("ROWS", "ROWS")),
    ],
)
def test_the_rule_set_says_what_is_a_contraction(func: Func, kinds: tuple[str, str]) -> None:
    """Sums of columns run in vectors on a processor, as products do."""
    targets = resolve("toy"), resolve("cpu -mcpu=haswell")
    found = [[g.kind.name for g in fusion_groups(func, target).groups] for target in targets]
    assert found == [[kind] for kind in kinds]


def test_choices_for_a_kind_from_outside_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LOCATION, str(tmp_path))
    for kind, remembered in (("cpu", True), ("toy", False)):
        target = resolve(kind)
        chosen(ops.add_relu_func(8), target, "default")
        assert (recalled(ops.add_relu_func(8), target, "default") is not None) is remembered


def test_a_rule_takes_register_tiles_as_those_for_processors_do() -> None:
    func, target = ops.matmul_func(5, 12, 8), resolve("toy")
    (tile,) = [s for s in sketches(func, target) if s.generator == "toy_tile"]
    assert {name for name, _ in tile.prune} == {"a tile fits the registers"}
    space = Rowspace(tile)
    rows = space.sample(np.random.default_rng(0), 1000)
    assert 1 < len(rows) < space.size
    (visit,) = profile(tile.func, tile.space.bounds).visits
    tiles = Columns([product(visit.extents[-2:])], tile.space.bounds)(rows)
    lanes = target.vector_bits // 32
    assert (tiles % lanes == 0).all()
    assert lanes < tiles.max() < lanes * target.vector_registers
    wanted = expected(func, 0)
    for row in some_rows(tile, np.random.default_rng(0), 4):
        arrays = [ToyArray.of(a) for a in arguments(func, 0)]
        compiled = compile_func(tile.trace.with_row(row.tolist()).apply(func).func, target)
        to_module(compiled)(*arrays)
        np.testing.assert_allclose(arrays[-1].numpy(), wanted[-1], rtol=1e-5)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with sessions of products of two sizes, of six candidates each."""
    path = tmp_path_factory.mktemp("toy") / "t.db"
    config = TuneConfig(measure=MeasureConfig(builders=1, min_samples=1, max_samples=1))
    with tw.TuningDatabase(path) as db:
        for n in (3, 4):
            tw.tune(product_of(n), resolve("toy"), database=db, trials=6, config=config)
    return path


def test_a_base_model_of_its_own_is_trained_and_ships_with_its_table(
    measured: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = replace(MODEL, base=tmp_path / "model.json")
    assert own.base is not None
    monkeypatch.setitem(_MODELS._loaded, "toy", own)
    models.train(own.base, [str(measured)], own.table, shipped=False, kind="toy")
    shipped = samples.shipped("toy")
    rows = samples.featurise(shipped, "toy")
    assert (len(rows), rows.feature_version) == (12, "toy 1/2")
    assert {task.machine for task in rows.tasks} == {"toy/forward"}
    trained = base_model.named(base_model.SHIPPED, own)
    assert trained is not None
    assert (trained.rows, trained.origin) == (12, base_model.SHIPPED)
    assert base_model.train(rows).digest == trained.digest
    again = tmp_path / "again.json"
    models.train(again, shipped=True, kind="toy")
    assert again.read_bytes() == own.base.read_bytes()
    search = SearchConfig(pool=20, children=8, base=str(again))
    assert Search(product_of(3), resolve("toy"), config=search).ask(2)
    with pytest.raises(TuningError):
        Search(product_of(3), resolve("cpu"), config=search)
    assert not caplog.text


def test_samples_of_a_kind_have_facts_of_its_own(
    measured: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = ToyTarget.of(resolve("toy"))
    with tw.TuningDatabase(measured) as db:
        assert samples.sweeps_of(db, "cpu") == []
        sweeps = samples.sweeps_of(db, "toy")
    assert {(s.target, *s.facts.items()) for s in sweeps} == {(str(target), ("visit", VISIT))}
    slow = MODEL.facts.of(replace(target, visit=4 * VISIT))
    path = tmp_path / "table.gz"
    samples.write([replace(s, facts=slow) for s in sweeps], path)
    usual, slower = (samples.featurise(x, "toy") for x in (sweeps, samples.read(path)))
    assert not caplog.text
    assert sorted(usual.seconds) == sorted(slower.seconds)
    assert slower.features[:, 0].min() > usual.features[:, 0].min()
    samples.write([replace(sweeps[0], facts={"pace": 1.0})], path)
    with pytest.raises(TuningError):
        samples.read(path)
    with pytest.raises(TuningError):
        samples.write([replace(sweeps[0], facts={"rows": 1})], path)
    assert len(samples.featurise(sweeps, "cpu")) == 0
    assert "is left out: expected a target of kind cpu, found toy -order=forward" in caplog.text


def test_it_is_tuned_and_shipped(tmp_path: Path) -> None:
    """A session, a build of its record, one of another size, and a library."""
    func, target = product_of(3), resolve("toy")
    with tw.TuningDatabase(tmp_path / "t.db") as db:
        config = TuneConfig(measure=MeasureConfig(builders=1, min_samples=5, max_samples=5))
        result = tw.tune(func, target, database=db, trials=3, config=config)
        assert result.best is not None
        assert result.roofline == MODEL.roofline(func, target)
        (session,) = db.records(Session)
        assert session.model["features"] == MODEL.feature_version == "toy 1/2"
        measured = [m for m in db.records(Measurement) if m.features is not None]
        assert {(m.feature_version, len(m.features or ())) for m in measured} == {("toy 1/2", 2)}
        assert max(len(m.samples) for m in measured) == ToyTimer.MOST
        tw.tune(func, target, database=db, trials=1, config=config)
        schedules = {m.schedule for m in db.records(Measurement)}
        assert len(schedules) == len({m.schedule for m in measured}) + 1  # some are timed again
        module = tw.build(func, target, database=db, allow=["record"])
        assert module.origin.kind == "record"
        check_product(module, 3)
        other = tw.build(product_of(6), target, database=db, allow=["transfer"])
        assert other.origin.kind == "transfer"
        check_product(other, 6)
        path = tmp_path / "mixed.toy"
        made = tw.build_library(func, path, target, database=db, allow=["record"])
    assert made.files[0] == path
    shipped = load(path)
    assert shipped.origin.kind == "record"
    check_product(shipped, 3)


def test_builders_and_the_runner_take_candidates(program: Func) -> None:
    """The processes import the module that registers the kind."""
    target = resolve("toy")
    assert outside_modules(target) == (ToyTarget.__module__,)
    assert outside_modules(resolve("cpu")) == ()
    schedule = tw.Schedule(program)
    schedule.split(schedule.get_loops(schedule.get_block("B"))[0], [None, 4])
    config = MeasureConfig(builders=1, min_samples=1, max_samples=2)
    with Measurer(program, target, config) as measurer:
        requests = [BuildRequest.of(s.trace) for s in (tw.Schedule(program), schedule)]
        measured = [result for _, result in measurer.measure(requests, None)]
        kernels = [m.kernel for m in measured if m.kernel is not None]
        interleaved = measurer.interleave(kernels, 2)
    assert [m.outcome for m in measured] == [Outcome.OK, Outcome.OK]
    assert measured[0].check is not None
    assert measured[0].check.passed
    assert interleaved is not None
    assert [len(samples) for samples in interleaved] == [2, 2]
