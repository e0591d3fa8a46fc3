"""Attributes and graphs that are changed a little: what others are right for is right for these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError, VerifyError
from tilewright.graph import Builder, Graph, TensorType, Value
from tilewright.graph.passes import PASSES
from tilewright.graph.passes.driver import compare
from tilewright.graph.verify import verify

from .random_values import Pick

_ODD = (-2, -1, 0, 1, 2, 5, 40, 2**63, -(2**63), 10**400, 0.5, -0.0, math.inf, -math.inf, math.nan,
       True, False, None, "a", "", (), (1,), (0, 0), ((1, 2), 3))  # fmt: skip


def changed(value: Any, pick: Pick) -> Any:
    """Another value, or a tuple with an item more, less, or changed."""
    if isinstance(value, list | tuple) and value and pick(4):
        items, at = list(value), pick(len(value))
        items[at : at + 1] = ([], [items[at]] * 2, *[[changed(items[at], pick)]] * 4)[pick(6)]
        return items
    if isinstance(value, int | float) and pick(2):
        return value + (-4, -2, -1, 1, 2, 4)[pick(6)]
    return _ODD[pick(len(_ODD))]


_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_UNARY = ("exp", "negative", "abs", "relu")
_MOST = 3
"""Changes of one example."""
_EXTENTS = (1, 2, 3, 4, 6)


def mutant(examples: Sequence[Graph], pick: Pick) -> Graph | None:
    """One of the examples with a few changes; `None` if there is no such graph."""
    graph = examples[pick(len(examples))]
    for _ in range(1 + pick(_MOST)):
        try:
            graph = _changed(graph, pick)
        except (ModelError, IndexError):  # an index that is known may be out of range
            return None
        if not graph.nodes:
            return None
    return graph


def _changed(graph: Graph, pick: Pick) -> Graph:
    """The graph with one change: of an extent, a number, a node, or what it returns."""
    b = Builder(graph.name)
    kind = pick(7)
    old, extent = _EXTENTS[pick(len(_EXTENTS))], _EXTENTS[pick(len(_EXTENTS))]

    def resized(shape: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(extent if kind == 0 and e == old else e for e in shape)

    new: dict[Value, Value] = {}
    for name, value in graph.inputs.items():
        new[value] = b.input(name, TensorType(value.dtype, resized(value.shape)))
    for held in graph.constants:
        data = np.resize(held.data, resized(held.shape))
        if kind == 1 and data.size and pick(2):
            number = np.array((-1, 0, 1, 2, 7)[pick(5)])
            data.reshape(-1)[pick(data.size)] = number.astype(data.dtype)
        new[held] = b.constant(data, held.dtype)
    at = graph.nodes[pick(len(graph.nodes))]
    for node in graph.nodes:
        operator, inputs = node.operator, [new[value] for value in node.inputs]
        attributes: dict[str, Any] = dict(node.attributes)
        if "shape" in attributes:
            attributes["shape"] = resized(attributes["shape"])
        place = pick(len(inputs))
        if node is at and kind == 2:
            inputs[place] = list(new.values())[pick(len(new))]
        elif node is at and kind == 3:
            operator = _BINARY[pick(len(_BINARY))] if operator in _BINARY else operator
            inputs = inputs[::-1] if pick(2) else inputs
        elif node is at and kind == 4 and attributes:
            name = list(attributes)[pick(len(attributes))]
            attributes[name] = changed(attributes[name], pick)
        elif node is at and kind == 5:
            inputs[place] = b.add(_UNARY[pick(len(_UNARY))], inputs[place])
        made = b.add_all(operator, *inputs, **attributes)
        new.update(zip(node.outputs, made, strict=True))
    outputs = {name: new[value] for name, value in graph.outputs.items()}
    if kind == 6:
        outputs["also"] = list(new.values())[pick(len(new))]
    return b.graph(outputs)


def applied(graph: Graph) -> set[str]:
    """The rules that passes apply to a graph. Raises `AssertionError` where they change it."""
    found = set[str]()
    first = graph
    for each in PASSES:
        after, counts = each.run(graph)
        found.update(counts)
        verify(after)
        if after is not graph:
            try:
                compare(each, graph, after)
            except VerifyError as error:
                raise AssertionError(f"{error}\n{graph}{after}") from error
        graph = after
    again = graph.optimized()
    assert again.digest == graph.digest, f"passes change what they made:\n{first}{graph}{again}"
    return found
