"""Rows of decisions: which are legal and worth measuring, how they are drawn and varied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...tir.bounds import variables
from ...tir.evaluate import Columns, evaluate
from ...tir.ir import Expr
from .sketch import Sketch

Rows = npt.NDArray[np.int64]
ENUMERATED = 1 << 17
"""Up to how many rows a space is enumerated rather than sampled."""


class Rowspace:
    """The candidates of one sketch."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.variables = sketch.variables
        self.values = [np.asarray(sketch.space.values[v], dtype=np.int64) for v in self.variables]
        self.size = math.prod(map(len, self.values))
        self._conditions = [c.condition for c in sketch.space.constraints]
        self._limiting = [condition for _, condition in sketch.prune]

    @cached_property
    def _columns(self) -> Columns:
        return Columns([*self._conditions, *self._limiting], self.sketch.space.bounds)

    def check(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """A mask of the rows that are legal and worth measuring."""
        return np.asarray(np.all(self._columns(rows) != 0, axis=1))

    def good(self, rows: Rows) -> Rows:
        """The distinct rows that are legal and worth measuring, in order."""
        if len(rows) == 0:
            return rows
        kept = rows[self.check(rows)]
        if len(kept) == 0 or kept.shape[1] == 0:
            return kept[:1]
        return _distinct(kept)

    def sample(self, rng: np.random.Generator, count: int) -> Rows:
        """At most `count` good rows: all of a small space, else drawn at random.

        If no row is worth measuring, as in a tiny program, the legal ones count.
        """
        if self.size <= ENUMERATED:
            return self._drawn_of_all(rng, count)
        good = np.empty((0, len(self.values)), dtype=np.int64)
        for number in range(8):
            drawn = np.stack([v[rng.integers(len(v), size=4 * count)] for v in self.values], axis=1)
            good = np.concatenate([good, self.good(drawn)])
            if len(good) >= count:
                if number == 0:
                    return good[:count]
                break
        else:
            rows = self._drawn_in_turn(rng, 4 * count)
            good = np.concatenate([good, self.good(rows)])
            if len(good) == 0:
                good = rows
        return _distinct(good)[:count]

    def initial(self, rng: np.random.Generator, count: int) -> Rows:
        """At most `count` good rows with the initial values of the sketch; none if it has none.

        Where no row has one of them along with those before it, it is drawn, as other values are.
        """
        initial, rows = self.sketch.space.initial, np.empty((1, 0), dtype=np.int64)
        none = np.empty((0, len(self.values)), dtype=np.int64)
        if not initial:
            return none
        for variable, asked in zip(self.variables, self._asked_of, strict=True):
            conditions, held = [condition for _, condition in asked], none
            if variable in initial:
                value = np.full(len(rows), initial[variable])
                held = self._holding_in(np.column_stack([rows, value]), *conditions)
            if len(held) == 0:
                held = self._holding_in(self._with_drawn(rng, rows, count), *conditions)
            if len(held) == 0:
                return none
            rows = held
        return self.good(rows)

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

    def _drawn_in_turn(self, rng: np.random.Generator, count: int) -> Rows:
        """At most `count` legal rows, one decision drawn after the other; none if all fail.

        A condition is asked as soon as its variables are decided: of a program with many nests, few
        rows are right for all of them at once. What keeps no row at all worth measuring is ignored.
        """
        rows = np.empty((1, 0), dtype=np.int64)
        for asked in self._asked_of:
            rows = self._with_drawn(rng, rows, count)
            for is_limit, condition in asked:
                held = self._holding_in(rows, condition)
                if len(held) or not is_limit:
                    rows = held
            if len(rows) == 0:
                return np.empty((0, len(self.values)), dtype=np.int64)
        return rows

    def _with_drawn(self, rng: np.random.Generator, rows: Rows, count: int) -> Rows:
        """So many of the rows of the first decisions, with any value of the next one."""
        values = self.values[rows.shape[1]]
        drawn = values[rng.integers(len(values), size=count)]
        return np.column_stack([rows[rng.integers(len(rows), size=count)], drawn])

    def _holding_in(self, rows: Rows, *conditions: Expr) -> Rows:
        """The rows of the first decisions for which conditions on these hold."""
        for condition in conditions:
            known = dict(zip(self.variables, rows.T, strict=False))
            rows = rows[evaluate(condition, known) != 0]
        return rows

    @cached_property
    def _asked_of(self) -> list[list[tuple[bool, Expr]]]:
        """For each decision, the conditions on it and those before it, and whether each is a limit
        on what is worth measuring; limits come last."""
        asked: list[list[tuple[bool, Expr]]] = [[] for _ in self.variables]
        places = {variable: d for d, variable in enumerate(self.variables)}
        for is_limit, conditions in ((False, self._conditions), (True, self._limiting)):
            for condition in conditions:
                if needed := variables(condition):
                    asked[max(places[v] for v in needed)].append((is_limit, condition))
        return asked

    def _drawn_of_all(self, rng: np.random.Generator, count: int) -> Rows:
        """At most `count` of the rows of a space that is enumerated, in order."""
        shape = tuple(map(len, self.values))
        legal = np.broadcast_to(self._holding(self._conditions), shape)
        good = legal & self._holding(self._limiting)
        places = np.flatnonzero(good if good.any() else legal)
        if len(places) > count:
            places = places[np.sort(rng.choice(len(places), count, replace=False))]
        rows = np.empty((len(places), len(shape)), dtype=np.int64)
        if shape:
            for d, chosen in enumerate(np.unravel_index(places, shape)):
                rows[:, d] = self.values[d][chosen]
        return rows

    def _holding(self, conditions: Sequence[Expr]) -> npt.NDArray[np.bool_]:
        """Where all conditions hold, with a dimension for each variable in order.

        A dimension that no condition asks about has length 1.
        """
        mask: npt.NDArray[np.bool_] = np.ones((1,) * len(self.variables), dtype=np.bool_)
        for condition in conditions:
            asked = variables(condition)
            grid = [
                v if var in asked else v[:1]
                for var, v in zip(self.variables, self.values, strict=True)
            ]
            columns = [column.ravel() for column in np.meshgrid(*grid, indexing="ij")]
            holds = evaluate(condition, dict(zip(self.variables, columns, strict=True))) != 0
            mask = mask & holds.reshape([len(v) for v in grid])
        return mask


def row_keys(rows: Rows) -> list[bytes]:
    """The contents of rows as hashable keys."""
    size = rows.itemsize * rows.shape[1]
    if size == 0:
        return [b""] * len(rows)
    keys: list[bytes] = np.ascontiguousarray(rows).view(f"V{size}").ravel().tolist()
    return keys


def _distinct(rows: Rows) -> Rows:
    """The rows without repetitions, in order."""
    keys = row_keys(rows)
    places = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    return rows[sorted(places.values())]


def decided(sketch: int, rows: Rows, width: int) -> npt.NDArray[np.float32]:
    """The number of a sketch and the decisions of its rows, as `width` columns, NaN in the rest."""
    columns = np.full((len(rows), width), np.nan, dtype=np.float32)
    columns[:, 0] = sketch
    columns[:, 1 : 1 + rows.shape[1]] = rows
    return columns
