"""Trials of a single sample: one that was stopped is never the best of its session."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tilewright import TuningDatabase, tune
from tilewright.autotune.measure.any_measurer import Numbered
from tilewright.autotune.measure.measure_result import (
    BuildRequest,
    Kernel,
    MeasureConfig,
    MeasureResult,
)
from tilewright.base.errors import TuningError
from tilewright.runtime.timer import time_calls
from tilewright.tuning_db import Outcome

from ..refusals import refused
from .children import QUICK
from .kernels import matmul
from .recorded import PASSED, Recorded

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")


class Clocked(Recorded):
    """Times calls as a runner does, by a clock that only the calls advance.

    A first call may take longer than those after it, and any call may be disturbed.
    """

    def __init__(self, config: MeasureConfig, seed: int) -> None:
        super().__init__([])
        self.results: list[MeasureResult] = []
        self._config = config
        self._rng = np.random.default_rng(seed)

    def measure(
        self, requests: Sequence[BuildRequest], best: float | None, meanwhile: Iterable[None] = ()
    ) -> Iterator[Numbered]:
        deque(meanwhile, 0)
        for number, request in enumerate(requests):
            self.results.append(self._timed(Kernel(request.trace.encode()), best))
            self._last = self.results[-1]
            if self._last.check is not None:
                best = self._last.seconds
            yield number, self._last

    def _timed(self, kernel: Kernel, best: float | None) -> MeasureResult:
        now = 0.0
        warm = 10 ** self._rng.uniform(-4, 0.5)
        cold = warm * self._rng.choice((1.0, 1.0, 1.5, 4.0))

        def call() -> None:
            nonlocal now, cold
            now += cold * self._rng.choice((1.0, 1.0, 1.0, 3.0))
            cold = warm

        config = self._config
        timing = time_calls(
            call,
            min_samples=config.min_samples,
            max_samples=config.max_samples,
            budget_seconds=config.timing_seconds,
            min_sample_seconds=config.sample_seconds,
            stop_above=None if best is None else config.slack * best,
            clock=lambda: now,
        )
        seconds = timing.median
        return MeasureResult(
            Outcome.OK,
            seconds,
            timing.samples,
            stopped=timing.stopped,
            kernel=kernel,
            check=PASSED if best is None or seconds < best else None,
        )


@pytest.mark.parametrize("max_samples", [1, 12])
@pytest.mark.parametrize("slack", [1.0, 1.15])
def test_a_trial_stopped_after_one_call_is_never_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slack: float, max_samples: int
) -> None:
    stopped, lonely = 0, 0
    for seed in range(4):
        config = MeasureConfig(builders=1, slack=slack, max_samples=max_samples, min_samples=1)
        measurer = Clocked(config, seed)
        monkeypatch.setattr("tilewright.autotune.session.tuning_job.Measurer", measurer)
        with TuningDatabase(tmp_path / f"{seed}.db") as db:
            result = tune(
                matmul(), "cpu -threads=1", database=db, trials=16, seed=seed, config=QUICK
            )
        for trial, measured in zip(result.history, measurer.results, strict=True):
            single = len(measured.samples) == 1
            stopped += single and measured.stopped
            lonely += single and not measured.stopped and trial.record
            assert not (single and measured.stopped and trial.record)
        best = result.best
        assert best is not None
        records = [m for t, m in zip(result.history, measurer.results, strict=True) if t.record]
        assert best.seconds == records[-1].seconds == min(m.seconds or 0.0 for m in records)
    assert stopped > 0
    assert lonely > 0, "one that was not stopped may be: long calls have one sample"


def test_a_slack_below_one_is_refused() -> None:
    """It would drop candidates that are faster than the best, after one call that is recorded."""
    with refused(TuningError, "0.5"):
        MeasureConfig(slack=0.5)
