"""Schedules of other sizes, re-fitted: on recorded measurements of programs that never run here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.model.cost_model import CostModel
from tilewright.autotune.model.cpu.estimate import FEATURES
from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.records import (
    target_record,
    toolchain_record,
    workload_record,
)
from tilewright.autotune.search import remembered, transfer
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.matching import near
from tilewright.autotune.search.search import Candidate, SearchConfig
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.autotune.search.transfer import (
    Refitted,
    learned,
    model_of,
    other_threads,
    refit,
    threads_of,
    transferred,
    warm,
)
from tilewright.codegen.disk_cache import LOCATION
from tilewright.schedule import Schedule
from tilewright.target import CpuTarget, Target
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tuning_db import (
    Measurement,
    Relative,
    ScheduleRecord,
    TargetRecord,
    TuningDatabase,
)

from ..measured import put_measured
from .checking import search_of, sketches_of
from .test_search import tiled_matmul

pytestmark = pytest.mark.usefixtures("given_machine")
TARGET = CpuTarget.named("cascadelake", threads=2)
SMALL = SearchConfig(pool=400, children=100)
OTHER, MINE = ops.matmul_func(512, 512, 512), ops.matmul_func(500, 700, 509)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[TuningDatabase]:
    with TuningDatabase(tmp_path / "tuning.db") as database:
        yield database


def put(
    db: TuningDatabase,
    func: Func,
    sketch: Sketch,
    row: tuple[int, ...],
    seconds: float,
    features: tuple[float, ...] | None = None,
) -> Measurement:
    """Record that a row of a sketch was measured and found right."""
    text = sketch.trace.with_row(row).to_json(notes=False)
    return put_measured(
        db, func, TARGET, text, seconds, generator=sketch.generator, features=features
    )


def found(db: TuningDatabase, func: Func) -> list[Relative]:
    return db.relatives(workload_record(func), target_record(TARGET), toolchain_record(TARGET))


def tuned(db: TuningDatabase, func: Func, count: int) -> list[Candidate]:
    """Record candidates, each as slow as the estimate says and twice that in one sketch."""
    search = search_of(func, TARGET, config=SMALL)
    asked = search.ask(count)
    for c in asked:
        seconds = 2.0 ** (c.features[0] + (c.sketch == asked[0].sketch))
        put(db, func, search.sketches[c.sketch], c.row, seconds, c.features)
    return asked


def test_decisions_are_taken_over_where_they_are_possible(db: TuningDatabase) -> None:
    theirs = {s.name: s for s in sketches_of(OTHER, TARGET)}
    row = (2, 8, 8, 64, 4)  # vectors, tiles of them, rows, tiles of them, unrolling
    put(db, OTHER, theirs["tiled_packB_local"], row, 1e-3)
    mine = sketches_of(MINE, TARGET)
    refitted = refit(mine, found(db, MINE), TARGET, CostModel())
    chosen = refitted[0]
    assert mine[chosen.sketch].name == "tiled_packB_local"
    assert chosen.row == (2, 8, 8, 64), "509 is not divided by what an unrolled loop takes"
    assert chosen.trace == mine[chosen.sketch].trace.with_row(chosen.row)
    assert chosen.source.workload.id == workload_record(OTHER).id
    chosen.trace.apply(MINE)


def test_joined_variables_are_of_any_size(db: TuningDatabase) -> None:
    theirs, mine = (
        ops.conv2d_func(c=64, h=size, w=size, o=64, kernel=1, padding=0) for size in (56, 28)
    )
    (sketch,) = (s for s in sketches(theirs, TARGET) if s.name == "tiled")
    row = (3, 2, 8, 4, 4)
    put(db, theirs, sketch, row, 1e-3)
    made = sketches(mine, TARGET)
    chosen = refit(made, found(db, mine), TARGET, CostModel())[0]
    assert made[chosen.sketch].name == "tiled"
    assert chosen.row == row
    assert "* 28 +" in str(chosen.trace)


def test_sketches_of_other_sizes_and_names_have_the_same_generators() -> None:
    n, m, k = 200, 300, 128
    A, W = te.placeholder((n, k), name="Data"), te.placeholder((k, m), name="Weights")
    r = te.reduce_axis(k, name="r")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * W[r, j], axis=r), name="Result")
    renamed = te.func([A, W, C], name="linear")
    generators = [s.generator for s in sketches_of(OTHER, TARGET)]
    assert [s.generator for s in sketches(renamed, TARGET)] == generators
    assert len(set(generators)) == len(generators)
    assert not any("Weights" in s.generator for s in sketches(renamed, TARGET))


@pytest.mark.parametrize("generator", ["blocked_packWeights_local", ""])
def test_records_whose_generator_is_of_no_sketch_go_by_their_steps(
    db: TuningDatabase, generator: str
) -> None:
    (sketch,) = (s for s in sketches_of(OTHER, TARGET) if s.name == "blocked_packB_local")
    row = Rowspace(sketch).sample(np.random.default_rng(0), 1)[0]
    text = sketch.trace.with_row(row.tolist()).to_json(notes=False)
    put_measured(db, OTHER, TARGET, text, 1e-3, generator=generator)
    mine = ops.matmul_func(500, 700, 256)
    workload = workload_record(mine)
    where, toolchain = target_record(TARGET), toolchain_record(TARGET)
    choice = transferred(mine, TARGET, db, workload, where, toolchain)
    assert choice is not None
    assert "rfactor" in str(choice.schedule.trace)


def tiled() -> Rowspace:
    """A space whose constraints refuse many rows."""
    _, sketch = tiled_matmul()
    return Rowspace(dataclasses.replace(sketch, prune=()))


def test_refused_rows_are_replaced_by_near_ones() -> None:
    space = tiled()
    rows = np.stack([g.ravel() for g in np.meshgrid(*space.values, indexing="ij")], axis=1)
    good = {tuple(r) for r in space.good(rows).tolist()}
    for row in rows.tolist():
        nearest = [tuple(r) for r in near(space, row).tolist()]
        assert nearest
        assert set(nearest) <= good
        if tuple(row) in good:
            assert nearest == [tuple(row)]
        else:
            moved = [sum(a != b for a, b in zip(row, r, strict=True)) for r in nearest]
            assert max(moved) <= 2


def test_what_has_no_counterpart_is_open() -> None:
    space = tiled()
    rows = near(space, [4, None])
    assert len(rows) > 1
    assert set(rows[:, 0].tolist()) == {4}
    assert space.check(rows).all()
    assert {tuple(r) for r in near(space, [5, 12]).tolist()} <= {
        tuple(r) for r in near(space, [None, None]).tolist()
    }


@pytest.mark.parametrize("with_features", [True, False])
def test_what_did_better_than_expected_goes_first(db: TuningDatabase, with_features: bool) -> None:
    search = search_of(OTHER, TARGET, config=SearchConfig(pool=400, children=100, random=0.0))
    asked = search.ask(6)
    best = asked[-1]
    for c in asked:
        seconds = 2.0 ** (c.features[0] - 2.0 * (c is best))
        kept = c.features if with_features else None
        put(db, OTHER, search.sketches[c.sketch], c.row, seconds, kept)
    refitted = refit(sketches_of(MINE, TARGET), found(db, MINE), TARGET, CostModel())
    assert refitted[0].source.schedule.generator == search.sketches[best.sketch].generator
    assert refitted[0].source.measurement.seconds == 2.0 ** (best.features[0] - 2.0)
    assert refitted == sorted(refitted, key=lambda r: r.predicted)


def test_hopeless_and_unreadable_schedules_are_left_out(db: TuningDatabase) -> None:
    small = ops.matmul_func(4, 16, 64)
    sketch = {s.name: s for s in sketches(small, TARGET)}["tiled"]
    put(db, small, sketch, tuple(Rowspace(sketch).sample(np.random.default_rng(0), 1)[0]), 1e-6)
    assert refit(sketches_of(MINE, TARGET), found(db, MINE), TARGET, CostModel()) == []
    damaged = dataclasses.replace(
        found(db, MINE)[0], schedule=ScheduleRecord('{"version":1,"steps":[{"op":"?"}]}', 1)
    )
    assert refit(sketches_of(MINE, TARGET), [damaged], TARGET, CostModel()) == []


@pytest.mark.parametrize("features", [(1.0,), (1e300,) * len(FEATURES), (200.0,) * len(FEATURES)])
def test_features_that_nothing_has_are_not_learned(
    db: TuningDatabase, features: tuple[float, ...]
) -> None:
    """Neither of other sizes nor of other programs; the schedules are of use all the same."""
    theirs = {s.name: s for s in sketches(OTHER, TARGET)}
    put(db, OTHER, theirs["tiled_packB_local"], (2, 8, 8, 64, 4), 1e-3, features)
    relu = ops.add_relu_func(4096)
    trace = sketches(relu, TARGET)[0].trace.to_json()
    put_measured(db, relu, TARGET, trace, None, features=features)
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    assert len(learned(db, *subject, MODEL, others=True)) == 0
    assert transferred(MINE, TARGET, db, *subject) is not None


def test_what_was_measured_hides_no_schedule(db: TuningDatabase) -> None:
    asked = tuned(db, OTHER, 16)
    relatives, made = found(db, MINE), sketches_of(MINE, TARGET)
    features = np.array([c.features for c in asked])
    seconds = 2.0 ** (features[:, 0] + np.random.default_rng(0).normal(0.0, 3.0, len(asked)))
    model = CostModel()
    plain: list[tuple[int, tuple[int, ...]]] = []
    noisy: list[tuple[int, tuple[int, ...]]] = []
    for rows in (plain, noisy):
        rows += sorted((r.sketch, r.row) for r in refit(made, relatives, TARGET, model))
        model.fit(features, seconds)
    assert model.trained
    assert noisy == plain
    assert plain


def test_without_relatives_there_is_nothing_to_transfer(db: TuningDatabase) -> None:
    tuned(db, ops.softmax_func(64, 1000), 4)
    workload = workload_record(MINE)
    where, toolchain = target_record(TARGET), toolchain_record(TARGET)
    assert transferred(MINE, TARGET, db, workload, where, toolchain) is None
    assert len(learned(db, workload, where, toolchain, MODEL).seconds) == 0


def test_the_model_learns_from_other_sizes(db: TuningDatabase) -> None:
    asked = tuned(db, OTHER, 24)
    own = put(db, MINE, sketches_of(MINE, TARGET)[0], (1, 1, 4, 1), 1.0, asked[0].features)
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    measured = learned(db, *subject, MODEL)
    assert len(measured.seconds) == len(asked)
    assert own.seconds not in measured.seconds
    model = model_of(measured, MODEL)
    assert model.trained
    error = model.predict(measured.features) - np.log2(measured.seconds)
    assert np.abs(error).mean() < np.abs(measured.features[:, 0] - np.log2(measured.seconds)).mean()


def test_a_search_begins_with_what_was_good_for_other_sizes(db: TuningDatabase) -> None:
    tuned(db, OTHER, 16)
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    search = search_of(MINE, TARGET, config=SMALL)
    warm(search, db, *subject)
    assert search.model.trained
    refitted = refit(search.sketches, found(db, MINE), TARGET, search.model)
    batch = search.ask(8)
    assert len(batch) == 8
    assert [(c.sketch, c.row) for c in batch[:4]] == [(r.sketch, r.row) for r in refitted[:4]]
    assert len({c.schedule.id for c in batch + search.ask(8)}) == 16, "nothing is asked for twice"


@pytest.fixture
def refits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """How many relatives each re-fitting had; what is remembered goes to a folder of the test."""
    made: list[int] = []

    def counted(*given: Any) -> list[Refitted]:
        made.append(len(given[1]))
        return refit(*given)

    monkeypatch.setattr(transfer, "refit", counted)
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    return made


def test_a_transfer_is_remembered_until_there_are_other_records(
    db: TuningDatabase, refits: list[int]
) -> None:
    theirs = {s.name: s for s in sketches_of(OTHER, TARGET)}
    put(db, OTHER, theirs["tiled_packB_local"], (2, 8, 8, 64, 4), 1e-3)
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    first, again = (transferred(MINE, TARGET, db, *subject) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (again.schedule.trace, again.seconds, again.source) == (
        first.schedule.trace,
        first.seconds,
        first.source,
    )
    assert refits == [1]
    put(db, OTHER, theirs["tiled_packB_local"], (1, 8, 8, 64, 4), 1e-4)
    other = transferred(MINE, TARGET, db, *subject)
    assert refits == [1, 2]
    assert other is not None
    assert other.source != first.source


def test_that_nothing_fits_is_remembered(db: TuningDatabase, refits: list[int]) -> None:
    put_measured(db, OTHER, TARGET, Schedule(OTHER).trace.to_json(), 1e-3)
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    assert [transferred(MINE, TARGET, db, *subject) for _ in range(2)] == [None, None]
    assert refits == [1]


@pytest.mark.parametrize("content", [b"[]", b"{", b'["x", 1.0, {}]', b'["x", 1e9, {}]', b"[[]]"])
def test_an_entry_that_does_not_apply_is_made_anew(
    db: TuningDatabase, refits: list[int], content: bytes, tmp_path: Path
) -> None:
    theirs = {s.name: s for s in sketches_of(OTHER, TARGET)}
    put(db, OTHER, theirs["tiled_packB_local"], (2, 8, 8, 64, 4), 1e-3)
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    first = transferred(MINE, TARGET, db, *subject)
    choices = remembered.choices_of(TARGET)
    assert choices is not None
    for entry in choices.folder.iterdir():
        choices.put(entry.stem, content)
    second = transferred(MINE, TARGET, db, *subject)
    assert first is not None
    assert second is not None
    assert first.schedule.trace == second.schedule.trace
    assert refits == [1, 1]


def test_schedules_for_other_threads_are_transferred(db: TuningDatabase) -> None:
    """Of this very program, on the same processor; not of other processors or failed checks."""
    sketch = next(s for s in sketches_of(MINE, TARGET) if s.name == "tiled_packB_local")
    measured = put(db, MINE, sketch, (2, 8, 8, 64), 1e-3)
    one = TARGET.with_threads(1)
    subject = workload_record(MINE), toolchain_record(TARGET)
    (relative,) = other_threads(db, subject[0], one, subject[1])
    assert relative.measurement == measured
    assert relative.workload == subject[0]
    assert threads_of(target_record(TARGET)) == 2
    taken = transferred(MINE, one, db, subject[0], target_record(one), subject[1])
    assert taken is not None
    assert taken.schedule.trace == sketch.trace.with_row((2, 8, 8, 64))
    assert not other_threads(db, subject[0], TARGET, subject[1])
    assert not other_threads(db, workload_record(OTHER), one, subject[1])
    elsewhere = Target.parse("cpu -mcpu=znver3 -threads=1")
    assert not other_threads(db, subject[0], elsewhere, subject[1])
    search = search_of(MINE, one, config=SMALL)
    warm(search, db, subject[0], target_record(one), subject[1])
    assert search.ask(1)[0].row == (2, 8, 8, 64)


def test_targets_of_no_number_of_threads() -> None:
    assert threads_of(TargetRecord("of no kind", "x", "y")) is None
    assert threads_of(TargetRecord("cpu", "x", "y")) is None


def test_a_search_learns_from_other_operators(db: TuningDatabase) -> None:
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    tuned(db, ops.softmax_func(64, 1000), 8)
    asked = tuned(db, ops.conv2d_func(c=16, h=14, w=14, o=32), 24)
    of_sizes = tuned(db, OTHER, 8)
    assert len(learned(db, *subject, MODEL)) == len(of_sizes)
    measured = learned(db, *subject, MODEL, others=True)
    assert np.bincount(measured.programs).tolist() == [8, 24, 8], "the last tuned first"
    assert {tuple(row) for row in measured.features[8:32]} == {c.features for c in asked}
    search = search_of(MINE, TARGET, config=SMALL)
    warm(search, db, *subject)
    assert search.model.trained
    off = search_of(MINE, TARGET, config=dataclasses.replace(SMALL, model=False))
    warm(off, db, *subject)
    assert not off.model.trained


def test_a_search_without_relatives_is_as_it_was(db: TuningDatabase) -> None:
    subject = workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)
    plain, warmed = (search_of(MINE, TARGET, config=SMALL) for _ in range(2))
    warm(warmed, db, *subject)
    assert [c.schedule.id for c in plain.ask(8)] == [c.schedule.id for c in warmed.ask(8)]
