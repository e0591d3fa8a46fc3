"""The learned part of a prediction: xgboost on what the analytic estimate gets wrong.

The model predicts log2(seconds) and starts from the analytic estimate, corrected by the base model
where there is one, as its margin: it knows something before the first measurement and learns what
is special about this program and machine from there. That is often a matter of single decisions, so
that it may be told, beside the features that all programs share, of the sketch and its decisions.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import numpy.typing as npt

from . import boosting
from .analytic import FEATURE_VERSION, FEATURES, Features
from .base_model import BaseModel
from .boosting import Booster

Floats = npt.NDArray[np.float64]
PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 5,
    "eta": 0.25,
    "min_child_weight": 1.0,
    "lambda": 2.0,
    "subsample": 1.0,
    "colsample_bynode": 0.3,
    "base_score": 0.0,
    "nthread": 1,
    "verbosity": 0,
    "tree_method": "hist",
    "max_bin": 64,
}
ROUNDS = 25
ENOUGH = 6
"""Measurements before the model says more than the base model, and a constant."""


class CostModel:
    """Predicts log2 of seconds from rows of features, whose first column is the estimate's.

    Columns beyond `FEATURES` are the program's own (see `candidates.decided`); rows without them
    may be predicted all the same.
    """

    feature_version = FEATURE_VERSION

    def __init__(self, seed: int = 0, base: BaseModel | None = None) -> None:
        self._seed = seed
        self._base = base
        self._booster: Booster | None = None
        self._width = len(FEATURES)
        self._offset = 0.0

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def margin(self, features: Features) -> Floats:
        """What is predicted before anything is measured. `fit` does not change it."""
        start = features[:, 0].astype(np.float64)
        if self._base is None:
            return start
        return start + self._base.residual(features[:, : len(FEATURES)])

    def fit(self, features: Features, seconds: Floats, weights: Floats | None = None) -> None:
        """Learn from measured rows; too few of them only shift the prediction."""
        if len(seconds) == 0:
            return
        target = np.log2(seconds)
        margin = self.margin(features)
        self._offset = statistics.median((target - margin).tolist())
        if len(seconds) < ENOUGH:
            return
        parameters = {**PARAMETERS, "seed": self._seed}
        start = margin + self._offset
        self._width = features.shape[1]
        self._booster = boosting.train(
            parameters, ROUNDS, features, target, margin=start, weight=weights
        )

    def predict(self, features: Features, margin: Floats | None = None) -> Floats:
        """Predicted log2 of seconds. `margin` is that of the features, computed before."""
        start = (self.margin(features) if margin is None else margin) + self._offset
        if self._booster is None:
            return start
        if features.shape[1] < self._width:
            unknown = np.full((len(features), self._width - features.shape[1]), np.nan)
            features = np.hstack([features, unknown])
        return start + self._booster.predict(features)

    def to_text(self) -> str | None:
        """The booster as xgboost's JSON, `None` before it is trained."""
        if self._booster is None:
            return None
        return self._booster.to_json().decode()
