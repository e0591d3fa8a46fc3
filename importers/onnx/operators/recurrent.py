"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

from ....graph.builder import Builder
from ....graph.compose.basics import reshaped, row, stacked
from ....graph.compose.recurrent import Cell
from ....graph.compose.recurrent import recurrent as one_direction
from ....graph.ir import Value
from ....graph.operators.cells import ACTIVATIONS
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op

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
        _direction(
            b,
            node,
            x,
            k,
            Cell(
                cell,
                activations[k],
                backwards=way == "reverse" or k == 1,
                linear=bool(node.attribute("linear_before_reset", 0)),
                input_forget=bool(node.attribute("input_forget", 0)),
                clip=node.attribute("clip"),
            ),
        )
        for k in range(directions)
    ]
    results: list[Value] = []
    for place, values in enumerate(zip(*made, strict=True)):
        whole = stacked(b, values, 1 if place == 0 else 0)
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


def _direction(b: Builder, node: OnnxNode, x: Value, number: int, cell: Cell) -> tuple[Value, ...]:
    def part(value: Value) -> Value:
        """What is of this direction."""
        alone = value.shape[0] == 1
        return reshaped(b, value, value.shape[1:]) if alone else row(b, value, 0, number)

    def own(place: int, *, state: bool = False) -> Value | None:
        value = node.get(place)
        if value is None:
            return None
        if state and node.attribute("layout", 0):
            value = b.add("transpose", value, axes=(1, 0, 2))
        return part(value)

    lstm = cell.kind == "lstm"
    return one_direction(
        b,
        cell,
        x,
        part(node[1]),
        part(node[2]),
        bias=own(3),
        states=(own(5, state=True), own(6, state=True) if lstm else None),
        peepholes=own(7) if lstm else None,
        lengths=node.get(4),
    )
