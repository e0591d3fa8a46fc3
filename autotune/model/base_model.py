"""The base model: what measurements of many programs say of the estimate, before any of this one.

It is trained on the shipped table of samples, on databases, or on both, and predicts log2 of how
much slower a candidate is than the estimate says, up to a constant for each program: the constant
does not change which candidate is best, and differs with the state of the machine.

It does not read the first feature, the estimate itself: how large a program is says nothing of its
schedules. The other features are relative to the machine.

The estimate counts what a candidate cannot do without, so the candidates it is right about are the
fast ones: they are where the scale begins. A search takes the best predicted of tens of thousands,
which are those with the largest errors in their favour; what the model may say of a candidate
is therefore bounded on both sides, and never that it is faster than its estimate.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import TuningError
from ...base.files import File, open_regular, replace_files
from . import boosting
from .boosting import Booster
from .target_model import Features, TargetModel

if TYPE_CHECKING:  # a table of samples can be made of a database, which builds do not load
    from .samples import Floats, Samples

_log = logging.getLogger(__name__)
SHIPPED = "shipped"
"""The name of the model that comes with a kind of target."""
PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 4,
    "eta": 0.1,
    "min_child_weight": 5.0,
    "lambda": 100.0,  # a leaf of few candidates says little: then the estimate holds
    "base_score": 0.0,
    "nthread": 1,
    "verbosity": 0,
    "tree_method": "hist",
    "max_bin": 64,
    "seed": 0,
}
ROUNDS = 60
_LEAST = 4
"""Candidates of a task from which on it says how they differ."""
_RIGHT = 20
"""Percentile of a task's residuals that stands for candidates the estimate is right about."""
_FAR = 2.0
"""Residuals that differ by more than this tell no more: the candidate is out of the race."""


@dataclass(frozen=True)
class BaseModel:
    """A model trained on `rows` candidates; `origin` says where it comes from.

    It knows the first `columns` features. `digest` is the SHA-256 of its file, in hexadecimal.
    """

    booster: Booster
    columns: int
    rows: int
    origin: str
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Which model it is, as a JSON object."""
        return {"origin": self.origin, "rows": self.rows, "digest": self.digest}

    def residual(self, features: Features) -> Floats:
        """log2 of the seconds over the estimate's, up to a constant for each program."""
        inputs = features[:, 1 : self.columns]
        return np.maximum(self.booster.predict(inputs).astype(np.float64), 0.0)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as xgboost's JSON, which `load` reads, whole or not at all."""
        replace_files([File(Path(path), self.booster.to_json())])


def train(samples: Samples, origin: str = "trained") -> BaseModel:
    """Learn from the tasks that have enough candidates. The same samples give the same model.

    Raises `TuningError` where there are none.
    """
    targets, usable = scaled(samples)
    if not usable.any():
        raise TuningError(
            "no samples to train on: {0} tasks, and none has {1} candidates or more",
            len(samples.tasks),
            _LEAST,
        )
    booster = boosting.train(PARAMETERS, ROUNDS, samples.features[usable, 1:], targets[usable])
    rows = int(usable.sum())
    booster.note(features=samples.feature_version, rows=str(rows))
    columns = samples.features.shape[1]
    return BaseModel(booster, columns, rows, origin, hashlib.sha256(booster.to_json()).hexdigest())


def scaled(samples: Samples) -> tuple[Floats, np.ndarray]:
    """The model's target for each row, and a mask of the rows whose task is large enough."""
    residual = np.log2(samples.seconds) - samples.features[:, 0]
    usable = np.zeros(len(residual), dtype=np.bool_)
    for number in np.unique(samples.task):
        of_task = samples.task == number
        residual[of_task] -= np.percentile(residual[of_task], _RIGHT)
        usable |= of_task & (of_task.sum() >= _LEAST)
    return np.clip(residual, -_FAR, _FAR), usable


def load(path: str | PathLike[str], feature_version: str) -> BaseModel:
    """Read a model.

    Raises `TuningError` for a file that is none, and for a model of features of another version.
    """
    # xgboost ends the process for some texts that are no models: ours are recognised first.
    try:
        with open_regular(Path(path), TuningError) as (there, _):
            data = there.read()
        learner = json.loads(data)["learner"]
        version, rows = learner["attributes"]["features"], int(learner["attributes"]["rows"])
        columns = 1 + int(learner["learner_model_param"]["num_feature"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TuningError("{0} cannot be read as a cost model: {1!r}", path, error) from error
    if version != feature_version:
        raise TuningError(
            "the cost model {0} was trained on features of version {1}; these are version {2}",
            path,
            version,
            feature_version,
            hint="train it again: tilewright model train --out FILE",
        )
    try:
        booster = Booster.load(data)
    except TuningError as error:
        raise TuningError("{0} cannot be read as a cost model: {1}", path, error) from error
    return BaseModel(booster, columns, rows, str(path), hashlib.sha256(data).hexdigest())


def named(name: str | None, target_model: TargetModel) -> BaseModel | None:
    """The model of a name: `SHIPPED`, a file, or `None` for no model.

    A shipped one that is not of the kind's features is not used, with a warning.
    """
    if name is None:
        return None
    return _shipped(target_model) if name == SHIPPED else load(name, target_model.feature_version)


@cache
def _shipped(target_model: TargetModel) -> BaseModel | None:
    if target_model.base is None:
        return None
    try:
        return replace(load(target_model.base, target_model.feature_version), origin=SHIPPED)
    except TuningError as error:
        _log.warning("tuning begins without a base model: %s", error)
        return None
