"""Which indices a model has to compare with their limits when it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..base import dtypes
from ..base.errors import ModelError
from ..runtime.guards import broken_text
from .ir import Attributes, Constant, Graph, Node, TensorType, Value
from .operator import Limits, Operator, find


def check_constants(record: Operator, inputs: Sequence[Value], attributes: Attributes) -> None:
    """Raise `ModelError` for an operand that is known and has an index out of its limits."""
    for value, limits in _limited(record, inputs, attributes):
        if isinstance(value, Constant) and value.data.size:
            data = value.data if limits.column is None else value.data[..., limits.column]
            low, high = int(np.min(data)), int(np.max(data))
            if low < limits.least or high > limits.greatest:
                if limits.broken is not None:
                    raise ModelError("{0}: {1}", limits.by, broken_text(limits.broken, data))
                raise ModelError(
                    "{0}: expected indices from {1} to {2}, found {3} to {4}",
                    record.name, limits.least, limits.greatest, low, high,
                )  # fmt: skip


def open_limits(graph: Graph) -> Mapping[Node, Sequence[tuple[Value, Limits]]]:
    """The operands of each node, with their limits, that may be outside of these."""
    found: dict[Node, Sequence[tuple[Value, Limits]]] = {}
    for node in graph.nodes:
        pairs = _limited(find(node.operator), node.inputs, node.attributes)
        left = [(v, limits) for v, limits in pairs if not _holds(graph, v, limits)]
        if left:
            found[node] = left
    return found


def _limited(
    record: Operator, inputs: Sequence[Value], attributes: Attributes
) -> Iterator[tuple[Value, Limits]]:
    types = [value.type for value in inputs]
    for limits in record.called("limits", record.limits, *types, **attributes):
        if record.outside:
            _check(record, types, limits)
        yield inputs[limits.operand], limits


def _check(record: Operator, types: Sequence[TensorType], limits: object) -> None:
    """Raise `ModelError` for limits, as a user's operator says them, of what is no operand."""
    if isinstance(limits, Limits) and 0 <= limits.operand < len(types):
        type, column = types[limits.operand], limits.column
        columns = type.shape[-1] if type.shape else 0
        if dtypes.is_integer(type.dtype) and (column is None or 0 <= column < columns):
            return
    raise ModelError(
        "{0}: its limits: {1!r:.120} are not those of indices among {2}",
        record.name, limits, ", ".join(map(str, types)),
    )  # fmt: skip


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
