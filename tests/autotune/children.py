"""The processes of the fault tests: `python -m tests.autotune.children ...`."""

from __future__ import annotations

import sys

from tilewright import TuningDatabase, tune
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.search.search import SearchConfig
from tilewright.autotune.session.events import Ended, Event, Started, Trial

from .. import short_sessions  # noqa: F401
from .kernels import matmul

QUICK = TuneConfig(
    batch=4,
    measure=MeasureConfig(builders=1, max_samples=3, sample_seconds=1e-5),
    search=SearchConfig(pool=256, children=128, model=False),
)


def say(event: Event) -> None:
    match event:
        case Started(session=session):
            print("session", session, flush=True)
        case Trial(schedule=schedule):
            print("trial", schedule, flush=True)
        case Ended(reason=reason):
            print("ended", reason, flush=True)
        case _:
            pass


def main(place: str, trials: str, seed: str) -> None:
    """Tune, and say each trial once it is recorded."""
    with TuningDatabase(place) as db:
        result = tune(
            matmul(),
            "cpu -threads=1",
            database=db,
            trials=int(trials),
            seed=int(seed),
            callback=say,
            config=QUICK,
        )
    print("best", result.best.seconds if result.best else None, result.status, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
