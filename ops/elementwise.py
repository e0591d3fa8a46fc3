"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Operand, Tensor
from . import operands
from .operands import widened

Activation: TypeAlias = str | Callable[[Expr], Operand]
"""A name of `ACTIVATIONS`, or a function of an expression."""


def elementwise(fn: Callable[..., Operand], *tensors: Tensor, name: str = "elementwise") -> Tensor:
    """`fn` of the elements of all tensors, which broadcast by numpy's rules."""
    shape = operands.shape(name, *(t.extents for t in tensors))
    return te.compute(shape, lambda *i: fn(*(operands.element(t, i) for t in tensors)), name=name)


def activate(value: Expr, activation: Activation | None) -> Expr:
    """`activation` of an expression, computed in its accumulator's dtype and cast back."""
    if activation is None:
        return value
    if callable(activation):
        return te.cast(activation(value), value.dtype)
    if activation not in ACTIVATIONS:
        raise IRError(
            "unknown activation {0!r}; expected one of {1}, or a function",
            activation, ", ".join(ACTIVATIONS),
        )  # fmt: skip
    return te.cast(ACTIVATIONS[activation](widened(value)), value.dtype)


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "relu": lambda x: te.maximum(x, 0),
    "gelu": te.gelu,
    "silu": te.silu,
    "sigmoid": te.sigmoid,
    "tanh": te.tanh,
    "exp": te.exp,
}


def activation(x: Tensor, kind: Activation, *, name: str | None = None) -> Tensor:
    """An activation of each element, in the dtype of `x`."""
    own = name or (kind if isinstance(kind, str) else "activation")
    return elementwise(lambda value: activate(value, kind), x, name=own)


def relu(x: Tensor, *, name: str = "relu") -> Tensor:
    return activation(x, "relu", name=name)


def gelu(x: Tensor, *, name: str = "gelu") -> Tensor:
    """x * Phi(x), with the error function (not its approximation by tanh)."""
    return activation(x, "gelu", name=name)


def sigmoid(x: Tensor, *, name: str = "sigmoid") -> Tensor:
    return activation(x, "sigmoid", name=name)


def tanh(x: Tensor, *, name: str = "tanh") -> Tensor:
    return activation(x, "tanh", name=name)


def add(a: Tensor, b: Tensor, *, name: str = "add") -> Tensor:
    return elementwise(lambda x, y: x + y, a, b, name=name)


def subtract(a: Tensor, b: Tensor, *, name: str = "subtract") -> Tensor:
    return elementwise(lambda x, y: x - y, a, b, name=name)


def multiply(a: Tensor, b: Tensor, *, name: str = "multiply") -> Tensor:
    return elementwise(lambda x, y: x * y, a, b, name=name)


def divide(a: Tensor, b: Tensor, *, name: str = "divide") -> Tensor:
    return elementwise(lambda x, y: x / y, a, b, name=name)


def add_relu(a: Tensor, b: Tensor, *, name: str = "add_relu") -> Tensor:
    """relu(a + b) in one pass."""
    return elementwise(lambda x, y: activate(x + y, "relu"), a, b, name=name)


def bias_add(x: Tensor, bias: Tensor, *, axis: int = -1, name: str = "bias_add") -> Tensor:
    """`x` plus a vector along `axis`."""
    place = operands.axis(name, axis, x.ndim)
    if bias.extents != x.extents[place : place + 1]:
        raise IRError(
            "{0}: bias has shape {1}, expected ({2},)", name, bias.extents, x.extents[place]
        )
    return te.compute(x.extents, lambda *i: x[i] + bias[i[place]], name=name)


def activation_func(n: int = 1 << 24, kind: str = "relu", dtype: str = "float32") -> Func:
    """An activation of a vector."""
    x = te.placeholder((n,), dtype, name="X")
    return te.func([x, activation(x, kind, name="Y")], name=kind)


def add_relu_func(n: int = 1 << 24, dtype: str = "float32") -> Func:
    """relu(a + b) of vectors."""
    a = te.placeholder((n,), dtype, name="A")
    b = te.placeholder((n,), dtype, name="B")
    return te.func([a, b, add_relu(a, b, name="C")], name="add_relu")
