"""Tables of samples, the base model that is trained on them, and what it is worth."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from benchmarks.metaschedule import ThroughputModel
from tilewright import ops
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.model import assess, samples
from tilewright.autotune.model.base_model import SHIPPED, BaseModel, load, named, train
from tilewright.autotune.model.cost_model import CostModel
from tilewright.autotune.model.cpu.estimate import FEATURES
from tilewright.autotune.model.cpu.model import MODEL, MODEL_FILE
from tilewright.autotune.model.samples import Samples, Sweep, featurise
from tilewright.autotune.search.search import Candidate, Search, SearchConfig
from tilewright.autotune.search.sketch import Sketch
from tilewright.autotune.search.unmeasured import model_trace
from tilewright.base.errors import TuningError
from tilewright.schedule import Schedule
from tilewright.target import CpuTarget, Rates
from tilewright.tir.ir import Func
from tilewright.tuning_db import Environment, Machine, ScheduleRecord, TargetRecord

from ..tuning_db.samples import BASE, CPU, MATMUL, NOON, measurement

TARGET = CpuTarget.named("cascadelake", threads=1)
SMALL = SearchConfig(pool=60, children=20, random=1.0, model=False)
SIZES = ((24, 36, 20), (48, 64, 32), (40, 100, 16))


def tiled(func: Func) -> Sketch:
    """A sketch whose tiles are open."""
    sch = Schedule(func, symbolic=True)
    i, j, k = sch.get_loops(sch.get_block(0))
    i0, i1 = sch.split(i, factors=[None, sch.sample_tile(i, 2, 8)[1]])
    j0, j1 = sch.split(j, factors=[None, sch.sample_tile(j, 2, 32)[1]])
    sch.reorder(i0, j0, k, i1, j1)
    sch.unroll(i1)
    return Sketch.of(sch, "tiled")


def candidates(size: tuple[int, int, int]) -> tuple[Func, list[Candidate]]:
    func = ops.matmul_func(*size)
    search = Search(func, TARGET, seed=1, config=SMALL, prepared=[tiled(func)])
    return func, search.ask(40)


def seconds(c: Candidate) -> float:
    """A made-up machine: the estimate, and a preference that the estimate does not know."""
    wide = c.features[FEATURES.index("accumulators")]
    return float(2.0 ** (c.features[0] + 2.0 * abs(wide - 1.0)))


def sweep(size: tuple[int, int, int]) -> Sweep:
    func, asked = candidates(size)
    trace = asked[0].trace
    return Sweep(
        name="matmul",
        shape=str(size),
        program=str(func),
        target=str(TARGET),
        session=f"session {size}",
        trace=trace.opened().to_json(notes=False),
        rows=tuple(c.row for c in asked),
        seconds=tuple(seconds(c) for c in asked),
        trial_seconds=0.125,
        facts=MODEL.facts.of(TARGET),
    )


@pytest.fixture(scope="module")
def sweeps() -> list[Sweep]:
    return [sweep(size) for size in SIZES]


@pytest.fixture(scope="module")
def learned(sweeps: list[Sweep]) -> Samples:
    return featurise(sweeps, "cpu")


@pytest.fixture(scope="module")
def judged(learned: Samples) -> assess.Report:
    """The evaluation of models, as if asking them took no time."""
    return assess.assess(learned, [0, 1, 2], folds=3, clock=lambda: 0.0)


@pytest.fixture(scope="module")
def trained(learned: Samples) -> BaseModel:
    return train(learned)


# Tables


def test_features_of_a_table_are_those_of_the_search(learned: Samples) -> None:
    asked = [c for size in SIZES for c in candidates(size)[1]]
    np.testing.assert_array_equal(learned.features, [c.features for c in asked])
    np.testing.assert_array_equal(learned.seconds, [seconds(c) for c in asked])
    assert [t.shape for t in learned.tasks] == [str(size) for size in SIZES]


def test_a_table_reads_back_as_it_was_written(sweeps: list[Sweep], tmp_path: Path) -> None:
    one, two = tmp_path / "1.gz", tmp_path / "2.gz"
    samples.write(sweeps, one)
    samples.write(sweeps[::-1], two)
    assert one.read_bytes() == two.read_bytes()
    read = samples.read(one)
    assert sorted(read, key=lambda s: s.shape) == sorted(sweeps, key=lambda s: s.shape)


def test_what_two_sources_know_is_learned_once(sweeps: list[Sweep]) -> None:
    newer = replace(sweeps[1], trial_seconds=0.5)
    both = samples.merged([newer], sweeps[::-1])
    assert both == samples.merged(sweeps[2:], [newer, sweeps[0]])
    assert len(both) == 3
    assert newer in both


def test_a_table_with_facts_of_no_processor_is_refused(sweeps: list[Sweep], tmp_path: Path) -> None:
    path = tmp_path / "table.gz"
    facts = sweeps[0].facts
    rates: list[Any] = [{"zork": 1.0}, {"fma": "2"}, ["fma"]]
    caches: list[Any] = ["123", [1, 2], [-1, 2, 3], [float("inf"), 2, 3], {}]
    wrong = [
        *({"rates": x} for x in rates),
        *({"caches": x} for x in caches),
        {"ways": [8, 0, 8]},
        {"line_bytes": 0},
        {"pace": 1.0},
    ]
    for told in wrong:
        broken = replace(sweeps[0], facts={**facts, **told})
        with pytest.raises(TuningError):
            MODEL.facts.described(TARGET, broken.facts)
        samples.write([broken], path)
        with pytest.raises(TuningError):
            samples.read(path)
        assert len(featurise([broken, sweeps[1]], "cpu")) == len(sweeps[1].rows)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        gzip.compress(b"{}"),
        gzip.compress(b'{"tilewright samples": 1}\n{"name": 1}'),
        gzip.compress(b'{"tilewright samples": 1}\n"rows"'),
        gzip.compress(b"[" * 100_000),
    ],
    ids=["empty", "text", "other", "damaged", "a line of text", "deep"],
)
def test_what_is_no_table_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "table.gz"
    path.write_bytes(data)
    with pytest.raises(TuningError):
        samples.read(path)


def test_a_table_damaged_in_the_middle_is_refused(sweeps: list[Sweep], tmp_path: Path) -> None:
    path = tmp_path / "table.gz"
    samples.write(sweeps, path)
    whole = path.read_bytes()
    for place in range(10, len(whole), 7):  # before are the flags and the time of the file
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(TuningError):
            samples.read(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target", "nonsense zz"),
        ("target", "cpu -threads"),
        ("target", ""),
        ("program", 3),
        ("name", None),
        ("rows", [[1, 2], [3]]),
        ("rows", [[1.5]]),
        ("rows", [[1 << 70]]),
        ("rows", "12"),
        ("rows", []),
        ("seconds", [-1.0]),
        ("seconds", [float("nan")]),
        ("seconds", ["1"]),
        ("seconds", None),
        ("trial_seconds", "soon"),
    ],
)
def test_a_line_that_is_no_sweep_is_refused(
    field: str, value: Any, sweeps: list[Sweep], tmp_path: Path
) -> None:
    path = tmp_path / "table.gz"
    head, line = json.dumps(samples._FORMAT), samples._line(sweeps[0])
    path.write_bytes(gzip.compress(f"{head}\n{json.dumps({**line, field: value})}".encode()))
    with pytest.raises(TuningError):
        samples.read(path)
    del line[field]
    if field != "trial_seconds":
        path.write_bytes(gzip.compress(f"{head}\n{json.dumps(line)}".encode()))
        with pytest.raises(TuningError):
            samples.read(path)


def test_a_target_of_a_kind_that_is_not_known_is_read_and_left_out(
    sweeps: list[Sweep], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(sweeps[0], target="elsewhere -speed=2", facts={"speed": 2})
    path = tmp_path / "table.gz"
    samples.write([other], path)
    assert samples.read(path) == [other]
    assert len(featurise([other], "cpu")) == 0
    assert "on elsewhere -speed=2 is left out: " in caplog.text


def test_a_sketch_that_no_longer_applies_is_left_out(
    sweeps: list[Sweep], caplog: pytest.LogCaptureFixture
) -> None:
    broken = Sweep(**{**vars(sweeps[0]), "trace": '{"version":1,"steps":[{"op":"gone"}]}'})
    with caplog.at_level(logging.WARNING):
        found = featurise([broken, sweeps[1]], "cpu")
    assert len(found) == len(sweeps[1].rows)
    assert "is left out: " in caplog.text


def test_a_sketch_of_a_processor_that_is_not_known_is_left_out(
    sweeps: list[Sweep], caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(sweeps[0], target="cpu -mcpu=elsewhere9 -threads=1")
    found = featurise([other, sweeps[1]], "cpu")
    assert len(found) == len(sweeps[1].rows)
    assert "on cpu -mcpu=elsewhere9 -threads=1 is left out: " in caplog.text


def test_samples_keep_all_facts_that_features_rest_on(sweeps: list[Sweep], tmp_path: Path) -> None:
    target = CpuTarget.parse(sweeps[0].target)
    few = replace(target, ways=(2, 2, 2), line_bytes=128)
    told = replace(sweeps[0], facts=MODEL.facts.of(few))
    path = tmp_path / "table.gz"
    samples.write([told], path)
    assert samples.read(path) == [told]
    described = CpuTarget.of(samples._described_target(told))
    assert (described.ways, described.line_bytes) == ((2, 2, 2), 128)
    caches = {"caches": sweeps[0].facts["caches"], "rates": None}
    plain = CpuTarget.of(samples._described_target(replace(told, facts=caches)))
    assert (plain.ways, plain.line_bytes, plain.rates) == (
        target.ways,
        target.line_bytes,
        target.rates,
    )


# The model


def test_the_base_model_knows_programs_that_it_did_not_see(learned: Samples) -> None:
    model = CostModel(base=train(learned.only([0, 1])))
    unseen = learned.only([2])
    corrected = assess.spearman(model.predict(unseen.features), unseen.seconds)
    assert corrected > assess.spearman(unseen.features[:, 0], unseen.seconds) + 0.1
    assert not model.trained


def test_training_is_deterministic_and_saved_models_predict_the_same(
    learned: Samples, trained: BaseModel, tmp_path: Path
) -> None:
    path, again = tmp_path / "model.json", tmp_path / "again.json"
    trained.save(path)
    train(learned).save(again)
    assert path.read_bytes() == again.read_bytes()
    attributes = json.loads(path.read_text())["learner"]["attributes"]
    assert attributes["features"] == MODEL.feature_version
    read = load(path, MODEL.feature_version)
    assert read.rows == trained.rows == len(learned)
    np.testing.assert_array_equal(
        read.residual(learned.features), trained.residual(learned.features)
    )


def test_a_constant_of_a_session_teaches_nothing(learned: Samples, trained: BaseModel) -> None:
    slower = learned.seconds * np.array([1.0, 8.0, 0.25])[learned.task]
    other = train(replace(learned, seconds=slower))
    np.testing.assert_allclose(
        other.residual(learned.features), trained.residual(learned.features), atol=1e-4
    )


def test_too_few_samples_are_refused(learned: Samples) -> None:
    few = Samples(
        learned.tasks,
        learned.task[:3],
        learned.feature_version,
        learned.features[:3],
        learned.seconds[:3],
        learned.decisions[:3],
    )
    with pytest.raises(TuningError):
        train(few)


def test_a_model_of_other_features_is_refused(trained: BaseModel, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    old = json.loads(trained.booster.to_json())
    old["learner"]["attributes"]["features"] = "1/31"
    path.write_text(json.dumps(old))
    with pytest.raises(TuningError):
        load(path, MODEL.feature_version)
    with pytest.raises(TuningError):
        named(str(path), MODEL)


@pytest.mark.parametrize("text", ["", "{}", "no model", "[" * 200_000])
def test_what_is_no_model_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(TuningError):
        load(path, MODEL.feature_version)


def test_a_shipped_model_of_other_features_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert named(SHIPPED, replace(MODEL, version="1")) is None
    assert "without a base model" in caplog.text
    caplog.clear()
    assert named(SHIPPED, replace(MODEL, base=None)) is None
    assert not caplog.text


def test_what_is_shipped_fits_this_version() -> None:
    model = load(MODEL_FILE, MODEL.feature_version)
    assert model.rows > 1000
    assert MODEL_FILE.stat().st_size < 500_000
    assert MODEL.table is not None
    assert MODEL.table.stat().st_size < 1_000_000
    table = samples.shipped("cpu")
    assert len(table) > 100
    some = table[:: len(table) // 4]
    assert len(featurise(some, "cpu")) == sum(len(s.rows) for s in some)


def test_a_session_corrects_the_base_model(learned: Samples, trained: BaseModel) -> None:
    model = CostModel(base=trained)
    margin = model.margin(learned.features)
    model.fit(learned.features, learned.seconds * 4.0)
    np.testing.assert_array_equal(model.margin(learned.features), margin)
    np.testing.assert_array_equal(
        model.predict(learned.features), model.predict(learned.features, margin)
    )
    error = model.predict(learned.features) - np.log2(learned.seconds * 4.0)
    assert np.abs(error).mean() < 0.5


def test_the_models_choice_applies(trained: BaseModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "model.json")
    func = ops.matmul_func(64, 96, 32)
    trace = model_trace(func, TARGET, base=str(tmp_path / "model.json"))
    assert trace == model_trace(func, TARGET, base=str(tmp_path / "model.json"))
    assert trace.apply(func).func is not func


# What it is worth


def test_held_out_programs_are_judged(learned: Samples, judged: assess.Report) -> None:
    report = judged
    assert report == assess.assess(learned, [0, 1, 2], folds=3, clock=lambda: 0.0)
    assert [j.task for j in report.tasks] == list(learned.tasks)
    scores = {s.method: s for s in report.overall}
    assert tuple(scores) == assess.METHODS
    assert scores["base"].rank > scores["analytic"].rank + 0.1
    assert scores["model"].regret[0] <= scores["random"].regret[0]
    assert all(s.regret[-1] == pytest.approx(1.0) for s in report.overall)
    assert all(a <= b for s in report.overall for a, b in zip(s.recall, s.recall[1:], strict=False))
    assert json.loads(json.dumps(report.to_json()))["tasks"][0]["candidates"] == 40


def test_regret_by_the_clock_counts_trials_and_models(
    learned: Samples, judged: assess.Report
) -> None:
    """A trial takes an eighth of a second: in one and two seconds there are 8 and 16 of them."""
    for score in judged.overall:
        assert score.timed is not None
        assert score.timed[2:] == pytest.approx(score.regret[:2])
    late = assess.assess(learned, [0, 1, 2], folds=3, clock=itertools.count(step=10.0).__next__)
    for score in late.overall:
        assert score.timed is not None
        if score.method in {"analytic", "random"}:
            assert score.timed[2:] == pytest.approx(score.regret[:2])
        else:
            assert len(set(score.timed)) == 1, "nothing is measured: the first that would be"


def test_a_replay_knows_when_models_were_asked(learned: Samples) -> None:
    told: list[int] = []

    class Guide:
        temperature = 0.0

        def predict(self) -> np.ndarray:
            return -np.arange(40.0)

        def learn(self, features: np.ndarray, seconds: np.ndarray) -> None:
            told.append(len(seconds))

    clock = itertools.count().__next__
    order = assess.replay(learned.only([0]), Guide, 16, clock, np.random.default_rng(0))
    assert order.order.tolist() == list(range(39, -1, -1))
    assert order.thought.tolist() == [2.0] * 16 + [4.0] * 16 + [6.0] * 8
    assert told == [16, 32, 40]


def test_a_peers_model_is_one_more_method(learned: Samples, judged: assess.Report) -> None:
    peers = {"metaschedule": ThroughputModel}
    report = assess.assess(learned, [0, 1, 2], folds=3, clock=lambda: 0.0, peers=peers)
    assert report.overall[:-1] == judged.overall
    assert report.overall[-1].method == "metaschedule"
    assert report.overall[-1].regret[-1] == pytest.approx(1.0)


def test_without_its_pace_a_task_has_no_regret_by_the_clock(sweeps: list[Sweep]) -> None:
    unknown = [replace(s, trial_seconds=None) for s in sweeps[:2]]
    report = assess.assess(featurise([*unknown, sweeps[2]], "cpu"), [0, 1, 2], folds=3)
    assert [j.scores[0].timed is None for j in report.tasks] == [True, True, False]
    assert report.overall[0].timed == pytest.approx(report.tasks[2].scores[0].timed)


def test_the_leading_tuners_model_learns_throughput_from_nothing(learned: Samples) -> None:
    own = learned.only([0])
    model, same = (ThroughputModel(own.features, seed=3) for _ in range(2))
    blind = model.predict()
    np.testing.assert_array_equal(blind, same.predict())
    assert len(set(blind.tolist())) == len(own)
    model.learn(own.features, own.seconds)
    assert assess.spearman(model.predict(), own.seconds) > 0.9
    assert -model.predict().min() == pytest.approx(1.0, abs=0.1)
    other = own.features.copy()
    other[:, 0] = 0.0
    same.learn(other, own.seconds)
    np.testing.assert_array_equal(model.predict(), same.predict())


def test_no_model_sees_what_it_is_judged_on(learned: Samples) -> None:
    seen: list[set[int]] = []

    def trainer(given: Samples) -> BaseModel:
        seen.append(set(given.task.tolist()))
        return train(given)

    assess.assess(learned, [0, 2], folds=2, trainer=trainer)
    assert sorted(map(sorted, seen)) == [[0, 1], [1, 2]]


def test_whole_machines_are_held_out(learned: Samples) -> None:
    """Two of three tasks are of one machine, which is taken for two processors."""
    seen: list[set[int]] = []
    names = ("small", "large", "small")
    tasks = [replace(t, machine=m) for t, m in zip(learned.tasks, names, strict=True)]

    def trainer(given: Samples) -> BaseModel:
        seen.append(set(given.task.tolist()))
        return train(given)

    assess.assess(
        replace(learned, tasks=tuple(tasks)),
        [0, 1, 2],
        folds=2,
        trainer=trainer,
        unseen=assess.of_machine,
    )
    assert sorted(map(sorted, seen)) == [[0, 2], [1]]


def test_rank_correlation_shares_ranks() -> None:
    values = np.array([1.0, 2.0, 2.0, 5.0])
    assert assess.spearman(values, values * 3) == pytest.approx(1.0)
    assert assess.spearman(values, -values) == pytest.approx(-1.0)
    assert assess.spearman(np.ones(4), values) == 0.0
    # Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: 4.5 over the root of 4.5 * 5.
    others = np.array([1.0, 3.0, 2.0, 4.0])
    assert assess.spearman(values, others) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


# From a database


def test_a_database_as_samples(tmp_path: Path) -> None:
    func = ops.matmul_func(16, 48, 8)
    with tw.TuningDatabase(tmp_path / "t.db") as database:
        plain = TuneConfig(measure=MeasureConfig(sample_seconds=1e-3))
        result = tw.tune(func, database=database, trials=4, config=plain)
        made = samples.sweeps_of(database, "cpu")
        stored = [m for m in database.measurements() if m.features is not None and m.samples]
    assert sum(len(s.rows) for s in made) == len(stored) == result.trials
    moments = [m.created for m in stored]
    gap = (max(moments) - min(moments)).total_seconds() / (len(moments) - 1)
    assert [s.trial_seconds for s in made] == pytest.approx([gap] * len(made), rel=1e-3)
    found = featurise(made, "cpu")
    rows = sorted(map(tuple, found.features.tolist()))
    np.testing.assert_allclose(rows, sorted(m.features for m in stored if m.features))
    fastest = sorted(min(m.samples) for m in stored)
    np.testing.assert_allclose(sorted(found.seconds), fastest, rtol=1e-3)


def test_measurements_on_unknown_targets_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A database may be of machines and kinds of targets that this version does not know."""
    kind = TargetRecord("quantum -qubits=3", "quantum", "quantum")
    processor = TargetRecord("cpu -mcpu=znver99", "x86_64", "znver99")
    trace = ScheduleRecord(Schedule(ops.matmul_func(4, 4, 4)).trace.to_json(), 1, "tiled")
    measured = [
        replace(
            measurement(8, 1e-3, target=t, after=n),
            schedule=trace.id,
            features=(1.0,),
            feature_version="1",
        )
        for n, t in enumerate((kind, CPU, processor))
    ]
    with tw.TuningDatabase(tmp_path / "t.db") as database:
        database.put(*BASE, kind, processor, trace, *measured)
        with caplog.at_level(logging.WARNING):
            (sweep,) = samples.sweeps_of(database, "cpu")
    assert sweep.target.startswith("cpu")
    assert "on quantum -qubits=3 are left out: unknown target kind" in caplog.text
    assert "on cpu -mcpu=znver99 are left out: unknown processor" in caplog.text


