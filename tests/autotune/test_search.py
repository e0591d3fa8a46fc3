"""Candidates, features, estimates and the search, on programs too large to be run here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tilewright import ops, te
from tilewright.autotune.model.cost_model import CostModel, TrainingRows
from tilewright.autotune.model.cpu.estimate import FEATURES, Estimator
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search.candidates import Rowspace, decided
from tilewright.autotune.search.search import Candidate, Known, Observation, Search, SearchConfig
from tilewright.autotune.search.sketch import Sketch
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.require import Space
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func
from tilewright.tuning_db.values import Outcome, ScheduleRecord

from ..hosts import processor
from .checking import first_sketch, search_of, sketches_named, sketches_of
from .formulas import clamped_stencils

TARGET = CpuTarget.named("cascadelake", threads=2)
PROGRAMS: dict[str, dict[str, Any]] = {
    "matmul_func": {"n": 510, "m": 770, "k": 256},
    "conv2d_func": {},
    "conv2d_func of 1x1": {"kernel": 1, "padding": 0, "h": 14, "w": 14, "bias": True},
    "conv2d_func of groups": {"c": 48, "h": 14, "w": 14, "o": 96, "groups": 2},
    "conv2d_func of a batch": {"n": 20, "h": 7, "w": 7},
    "depthwise_conv2d_func": {},
    "softmax_func": {"n": 64, "m": 1000},
    "layer_norm_func": {},
    "add_relu_func": {"n": 100_003},
    "transpose_func": {"n": 300, "m": 500},
    "reduction_func": {"axis": 0},
    "matmul_func of what nearly fits a cache": {"n": 16, "m": 200, "k": 16},
}
SMALL = SearchConfig(pool=400, children=100, base=None)
"""Without a base model, which knows real machines and not the one made up here."""


@cache
def program(name: str) -> Func:
    func = getattr(ops, name.split(maxsplit=1)[0])(**PROGRAMS[name])
    assert isinstance(func, Func)
    return func


@pytest.mark.part(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_features_of_a_row_are_those_of_its_program(name: str) -> None:
    check_features(program(name), np.random.default_rng(0), 2)


@pytest.mark.part(2)
@pytest.mark.parametrize("seed", range(12))
def test_features_of_a_row_are_those_of_its_program_of_odd_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m, k = (int(rng.integers(1, 70)) for _ in "nmk")
    kernel, stride, size = int(rng.choice([1, 3])), int(rng.choice([1, 2])), k % 9 + 5
    funcs = (
        lambda: ops.matmul_func(n, m, k),
        lambda: ops.matmul_func(n, m, k, batch=3),
        lambda: ops.int8_matmul_func(n, m, k),
        lambda: ops.conv2d_func(
            c=n % 17 + 1, o=m % 20 + 1, h=size, w=size, kernel=kernel, stride=stride
        ),
        lambda: ops.softmax_func(n, m),
        lambda: ops.transpose_func(n, m),
    )
    check_features(funcs[seed % len(funcs)](), rng, 2)


def test_features_of_panels_that_exceed_a_program_are_those_of_its_program() -> None:
    check_features(ops.matmul_func(12, 63, 40), np.random.default_rng(0), 2)
    check_features(ops.int8_matmul_func(5, 34, 14), np.random.default_rng(0), 2)


def test_features_of_vectors_turned_in_registers_are_those_of_its_program() -> None:
    rng = np.random.default_rng(0)
    check_features(ops.matmul_func(16, 48, 24, "uint8", dtype_b="int8"), rng, 2)
    check_features(ops.matmul_func(32, 48, 32, transpose_b=True), rng, 2)


def test_features_of_long_rows_are_those_of_its_program() -> None:
    check_features(ops.softmax_func(2, 131072), np.random.default_rng(0), 4)
    check_features(ops.layer_norm_func(2, 131072), np.random.default_rng(0), 4)


def check_features(func: Func, rng: np.random.Generator, count: int) -> None:
    for sketch in sketches_of(func, TARGET):
        rows = Rowspace(sketch).sample(rng, count)
        read = profile(sketch.func, sketch.space.bounds)
        of_rows = Estimator(read, TARGET)(rows)
        for n, row in enumerate(rows):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
            alone = Estimator(profile(scheduled), TARGET)(np.zeros((1, 0), dtype=np.int64))
            np.testing.assert_array_equal(of_rows.features[n], alone.features[0], str(row))


def memory_bytes(size: int) -> np.ndarray:
    """Of schedules that multiply with a constant matrix of `size` rows and columns."""
    func = ops.matmul_func(16, size, size, constant_b=True)
    rng = np.random.default_rng(0)
    (sketch,) = sketches_named(func, TARGET, lambda name: name == "tiled_packB")
    read = profile(sketch.func, sketch.space.bounds)
    features = Estimator(read, TARGET)(Rowspace(sketch).sample(rng, 50)).features
    seconds, share = (2.0 ** features[:, FEATURES.index(n)] for n in ("log_seconds", "memory"))
    found: np.ndarray = seconds * share * TARGET.rates.memory * TARGET.rates.hertz
    return found


def test_what_is_packed_ahead_is_read_from_memory() -> None:
    assert TARGET.l3_bytes < 8192 * 8192
    assert (memory_bytes(8192) >= 0.99 * 8192 * 8192 * 4).all()


def test_a_program_that_fits_the_cache_stays_there_from_call_to_call() -> None:
    assert TARGET.l3_bytes > 6 * 512 * 512
    assert (memory_bytes(512) < 512).all()


def tiled_matmul() -> tuple[Func, Sketch]:
    """A sketch with constraints: factors that must divide."""
    func = ops.matmul_func(24, 36, 20)
    sch = Schedule(func, symbolic=True)
    block = sch.get_block(0)
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=[None, sch.sample_tile(i, 2, 12)[1]], perfect=True)
    j0, j1 = sch.split(j, factors=list(sch.sample_perfect_tile(j, 2, 12)))
    sch.reorder(i0, j0, k, i1, j1)
    space = sch.space
    assert isinstance(space, Space)
    return func, Sketch("tiled", (), sch.trace, sch.func, space, (("narrow", j1 + i1 < 1000),))


def test_rows_are_legal_exactly_where_they_replay() -> None:
    func, sketch = tiled_matmul()
    sketch = replace(sketch, prune=())
    space = Rowspace(sketch)
    grids = np.meshgrid(*space.values, indexing="ij")
    rows = np.stack([g.ravel() for g in grids], axis=1)
    legal = space.check(rows)
    assert 0 < legal.sum() < len(rows)
    for row, expected in zip(rows.tolist(), legal, strict=True):
        try:
            sketch.trace.with_row(row).apply(func)
        except ScheduleError:
            assert not expected, row
        else:
            assert expected, row


def test_rows_that_are_not_worth_measuring_are_not_drawn() -> None:
    _, sketch = tiled_matmul()
    first = next(iter(sketch.space.bounds))
    space = Rowspace(replace(sketch, prune=(("s", first <= 4),)))
    rows = space.sample(np.random.default_rng(0), 10_000)
    assert len(rows) > 0
    assert rows[:, 0].max() <= 4
    everything = Rowspace(replace(sketch, prune=())).sample(np.random.default_rng(0), 10_000)
    assert everything[:, 0].max() > 4


@pytest.mark.parametrize("seed", range(8))
def test_initial_rows_have_the_values_that_good_rows_have(seed: int) -> None:
    sketch = first_sketch(program("matmul_func"), TARGET)
    space = Rowspace(sketch)
    rng = np.random.default_rng(seed)
    assert not len(space.initial(rng, 10))
    (row,) = space.sample(rng, 1).tolist()
    assert with_initial(space, row).initial(rng, 10).tolist() == [row]
    some = [v if rng.random() < 0.5 else None for v in row]
    rows = with_initial(space, some).initial(rng, 50)
    assert len(rows) == 1 or None in some
    assert space.check(rows).all()
    for column, value in zip(rows.T, some, strict=True):
        assert value is None or (column == value).all()


def with_initial(space: Rowspace, row: Sequence[int | None]) -> Rowspace:
    known = zip(space.variables, row, strict=True)
    initial = {variable: value for variable, value in known if value is not None}
    sketch = space.sketch
    return Rowspace(replace(sketch, space=replace(sketch.space, initial=initial)))


def test_an_initial_value_that_no_row_has_with_those_before_it_is_drawn() -> None:
    sch = Schedule(ops.matmul_func(64, 64, 64), symbolic=True)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    rows, columns = (sch.sample_categorical([4, 8, 16, 32]) for _ in "ij")
    sch.split(i, factors=[None, rows])
    sch.split(j, factors=[None, columns])
    sketch = Sketch.of(sch, "tiles", prune=[("small", rows * columns <= te.const(128))])
    space = with_initial(Rowspace(sketch), [16, 16])
    found = space.initial(np.random.default_rng(0), 100)
    assert sorted(found.tolist()) == [[16, 4], [16, 8]]
    search = Search(sch.original, TARGET, prepared=[space.sketch], config=SMALL)
    search.begin_with_each([(0,)])
    assert search.ask(1)[0].row in {(16, 4), (16, 8)}


def test_initial_values_come_first_however_they_are_predicted() -> None:
    space = Rowspace(first_sketch(program("matmul_func"), TARGET))
    search = Search(program("matmul_func"), TARGET, prepared=[space.sketch], config=SMALL)
    candidates = search.ask(200)
    slowest = max(candidates, key=lambda c: c.predicted)
    sketch = with_initial(space, slowest.row).sketch
    search = Search(program("matmul_func"), TARGET, prepared=[sketch], config=SMALL)
    search.begin_with_each([(0,)])
    first, second = search.ask(2)
    assert first.row == slowest.row
    assert second.predicted < first.predicted
    told = Known(first.schedule.id, first.trace, first.features, Outcome.OK, 1.0)
    again = Search(program("matmul_func"), TARGET, prepared=[sketch], known=[told], config=SMALL)
    again.begin_with_each([(0,)])
    assert again.ask(1)[0].row != first.row


def test_children_are_good_rows() -> None:
    sketch = sketches_of(program("matmul_func"), TARGET)[0]
    space = Rowspace(sketch)
    rng = np.random.default_rng(0)
    parents = space.sample(rng, 20)
    children = space.mutate(rng, parents, 200)
    assert len(children) > 20
    assert space.check(children).all()


def true_seconds(c: Candidate) -> float:
    """A made-up machine: the estimate, and a preference that the estimate does not know."""
    wide = c.features[FEATURES.index("accumulators")]
    return float(2.0 ** (c.features[0] + 0.6 * abs(wide - 3.0)))


def told(candidates: list[Candidate]) -> list[Observation]:
    return [c.observed(Outcome.OK, true_seconds(c)) for c in candidates]


def known(candidates: list[Candidate]) -> list[Known]:
    """As records of another session have them: read back, without sketches and rows."""
    return [
        Known(o.schedule, Trace.from_json(c.schedule.trace), o.features, o.outcome, o.seconds)
        for c, o in zip(candidates, told(candidates), strict=True)
    ]


def run(seed: int, config: SearchConfig, trials: int = 48) -> tuple[Search, list[Candidate]]:
    search = search_of(program("matmul_func"), TARGET, seed=seed, config=config)
    asked: list[Candidate] = []
    while len(asked) < trials:
        batch = search.ask(8)
        asked += batch
        search.tell(told(batch))
    return search, asked


def test_search_is_deterministic_and_never_repeats_itself() -> None:
    _, first = run(3, SMALL, 24)
    _, again = run(3, SMALL, 24)
    _, other = run(4, SMALL, 24)
    assert [c.schedule.id for c in first] == [c.schedule.id for c in again]
    assert [c.schedule.id for c in first] != [c.schedule.id for c in other]
    assert len({c.schedule.id for c in first}) == len(first)


def test_the_model_finds_what_the_estimate_does_not_know() -> None:
    """By the geometric mean of some sessions: what is drawn decides a single one. Of more trials
    than these both find the best."""
    blind = replace(SMALL, model=False)
    found: dict[bool, float] = {True: 1.0, False: 1.0}
    for seed in range(3):
        for config in (SMALL, blind):
            best = run(seed, config, 24)[0].best
            assert best is not None
            assert best.seconds is not None
            found[config.model] *= best.seconds
    assert found[True] <= 0.98 * found[False]


def test_known_schedules_are_not_asked_again() -> None:
    _, asked = run(0, SMALL, 16)
    search = search_of(program("matmul_func"), TARGET, seed=0, config=SMALL, known=known(asked))
    assert search.best is not None
    assert not {c.schedule.id for c in search.ask(16)} & {c.schedule.id for c in asked}


def test_failures_do_not_become_best() -> None:
    search = search_of(program("softmax_func"), TARGET, seed=0, config=SMALL)
    (c, *_) = search.ask(4)
    search.tell([c.observed(Outcome.CRASH, None)])
    assert search.best is None


def test_a_small_space_is_exhausted() -> None:
    search = search_of(program("add_relu_func"), TARGET, seed=0, config=SMALL)
    seen: set[str] = set()
    while batch := search.ask(8):
        seen |= {c.schedule.id for c in batch}
        search.tell(told(batch))
    assert len(seen) == sum(p.size for p in map(Rowspace, search.sketches))


def test_asked_candidates_are_what_they_say() -> None:
    search = search_of(program("conv2d_func"), TARGET, seed=0, config=SMALL)
    for c in search.ask(8):
        assert json.loads(c.schedule.trace) == c.trace.to_data(notes=False)
        assert c.schedule.id == ScheduleRecord(c.trace.to_json(notes=False), 1).id
        assert c.schedule.generator == search.sketches[c.sketch].generator
        assert c.trace == search.sketches[c.sketch].trace.with_row(c.row)
        assert len(c.features) == len(FEATURES)


def test_the_default_schedule_fills_the_vector_registers() -> None:
    func = ops.matmul_func(1024, 1024, 1024)
    scheduled = default_trace(func, TARGET).apply(func).func
    found = Estimator(profile(scheduled), TARGET)(np.zeros((1, 0), dtype=np.int64)).features[0]
    by_name = dict(zip(FEATURES, 2.0**found, strict=True))
    assert by_name["vectors"] == pytest.approx(1)
    assert by_name["accumulators"] >= 0.5
    assert by_name["balance"] > 0.9


def test_an_untrained_model_says_what_the_estimate_says() -> None:
    model = CostModel()
    features = np.random.default_rng(0).normal(size=(5, len(FEATURES)))
    np.testing.assert_array_equal(model.predict(features), features[:, 0])
    model.fit(features[:2], 2.0 ** (features[:2, 0] + 1.0))
    np.testing.assert_allclose(model.predict(features), features[:, 0] + 1.0)


def test_a_trained_model_corrects_the_estimate() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, len(FEATURES)))
    seconds = 2.0 ** (features[:, 0] + np.where(features[:, 3] > 0, 2.0, -2.0))
    model = CostModel()
    model.fit(features[:150], seconds[:150])
    error = model.predict(features[150:]) - np.log2(seconds[150:])
    assert np.abs(error).mean() < 0.5


def test_a_program_is_known_by_its_decisions_too() -> None:
    """The features are the same for all; rows without decisions are predicted too."""
    rng = np.random.default_rng(0)
    features = np.zeros((200, len(FEATURES)))
    rows = rng.integers(0, 4, size=(200, 2))
    seconds = 2.0 ** np.where(rows[:, 1] == 2, 1.0, -1.0)
    columns = np.hstack([features, decided(0, rows, 4)])
    model = CostModel()
    model.fit(columns[:150], seconds[:150])
    error = model.predict(columns[150:]) - np.log2(seconds[150:])
    assert np.abs(error).mean() < 0.3
    assert np.ptp(model.predict(features)) == 0.0


def test_decisions_as_columns() -> None:
    found = decided(3, np.array([[1, 2], [4, 5]]), 4)
    np.testing.assert_array_equal(found, [[3, 1, 2, np.nan], [3, 4, 5, np.nan]])


def test_a_search_knows_the_decisions_of_what_is_told() -> None:
    search, asked = run(0, SMALL, 16)
    assert len({c.sketch for c in asked}) > 1
    width = len(FEATURES)
    for c, row in zip(asked, search._told, strict=True):
        np.testing.assert_array_equal(row[width : width + 1 + len(c.row)], [c.sketch, *c.row])
        assert np.isnan(row[width + 1 + len(c.row) :]).all()
    again = search_of(program("matmul_func"), TARGET, seed=0, config=SMALL, known=known(asked))
    np.testing.assert_array_equal(again._told, search._told)
    foreign = default_trace(program("softmax_func"), TARGET)
    other = Known("other", foreign, asked[0].features, Outcome.OK, 1.0)
    alone = search_of(program("matmul_func"), TARGET, seed=0, config=SMALL, known=[other])
    assert np.isnan(alone._told[-1][width:]).all()


def test_what_is_drawn_at_random_is_not_hopeless() -> None:
    config = SearchConfig(random=1.0, model=False, base=None)
    search = Search(ops.matmul_func(64, 64, 64), TARGET, config=config)
    batch = search.ask(64)
    best = min(float(pool.scores.min()) for pool in search.pools)
    predicted = [c.predicted for c in batch]
    assert len(batch) == 64
    assert max(predicted) <= min(best, *predicted) + config.explored
    assert max(predicted) > sorted(np.concatenate([p.scores for p in search.pools]))[64]


def test_a_batch_is_the_best_row_and_some_of_those_near_it() -> None:
    def asked(temperature: float, seed: int) -> list[float]:
        config = SearchConfig(random=0.0, base=None, among=64, temperature=temperature)
        search = Search(func, TARGET, seed=seed, config=config, prepared=made)
        scores.append(np.sort(search.pools[0].scores))
        return [c.predicted for c in search.ask(8)]

    func, scores = ops.matmul_func(64, 64, 64), list[np.ndarray]()
    made = [first_sketch(func, TARGET)]
    for seed in range(4):
        assert asked(0.0, seed) == scores[-1][:8].tolist()
        drawn = asked(1e6, seed)
        assert drawn[0] == scores[-1][0]
        assert sorted(drawn) != scores[-1][:8].tolist()
        assert max(drawn) <= scores[-1][63]
    cold, hot = (np.mean([np.mean(asked(t, s)) for s in range(8)]) for t in (0.02, 2.0))
    assert cold < hot


def test_other_programs_say_how_candidates_compare_but_not_how_fast_they_are() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, len(FEATURES)))
    wrong = features[:, 1] > 0.5
    seconds = 2.0 ** (features[:, 0] + wrong)
    where = np.repeat([1, 2], 100)
    paces = np.where(where == 1, 64.0, 1 / 8)
    model = CostModel()
    model.relate(TrainingRows(features, seconds * paces, where))
    unseen = rng.normal(size=(100, len(FEATURES)))
    right = unseen[:, 0] + (unseen[:, 1] > 0.5)
    model.fit(unseen[:0], right[:0])
    error = model.predict(unseen) - right
    assert np.std(error) < 0.35
    assert abs(np.median(error)) < 0.6
    model.fit(unseen[:4], 2.0 ** (right[:4] + 5.0))
    assert abs(np.median(model.predict(unseen) - right - 5.0)) < 0.6


def test_other_sizes_say_how_fast_candidates_are_and_this_one_counts_more() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(100, len(FEATURES)))
    model = CostModel()
    model.relate(
        TrainingRows(features, 2.0 ** (features[:, 0] + 3.0), np.zeros(100, dtype=np.int64))
    )
    model.fit(features[:0], features[:0, 0])
    assert np.abs(model.predict(features) - features[:, 0] - 3.0).max() < 0.1
    own = rng.normal(size=(100, len(FEATURES)))
    model.fit(own, 2.0 ** (own[:, 0] + 3.0 + 2.0 * (own[:, 1] > 0)))
    slower = model.predict(own) - own[:, 0] - 3.0
    assert np.mean(slower[own[:, 1] > 0]) > 1.2
    assert np.mean(slower[own[:, 1] < 0]) < 0.5


def test_nothing_is_learned_that_nothing_is_asked_after() -> None:
    search = Search(ops.matmul_func(64, 64, 64), TARGET, config=SMALL)
    batch = search.ask(16)
    search.learn([c.observed(Outcome.OK, 1e-3) for c in batch])
    assert not search.model.trained
    search.ask(1)
    assert search.model.trained


def test_the_program_as_written_is_in_the_first_batch() -> None:
    target = processor("cpu -mcpu=skylake-avx512 -threads=1")
    for func, wanted in ((clamped_stencils(), 1), (ops.matmul_func(512, 512, 512), 0)):
        search = Search(func, target, config=SearchConfig(pool=200), as_written=True)
        assert not any(not c.trace.steps for c in search.ask(1))
        first, second = search.ask(8), search.ask(8)
        assert sum(not c.trace.steps for c in first) == wanted
        assert not any(not c.trace.steps for c in second)
    unasked = Search(clamped_stencils(), target, config=SearchConfig(pool=200))
    assert all(c.trace.steps for c in unasked.ask(8))
