"""The guards of a model: which indices are compared with their limits, before which group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..base import dtypes
from ..codegen.sequence import Place
from ..graph.groups import Group
from ..graph.ir import Graph, Node, Value
from ..graph.limits import open_limits
from ..graph.operator import Limits, find
from ..runtime.guards import Guard
from ..runtime.signature import Argument, compact_strides


class Guards:
    """The guards of groups, in their order, each once."""

    def __init__(self, graph: Graph) -> None:
        self._limits = open_limits(graph)
        self._sources = {v: s for s in graph.sources for v in s.outputs if v is not None}
        self._known = set[tuple[Value, Limits]]()

    def of(self, group: Group, place: Callable[[Value], Place]) -> Iterator[Guard]:
        """Those of a group's indices that no group before it has."""
        for node in group.nodes:
            for value, limits in self._limits.get(node, ()):
                key = value, replace(limits, operand=0)
                if key not in self._known:
                    self._known.add(key)
                    yield self._guard(node, value, limits, place(value))

    def _guard(self, node: Node, value: Value, limits: Limits, place: Place) -> Guard:
        """What the indices of a node have to be, named as in the file that it was read from."""
        source = self._sources.get(node.outputs[0])
        name = node.operator if source is None else f"{source.operator} {source.name}".rstrip()
        operand = find(node.operator).operand_names[limits.operand]
        data, offset = Argument(operand, value.dtype, value.shape), place.offset
        if limits.column is not None:
            shape, columns = value.shape[:-1], value.shape[-1]
            strides = tuple(n * columns for n in compact_strides(shape))
            data = replace(data, shape=shape, strides=strides)
            offset += limits.column * dtypes.nbytes(value.dtype)
        lowest, highest = dtypes.int_limits(value.dtype)
        least, most = max(limits.least, lowest), min(limits.greatest, highest)
        return Guard(name, data, place.argument, offset, least, most, limits.column)
