"""The steps of recurrent cells as program text.

    for t in range(steps):
        G = X[t] + H @ R            # sums of a tile in registers
        H = gates(G, H)             # in vectors
        Y[t] = H

What is computed in pieces has the rest of an extent as a piece of its own. Narrow floats are
computed in float32, and so are the states between steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...base import dtypes
from ..operator import Array

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
"""The columns of a cell's weights are so many times its hidden size."""
NONLINEAR = {"rnn": 1, "gru": 2, "lstm": 3}
"""The activations of a cell."""
_SCRATCH = {"rnn": "", "gru": "ZQ", "lstm": "Z"}
_SUMS = 128
"""Sums of a step that are held at once."""
_LANES = 64
"""Elements of a gate that are computed at once."""
_ROWS = 4
"""Rows of the state whose products are summed at once, at most."""


def _rows(n: int) -> int:
    """The rows, of n, whose products are summed at once; 1 where there is none."""
    return max(1, min(n, _ROWS))


def tile_width(hidden: int, n: int) -> int:
    """The columns of a tile of weights for n rows of a state, that tiles of a gate have no rest.

    Weights lie as tiles (columns / width, hidden, width), each of which is read as it lies in
    memory; 0 where the hidden size has no fitting divisor, and there is one tile for all.
    """
    most = _SUMS // _rows(n)
    width = max(w for w in range(1, most + 1) if hidden % w == 0)
    return width if width >= most // 4 else 0


Activation = tuple[str, float, float]
"""Its name and its parameters, alpha and beta, which not all have."""


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, 0, 1))


