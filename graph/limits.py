"""Which indices a model has to compare with their limits when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..base import dtypes
from ..base.errors import ModelError
from .ir import Attributes, Constant, Graph, Node, Value
from .operator import Limits, Operator, find


def check_constants(record: Operator, inputs: Sequence[Value], attributes: Attributes) -> None:
    """Raise `ModelError` for an operand that is known and has an index out of its limits."""
    for limits in record.limits_of([value.type for value in inputs], attributes):
        value = inputs[limits.operand]
        if isinstance(value, Constant) and (broken := limits.broken_by(value.data)) is not None:
            by = "" if limits.broken is not None else f"{record.name}: "
            raise ModelError("{0}{1}", by, broken)


def open_limits(graph: Graph) -> Mapping[Node, Sequence[tuple[Value, Limits]]]:
    """The operands of each node, with their limits, that may be outside of these."""
    found: dict[Node, Sequence[tuple[Value, Limits]]] = {}
    for node in graph.nodes:
        types = [value.type for value in node.inputs]
        demanded = find(node.operator).limits_of(types, node.attributes)
        pairs = [(node.inputs[limits.operand], limits) for limits in demanded]
        left = [(v, limits) for v, limits in pairs if not _holds(graph, v, limits)]
        if left:
            found[node] = left
    return found


def _holds(graph: Graph, value: Value, limits: Limits) -> bool:
    if isinstance(value, Constant) or not value.type.size:
        return True
    low, high = _range(graph, value)
    return limits.least <= low and high <= limits.greatest


def _range(graph: Graph, value: Value, depth: int = 16) -> tuple[int, int]:
    """What a value of integers may be at least and at most, by the nodes that it comes from.

    At most so many are asked, one before the other.
    """
    whole = dtypes.int_limits(value.dtype)
    if isinstance(value, Constant) and value.data.size:
        return int(np.min(value.data)), int(np.max(value.data))
    node = graph.producers.get(value)
    if node is None or not depth:
        return whole
    first, a = node.inputs[0], node.attributes
    if node.operator in ("argmax", "argmin", "top"):
        axis = a["axis"]
        assert isinstance(axis, int)
        return (0, first.shape[axis] - 1) if value is node.outputs[-1] else whole
    if node.operator == "lu" and value is node.outputs[1]:
        return 1, first.shape[1]
    if node.operator == "clip":
        high = min(whole[1], int(a["high"]))  # type: ignore[arg-type]
        return min(max(whole[0], int(a["low"])), high), high  # type: ignore[arg-type]
    if node.operator in _OF_ELEMENTS and dtypes.is_integer(first.dtype):
        low, high = _range(graph, first, depth - 1)
        return (low, high) if whole[0] <= low and high <= whole[1] else whole
    if node.operator in _OF_TWO and any(isinstance(v, Constant) for v in node.inputs[-2:]):
        lows, highs = zip(*(_range(graph, v, depth - 1) for v in node.inputs[-2:]), strict=True)
        least, greatest = _OF_TWO[node.operator]
        return least(lows), greatest(highs)
    return whole


_OF_ELEMENTS = ("reshape", "broadcast_to", "transpose", "slice", "cast")
"""Operators whose elements are those of their operand."""
_OF_TWO = {"where": (min, max), "minimum": (min, min), "maximum": (max, max)}
"""How the ends of the range follow from those of the last two operands.

One of these has to be known, so that the nodes that are asked are a chain.
"""
