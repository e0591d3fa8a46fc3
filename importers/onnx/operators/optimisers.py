"""The steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ....graph.builder import Builder
from ....graph.compose.basics import cast_to
from ....graph.ir import Value
from ..table import OnnxNode, onnx_op

TRAINING = "ai.onnx.preview.training"
Step: TypeAlias = "Callable[[_Arithmetic, OnnxNode, Value, Value, list[Value]], list[Value]]"


class _Arithmetic:
    """Formulas of tensors of one dtype and numbers."""

    def __init__(self, b: Builder, dtype: str) -> None:
        self.b = b
        self.dtype = dtype

    def __call__(self, operator: str, *operands: Value | float) -> Value:
        own = [o if isinstance(o, Value) else self.b.constant(o, self.dtype) for o in operands]
        return self.b.add(operator, *(cast_to(self.b, v, self.dtype) for v in own))

    def blend(self, factor: float, x: Value, other: float, y: Value) -> Value:
        """`factor * x + other * y`."""
        return self("add", self("multiply", x, factor), self("multiply", y, other))


def _steps(b: Builder, node: OnnxNode, step: Step, count: int) -> Sequence[Value]:
    """Steps of several tensors: `count` operands of each, grouped by their meaning."""
    rate, time, *data = (node[n] for n in range(len(node.inputs)))
    number = len(data) // count
    found = []
    for n in range(number):
        own = data[n::number]
        found.append(step(_Arithmetic(b, own[0].dtype), node, rate, time, own))
    return [results[k] for k in range(len(found[0])) for results in found]


@onnx_op("Adagrad", domain=TRAINING)
def adagrad(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return _steps(b, node, _adagrad, 3)


def _adagrad(
    a: _Arithmetic, node: OnnxNode, rate: Value, time: Value, own: list[Value]
) -> list[Value]:
    x, gradient, squares = own
    gradient = a.blend(node.attribute("norm_coefficient", 0.0), x, 1, gradient)
    decay = a("add", a("multiply", time, node.attribute("decay_factor", 0.0)), 1)
    squares = a("add", squares, a("multiply", gradient, gradient))
    size = a("add", a("sqrt", squares), node.attribute("epsilon", 1e-6))
    step = a("divide", a("multiply", a("divide", rate, decay), gradient), size)
    return [a("subtract", x, step), squares]


@onnx_op("Adam", domain=TRAINING)
def adam(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return _steps(b, node, _adam, 4)


def _adam(
    a: _Arithmetic, node: OnnxNode, rate: Value, time: Value, own: list[Value]
) -> list[Value]:
    x, gradient, mean, squares = own
    alpha, beta = node.attribute("alpha", 0.9), node.attribute("beta", 0.999)
    gradient = a.blend(node.attribute("norm_coefficient", 0.0), x, 1, gradient)
    mean = a.blend(alpha, mean, 1 - alpha, gradient)
    squares = a.blend(beta, squares, 1 - beta, a("multiply", gradient, gradient))
    # At time 0 there is no correction of the bias towards zero.
    first = a.b.add("equal", time, a.b.constant(0, time.dtype))
    powers = [a("exp", a("multiply", time, float(np.log(f)))) for f in (beta, alpha)]
    corrected = a(
        "divide",
        a("multiply", rate, a("sqrt", a("subtract", 1, powers[0]))),
        a("subtract", 1, powers[1]),
    )
    rate = a.b.add("where", first, cast_to(a.b, rate, a.dtype), corrected)
    size = a("add", a("sqrt", squares), node.attribute("epsilon", 1e-6))
    new = a("subtract", x, a("multiply", rate, a("divide", mean, size)))
    kept = 1 - node.attribute("norm_coefficient_post", 0.0)
    return [a("multiply", new, kept), mean, squares]


@onnx_op("Momentum", domain=TRAINING)
def momentum(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return _steps(b, node, _momentum, 3)


def _momentum(
    a: _Arithmetic, node: OnnxNode, rate: Value, time: Value, own: list[Value]
) -> list[Value]:
    x, gradient, speed = own
    alpha = node.attributes["alpha"]
    gradient = a.blend(node.attributes["norm_coefficient"], x, 1, gradient)
    first = a.b.add("equal", time, a.b.constant(0, time.dtype))
    one, beta = (a.b.constant(v, a.dtype) for v in (1, node.attributes["beta"]))
    factor = a.b.add("where", first, one, beta)
    speed = a("add", a("multiply", speed, alpha), a("multiply", factor, gradient))
    step = speed
    if node.attributes["mode"] == "nesterov":
        step = a("add", gradient, a("multiply", speed, alpha))
    return [a("subtract", x, a("multiply", rate, step)), speed]