ACTIVATIONS: dict[str, tuple[str, Callable[[Array, float, float], Array]]] = {
    "sigmoid": ("T.sigmoid({0})", lambda x, _a, _b: 1 / (1 + np.exp(-x))),
    "tanh": ("T.tanh({0})", lambda x, _a, _b: np.tanh(x)),
    "relu": ("T.maximum({0}, 0.0)", lambda x, _a, _b: np.maximum(x, 0)),
    "affine": ("({0} * {1} + {2})", lambda x, a, b: x * a + b),
    "leakyrelu": (
        "T.select({0} < 0.0, {0} * {1}, {0})", lambda x, a, _b: np.where(x < 0, x * a, x)
    ),
    "thresholdedrelu": (
        "T.select({0} < {1}, 0.0, {0})", lambda x, a, _b: np.where(x < a, 0, x)
    ),
    "scaledtanh": ("({1} * T.tanh({0} * {2}))", lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": (
        "T.minimum(T.maximum({0} * {1} + {2}, 0.0), 1.0)", lambda x, a, b: _saturated(x * a + b)
    ),
    "elu": (
        "T.select({0} < 0.0, (T.exp({0}) - 1.0) * {1}, {0})",
        lambda x, a, _b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    ),
    "softsign": ("({0} / (T.abs({0}) + 1.0))", lambda x, _a, _b: x / (1 + np.abs(x))),
    "softplus": (
        "(T.maximum({0}, 0.0) + T.log(T.exp(-T.abs({0})) + 1.0))",
        lambda x, _a, _b: np.logaddexp(0, x),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class CellText:
    """The body of a program of buffers X, R, H0, Y, HT and those that are `given`."""

    cell: str
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    hidden: int
    dtype: str
    given: tuple[str, ...]
    activations: tuple[Activation, ...]
    clip: float | None
    backwards: bool
    input_forget: bool

    @property
    def wide(self) -> str:
        return self.dtype if dtypes.nbytes(self.dtype) >= 4 else "float32"

    @property
    def time(self) -> str:
        return f"{self.inputs[0] - 1} - t" if self.backwards else "t"

    def lines(self) -> Iterator[str]:
        steps, n, columns = self.inputs
        states = "HC" if self.cell == "lstm" else "H"
        for buffer in (*states, *_SCRATCH[self.cell]):
            yield f'{buffer} = T.alloc(({n}, {self.hidden}), "{self.wide}")'
        yield f'G = T.alloc(({n}, {columns}), "{self.wide}")'
        for tile in (tile for columns in self._products for tile in self._tiles(*columns)):
            yield f'{tile.sums} = T.alloc(({_SUMS},), "{self.wide}", scope="local")'
        for state in states:
            known = state == "H" or "cell" in self.given
            yield f"for i, j in T.grid({n}, {self.hidden}):"
            yield f"    {state}[i, j] = {self._widened(f'{state}0[i, j]') if known else '0.0'}"
        yield f"for t in range({steps}):"
        yield from (f"    {line}" for line in getattr(self, f"_{self.cell}")())
        for state in states:
            yield f"for i, j in T.grid({n}, {self.hidden}):"
            yield f"    {state}T[i, j] = {self._narrowed(f'{state}[i, j]')}"

    @property
    def _products(self) -> list[tuple[int, int]]:
        """The columns of G, from the first to before the last, of each product of a step."""
        end = self.inputs[2]
        parts = [0, 2 * self.hidden, end] if self.cell == "gru" else [0, end]
        return list(pairwise(parts))

    def _rnn(self) -> Iterator[str]:
        yield from self._product(*self._products[0], "H")
        yield from self._gates(self._next("H", self._act(0, self._gate(0))), self._shown())

    def _gru(self) -> Iterator[str]:
        gates, (two, three) = self._products
        yield from self._product(*gates, "H")
        candidate, reset = self._gate(2), self._act(0, self._gate(1))
        if "bias" in self.given:
            yield from self._product(two, three, "H", inputs=False)
            inner = f"({candidate} + {self._widened('B[j]')})"
            candidate = f"{self._widened(f'X[{self.time}, i, {two} + j]')} + {reset} * {inner}"
        else:
            yield from self._gates(f"Q[i, j] = {reset} * H[i, j]")
            yield from self._product(two, three, "Q")
        yield from self._gates(
            f"Z[i, j] = {self._act(0, self._gate(0))}",
            f"Q[i, j] = {self._act(1, candidate)}",
            self._next("H", "(1.0 - Z[i, j]) * Q[i, j] + Z[i, j] * H[i, j]"),
            self._shown(),
        )

    def _lstm(self) -> Iterator[str]:
        yield from self._product(*self._products[0], "H")
        forget = self._act(0, self._gate(2) + self._peephole(2))
        kept = "(1.0 - Z[i, j])" if self.input_forget else forget
        squashed = self._activated(2, "C[i, j]")
        yield from self._gates(
            f"Z[i, j] = {self._act(0, self._gate(0) + self._peephole(0))}",
            self._next("C", f"{kept} * C[i, j] + Z[i, j] * {self._act(1, self._gate(3))}"),
            self._next("H", f"{self._act(0, self._gate(1) + self._peephole(1))} * {squashed}"),
            self._shown(),
        )

    def _gate(self, number: int) -> str:
        return f"G[i, {number * self.hidden} + j]"

    def _act(self, place: int, value: str) -> str:
        if self.clip is not None:
            low, high = map(self._number, (-self.clip, self.clip))
            value = f"T.minimum(T.maximum({value}, {low}), {high})"
        return self._activated(place, f"({value})")

    def _activated(self, place: int, value: str) -> str:
        name, *parameters = self.activations[place]
        return ACTIVATIONS[name][0].format(value, *map(self._number, parameters))

    def _number(self, value: float) -> str:
        return repr(float(value)) if math.isfinite(value) else f'T.{self.wide}("{value}")'

    def _peephole(self, place: int) -> str:
        if "peepholes" not in self.given:
            return ""
        return f" + {self._widened(f'P[{place * self.hidden} + j]')} * C[i, j]"

    def _next(self, buffer: str, value: str) -> str:
        """A state after the step; a sequence that has ended keeps it."""
        if "lengths" in self.given:
            value = f"T.select({self.time} < N[i], {value}, {buffer}[i, j])"
        return f"{buffer}[i, j] = {value}"

    def _shown(self) -> str:
        value = "H[i, j]"
        if "lengths" in self.given:
            value = f"T.select({self.time} < N[i], {value}, 0.0)"
        return f"Y[{self.time}, i, j] = {self._narrowed(value)}"

    def _widened(self, value: str) -> str:
        return value if self.wide == self.dtype else f'T.cast("{self.wide}", {value})'

    def _narrowed(self, value: str) -> str:
        return value if self.wide == self.dtype else f'T.cast("{self.dtype}", {value})'

    def _gates(self, *lines: str) -> Iterator[str]:
        """Statements on elements i, j of the states."""
        for loop, start, size in _pieces(self.hidden, _LANES, "p"):
            yield f"for i in range({self.inputs[1]}):"
            yield f"    {loop}"
            yield f"        for q in T.vectorized({size}):"
            for line in lines:
                placed = line.replace(" + j]", f" + {start} + q]").replace("j]", f"{start} + q]")
                yield f"            {placed}"

    def _product(self, first: int, end: int, state: str, *, inputs: bool = True) -> Iterator[str]:
        """`G = X[time] + state @ R` of some columns; without inputs `state @ R`.

        Each loop has sums of its own, so that its iterations may run at once.
        """
        width = self._width
        for tile in self._tiles(first, end):
            (loop, start, size), (columns, left, count) = tile.rows, tile.columns
            j = f"{first} + {left} + q"
            one = self.weights[0] == 1
            weight = f"R[0, k, {j}]" if one else f"R[{first // width} + p, k, q]"
            own = [f"{tile.sums}[{s * width} + q]" for s in range(size)]
            row = [f"{start} + {s}" for s in range(size)]
            begin = [f"X[{self.time}, {i}, {j}]" if inputs else "" for i in row]
            yield loop
            yield f"    {columns}"
            yield f"        for q in T.vectorized({count}):"
            for sums, value in zip(own, begin, strict=True):
                yield f"            {sums} = {self._widened(value) if value else '0.0'}"
            yield f"        for k in range({self.hidden}):"
            yield f"            for q in T.vectorized({count}):"
            for sums, i in zip(own, row, strict=True):
                product = f"{state}[{i}, k] * {self._widened(weight)}"
                yield f"                {sums} = {sums} + {product}"
            yield f"        for q in T.vectorized({count}):"
            for sums, i in zip(own, row, strict=True):
                yield f"            G[{i}, {j}] = {sums}"

    @property
    def _width(self) -> int:
        """The columns of a tile of a product."""
        tiles, _, tile = self.weights
        return tile if tiles > 1 else _SUMS // _rows(self.inputs[1])

    def _tiles(self, first: int, end: int) -> Iterator[_Tile]:
        """The loops over tiles of a product of some columns."""
        n = self.inputs[1]
        for m, rows in enumerate(_pieces(n, _rows(n), "m")):
            for p, columns in enumerate(_pieces(end - first, self._width, "p")):
                number = 4 * (first > 0) + 2 * m + p
                yield _Tile(f"A{number or ''}", rows, columns)


class _Tile(NamedTuple):
    """Rows and columns of a product, as of `_pieces`, and the buffer of their sums."""

    sums: str
    rows: _Piece
    columns: _Piece


_Piece = tuple[str, str, int]
"""The line of a loop over pieces of an extent, the first place of a piece, and its size."""


def _pieces(extent: int, size: int, variable: str) -> Iterator[_Piece]:
    """Loops over an extent in pieces."""
    whole = extent - extent % size
    if whole:
        yield f"for {variable} in range({whole // size}):", f"{variable} * {size}", size
    if extent % size:
        yield f"for {variable} in range(1):", f"{whole}", extent % size
