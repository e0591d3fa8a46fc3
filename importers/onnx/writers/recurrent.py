"""Recurrent layers: as ONNX's own where their input is a product with weights, else as a Scan.

ONNX's layers take inputs and weights, of which a graph has the product. With unit weights, what is
infinite or NaN for one gate would be NaN for all, so that the body of a Scan is a step instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....graph.ir import Node
from ..writer import Writer, exact, onnx_dtype, writes

Add: TypeAlias = "Callable[..., str]"
"""Adds a node of names and numbers."""


_LAYER = {
    "sigmoid": ("Sigmoid", 0), "tanh": ("Tanh", 0), "relu": ("Relu", 0), "affine": ("Affine", 2),
    "leakyrelu": ("LeakyRelu", 1), "thresholdedrelu": ("ThresholdedRelu", 1),
    "scaledtanh": ("ScaledTanh", 2), "hardsigmoid": ("HardSigmoid", 2), "elu": ("Elu", 1),
    "softsign": ("Softsign", 0), "softplus": ("Softplus", 0),
}  # fmt: skip
"""What ONNX's layers call activations, and how many parameters each takes."""


@writes("recurrence")
def recurrence(w: Writer, node: Node, x: str, r: str, h: str, *others: str) -> tuple[str, ...]:
    product = _product(w, node)
    if product is None:
        return _scan(w, node, x, r, h, *others)
    return _layer(w, node, product, r, h, *others)


class _Product(NamedTuple):
    """The names of inputs (steps * n, features), weights (columns, features) and their bias."""

    inputs: str
    weights: str
    bias: str | None
    features: int


def _product(w: Writer, node: Node) -> _Product | None:
    """What the inputs of a layer are the product of, if there is one."""
    a: Any = node.attributes
    numbers = [n for _, *both in a["activations"] for n in both]
    numbers += [] if a["clip"] is None else [a["clip"]]
    if node.outputs[0].dtype not in ("float32", "float64") or not exact(node, *numbers):
        return None
    value, bias = node.inputs[0], None
    made = w.producers.get(value)
    if made is not None and made.operator == "reshape":
        value = made.inputs[0]
        made = w.producers.get(value)
    if made is not None and made.operator == "add" and made.inputs[1].type.rank == 1:
        value, bias = made.inputs
        made = w.producers.get(value)
    if made is None or made.operator != "matmul" or value.shape[1:] != node.inputs[0].shape[2:]:
        return None
    inputs, weights = made.inputs
    plain = {"transpose_a": False, "transpose_b": True, "dtype": None}
    if made.attributes != plain or not inputs.type.rank == weights.type.rank == 2:
        return None
    held = None if bias is None or bias.shape != value.shape[1:] else w.name(bias)
    if (held is None) != (bias is None):
        return None
    return _Product(w.name(inputs), w.name(weights), held, weights.shape[1])


def _layer(
    w: Writer, node: Node, product: _Product, r: str, h: str, *others: str
) -> tuple[str, ...]:
    a: Any = node.attributes
    cell, dtype = a["cell"], node.outputs[0].dtype
    given = dict(zip(a["given"], others, strict=True))
    steps, n, columns = node.inputs[0].shape
    hidden = node.inputs[2].shape[1]
    zeros = w.constant(np.zeros(columns), dtype)
    state_bias = zeros
    if "bias" in given:  # of a gru whose reset gate scales it, with the product of the state
        state_bias = w.add("Concat", w.constant(np.zeros(2 * hidden), dtype), given["bias"], axis=0)
    bias = w.add("Concat", product.bias or zeros, state_bias, axis=0)
    # Tiles (columns / width, hidden, width) as (1, columns, hidden).
    weights = w.reshape(w.transpose(r, (0, 2, 1)), (1, columns, hidden))
    lengths = given.get("lengths", "")
    inputs = [
        w.reshape(product.inputs, (steps, n, product.features)),
        w.reshape(product.weights, (1, columns, product.features)),
        weights,
        w.reshape(bias, (1, 2 * columns)),
        lengths and w.cast(lengths, "int32"),
        w.reshape(h, (1, n, hidden)),
    ]
    if cell == "lstm":
        for name, shape in (("cell", (1, n, hidden)), ("peepholes", (1, 3 * hidden))):
            inputs.append((name in given and w.reshape(given[name], shape)) or "")
    names = [_LAYER[name][0] for name, *_ in a["activations"]]
    taken = [both[: _LAYER[name][1]] for name, *both in a["activations"]]
    options: dict[str, Any] = {
        "activation_alpha": [both[0] for both in taken if both],
        "activation_beta": [both[1] for both in taken if len(both) > 1],
    }
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
        w.reshape(name, value.shape) for name, value in zip(found, node.outputs, strict=True)
    )


