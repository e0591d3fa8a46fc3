"""Trials that are timed again: which, and what becomes of their first times."""

from __future__ import annotations

import pytest

from tilewright import TuningDatabase, tune
from tilewright.autotune.measure.measure_result import MeasureResult
from tilewright.autotune.measure.worker_pool import Built
from tilewright.autotune.model.target_model import model_for
from tilewright.autotune.records import target_record, toolchain_record, workload_record
from tilewright.autotune.search import transfer
from tilewright.autotune.session.events import Trial
from tilewright.autotune.session.noise import Plausibility
from tilewright.autotune.session.session import OutOfTime
from tilewright.autotune.session.session_history import SessionHistory
from tilewright.codegen.detect import resolve
from tilewright.runtime.measure.comparison import CheckResult
from tilewright.tuning_db import Outcome, Session

from .children import QUICK
from .kernels import matmul
from .recorded import Recorded, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")


def recorded(db: TuningDatabase) -> list[Trial]:
    """The trials of the only session as its database has them."""
    (session,) = db.records(Session)
    return [trial for trial, *_ in SessionHistory(db, session).read()]


def test_times_far_beyond_their_predictions_and_the_best_are_doubted() -> None:
    plausible = Plausibility()
    assert plausible.doubts(10e-3, 14e-6, None)
    assert plausible.doubts(10e-3, 14e-6, 12e-6)
    assert not plausible.doubts(20e-6, 14e-6, None), "as predicted"
    assert not plausible.doubts(10e-3, 9e-3, 12e-6), "as slow as predicted"
    assert not plausible.doubts(10e-3, 14e-6, 1e-3), "the best is not much faster"
    assert not plausible.doubts(1.0, 14e-6, None), "a time slice explains little of it"
    assert not plausible.doubts(None, 14e-6, None), "it failed"
    assert not plausible.doubts(50e-9, 1.3e-9, None), "a call takes that"


def test_a_model_that_is_off_for_all_candidates_is_believed_no_more() -> None:
    plausible = Plausibility()
    for _ in range(7):
        plausible.conclude(10e-3, 14e-6, doubtful=True)
    assert plausible.doubts(10e-3, 14e-6, None)
    plausible.conclude(9e-3, 14e-6, doubtful=True)
    assert not plausible.doubts(10e-3, 14e-6, None)
    plausible.conclude(14e-6, 14e-6, doubtful=False)
    assert plausible.doubts(10e-3, 14e-6, None), "it was the machine"


def test_disturbed_samples_do_not_show_that_a_model_is_off() -> None:
    """Their shortest is as predicted: however many trials are disturbed, the next is doubted."""
    plausible = Plausibility()
    spoilt = MeasureResult(Outcome.OK, 10e-3, (14e-6, 10e-3, 10e-3, 10e-3, 10e-3))
    for _ in range(9):
        list(plausible.better(spoilt, 14e-6, None, lambda: spoilt, lambda: None))
    assert plausible.doubts(10e-3, 14e-6, None)


class Burst(Recorded):
    """The third candidate takes 10 ms when it is first timed, and 2 us from then on."""

    def __init__(self, disturbed: int) -> None:
        super().__init__([ok(2.0e-6), ok(2.1e-6), ok(10e-3), ok(2.2e-6)])
        self._disturbed = disturbed

    def run(self, built: Built, best: float | None) -> MeasureResult:
        self.repeated += 1
        return ok(2.0e-6 if self.repeated >= self._disturbed else 10e-3)


