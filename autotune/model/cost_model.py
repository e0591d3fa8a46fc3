"""The learned part of a prediction: xgboost on what the analytic estimate gets wrong.

The model predicts log2(seconds) and starts from the analytic estimate, corrected by the base model
where there is one, as its margin: it knows something before the first measurement and learns what
is special about this program and machine from there. That is often a matter of single decisions, so
that it may be told, beside the features that all programs share, of the sketch and its decisions.

How likely candidates fail, learned from those that did: boosted trees for a yes or no.

Constraints rule out what cannot be built (see `candidates.Rowspace`). What fails all the same takes
too long to compile or to run, or too much memory, or crashes, gives wrong results: of that nothing
is known in advance, but what fails is alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import boosting
from .base_model import BaseModel
from .boosting import Booster
from .target_model import Features

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
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
SIZES = 0.25
"""The weight of a measurement of another size of this program; one of this size has 1."""
OTHERS = 0.02
"""The weight of a measurement of any other program, of which there are up to a thousand."""


@dataclass(frozen=True)
class TrainingRows:
    """Measurements: rows of `features` and their `seconds`, infinite of those that failed.

    `programs` tells apart by number what programs they are of. Other sizes of the program that is
    to be predicted are 0, like itself.
    """

    features: Features
    seconds: Floats
    programs: Ints

    def __len__(self) -> int:
        return len(self.seconds)


class CostModel:
    """Predicts log2 of seconds from rows of features, whose first column is the estimate's.

    What it learns from may have failed: then its `seconds` are infinite. What is predicted is the
    time of what runs, and apart from it what it is worth less that may fail.

    Columns beyond those of `TargetModel.features` are the program's own (see `candidates.decided`);
    rows without them may be predicted all the same.
    """

    def __init__(self, seed: int = 0, base: BaseModel | None = None) -> None:
        self._seed = seed
        self._base = base
        self._booster: Booster | None = None
        self._feasibility = Feasibility(seed)
        self._width = 0
        self._offset = 0.0
        rows, none = np.empty((0, 0)), np.empty(0)
        self._related: tuple[Features, Floats, Bools] = rows, none, np.empty(0, dtype=np.bool_)

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def margin(self, features: Features) -> Floats:
        """The prediction before anything is measured. `fit` does not change it."""
        start = features[:, 0].astype(np.float64)
        if self._base is None:
            return start
        return start + self._base.residual(features)

    def relate(self, measured: TrainingRows) -> None:
        """Have `fit` learn from measurements of other programs, too, which count less.

        Of other sizes it learns how fast they are, and what else there is says only how candidates
        compare: what the margin gets wrong about all that was measured of a program is left out.
        """
        wrong = self._wrong(measured.features, measured.seconds)
        ran = np.isfinite(wrong)
        for number in np.unique(measured.programs[ran & (measured.programs != 0)]):
            of_one = ran & (measured.programs == number)
            wrong[of_one] -= np.median(wrong[of_one])
        self._related = measured.features, wrong, measured.programs == 0

    def fit(self, features: Features, seconds: Floats) -> None:
        """Learn from measured rows; too few that ran only shift the prediction."""
        related, known, sizes = self._related
        wrong = np.concatenate([known, self._wrong(features, seconds)])
        ran = np.isfinite(wrong)
        level = np.concatenate([sizes, np.ones(len(features), dtype=np.bool_)])
        weight = np.concatenate([np.where(sizes, SIZES, OTHERS), np.ones(len(features))])
        self._offset = float(np.median(wrong[ran & level])) if (ran & level).any() else 0.0
        self._width = features.shape[1]
        rows = np.vstack([self._whole(related), features])
        self._feasibility.fit(rows, ~ran, weight)
        if np.count_nonzero(ran) < ENOUGH:
            return
        self._booster = boosting.train(
            {**PARAMETERS, "seed": self._seed},
            ROUNDS,
            rows[ran],
            (wrong - self._offset * level)[ran],
            weight=weight[ran],
        )

    def _wrong(self, features: Features, seconds: Floats) -> Floats:
        """How much slower rows are than their margin, as log2."""
        wrong: Floats = np.log2(seconds) - self.margin(features)
        return wrong

    def _whole(self, features: Features) -> Features:
        """Rows with all columns that the model knows, NaN where they have none."""
        missing = self._width - features.shape[1]
        if missing <= 0:
            return features
        return np.pad(features, ((0, 0), (0, missing)), constant_values=np.nan)

    def predict(self, features: Features, margin: Floats | None = None) -> Floats:
        """Predicted log2 of seconds. `margin` is that of the features, computed before."""
        start = (self.margin(features) if margin is None else margin) + self._offset
        if self._booster is None:
            return start
        return start + self._booster.predict(self._whole(features))

    def penalty(self, features: Features) -> Floats:
        """The terms to add to predictions because rows may fail, see `Feasibility`."""
        return self._feasibility.penalty(self._whole(features))


FEASIBILITY_PARAMETERS: dict[str, Any] = {
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
            {**FEASIBILITY_PARAMETERS, "seed": self._seed, "base_score": share},
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
