"""Algebra that is exact: nodes that compute one of their operands."""

from __future__ import annotations

import math

from ...base import dtypes
from ..builder import Builder, Rules
from ..ir import Node, Value
from .rules import is_number


def without_neutral(_: Builder, node: Node) -> Value | None:
    """x + -0.0, x - 0.0, x * 1, x / 1, maximum(x, -inf), minimum(x, inf)   ->   x

    x + 0.0 is not x for -0.0.
    """
    sides = ((0, 1),) if node.operator in ("subtract", "divide") else ((0, 1), (1, 0))
    wanted = _neutral(node.operator, node.output.dtype)
    for kept, other in sides:
        if is_number(node.inputs[other], wanted) and node.inputs[kept].type == node.output.type:
            return node.inputs[kept]
    return None


def _neutral(operator: str, dtype: str) -> float:
    if operator in ("multiply", "divide"):
        return 1
    if operator in ("add", "subtract"):
        return -0.0 if operator == "add" and dtypes.is_float(dtype) else 0
    if dtypes.is_float(dtype):
        return -math.inf if operator == "maximum" else math.inf
    low, high = dtypes.int_limits(dtype)
    return low if operator == "maximum" else high


_NEUTRAL = ("add", "subtract", "multiply", "divide", "maximum", "minimum")

RULES: Rules = {operator: [without_neutral] for operator in _NEUTRAL}
