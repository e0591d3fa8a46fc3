"""Activations that exporters write out with a division, which their operators do without.

Others (SiLU, gelu) are as fast written out: all pointwise nodes of a kernel are fused.
"""

from __future__ import annotations

import math

from ...base import dtypes
from ..builder import Builder, Rules
from ..ir import Node, Value
from .rules import beside_number, factors, near, new, reshaped, same


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
    """The x, offset and top of x + offset between 0 and the top.

    An offset above the top would cost x / top + offset / top more digits than it costs the sum.
    """
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
            and abs(moved[1]) <= top
            and (top == first[1]) == (outer == "minimum")
        ):
            return moved[0], moved[1], top
    return None


RULES: Rules = {"multiply": [hard_swish], "divide": [hard_swish]}
