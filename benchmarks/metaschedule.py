"""The cost model of the leading tuner, to compare ours with.

MetaSchedule (Shao et al., "Tensor Program Optimization with Probabilistic Programs", NeurIPS 2022)
as apache-tvm 0.27 has it (`s_tir/meta_schedule/cost_model/xgb_model.py`): it learns from nothing,
by xgboost with squared error, the throughput of a candidate over the best of its program, where a
candidate weighs as much as its throughput; before it has learned it predicts random numbers. Its
search predicts the 512 members of a population in each of 4 generations.

What differs here is in its favour or of no effect: its features are ours, and cost nothing; it
learns from the first batch on, not from 100 measurements on. It stops to add trees when 50 of them
did not lessen the error of what it learned from: that is after about 100, of which it has 100.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.autotune.model import boosting
from tilewright.autotune.model.boosting import Booster
from tilewright.autotune.model.samples import Floats
from tilewright.autotune.model.target_model import Features

PARAMETERS: dict[str, Any] = {
    "max_depth": 10,
    "gamma": 0.001,
    "min_child_weight": 0,
    "eta": 0.2,
    "seed": 43,
    "nthread": 1,
    "verbosity": 0,
}
ROUNDS = 100
POPULATION = 512
GENERATIONS = 4


class ThroughputModel:
    """Predicts for each row the throughput, negated: the least is the most promising.

    The estimate, which is the first feature, is not among what it learns from, nor are decisions.
    """

    temperature = 0.0

    def __init__(self, features: Features, seed: int) -> None:
        self._rows, self._width = len(features), features.shape[1]
        population = max(self._rows, POPULATION)
        self._crowd = np.resize(features[:, 1:], (population, self._width - 1))
        self._rng = np.random.default_rng(seed)
        self._booster: Booster | None = None

    def predict(self) -> Floats:
        if self._booster is None:
            return self._rng.random(self._rows)
        *_, found = (self._booster.predict(self._crowd) for _ in range(GENERATIONS))
        return -found[: self._rows].astype(np.float64)

    def learn(self, features: Features, seconds: Floats) -> None:
        throughput = seconds.min() / seconds
        self._booster = boosting.train(
            PARAMETERS, ROUNDS, features[:, 1 : self._width], throughput, weight=throughput
        )
