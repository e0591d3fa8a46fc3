"""Activations that exporters write out with a division, which their operators do without.

Those that are as fast written out are left so: all pointwise nodes of a kernel are fused.
"""

from __future__ import annotations

import math

from ...base import dtypes
from ..builder import Builder, Rules
from ..ir import Node, Value
from .rules import beside_number, factors, near, new, reshaped, same, scaled


def gelu(b: Builder, node: Node) -> Value | None:
    """0.5 * x * (1 + erf(x / sqrt(2)))   ->   gelu(x), in any order"""
    dtype = node.output.dtype
    for part in factors(b, node)[0]:
        error = _plus_one(b, part)
        argument = None if error is None else b.producer(error, "erf")
        found = None if argument is None else scaled(b, argument.inputs[0])
        if found is None or not near(found[1], math.sqrt(0.5), dtype):
            continue
        x = found[0]
        others, half = factors(b, node, x, part)
        if same(others, (x, part)) and near(half, 0.5, dtype):
            return reshaped(b, new(b, "gelu", x), node.output.shape)
    return None


def _plus_one(b: Builder, value: Value) -> Value | None:
    found = beside_number(b, value, "add")
    return found[0] if found is not None and found[1] == 1 else None


def hard_swish(b: Builder, node: Node) -> Value | None:
    """x * minimum(maximum(x + 3, 0), 6) / 6   ->   hard_swish(x), in any order"""
    dtype = node.output.dtype
    if not dtypes.is_float(dtype):
        return None
    for part in factors(b, node)[0]:
        found = _clipped(b, part)
        if found is None:
            continue
        x, offset, top = found
        others, scale = factors(b, node, x, part)
        if same(others, (x, part)) and near(scale, 1 / top, dtype):
            value = new(b, "hard_swish", x, alpha=1 / top, beta=offset / top)
            return reshaped(b, value, node.output.shape)
    return None


def _clipped(b: Builder, value: Value) -> tuple[Value, float, float] | None:
    """The x, offset and top of x + offset between 0 and the top."""
    for outer, inner in (("minimum", "maximum"), ("maximum", "minimum")):
        first = beside_number(b, value, outer)
        second = None if first is None else beside_number(b, first[0], inner)
        if first is None or second is None:
            continue
        low, top = sorted((first[1], second[1]))
        moved = beside_number(b, second[0], "add")
        if (
            moved is not None
            and low == 0 < top < math.inf
            and (top == first[1]) == (outer == "minimum")
        ):
            return moved[0], moved[1], top
    return None


RULES: Rules = {"multiply": [gelu, hard_swish], "divide": [gelu, hard_swish]}
