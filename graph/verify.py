"""The rules that every graph keeps; passes are checked against them."""

from __future__ import annotations

from ..base import dtypes
from ..base.errors import ModelError
from .ir import Constant, Graph, Value
from .operator import find


def verify(graph: Graph) -> None:
    """Raise `ModelError` for a graph that breaks a rule.

    Each value is an input, a constant or computed by one node before it is read; nodes have the
    attributes and types that their operators say, axes from the front; constants have the elements
    of their types. No node reads a value of which data decide an extent.
    """
    known: set[Value] = set()
    for name, value in graph.inputs.items():
        if value in known or isinstance(value, Constant):
            raise ModelError("the input {0} stands for two, or is a constant", name)
        known.add(value)
    for held in graph.constants:
        data = held.data
        if data.shape != held.shape or not data.flags.c_contiguous or data.flags.writeable:
            raise ModelError("the constant {0} is not {1}, compact and read-only", held, held.type)
    for node in graph.nodes:
        for value in node.inputs:
            if value not in known and not isinstance(value, Constant):
                raise ModelError("{0} reads {1} before it is computed", node, value)
            if dtypes.UNKNOWN in value.shape:
                raise ModelError("{0} reads {1}, of which data decide an extent", node, value)
        record = find(node.operator)
        given = [v.type for v in node.inputs]
        attributes = record.checked(given, dict(node.attributes))
        if attributes != node.attributes:
            raise ModelError("{0} has attributes {1}, not {2}", node, node.attributes, attributes)
        types = record.types(given, attributes)
        if types != tuple(v.type for v in node.outputs):
            raise ModelError("{0} computes {1}", node, ", ".join(map(str, types)))
        for output in node.outputs:
            if output in known or isinstance(output, Constant):
                raise ModelError("{0} is computed twice", output)
            known.add(output)
    for name, value in graph.outputs.items():
        if value not in known and not isinstance(value, Constant):
            raise ModelError("the output {0} is computed by no node", name)
