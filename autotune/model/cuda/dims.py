"""Dimensions of a profile as numbers of many rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ....tir.evaluate import Columns
from ....tir.ir import Dim, Var
from ..profile import Ints

Floats = npt.NDArray[np.float64]


class Dims:
    """Dimensions that are evaluated together: a number of each row for each of them."""

    def __init__(self, bounds: Mapping[Var, tuple[int, int]]) -> None:
        self._bounds = bounds
        self._places: dict[Dim, int] = {}
        self._exprs: list[Dim] = []
        self._columns: Columns | None = None
        self._values: list[Floats] = []

    def need(self, dim: Dim) -> None:
        """Have a dimension evaluated."""
        if not isinstance(dim, int) and dim not in self._places:
            self._places[dim] = len(self._exprs)
            self._exprs.append(dim)

    def evaluate(self, rows: Ints) -> None:
        """Evaluate all for these rows, which calls refer to from then on."""
        if self._columns is None:
            self._columns = Columns(self._exprs, self._bounds)
        self._values = list(self._columns(rows).astype(np.float64).T)

    def __call__(self, dim: Dim) -> Floats:
        if isinstance(dim, int):
            return np.asarray(float(dim))
        return self._values[self._places[dim]]