def _scan(w: Writer, node: Node, x: str, r: str, h: str, *others: str) -> tuple[str, ...]:
    """States are of float32 at least, as in the kernel."""
    from onnx import helper

    a: Any = node.attributes
    dtype = node.outputs[0].dtype
    wide = dtype if dtype == "float64" else "float32"
    given = dict(zip(a["given"], others, strict=True))
    given = {k: w.cast(v, "int64" if k == "lengths" else wide) for k, v in given.items()}
    steps, n, columns = node.inputs[0].shape
    hidden = node.inputs[2].shape[1]
    # Tiles (columns / width, hidden, width) as one.
    weights = w.reshape(w.transpose(w.cast(r, wide), (1, 0, 2)), (hidden, columns))
    states = [w.cast(h, wide)]
    if a["cell"] == "lstm":
        states.append(given.get("cell") or w.constant(np.zeros((n, hidden)), wide))
    if "lengths" in given:
        given["lengths"] = w.reshape(given["lengths"], (n, 1))
    inner = w.body()
    cell = _Cell(inner, a, given, weights, hidden, wide)
    own: dict[str, tuple[str, tuple[int, ...]]] = {}
    own |= {inner.fresh("state"): (wide, (n, hidden)) for _ in states}
    seen, time = inner.fresh("seen"), inner.fresh("time")
    own |= {seen: (wide, (n, columns)), time: ("int64", ())}
    inner.dtypes.update((name, kind) for name, (kind, _) in own.items())
    made = getattr(cell, a["cell"])(seen, *list(own)[: len(states)])
    made += (inner.add("Identity", made[0]),)
    if given.get("lengths"):
        live = inner.add("Less", time, given["lengths"])
        before = (*list(own)[: len(states)], inner.constant(0, wide))
        made = tuple(inner.where(live, v, b) for v, b in zip(made, before, strict=True))
    body = helper.make_graph(
        inner.nodes, "step",
        [helper.make_tensor_value_info(v, onnx_dtype(k), s) for v, (k, s) in own.items()],
        [helper.make_tensor_value_info(v, onnx_dtype(wide), (n, hidden)) for v in made],
    )  # fmt: skip
    back = int(a["backwards"])
    *last, all_states = w.add_of(
        len(made), "Scan", *states, w.cast(x, wide), w.integers(range(steps)), body=body,
        num_scan_inputs=2, scan_input_directions=[back, back], scan_output_directions=[back],
    )  # fmt: skip
    return tuple(w.cast(name, dtype) for name in (all_states, *last))


