"""The rows of a sketch that a search considers, and the order in which it takes rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..model.target_model import Estimator
from .candidates import Rows, Rowspace, row_keys


@dataclass
class Pool:
    """The rows of one sketch under consideration: their features, margins and predictions.

    The features are followed by the number of the sketch and the decisions (`decided`). The scores
    are the predictions plus a penalty for rows that may fail.
    """

    number: int
    space: Rowspace
    estimator: Estimator
    rows: Rows
    features: np.ndarray
    margin: np.ndarray
    predicted: np.ndarray
    scores: np.ndarray
    keys: set[bytes] = field(default_factory=set)

    def keep(self, which: np.ndarray) -> None:
        """Forget all rows but those at the places `which`."""
        self.rows, self.features = self.rows[which], self.features[which]
        self.margin, self.predicted = self.margin[which], self.predicted[which]
        self.scores = self.scores[which]

    def new(self, rows: Rows) -> Rows:
        """Those of some rows that it has not had."""
        keys = row_keys(rows)
        fresh = [n for n, key in enumerate(keys) if key not in self.keys]
        self.keys.update(keys)
        return rows[fresh]

    def add(
        self,
        rows: Rows,
        features: np.ndarray,
        margin: np.ndarray,
        predicted: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """Put new rows into it, and what belongs to each."""
        self.rows = np.concatenate([self.rows, rows])
        self.features = np.concatenate([self.features, features])
        self.margin = np.concatenate([self.margin, margin])
        self.predicted = np.concatenate([self.predicted, predicted])
        self.scores = np.concatenate([self.scores, scores])

    def keep_best(self, count: int) -> None:
        """Forget all but the rows of the least scores.

        What is forgotten may be drawn again; what was asked for may not, and stays known.
        """
        order = np.argsort(self.scores, kind="stable")
        self.keys.difference_update(row_keys(self.rows[order[count:]]))
        self.keep(order[:count])


def drawn(scores: np.ndarray, temperature: float, rng: np.random.Generator) -> np.ndarray:
    """The positions of scores: the least first, the others at random, lower scores more likely.

    The order is drawn from Boltzmann's distribution without replacement (the Gumbel trick). The
    best predicted of very many rows have the largest errors in their favour, and are much alike.
    """
    order = np.argsort(scores, kind="stable")
    luck = temperature * rng.gumbel(size=len(order))
    luck[:1] = math.inf
    return order[np.argsort(scores[order] - luck, kind="stable")]


def smallest(scores: np.ndarray, count: int) -> np.ndarray:
    """The positions of the `count` smallest scores, in order; of equal ones the first."""
    if len(scores) <= count:
        return np.arange(len(scores))
    limit = np.partition(scores, count - 1)[count - 1]
    below = np.flatnonzero(scores < limit)
    equal = np.flatnonzero(scores == limit)[: count - len(below)]
    return np.sort(np.concatenate([below, equal]))
