"""How likely candidates fail, learned from those that did: boosted trees for a yes or no.

Constraints rule out what cannot be built (see `candidates.Rowspace`). What fails all the same takes
too long to compile or to run, or too much memory, or crashes, gives wrong results: of that nothing
is known in advance, but what fails is alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import boosting
from .boosting import Booster
from .target_model import Features

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
PARAMETERS: dict[str, Any] = {
    "objective": "binary:logistic",
    "max_depth": 3,
    "eta": 0.3,
    "min_child_weight": 0.1,
    "lambda": 1.0,
    "colsample_bynode": 0.3,
    "nthread": 1,
    "verbosity": 0,
    "tree_method": "hist",
    "max_bin": 64,
}
ROUNDS = 25
CERTAIN = 0.999
"""How sure the model is of a failure at most: what it says has to leave something to compare."""


class Feasibility:
    """A model of failures. Until some are known, it expects none."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._booster: Booster | None = None

    def fit(self, features: Features, failed: Bools, weight: Floats) -> None:
        """Learn from rows that failed and rows that ran, if there are both."""
        if failed.all() or not failed.any():
            return
        share = float(np.average(failed, weights=weight))
        self._booster = boosting.train(
            {**PARAMETERS, "seed": self._seed, "base_score": share},
            ROUNDS,
            features,
            failed.astype(np.float32),
            weight=weight,
        )

    def penalty(self, features: Features) -> Floats:
        """The log2 penalty for the risk of failure.

        A candidate that runs with probability q is ranked as if it took 1 / q of its time.
        """
        if self._booster is None:
            return np.zeros(len(features))
        likely = np.minimum(self._booster.predict(features), CERTAIN)
        penalty: Floats = -np.log2(1.0 - likely.astype(np.float64))
        return penalty
