"""Sessions of a program for which a schedule is pinned: they report their own finals."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tilewright import Schedule, TuningDatabase, tune
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.records import schedule_record, target_record, workload_record
from tilewright.autotune.result import TuneResult
from tilewright.autotune.session import tuning_job
from tilewright.autotune.session.events import Ended, Event
from tilewright.autotune.show.recorded_run import open_run
from tilewright.cli.report import print_results, tune_row
from tilewright.codegen.detect import resolve
from tilewright.lab.pictures.views import html_of

from .children import QUICK
from .kernels import matmul
from .recorded import Simulated

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
TARGET = "cpu -threads=1"
CALM = TuneConfig(**{**vars(QUICK), "pause": 0.0})
WRITTEN = schedule_record(Schedule(matmul()).trace, "mine")
INSTEAD = f"Builds take schedule {WRITTEN.id:.12} instead: it is pinned."
Tune = Callable[..., TuneResult]


@pytest.fixture
def db() -> TuningDatabase:
    return TuningDatabase("sqlite://")


@pytest.fixture
def run(db: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Tune where the program as written is slow and finals take 1.1 times as long as trials."""

    seen: dict[str, float] = {}

    def start(callback: Callable[[Event], object] | None = None) -> TuneResult:
        def seconds(trace: str) -> float:
            if not json.loads(trace)["steps"]:
                return 6e-3
            return seen.setdefault(trace, 1e-3 * (1 + 0.1 * len(seen)))

        monkeypatch.setattr(tuning_job, "Measurer", Simulated(seconds, slower=(1.1,)))
        return tune(matmul(), TARGET, database=db, trials=8, config=CALM, callback=callback)

    return start


def pin(db: TuningDatabase, schedule: str | None = None) -> None:
    program, here = workload_record(matmul()), target_record(resolve(TARGET))
    db.put(program, here, WRITTEN)
    db.pin(program.id, here, schedule or WRITTEN.id, unverified=True)


def test_the_result_of_a_session_is_its_finals_whatever_is_pinned(
    db: TuningDatabase, run: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    pin(db)
    events: list[Event] = []
    result = run(events.append)
    best = result.best
    assert best is not None
    assert best.seconds == pytest.approx(1.1e-3), "the finals replace the trials"
    assert best.seconds == result.own_seconds == result.finals[0].seconds
    assert best.comparison == result.finals
    assert best.schedule_id == result.finals[0].schedule
    assert not db.superseded([best.measurement_id])
    assert result.gains == best.gains
    assert round(result.gains["written"].ratio, 6) == 6
    assert result.pinned == WRITTEN.id
    assert f"\n{INSTEAD}" in str(result)
    assert INSTEAD in " ".join(repr(result).split())
    assert INSTEAD in html_of(result)
    assert isinstance(events[-1], Ended)
    assert events[-1].pinned == INSTEAD
    print_results([result])
    assert INSTEAD in " ".join(capsys.readouterr().out.split())
    assert tune_row(result, "matmul")["pinned"] == WRITTEN.id
    choice = db.best(workload_record(matmul()).id, target_record(resolve(TARGET)))
    assert choice is not None
    assert choice.pinned
    assert choice.schedule.id == WRITTEN.id


def test_a_session_that_is_read_says_the_same_of_a_pin(db: TuningDatabase, run: Tune) -> None:
    result = run()
    assert result.pinned is None
    assert "pinned" not in str(result)
    before = open_run(db).pictures.pictures[0]
    pin(db)
    reading = open_run(db)
    picture = reading.pictures.pictures[0]
    assert result.best is not None
    assert picture.rate == before.rate
    assert picture.rate.startswith(f"best {result.best.time}")
    assert picture.comparison == before.comparison == result.finals
    assert before.pinned is None
    assert INSTEAD in picture.conclusions
    assert reading.best is not None
    assert reading.best.pinned, "a build takes it"


def test_a_pin_of_the_best_is_not_mentioned(db: TuningDatabase, run: Tune) -> None:
    first = run()
    assert first.best is not None
    pin(db, first.best.schedule_id)
    second = run()
    assert second.best is not None
    assert second.best.schedule_id == second.pinned == first.best.schedule_id
    assert "pinned" not in str(second)
