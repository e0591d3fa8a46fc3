"""What a result of tuning holds for pictures of it, and how it prints itself."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tilewright import TuningDatabase, TuningError, tune
from tilewright.autotune.measure.measure_result import MeasureResult
from tilewright.autotune.model.target_model import Roofline
from tilewright.autotune.result import TuneResult
from tilewright.tuning_db import Outcome

from .children import QUICK
from .kernels import matmul
from .recorded import Play, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
CRASH = MeasureResult(Outcome.CRASH, error="running it: signal 11\nmore of it")


def run(db: TuningDatabase) -> TuneResult:
    return tune(matmul(), "cpu -threads=1", database=db, trials=6, config=QUICK)


def one_round_each(count: int, rounds: int) -> list[tuple[float, ...]]:
    """Finals in which the first finalist is the fastest, by noisy samples."""
    return [tuple((n + 2) * 1e-3 * (1 + 0.01 * k) for k in range(rounds)) for n in range(count)]


def test_the_history_has_each_trial_with_its_prediction(db: TuningDatabase, play: Play) -> None:
    play(ok(3.0), CRASH, ok(2.0), CRASH, ok(5.0))
    result = run(db)
    assert [t.number for t in result.history] == [1, 2, 3, 4, 5, 6]
    assert [t.seconds for t in result.history] == [3.0, None, 2.0, None, 5.0, 5.0]
    assert [t.best_seconds for t in result.history] == [3.0, 3.0, 2.0, 2.0, 2.0, 2.0]
    assert all(t.predicted is not None and 1e-9 < t.predicted < 1.0 for t in result.history)
    (failure,) = result.failures
    assert failure[:3] == (Outcome.CRASH, "running it: signal 11", 2)
    assert failure.example == result.history[1].schedule
    assert result.workload.startswith("matmul A:float32[")
    assert result.target.startswith("cpu ")
    assert result.flops > 0


def test_trials_as_a_data_frame(db: TuningDatabase, play: Play) -> None:
    pytest.importorskip("pandas")
    play(ok(3.0), CRASH, ok(2.0))
    frame = run(db).to_pandas()
    assert list(frame.index) == [1, 2, 3, 4, 5, 6]
    assert frame["seconds"].dropna().tolist() == [3.0, 2.0, 2.0, 2.0, 2.0]
    assert frame["outcome"].tolist()[1] == "crash"
    assert {"predicted", "best_seconds", "elapsed", "error"} <= set(frame.columns)


def test_a_data_frame_without_pandas_says_what_to_install(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ok(3.0))
    result = run(db)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TuningError, match=r"takes pandas.*\n.*tilewright\[plot\]"):
        result.to_pandas()


def test_finals_and_the_best_have_intervals(db: TuningDatabase, play: Play) -> None:
    play(ok(2e-3), ok(2.1e-3), ok(9e-3), interleaved=one_round_each)
    result = run(db)
    assert result.best is not None
    choice = result.finals[0]
    assert (choice.schedule, choice.seconds) == (result.best.schedule_id, result.best.seconds)
    assert choice.seconds_interval == result.best.time.interval
    assert result.best.time.interval is not None
    low, high = result.best.time.interval
    assert low < result.best.seconds < high
    assert f"best {result.best.time} after" in str(result)


def test_the_text_says_what_share_of_the_roofline_the_best_reaches(
    db: TuningDatabase, play: Play
) -> None:
    play(ok(3.0))
    result = replace(run(db), roofline=Roofline(compute=0.3, memory=0.1))
    share = "10% of the roofline (300 ms, bound by arithmetic)"
    assert share in str(result).splitlines()
    assert f"  {share}" in repr(result)
    assert share not in str(replace(result, best=None))


def test_the_repr_is_a_few_short_lines(db: TuningDatabase, play: Play) -> None:
    play(ok(3.0), CRASH, ok(2.0))
    lines = repr(run(db)).splitlines()
    assert lines[0].startswith("<TuneResult of matmul A:float32")
    assert lines[1].startswith("  best 2 s after 6 trials (5 ok, 1 crash) in ")
    assert lines[-1].endswith(">")
    assert len(lines) <= 5


def test_the_repr_of_a_session_without_a_best(db: TuningDatabase, play: Play) -> None:
    play(CRASH)
    assert repr(run(db)).splitlines()[1].startswith("  no correct candidate after 6 trials")