@pytest.mark.parametrize("times", [1, 2])
def test_a_trial_that_a_time_slice_disturbed_is_timed_again(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    measurer = Burst(times)
    monkeypatch.setattr("tilewright.autotune.session.tuning_job.Measurer", measurer)
    result = tune(matmul(), "cpu -threads=1", database=db, trials=4, config=QUICK)
    assert measurer.repeated == times
    assert [t.seconds for t in result.history] == [2.0e-6, 2.1e-6, 2.0e-6, 2.2e-6]
    assert result.trials == db.trials(result.session) == 4
    both = db.measurements(session=result.session, schedule=result.history[2].schedule)
    assert [m.seconds for m in both] == [2.0e-6, 10e-3], "the newest replaces the first"
    assert len(db.measurements()) == 5, "and no other time is recorded"
    assert [t.seconds for t in recorded(db)] == [t.seconds for t in result.history]
    assert [t.best_seconds for t in recorded(db)] == [t.best_seconds for t in result.history]
    target = resolve("cpu -threads=1")
    size = workload_record(matmul(8)), target_record(target), toolchain_record(target)
    learned = transfer.learned(db, *size, model_for(target))
    assert sorted(learned.seconds) == [2.0e-6, 2.0e-6, 2.1e-6, 2.2e-6], "what models learn from"


@pytest.mark.parametrize("end", [KeyboardInterrupt, OutOfTime, Outcome.RUN_TIMEOUT, 20e-3])
def test_the_first_time_of_a_trial_is_kept_whatever_becomes_of_the_second(
    db: TuningDatabase,
    monkeypatch: pytest.MonkeyPatch,
    end: type[BaseException] | Outcome | float,
) -> None:
    stored: list[float | None] = []

    class Ending(Burst):
        def run(self, built: Built, best: float | None) -> MeasureResult:
            stored.append(max(m.seconds or 0.0 for m in db.measurements()))
            if isinstance(end, Outcome):
                return MeasureResult(end, error="running it: it takes too long")
            if isinstance(end, float):
                return ok(end)
            raise end

    monkeypatch.setattr("tilewright.autotune.session.tuning_job.Measurer", Ending(0))
    told: list[float | None] = []
    result = tune(
        matmul(),
        "cpu -threads=1",
        database=db,
        trials=4,
        config=QUICK,
        callback=lambda e: told.append(e.seconds) if isinstance(e, Trial) else None,
    )
    assert stored[0] == 10e-3, "it is there before the candidate is timed again"
    times = [2.0e-6, 2.1e-6, 10e-3]
    if isinstance(end, (Outcome, float)):
        times.append(2.2e-6)
    assert [t.seconds for t in result.history] == told == times
    assert result.trials == db.trials(result.session) == len(times)
    assert sorted(m.seconds or 0.0 for m in db.measurements()) == sorted(times)


def test_a_candidate_that_computes_wrong_results_when_it_is_timed_again_is_none(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(Burst):
        def run(self, built: Built, best: float | None) -> MeasureResult:
            return MeasureResult(
                Outcome.WRONG_RESULT,
                error="element 3",
                check=CheckResult(False, 1.0, 0.0, "element 3"),
            )

    monkeypatch.setattr("tilewright.autotune.session.tuning_job.Measurer", Wrong(0))
    result = tune(matmul(), "cpu -threads=1", database=db, trials=4, config=QUICK)
    assert result.outcomes == {Outcome.OK: 3, Outcome.WRONG_RESULT: 1}
    assert [t.outcome for t in recorded(db)] == [t.outcome for t in result.history]


def test_who_reads_along_sees_the_shorter_time_in_the_best(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[SessionHistory] = []

    class Watched(Burst):
        def run(self, built: Built, best: float | None) -> MeasureResult:
            (session,) = db.records(Session)
            seen.append(SessionHistory(db, session))
            assert [t.seconds for t, *_ in seen[0].read()] == [2.0e-6, 2.1e-6, 10e-3]
            return ok(1.0e-6)

    monkeypatch.setattr("tilewright.autotune.session.tuning_job.Measurer", Watched(0))
    tune(matmul(), "cpu -threads=1", database=db, trials=4, config=QUICK)
    (history,) = seen
    ((last, *_),) = history.read()
    assert (last.number, last.seconds, last.best_seconds) == (4, 2.2e-6, 1.0e-6)
    assert history.trial_seconds == 1.0e-6
