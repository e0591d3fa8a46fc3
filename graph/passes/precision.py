"""Narrow floats are computed in float32 from node to node, and rounded where they leave the graph.

Each node would else round its results: errors add up, and what only float32 can hold becomes
infinite on the way. Casts that a model has itself round as they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import ModelError
from ..builder import Builder, Rules
from ..ir import Node, Value
from ..operator import Kind, find
from .rules import reshaped, without_views

NARROW = ("float16", "bfloat16")
_MOVING = (Kind.MOVEMENT, Kind.INDEXING)


def in_float32(b: Builder, node: Node) -> Sequence[Value] | None:
    """op(x, rounded(y))   ->   rounded(op(cast(x), y)), also of a narrow op without such operands

    Where nothing is computed (in movement, and in operators without narrow results), only what was
    rounded is replaced. Products take operands that are all narrow as they are.
    """
    sources = [_source(b, value) for value in node.inputs]
    wide = any(source is not None for source in sources)
    narrow = any(output.dtype in NARROW for output in node.outputs)
    moves = find(node.operator).kind in _MOVING or node.operator in ("cast", "rounded")
    if not (wide or (narrow and not moves)):
        return None
    attributes = dict(node.attributes)
    if node.operator == "cast":
        (source,) = sources
        assert source is not None, "it is wide"
        same = attributes["dtype"] == source.dtype
        return (source if same else b.add("cast", source, **attributes),)
    operands = list(node.inputs)
    if wide or "dtype" not in attributes:
        operands = [s or _widened(b, v) for s, v in zip(sources, node.inputs, strict=True)]
    if narrow and "dtype" in attributes:
        attributes["dtype"] = "float32"
    try:
        results = b.add_all(node.operator, *operands, **attributes)
    except ModelError:  # an operator from outside, which takes no other dtypes
        return None
    return tuple(
        b.add("rounded", value, dtype=old.dtype) if old.dtype in NARROW else value
        for value, old in zip(results, node.outputs, strict=True)
    )


def _source(b: Builder, value: Value) -> Value | None:
    """What was rounded to a value, or to what it is a reshape of."""
    node = b.producer(without_views(b, value), "rounded")
    return None if node is None else reshaped(b, node.inputs[0], value.shape)


def _widened(b: Builder, value: Value) -> Value:
    if value.dtype not in NARROW:
        return value
    whole = b.add("cast", without_views(b, value), dtype="float32")
    return reshaped(b, whole, value.shape)


RULES: Rules = {kind: [in_float32] for kind in Kind if kind is not Kind.VIEW}