class _Cell:
    """The nodes of a step: of what it sees, and the names of its states."""

    def __init__(
        self, w: Writer, a: Any, given: dict[str, str], weights: str, hidden: int, dtype: str
    ) -> None:
        self.w, self.a, self.given, self.weights = w, a, given, weights
        self.hidden, self.dtype = hidden, dtype

    def rnn(self, x: str, h: str) -> tuple[str, ...]:
        return (self.act(0, self.sum(x, h, 0, 1)),)

    def gru(self, x: str, h: str) -> tuple[str, ...]:
        z, reset = (self.act(0, self.sum(x, h, k, k + 1)) for k in range(2))
        if "bias" in self.given:
            inner = self.add("Add", self.product(h, 2, 3), self.given["bias"])
            inner = self.add("Mul", reset, inner)
        else:
            inner = self.product(self.add("Mul", reset, h), 2, 3)
        new = self.act(1, self.add("Add", self.part(x, 2, 3), inner))
        old = self.add("Mul", z, h)
        return (self.add("Add", self.add("Mul", self.add("Sub", 1, z), new), old),)

    def lstm(self, x: str, h: str, c: str) -> tuple[str, ...]:
        i, forget, candidate = (self.sum(x, h, k, k + 1) for k in (0, 2, 3))
        i = self.act(0, self.seeing(i, 0, c))
        f = self.add("Sub", 1, i) if self.a["input_forget"] else None
        f = f or self.act(0, self.seeing(forget, 2, c))
        new = self.add("Mul", i, self.act(1, candidate))
        new = self.add("Add", self.add("Mul", f, c), new)
        o = self.act(0, self.seeing(self.sum(x, h, 1, 2), 1, new))
        return self.add("Mul", o, self.act(2, new, clipped=False)), new

    def add(self, operator: str, *inputs: str | float) -> str:
        names = (v if isinstance(v, str) else self.w.constant(v, self.dtype) for v in inputs)
        return self.w.add(operator, *names)

    def part(self, x: str, first: int, end: int) -> str:
        """The columns of some gates."""
        places = ([first * self.hidden], [end * self.hidden], [-1])
        return self.w.add("Slice", x, *map(self.w.integers, places))

    def product(self, state: str, first: int, end: int) -> str:
        return self.add("MatMul", state, self.part(self.weights, first, end))

    def sum(self, x: str, state: str, first: int, end: int) -> str:
        return self.add("Add", self.part(x, first, end), self.product(state, first, end))

    def seeing(self, gate: str, place: int, state: str) -> str:
        """A gate that sees a state through a peephole."""
        if "peepholes" not in self.given:
            return gate
        weights = self.part(self.given["peepholes"], place, place + 1)
        return self.add("Add", gate, self.add("Mul", weights, state))

    def act(self, place: int, x: str, *, clipped: bool = True) -> str:
        name, alpha, beta = self.a["activations"][place]
        clip = self.a["clip"]
        if clipped and clip is not None:
            x = self.add("Min", self.add("Max", x, -clip), clip)
        return _ACTIVATIONS[name](self.add, x, alpha, beta)


def _affine(add: Add, x: str, a: float, b: float) -> str:
    return add("Add", add("Mul", x, a), b)


def _elu(add: Add, x: str, a: float, _: float) -> str:
    below = add("Sub", add("Exp", add("Min", x, 0)), 1)
    return add("Where", add("Less", x, 0), add("Mul", below, a), x)


def _softplus(add: Add, x: str, _a: float, _b: float) -> str:
    rest = add("Log", add("Add", add("Exp", add("Neg", add("Abs", x))), 1))
    return add("Add", add("Max", x, 0), rest)


_ACTIVATIONS: dict[str, Callable[[Add, str, float, float], str]] = {
    "sigmoid": lambda add, x, _a, _b: add("Sigmoid", x),
    "tanh": lambda add, x, _a, _b: add("Tanh", x),
    "relu": lambda add, x, _a, _b: add("Max", x, 0),
    "affine": _affine,
    "leakyrelu": lambda add, x, a, _b: add("Where", add("Less", x, 0), add("Mul", x, a), x),
    "thresholdedrelu": lambda add, x, a, _b: add("Where", add("Less", x, a), 0, x),
    "scaledtanh": lambda add, x, a, b: add("Mul", add("Tanh", add("Mul", x, b)), a),
    "hardsigmoid": lambda add, x, a, b: add("Min", add("Max", _affine(add, x, a, b), 0), 1),
    "elu": _elu,
    "softsign": lambda add, x, _a, _b: add("Div", x, add("Add", add("Abs", x), 1)),
    "softplus": _softplus,
}
