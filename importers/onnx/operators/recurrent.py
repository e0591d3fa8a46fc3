"""Recurrent layers: the inputs of all steps in one product, then the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ....graph.operators.cells import ACTIVATIONS, GATES, tile_width
from ..table import OnnxNode, Reason, Unsupported, onnx_op

_DEFAULTS = {
    "rnn": ("Tanh",), "gru": ("Sigmoid", "Tanh"), "lstm": ("Sigmoid", "Tanh", "Tanh"),
}  # fmt: skip
_PARAMETERS = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5), "elu": (1.0, 0.0),
}  # fmt: skip
"""Alpha and beta where a node does not say them."""
_TAKES = {
    "leakyrelu": 1,
    "thresholdedrelu": 1,
    "elu": 1,
    "affine": 2,
    "scaledtanh": 2,
    "hardsigmoid": 2,
}
"""How many parameters an activation takes: the lists have those of all, one after the other."""


@onnx_op("RNN", "GRU", "LSTM", since=7)
def recurrent(b: Builder, node: OnnxNode) -> Sequence[Value]:
    cell = node.operator.lower()
    x = node[0]
    if node.attribute("layout", 0):
        x = b.add("transpose", x, axes=(1, 0, 2))
    directions = node[1].shape[0]
    way = node.attribute("direction", "forward")
    activations = _activations(node, cell, directions)
    made = [
        _direction(b, node, x, cell, k, way == "reverse" or k == 1, activations[k])
        for k in range(directions)
    ]
    results: list[Value] = []
    for place, parts in enumerate(zip(*made, strict=True)):
        axis = 1 if place == 0 else 0
        shape = parts[0].shape
        wanted = (*shape[:axis], 1, *shape[axis:])
        views = [b.add("reshape", part, shape=wanted) for part in parts]
        whole = views[0] if len(views) == 1 else b.add("concatenate", *views, axis=axis)
        if node.attribute("layout", 0):
            whole = b.add("transpose", whole, axes=(2, 0, 1, 3) if place == 0 else (1, 0, 2))
        results.append(whole)
    return results


def _activations(
    node: OnnxNode, cell: str, directions: int
) -> list[tuple[tuple[str, float, float], ...]]:
    count = len(_DEFAULTS[cell])
    names = node.attribute("activations") or _DEFAULTS[cell] * directions
    alphas = list(node.attribute("activation_alpha") or ())
    betas = list(node.attribute("activation_beta") or ())
    found: list[tuple[str, float, float]] = []
    for name in names:
        own = name.lower()
        if own not in ACTIVATIONS:
            raise Unsupported(Reason.ATTRIBUTE, f"activation {name}")
        alpha, beta = _PARAMETERS.get(own, (0.0, 0.0))
        takes = _TAKES.get(own, 0)
        alpha = alphas.pop(0) if takes > 0 and alphas else alpha
        beta = betas.pop(0) if takes > 1 and betas else beta
        found.append((own, float(alpha), float(beta)))
    return [tuple(found[k * count : (k + 1) * count]) for k in range(directions)]


def _direction(
    b: Builder,
    node: OnnxNode,
    x: Value,
    cell: str,
    number: int,
    backwards: bool,
    activations: tuple[tuple[str, float, float], ...],
) -> tuple[Value, ...]:
    """The states at all steps (steps, n, hidden), the last one, and of an LSTM the last cell."""
    hidden = node[2].shape[2]
    steps, batch, features = x.shape
    columns = GATES[cell] * hidden

    def part(value: Value) -> Value:
        """What is of this direction."""
        rest = value.shape[1:]
        one = b.add(
            "slice", value, starts=(number, *(0 for _ in rest)),
            steps=(1,) * value.type.rank, shape=(1, *rest),
        ) if value.shape[0] > 1 else value  # fmt: skip
        return b.add("reshape", one, shape=rest)  # type: ignore[no-any-return]

    def state(place: int) -> Value | None:
        value = node.get(place)
        if value is None:
            return None
        if node.attribute("layout", 0):
            value = b.add("transpose", value, axes=(1, 0, 2))
        return part(value)

    flat = b.add("reshape", x, shape=(steps * batch, features))
    seen = b.add("matmul", flat, part(node[1]), transpose_b=True)
    given: dict[str, Value] = {}
    bias = node.get(3)
    linear = cell == "gru" and bool(node.attribute("linear_before_reset", 0))
    if bias is not None:
        own = part(bias)
        halves = [_columns(b, own, k * columns, columns) for k in range(2)]
        if linear:
            given["bias"] = _columns(b, halves[1], 2 * hidden, hidden)
            halves[1] = b.add(
                "pad", _columns(b, halves[1], 0, 2 * hidden), before=(0,), after=(hidden,)
            )
        seen = b.add("add", seen, b.add("add", *halves))
    elif linear:
        given["bias"] = b.constant(np.zeros(hidden), x.dtype)
    first = state(5)
    if first is None:
        first = b.constant(np.zeros((batch, hidden)), x.dtype)
    if cell == "lstm":
        held = state(6)
        if held is not None:
            given["cell"] = held
        peepholes = node.get(7)
        if peepholes is not None:
            given["peepholes"] = part(peepholes)
    lengths = node.get(4)
    if lengths is not None and not _all_whole(lengths, steps):
        given["lengths"] = lengths
    width = tile_width(hidden, batch) or columns
    tiles = (columns // width, width, hidden)
    made: Any = b.add(
        "recurrence",
        b.add("reshape", seen, shape=(steps, batch, columns)),
        b.add("transpose", b.add("reshape", part(node[2]), shape=tiles), axes=(0, 2, 1)),
        first,
        *given.values(),
        cell=cell,
        activations=activations,
        given=tuple(given),
        clip=node.attribute("clip"),
        backwards=backwards,
        input_forget=bool(node.attribute("input_forget", 0)),
    )
    results: tuple[Value, ...] = made
    return results


def _columns(b: Builder, x: Value, start: int, count: int) -> Value:
    value: Value = b.add("slice", x, starts=(start,), steps=(1,), shape=(count,))
    return value


def _all_whole(lengths: Value, steps: int) -> bool:
    return isinstance(lengths, Constant) and bool((lengths.data == steps).all())
