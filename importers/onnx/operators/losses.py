"""Losses, and the steps of optimisers: compositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, onnx_op
from .common import wide
from .pointwise import cast_to

TRAINING = "ai.onnx.preview.training"
Step: TypeAlias = "Callable[[_Arithmetic, OnnxNode, Value, Value, list[Value]], list[Value]]"


@onnx_op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(b: Builder, node: OnnxNode) -> Value:
    return _loss(b, node, cast_to(b, node[0], wide(node[0])))


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(b: Builder, node: OnnxNode) -> Sequence[Value]:
    x = cast_to(b, node[0], wide(node[0]))
    centred = b.add("subtract", x, b.add("max", x, axes=(1,), keepdims=True))
    total = b.add("sum", b.add("exp", centred), axes=(1,), keepdims=True)
    logarithms = b.add("subtract", centred, b.add("log", total))
    return _loss(b, node, logarithms), cast_to(b, logarithms, node[0].dtype)


def _loss(b: Builder, node: OnnxNode, logarithms: Value) -> Value:
    """Minus the logarithms at the targets, weighted. Classes are axis 1, and are compared."""
    target, weights = node[1], node.get(2)
    ignored, reduction = node.attribute("ignore_index"), node.attribute("reduction", "mean")
    rest = (1,) * (target.type.rank - 1)
    classes = np.arange(logarithms.shape[1]).reshape(-1, *rest)
    place = b.add("reshape", target, shape=(target.shape[0], 1, *target.shape[1:]))
    chosen = b.add("equal", place, b.constant(classes, target.dtype))
    dtype = logarithms.dtype
    zero, one = b.constant(0, dtype), b.constant(1, dtype)
    factors = None
    if weights is not None:
        own = b.add("reshape", cast_to(b, weights, dtype), shape=(weights.type.size, *rest))
        factors = b.add("sum", b.add("where", chosen, own, zero), axes=(1,))
    if ignored is not None:
        known = b.constant(ignored, target.dtype)
        factors = b.add("where", b.add("equal", target, known), zero, factors or one)
    picked = b.add("sum", b.add("where", chosen, logarithms, zero), axes=(1,))
    loss = b.add("negative", picked)
    loss = loss if factors is None else b.add("multiply", loss, factors)
    axes = tuple(range(target.type.rank))
    if reduction == "mean" and factors is not None:
        loss = b.add("divide", b.add("sum", loss, axes=axes), b.add("sum", factors, axes=axes))
    elif reduction != "none":
        loss = b.add(reduction, loss, axes=axes)
    return cast_to(b, loss, node[0].dtype)


class _Arithmetic:
    """Formulas of tensors of one dtype and numbers."""

    def __init__(self, b: Builder, dtype: str) -> None:
        self.b = b
        self.dtype = dtype

    def __call__(self, operator: str, *operands: Value | float) -> Value:
        own = [o if isinstance(o, Value) else self.b.constant(o, self.dtype) for o in operands]
        value: Value = self.b.add(operator, *(cast_to(self.b, v, self.dtype) for v in own))
        return value

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
