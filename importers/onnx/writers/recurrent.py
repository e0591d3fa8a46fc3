"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ir import Node
from ....graph.operators.cells import GATES
from ..writer import Writer, writes

_ACTIVATIONS = {
    "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "affine": "Affine",
    "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "scaledtanh": "ScaledTanh",
    "hardsigmoid": "HardSigmoid", "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus",
}  # fmt: skip
_TAKES = {
    "affine": 2, "leakyrelu": 1, "thresholdedrelu": 1, "scaledtanh": 2, "hardsigmoid": 2, "elu": 1,
}  # fmt: skip


@writes("recurrence")
def recurrence(w: Writer, node: Node, x: str, r: str, h: str, *others: str) -> tuple[str, ...]:
    """The inputs, which are times their weights already, get the unit matrix as weights."""
    a: Any = node.attributes
    cell, dtype = a["cell"], node.outputs[0].dtype
    wide = dtype if dtype == "float64" else "float32"
    given = dict(zip(a["given"], others, strict=True))
    _, n, columns = node.inputs[0].shape
    hidden = columns // GATES[cell]
    # Tiles (columns / width, hidden, width) as (1, columns, hidden).
    weights = w.reshape(w.transpose(w.cast(r, wide), (0, 2, 1)), (1, columns, hidden))
    inputs = [w.cast(x, wide), w.constant(np.eye(columns)[None], wide), weights]
    inputs += [_bias(w, given, hidden, wide), given.get("lengths", "")]
    inputs.append(w.reshape(w.cast(h, wide), (1, n, hidden)))
    if inputs[4]:
        inputs[4] = w.cast(inputs[4], "int32")
    if cell == "lstm":
        first = given.get("cell", "")
        inputs.append(first and w.reshape(w.cast(first, wide), (1, n, hidden)))
        peepholes = given.get("peepholes", "")
        inputs.append(peepholes and w.reshape(w.cast(peepholes, wide), (1, 3 * hidden)))
    names = list[str]()
    numbers: tuple[list[float], list[float]] = ([], [])
    for name, *parameters in a["activations"]:
        names.append(_ACTIVATIONS[name])
        for held, number in zip(numbers[: _TAKES.get(name, 0)], parameters, strict=False):
            held.append(number)
    options: dict[str, Any] = {"activation_alpha": numbers[0], "activation_beta": numbers[1]}
    options = {k: v for k, v in options.items() if v}
    if a["clip"] is not None:
        options["clip"] = a["clip"]
    if cell == "lstm":
        options["input_forget"] = int(a["input_forget"])
    if cell == "gru":
        options["linear_before_reset"] = int("bias" in given)
    found = w.add_of(
        len(node.outputs), cell.upper(), *inputs, hidden_size=hidden, activations=names,
        direction="reverse" if a["backwards"] else "forward", **options,
    )  # fmt: skip
    return tuple(
        w.cast(w.reshape(name, value.shape), dtype)
        for name, value in zip(found, node.outputs, strict=True)
    )


def _bias(w: Writer, given: dict[str, str], hidden: int, dtype: str) -> str:
    """Of a gru whose reset gate scales it: zeros, but for the state's part of the candidate."""
    if "bias" not in given:
        return ""
    own = w.reshape(w.cast(given["bias"], dtype), (1, hidden))
    return w.add("Concat", w.constant(np.zeros((1, 5 * hidden)), dtype), own, axis=1)
