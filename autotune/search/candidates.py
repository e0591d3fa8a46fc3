"""Rows of decisions: which are legal and worth measuring, how they are drawn and varied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import TuningError
from ...tir.evaluate import compile_columns
from .sketch import Sketch

Rows = npt.NDArray[np.int64]
ENUMERATED = 1 << 17
"""Up to how many rows a space is enumerated rather than sampled."""


class Checked(NamedTuple):
    """Masks over rows: those that the constraints allow, and of them those worth measuring."""

    legal: npt.NDArray[np.bool_]
    worthwhile: npt.NDArray[np.bool_]


@dataclass
class Pruned:
    """How many rows were looked at, and why rows were left out."""

    seen: int = 0
    illegal: int = 0
    hopeless: int = 0


class Rowspace:
    """The candidates of one sketch."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.variables = sketch.variables
        self.values = [np.asarray(sketch.space.values[v], dtype=np.int64) for v in self.variables]
        self.size = 1
        for v in self.values:
            self.size *= len(v)
        self.pruned = Pruned()
        constraints = [c.condition for c in sketch.space.constraints]
        self._constraints = compile_columns(constraints, self.variables) if constraints else None
        limits = [condition for _, condition in sketch.prune]
        self._limits = compile_columns(limits, self.variables) if limits else None

    def check(self, rows: Rows) -> Checked:
        """Which rows are legal, and which of those worth measuring."""
        legal: npt.NDArray[np.bool_] = np.ones(len(rows), dtype=np.bool_)
        if self._constraints is not None:
            legal = np.asarray(np.all(self._constraints(rows) != 0, axis=1))
        good: npt.NDArray[np.bool_] = legal
        if self._limits is not None:
            good = legal & np.asarray(np.all(self._limits(rows) != 0, axis=1))
        self.pruned.seen += len(rows)
        self.pruned.illegal += int((~legal).sum())
        self.pruned.hopeless += int((legal & ~good).sum())
        return Checked(legal, good)

    def good(self, rows: Rows) -> Rows:
        """The distinct rows that are legal and worth measuring, in order."""
        if len(rows) == 0:
            return rows
        kept = rows[self.check(rows).worthwhile]
        if len(kept) == 0 or kept.shape[1] == 0:
            return kept[:1]
        return _distinct(kept)

    def sample(self, rng: np.random.Generator, count: int) -> Rows:
        """At most `count` good rows: all of a small space, else drawn at random.

        Where none of a small space is worth measuring, as in a tiny program, the legal ones.
        """
        if self.size <= ENUMERATED:
            everything = self._all()
            checked = self.check(everything)
            rows = everything[checked.worthwhile if checked.worthwhile.any() else checked.legal]
            if len(rows) <= count:
                return rows
            return rows[np.sort(rng.choice(len(rows), count, replace=False))]
        found = np.empty((0, len(self.values)), dtype=np.int64)
        for _ in range(8):
            drawn = np.stack([v[rng.integers(len(v), size=4 * count)] for v in self.values], axis=1)
            found = np.concatenate([found, self.good(drawn)])
            if len(found) >= count:
                break
        return _distinct(found)[:count]

    def mutate(self, rng: np.random.Generator, rows: Rows, count: int) -> Rows:
        """Children of `rows`: one decision moved to a near or any value, or two rows crossed."""
        if len(rows) == 0 or not self.values:
            return rows[:0]
        children = rows[rng.integers(len(rows), size=count)].copy()
        others = rows[rng.integers(len(rows), size=count)]
        which = rng.integers(len(self.values), size=count)
        action = rng.random(count)
        for d, values in enumerate(self.values):
            picked = which == d
            near = np.searchsorted(values, children[:, d]) + rng.choice([-1, 1], size=count)
            stepped = values[np.clip(near, 0, len(values) - 1)]
            anywhere = values[rng.integers(len(values), size=count)]
            moved = np.where(action < 0.45, stepped, anywhere)
            children[:, d] = np.where(picked & (action < 0.75), moved, children[:, d])
            crossed = (action >= 0.75) & (rng.random(count) < 0.5)
            children[:, d] = np.where(crossed, others[:, d], children[:, d])
        return self.good(children)

    def _all(self) -> Rows:
        if not self.values:
            return np.empty((1, 0), dtype=np.int64)
        grids = np.meshgrid(*self.values, indexing="ij")
        return np.stack([g.ravel() for g in grids], axis=1)

    def require_some(self, rows: Rows) -> Rows:
        """`rows`, if there are any. Raises `TuningError` for an empty space."""
        if len(rows) == 0:
            raise TuningError(
                "sketch {0} has no candidate that is legal and worth measuring", self.sketch.name
            )
        return rows


def row_keys(rows: Rows) -> list[bytes]:
    """What tells rows apart, for sets."""
    size = rows.itemsize * rows.shape[1]
    if size == 0:
        return [b""] * len(rows)
    keys: list[bytes] = np.ascontiguousarray(rows).view(f"V{size}").ravel().tolist()
    return keys


def _distinct(rows: Rows) -> Rows:
    """Each row once, where it is first."""
    places = {key: n for n, key in reversed(list(enumerate(row_keys(rows))))}
    return rows[sorted(places.values())]


def decided(sketch: int, rows: Rows, width: int) -> npt.NDArray[np.float32]:
    """The number of a sketch and the decisions of its rows, as `width` columns, NaN in the rest."""
    columns = np.full((len(rows), width), np.nan, dtype=np.float32)
    columns[:, 0] = sketch
    columns[:, 1 : 1 + rows.shape[1]] = rows
    return columns
