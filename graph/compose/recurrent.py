"""Recurrent layers: the inputs of all steps in one product, then the steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..builder import Builder
from ..ir import Constant, Value
from ..operators.cells import GATES, tile_width
from .basics import part, reshaped


@dataclass(frozen=True)
class Cell:
    """A cell of one direction.

    `kind` is rnn, gru or lstm; `activations` are names with their two parameters. A gru that is
    `linear` resets the product with its state after the bias is added. States are
    clipped to `clip`.
    """

    kind: str
    activations: tuple[tuple[str, float, float], ...]
    backwards: bool = False
    linear: bool = False
    input_forget: bool = False
    clip: float | None = None


def recurrent(
    b: Builder,
    cell: Cell,
    x: Value,
    w: Value,
    r: Value,
    *,
    bias: Value | None = None,
    states: tuple[Value | None, Value | None] = (None, None),
    peepholes: Value | None = None,
    lengths: Value | None = None,
) -> tuple[Value, ...]:
    """The states at all steps (steps, n, hidden), the last one, and of an LSTM the last cell.

    `x` is (steps, n, features), `w` (gates * hidden, features), `r` (gates * hidden, hidden).
    `bias` has those of both, one after the other. The first `states` and, of an LSTM, cells are
    (n, hidden), and zeros where they are not given.
    """
    hidden = r.shape[1]
    steps, batch, features = x.shape
    columns = GATES[cell.kind] * hidden
    first, held = states
    seen = b.add("matmul", reshaped(b, x, (steps * batch, features)), w, transpose_b=True)
    given: dict[str, Value] = {}
    linear = cell.kind == "gru" and cell.linear
    if bias is not None:
        halves = [part(b, bias, 0, k * columns, columns) for k in range(2)]
        if linear:
            given["bias"] = part(b, halves[1], 0, 2 * hidden, hidden)
            gates = part(b, halves[1], 0, 0, 2 * hidden)
            halves[1] = b.add("pad", gates, before=(0,), after=(hidden,))
        seen = b.add("add", seen, b.add("add", *halves))
    elif linear:
        given["bias"] = b.constant(np.zeros(hidden), x.dtype)
    if first is None:
        first = b.constant(np.zeros((batch, hidden)), x.dtype)
    if held is not None:
        given["cell"] = held
    if peepholes is not None:
        given["peepholes"] = peepholes
    if lengths is not None and not _all_whole(lengths, steps):
        given["lengths"] = lengths
    width = tile_width(hidden, batch) or columns
    return b.add_all(
        "recurrence",
        reshaped(b, seen, (steps, batch, columns)),
        b.add("transpose", reshaped(b, r, (columns // width, width, hidden)), axes=(0, 2, 1)),
        first,
        *given.values(),
        cell=cell.kind,
        activations=cell.activations,
        given=tuple(given),
        clip=cell.clip,
        backwards=cell.backwards,
        input_forget=cell.input_forget,
    )


def _all_whole(lengths: Value, steps: int) -> bool:
    return isinstance(lengths, Constant) and bool((lengths.data == steps).all())
