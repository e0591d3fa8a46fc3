"""The model of failures, on candidates that are said to have failed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.model.cost_model import CERTAIN, CostModel, Feasibility, TrainingRows
from tilewright.autotune.model.cpu.estimate import FEATURES
from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.records import target_record, toolchain_record, workload_record
from tilewright.autotune.search import history
from tilewright.autotune.search.search import Candidate, Known, Observation
from tilewright.autotune.search.transfer import learned, model_of, refit, warm
from tilewright.tuning_db import Outcome, TargetRecord, Toolchain, TuningDatabase, Workload

from ..measured import put_measured
from .checking import search_of, sketches_of
from .test_search import SMALL, TARGET, true_seconds

OTHER, MINE = ops.matmul_func(512, 512, 512), ops.matmul_func(384, 640, 768)
pytestmark = pytest.mark.usefixtures("given_machine")
UNROLLED = FEATURES.index("unrolled")


def subject() -> tuple[Workload, TargetRecord, Toolchain]:
    return workload_record(MINE), target_record(TARGET), toolchain_record(TARGET)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[TuningDatabase]:
    with TuningDatabase(tmp_path / "tuning.db") as database:
        yield database


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, len(FEATURES)))


def test_nothing_is_expected_to_fail_before_something_did() -> None:
    features = rows(20)
    for failed in (np.zeros(20, dtype=bool), np.ones(20, dtype=bool)):
        model = Feasibility()
        model.fit(features, failed, np.ones(20))
        assert not model.penalty(features).any()


def test_what_is_like_that_which_failed_is_worth_less() -> None:
    features, unseen = rows(60), rows(200, 1)
    model = Feasibility()
    model.fit(features, features[:, 5] > 0.5, np.ones(60))
    penalty = model.penalty(unseen)
    alike = unseen[:, 5] > 0.5
    assert penalty.min() >= 0.0
    assert penalty.max() <= -math.log2(1.0 - CERTAIN)
    assert np.median(penalty[alike]) > 1.0
    assert np.median(penalty[~alike]) < 0.1


def test_failures_by_chance_hold_nothing_back() -> None:
    features, unseen = rows(100), rows(200, 1)
    model = Feasibility()
    model.fit(features, np.arange(100) % 20 == 7, np.ones(100))
    assert np.median(model.penalty(unseen)) < 0.1


def test_what_failed_does_not_change_predicted_times() -> None:
    features = rows(80)
    seconds = 2.0 ** (features[:, 0] + features[:, 1])
    failed = np.where(features[:, 2] > 0.3, math.inf, seconds)
    ran = np.isfinite(failed)
    whole, part = CostModel(), CostModel()
    whole.fit(features, failed)
    part.fit(features[ran], seconds[ran])
    np.testing.assert_array_equal(whole.predict(features), part.predict(features))
    assert whole.penalty(features)[~ran].min() > part.penalty(features).max() == 0.0


def test_failures_of_other_programs_count_too() -> None:
    """And do not hide how the rest of their measurements compare; one has nothing but failures."""
    features = rows(200)
    seconds = 2.0 ** (features[:, 0] + features[:, 1])
    seconds[features[:, 5] > 0.5] = math.inf
    for programs in (np.zeros(200, dtype=np.int64), np.repeat([1, 2], 100)):
        model = CostModel()
        model.relate(TrainingRows(features, seconds, programs))
        model.fit(features[:0], seconds[:0])
        unseen = rows(200, 1)
        penalty, alike = model.penalty(unseen), unseen[:, 5] > 0.5
        assert penalty[alike].mean() > 4 * penalty[~alike].mean()
        assert np.isfinite(model.predict(unseen)).all()
    model = CostModel()
    model.relate(TrainingRows(features[:9], np.full(9, math.inf), np.ones(9, dtype=np.int64)))
    model.fit(features[:0], seconds[:0])
    np.testing.assert_array_equal(model.predict(features), features[:, 0])
    assert not model.penalty(features).any()


def too_large(c: Candidate) -> bool:
    """Whether a machine that was made up cannot build a candidate: the estimate likes those."""
    return c.features[UNROLLED] > 5.0


def observed(c: Candidate, fails: Callable[[Candidate], bool], knows: bool = True) -> Observation:
    """The outcome of a candidate; a search that does not know is told without the features."""
    if not fails(c):
        return c.observed(Outcome.OK, true_seconds(c))
    failed = c.observed(Outcome.BUILD_TIMEOUT, None)
    return failed if knows else dataclasses.replace(failed, features=())


def failures(knows: bool, seed: int, known: list[Known] | None = None) -> list[int]:
    """How many of each eight candidates fail, of 64."""
    search = search_of(OTHER, TARGET, seed=seed, config=SMALL, known=known or ())
    counts = []
    for _ in range(8):
        batch = search.ask(8)
        counts.append(sum(map(too_large, batch)))
        search.tell([observed(c, too_large, knows) for c in batch])
    assert search.best is not None
    return counts


def test_a_search_asks_for_less_of_what_fails() -> None:
    learns, not_at_all = ([failures(knows, seed) for seed in range(3)] for knows in (True, False))
    assert [c[0] for c in learns] == [c[0] for c in not_at_all]
    assert sum(map(sum, not_at_all)) > 36
    assert sum(map(sum, learns)) < sum(map(sum, not_at_all)) / 3
    assert sum(sum(c[4:]) for c in learns) <= 6


def test_what_failed_in_earlier_sessions_is_known() -> None:
    search = search_of(OTHER, TARGET, seed=9, config=SMALL)
    asked = [c for _ in range(4) for c in search.ask(8)]
    told = [observed(c, too_large) for c in asked]
    known = [
        Known(o.schedule, c.trace, o.features, o.outcome, o.seconds)
        for c, o in zip(asked, told, strict=True)
    ]
    assert 4 < sum(o.outcome is not Outcome.OK for o in known) < 32
    first, again = failures(True, 0)[0], failures(True, 0, known)[0]
    assert again < first


def test_predictions_are_of_what_runs() -> None:
    """A recorded prediction is a time, however likely the candidate fails."""
    search = search_of(OTHER, TARGET, config=SMALL)
    batch = search.ask(16)
    search.tell([observed(c, too_large) for c in batch])
    pools = search.pools
    held_back = [p.scores - p.predicted for p in pools if len(p.rows)]
    assert max(map(np.max, held_back)) > 1.0
    for c in search.ask(64):
        columns = np.array(
            [(*c.features, *search._decided(c.observed(Outcome.OK, 1.0)))], dtype=np.float32
        )
        assert c.predicted == pytest.approx(search.model.predict(columns)[0], abs=1e-5)


def recorded(
    db: TuningDatabase, count: int, fails: Callable[[Candidate], bool] = too_large
) -> list[Candidate]:
    """Record candidates for another size, some of which failed."""
    search = search_of(OTHER, TARGET, config=SMALL)
    asked = search.ask(count)
    for c in asked:
        text, generator = c.trace.to_json(notes=False), search.sketches[c.sketch].generator
        seconds = None if fails(c) else true_seconds(c)
        put_measured(db, OTHER, TARGET, text, seconds, generator=generator, features=c.features)
    return asked


def test_failures_in_a_database_are_learned_from(db: TuningDatabase) -> None:
    asked = recorded(db, 32)
    measured = learned(db, *subject(), MODEL)
    assert np.count_nonzero(np.isinf(measured.seconds)) == sum(map(too_large, asked)) > 4
    search = search_of(MINE, TARGET, config=SMALL)
    before = sum(map(too_large, search.ask(16)))
    warmed = search_of(MINE, TARGET, config=SMALL)
    warm(warmed, db, *subject())
    assert sum(map(too_large, warmed.ask(16))) < before
    own = history.known(db, workload_record(OTHER), *subject()[1:], MODEL)
    assert {o.schedule for o in own if o.outcome is Outcome.CRASH} == {
        c.schedule.id for c in asked if too_large(c)
    }


def test_schedules_of_other_sizes_that_may_fail_come_last(db: TuningDatabase) -> None:
    recorded(db, 32, lambda c: False)
    made, found = sketches_of(MINE, TARGET), db.relatives(*subject())
    known = learned(db, *subject(), MODEL)
    first = refit(made, found, TARGET, model_of(known, MODEL))[0]
    model = CostModel()
    model.relate(known)
    model.fit(np.array([first.features] * 8), np.full(8, math.inf))
    ranked = refit(made, found, TARGET, model)
    places = [(r.sketch, r.row) for r in ranked]
    assert places.index((first.sketch, first.row)) > 0
    assert ranked[0].penalty < 1.0 < ranked[places.index((first.sketch, first.row))].penalty
    assert [r.score for r in ranked] == sorted(r.predicted + r.penalty for r in ranked)


def test_without_a_model_failures_are_not_learned_from() -> None:
    config = dataclasses.replace(SMALL, model=False)
    search = search_of(OTHER, TARGET, config=config)
    search.tell([observed(c, too_large) for c in search.ask(16)])
    assert not any((p.scores - p.predicted).any() for p in search.pools)
