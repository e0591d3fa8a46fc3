"""Building graphs: nodes are typed as they are added, and what is known is computed at once.

A node whose inputs are all constants becomes constants (by its reference), equal nodes are one, and
the `rules` of a pass may answer with another value. Nodes that nothing needs are left out of the
finished graph. So a rewrite is a rebuilding of the graph with rules: `rebuilt`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..base import dtypes
from ..base.errors import ModelError
from .ir import Attributes, Constant, Graph, Node, TensorType, Value, constant
from .limits import check_constants
from .operator import Kind, checked_name, checked_size, find

Rule: TypeAlias = "Callable[[Builder, Node], Value | Sequence[Value] | None]"
"""Returns the values that stand for a node's outputs, or `None`. The node is not yet added."""

Rules: TypeAlias = "Mapping[str | Kind, Sequence[Rule]]"
"""Rules by the operators, or the kinds of them, whose nodes they are asked about."""

MAX_FOLDED_BYTES = 1 << 20
"""A constant is computed ahead if it takes at most so many bytes, or twice what it is made of."""


class Demand(NamedTuple):
    """Integers of any shape that a model demands to be 0; see the operator `asserted`."""

    violations: Value
    by: str
    broken: str


class Builder:
    """A graph in the making."""

    def __init__(self, name: str, rules: Rules | None = None) -> None:
        self.name = name
        self.rules = rules or {}
        self.inputs: dict[str, Value] = {}
        self.producers: dict[Value, Node] = {}
        self._folded_from: dict[Value, Node] = {}
        self._nodes: dict[object, Node] = {}
        self._constants: dict[str, Constant] = {}
        self._types: dict[object, tuple[TensorType, ...]] = {}
        self._count = 0
        self._readers = Counter[Value]()
        self.demands: dict[Demand, None] = {}
        """What a call has to meet, whichever outputs are read."""
        self.applied = Counter[str]()
        """How often each rule answered, by its name."""

    def input(self, name: str, type: TensorType) -> Value:
        """A new input."""
        if name in self.inputs:
            raise ModelError("two inputs are named {0}", name)
        value = self.inputs[checked_name(name)] = Value(checked_size(type), name)
        return value

    def constant(self, data: Any, dtype: str | None = None, name: str = "") -> Constant:
        """The constant of an array, number or list; one for equal ones."""
        array = np.asarray(data, None if dtype is None else dtypes.to_numpy(dtype))
        new = constant(array, name)
        return self._constants.setdefault(new.digest, new)

    def add(self, operator: str, *inputs: Value, **attributes: Any) -> Value:
        """The output of an operator that has one.

        Raises `ModelError` if the operator does not take these inputs or attributes, or if it has
        several outputs.
        """
        outputs = self._add(operator, inputs, attributes)
        if len(outputs) != 1:
            raise ModelError("{0} has {1} outputs; use `add_all`", operator, len(outputs))
        return outputs[0]

    def add_all(self, operator: str, *inputs: Value, **attributes: Any) -> tuple[Value, ...]:
        """All outputs of an operator. Raises `ModelError` as `add` does."""
        return self._add(operator, inputs, attributes)

    def demand(self, violations: Value, *, by: str, broken: str) -> None:
        """Note a demand, which `importers.translation` ties to an output of the finished graph.

        Raises `ModelError` if it is known not to be met.
        """
        if isinstance(violations, Constant):
            check_constants(find("asserted"), (violations,) * 2, {"by": by, "broken": broken})
        elif violations.type.size:
            self.demands[Demand(violations, by, broken)] = None

    def copy(self, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """The outputs of another graph's node with these inputs."""
        same = all(a.type == b.type for a, b in zip(node.inputs, inputs, strict=True))
        return self._add(node.operator, tuple(inputs), node.attributes, node.outputs, known=same)

    def producer(self, value: Value, operator: str) -> Node | None:
        """The node that computes a value, if it is of that operator."""
        node = self.producers.get(value)
        return node if node is not None and node.operator == operator else None

    def has(self, value: object) -> bool:
        """Whether it is a value of this graph."""
        if isinstance(value, Constant):
            return self._constants.get(value.digest) is value
        return value in self.producers or any(value is given for given in self.inputs.values())

    def origin(self, value: Value, operator: str) -> Node | None:
        """The node that computes a value, or of which a constant is the result, as `producer`."""
        node = self.producers.get(value) or self._folded_from.get(value)
        return node if node is not None and node.operator == operator else None

    def read_once(self, value: Value) -> bool:
        """Whether one node reads a value: in the graph that is rebuilt, as far as it is from it."""
        return self._readers.get(value, 1) == 1

    def _add(
        self,
        name: str,
        inputs: tuple[Value, ...],
        given: Attributes,
        like: Sequence[Value] = (),
        *,
        known: bool = False,
    ) -> tuple[Value, ...]:
        """The outputs of an operator, named as `like`, whose types they have too if `known`."""
        record = find(name)
        taken = tuple(value.type for value in inputs)
        attributes = dict(given) if known else record.checked(taken, dict(given))
        exact = (name, tuple(attributes.items()), _signs(attributes))
        key = (exact, tuple(map(id, inputs)))
        equal = self._nodes.get(key)
        if equal is not None:
            return equal.outputs
        types = tuple(value.type for value in like) if known else self._types.get((exact, taken))
        if types is None:
            types = self._types[exact, taken] = record.types(taken, attributes)
        if not known:
            check_constants(record, inputs, attributes)
        folded = self._folded(record, inputs, attributes, types)
        if folded is not None:
            node = Node(name, inputs, attributes, folded)
            self._folded_from.update((value, node) for value in folded if value not in inputs)
            return folded
        outputs = tuple(
            Value(type, like[k].name if like else self._new_name()) for k, type in enumerate(types)
        )
        node = Node(name, inputs, attributes, outputs)
        for rule in (*self.rules.get(name, ()), *self.rules.get(record.kind, ())):
            try:
                answer = rule(self, node)
            except ModelError:
                if not record.outside:
                    raise
                continue  # it takes no other operands than it was given
            if answer is None:
                continue
            values = (answer,) if isinstance(answer, Value) else tuple(answer)
            if tuple(v.type for v in values) != types:
                assert record.outside, f"{rule.__name__}: {values} for {node}"
                continue
            self.applied[rule.__name__] += 1
            return values
        self._nodes[key] = node
        for output in outputs:
            self.producers[output] = node
        return outputs

    def _folded(
        self,
        record: Any,
        inputs: Sequence[Value],
        attributes: Attributes,
        types: Sequence[TensorType],
    ) -> tuple[Value, ...] | None:
        if record.kind is Kind.FOREIGN or not all(isinstance(v, Constant) for v in inputs):
            return None
        limit = max(MAX_FOLDED_BYTES, 2 * sum(value.type.bytes for value in inputs))
        if sum(type.bytes for type in types) > limit:
            return None
        if not any(type.size for type in types):  # nothing to compute, where numpy may refuse to
            return tuple(self.constant(np.empty(t.shape), t.dtype) for t in types)
        arrays = [value.data for value in inputs if isinstance(value, Constant)]
        try:
            with np.errstate(all="ignore"):
                results = record.evaluate(arrays, attributes, types)
        except IndexError as error:
            raise ModelError("{0}: {1}", record.name, error) from error
        pairs = zip(results, types, strict=True)
        return tuple(self.constant(r.reshape(t.shape), t.dtype) for r, t in pairs)

    def _new_name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def graph(self, outputs: Mapping[str, Value]) -> Graph:
        """The graph of what these outputs need. Raises `ModelError` for a name that is no text."""
        for name in outputs:
            checked_name(name)
        needed = set(outputs.values())
        nodes: list[Node] = []
        for node in reversed(self._nodes.values()):
            if not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                nodes.append(node)
        return Graph(self.name, self.inputs, tuple(reversed(nodes)), dict(outputs))


def rebuilt(graph: Graph, rules: Rules) -> tuple[Graph, Counter[str]]:
    """The graph with the rules of its operators applied once to each node, and their counts."""
    builder = Builder(graph.name, rules)
    kept = set(graph.outputs.values())
    new: dict[Value, Value] = {}

    def stands_for(old: Value, value: Value) -> None:
        new[old] = value
        builder._readers[value] += len(graph.consumers.get(old, ())) + (old in kept)

    for name, value in graph.inputs.items():
        builder.inputs[name] = value
        stands_for(value, value)
    for held in graph.constants:
        stands_for(held, builder._constants.setdefault(held.digest, held))
    for node in graph.nodes:
        outputs = builder.copy(node, [new[value] for value in node.inputs])
        for old, value in zip(node.outputs, outputs, strict=True):
            stands_for(old, value)
    made = builder.graph({n: new[v] for n, v in graph.outputs.items()})

    def stands(value: Value | None) -> Value | None:
        now = value if value is None else new.get(value, value)
        return None if isinstance(now, Constant) else now

    sources = tuple(replace(s, outputs=tuple(map(stands, s.outputs))) for s in graph.sources)
    return replace(made, sources=sources), builder.applied


def _signs(attributes: Attributes) -> object:
    """What tells attributes apart that compare equal: 0.0 and -0.0, 1 and True and 1.0."""
    return repr(tuple(attributes.values()))
