"""Scales and shifts of channels become part of the constant weights before them.

The new weights are computed in float64 and rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..builder import Builder, Rules
from ..ir import Constant, Node, Value
from ..operator import Array
from .rules import EPSILON, new


class Affine(NamedTuple):
    """A product with constant weights, and the constant that is added to it, by channels."""

    node: Node
    bias: Constant | None

    @property
    def axis(self) -> int:
        """The dimension of channels, in the product."""
        return 1 if self.node.operator == "conv" else self.node.output.type.rank - 1

    def by_channels(self, value: Value) -> bool:
        """Whether a value has one element, or one for each channel."""
        shape = self.node.output.shape
        padded = [1] * (len(shape) - value.type.rank) + list(value.shape)
        wide = [d for d, e in enumerate(padded) if e != 1]
        return len(padded) == len(shape) and wide in ([], [self.axis])


def scale_into_weights(b: Builder, node: Node) -> Value | None:
    """(conv(x, w) + c) * s   ->   conv(x, w * s) + c * s, also without c, and of matmul"""
    for product, scale in (node.inputs, node.inputs[::-1]):
        affine = _affine(b, product)
        if affine is None or not isinstance(scale, Constant) or not affine.by_channels(scale):
            continue
        x, weights = affine.node.inputs
        assert isinstance(weights, Constant)
        scaled = _scaled(affine, weights, scale)
        if scaled is None:
            return None
        value = new(b, affine.node.operator, x, b.constant(scaled), **affine.node.attributes)
        if affine.bias is None:
            return value
        shift = _narrowed(_wide(affine.bias) * _wide(scale), affine.bias)
        return None if shift is None else new(b, "add", value, b.constant(shift))
    return None


def shift_of_shift(b: Builder, node: Node) -> Value | None:
    """(conv(x, w) + c) + d   ->   conv(x, w) + (c + d), also of matmul"""
    for product, shift in (node.inputs, node.inputs[::-1]):
        affine = _affine(b, product)
        if affine is None or affine.bias is None or not isinstance(shift, Constant):
            continue
        if affine.by_channels(shift):
            total = _narrowed(_wide(affine.bias) + _wide(shift), affine.bias)
            return None if total is None else new(b, "add", affine.node.output, b.constant(total))
    return None


def _narrowed(exact: Array, of: Constant) -> Array | None:
    """A shift in the dtype of another one; `None` where it would overflow, as results may not."""
    with np.errstate(over="ignore"):
        found = exact.astype(of.data.dtype)
    return found if np.isfinite(found).all() else None


def _affine(b: Builder, value: Value) -> Affine | None:
    """What a value is computed by, if only one node reads it."""
    node = b.producers.get(value)
    if node is None or not b.read_once(value) or value.dtype not in ("float32", "float64"):
        return None
    if node.operator in ("conv", "matmul"):
        weights = node.inputs[1]
        held = isinstance(weights, Constant) and b.read_once(weights)
        return Affine(node, None) if held and node.attributes["dtype"] is None else None
    if node.operator == "add":
        for product, bias in (node.inputs, node.inputs[::-1]):
            inner = b.producers.get(product)
            if inner is None or inner.operator == "add" or not isinstance(bias, Constant):
                continue
            affine = _affine(b, product)
            if affine is not None and affine.by_channels(bias):
                return Affine(affine.node, bias)
    return None


def _scaled(affine: Affine, weights: Constant, scale: Constant) -> Array | None:
    """The weights times a scale, or `None` where they would lose precision."""
    dims = weights.type.rank
    channels = dims - 1
    if affine.node.operator == "conv":
        channels = 0
    elif affine.node.attributes["transpose_b"]:
        channels = dims - 2
    shape = [-1 if d == channels else 1 for d in range(dims)]
    exact = _wide(weights) * _wide(scale).reshape(shape)
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(weights.data.dtype)
    others = tuple(d for d in range(dims) if d != channels)
    error = np.abs(rounded - exact).max(others)
    fine = error <= np.abs(exact).max(others) * EPSILON[weights.dtype]
    return rounded if fine.all() else None


def _wide(value: Constant) -> Array:
    return value.data.astype(np.float64)


RULES: Rules = {"multiply": [scale_into_weights], "add": [shift_of_shift]}