@pytest.mark.parametrize("named", [[1], {"a": 1}, 5, "00" * 32, None, "unknown", "known"])
def test_machines_of_no_known_rates_take_those_of_the_table(
    named: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    func = ops.matmul_func(16, 48, 8)
    target = TargetRecord("cpu -mcpu=znver3 -threads=1", "x86_64", "znver3")
    rates = {"zork": 1.0} if named == "unknown" else {"fma": 1.5}
    machine = Machine(target.id, rates, (), NOON)
    if named in ("known", "unknown"):
        named, known = machine.id, named == "known"
    else:
        known = False
    environment = Environment({"machine": named})
    trace = ScheduleRecord(Schedule(func).trace.to_json(), 1, "tiled")
    program = replace(MATMUL, ir=str(func))
    measured = replace(
        measurement(8, 1e-3, target=target),
        workload=program.id,
        environment=environment.id,
        schedule=trace.id,
        features=(1.0,),
        feature_version="1",
    )
    with tw.TuningDatabase(tmp_path / "t.db") as database:
        database.put(*BASE[1:], program, target, machine, environment, trace, measured)
        (sweep,) = samples.sweeps_of(database, "cpu")
    table = CpuTarget.named("znver3").rates.to_json()
    assert sweep.facts["rates"] == ({**Rates().to_json(), **rates} if known else table)
    assert len(featurise([sweep], "cpu")) == 1
    told = {True: f"machine {machine.id[:12]}", False: f"environment {environment.id[:12]}"}
    if not known and (rates == {"zork": 1.0} or not isinstance(named, str | None)):
        assert told[named == machine.id] in caplog.text
    else:
        assert not caplog.messages
