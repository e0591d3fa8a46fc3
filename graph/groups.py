"""Groups: which nodes of a graph become one kernel.

A group has at most one anchor, a node that is more than pointwise. What it computes alone may be
read inside: the pointwise nodes between its result and the first node that all of its readers lead
to (the post-dominator) join it, also where they read other values from memory. A node in front of
an anchor joins if only the group reads it and it is cheap to compute at each place that is read.
A node that is a program or a loop is a group of its own. A view is no node of a group: it is
another name for memory. Groups of pointwise nodes are joined at last, where several results cost
fewer bytes (`several_results.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from .ir import Constant, Graph, Node, Value
from .limits import open_limits
from .operator import Kind, find
from .several_results import joined

if TYPE_CHECKING:
    from .loops import Loop

_FREE = {Kind.POINTWISE}
_ANCHORS = {Kind.CONTRACTION, Kind.REDUCTION, Kind.ROWS, Kind.WINDOW, Kind.SCAN, Kind.OPAQUE}
MAX_NODES = 32
"""Nodes of a group, and half of their operands; programs of more take long to schedule."""


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that one kernel computes, in order; what it reads, constants among it, and writes.

    Constants of one element are no inputs: they are part of the program.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @cached_property
    def loop(self) -> Loop | None:
        """The loop that it is, which is no kernel."""
        from .loops import is_loop, loop_of

        return loop_of(self.nodes[0]) if is_loop(self.nodes[0]) else None

    @property
    def name(self) -> str:
        """Its operators, the first of equal ones only."""
        return "_".join(dict.fromkeys(node.operator for node in self.nodes))

    @property
    def read_bytes(self) -> int:
        """Of inputs that are computed or given."""
        return sum(v.type.bytes for v in self.inputs) - self.constant_bytes

    @property
    def constant_bytes(self) -> int:
        """Of inputs that are constants."""
        return sum(v.type.bytes for v in self.inputs if isinstance(v, Constant))

    @property
    def written_bytes(self) -> int:
        return sum(v.type.bytes for v in self.outputs)

    def __repr__(self) -> str:
        return f"<Group {self.name}: {', '.join(str(o.type) for o in self.outputs)}>"


def _kept(graph: Graph) -> set[Value]:
    """What has to be in memory: outputs, and indices that are compared with their limits there."""
    indices = (value for pairs in open_limits(graph).values() for value, _ in pairs)
    return {*graph.outputs.values(), *indices}


def kind(node: Node) -> Kind:
    return find(node.operator).kind


def is_program(node: Node) -> bool:
    """Whether it is a program of its own, or a loop, and so a group of its own."""
    record = find(node.operator)
    return record.program is not None or record.kind is Kind.LOOP


def _operands(node: Node) -> tuple[Value, ...]:
    """What a node reads, of a loop but for constants that are its body's own."""
    if kind(node) is not Kind.LOOP:
        return node.inputs
    moving = int(node.attributes["carried"]) + int(node.attributes["sliced"])  # type: ignore[arg-type]
    others = (value for value in node.inputs[moving:] if not isinstance(value, Constant))
    return (*node.inputs[:moving], *others)


def is_view(node: Node) -> bool:
    """Whether its output is another name for the memory of its input."""
    return kind(node) is Kind.VIEW


def divide(graph: Graph) -> list[Group]:
    """The groups of a graph, in an order in which they can run. Views belong to none."""
    kept, place = _kept(graph), {node: n for n, node in enumerate(graph.nodes)}
    single = list(_in_order(graph, _Division(graph).leaders()))
    closed = {node for node in graph.nodes if is_program(node)} | open_limits(graph).keys()
    groups = joined(graph, single, closed, partial(_computes, graph))
    return [_group(graph, sorted(nodes, key=place.__getitem__), kept) for nodes in groups]


class _Division:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {node: n for n, node in enumerate(graph.nodes)}
        self.kept = _kept(graph)
        self.dominators = _post_dominators(graph)
        self.leader: dict[Node, Node] = {}
        self.members: dict[Node, list[Node]] = {}

    def leaders(self) -> dict[Node, Node]:
        """The first node of the group of each node."""
        for node in self.graph.nodes:
            if not is_view(node):
                self.leader[node] = node
                self.members[node] = [node]
        # Epilogues first, from anchors in order, then chains of what is left.
        nodes = [n for n in self.graph.nodes if n in self.leader]
        for node in sorted(nodes, key=lambda n: kind(n) not in _ANCHORS):
            self._extend(node)
        for node in reversed(nodes):
            self._take_producers(node)
        return self.leader

    def _extend(self, start: Node) -> None:
        """Let the pointwise nodes that the group of `start` dominates join it.

        What is read outside of the group is computed by its last node alone. So no operand of these
        nodes is computed from the group elsewhere.
        """
        end = start
        if is_program(start):
            return
        while len(end.outputs) == 1 and end.output not in self.kept:
            meet = self.dominators.get(end)
            between = None if meet is None else self._between(end, meet, start)
            if meet is None or between is None:
                return
            for node in between:
                self._merge(node, start)
            end = meet

    def _between(self, end: Node, meet: Node, start: Node) -> list[Node] | None:
        """The nodes on all ways from `end` to `meet`, which is the last, in order.

        `None` unless all may join the group of `start`.
        """
        room = MAX_NODES - len(self.members[self.leader[start]])
        found: set[Node] = set()
        pending = [end]
        while pending:
            for value in pending.pop().outputs:
                if value in self.kept:
                    return None
                for node in self.graph.consumers.get(value, ()):
                    if node in found:
                        continue
                    if len(found) == room or not self._joins(node, start):
                        return None
                    found.add(node)
                    if node is not meet:
                        pending.append(node)
        return sorted(found, key=self.place.__getitem__)

    def _joins(self, node: Node, start: Node) -> bool:
        """Whether a node may be computed where the group of `start` has its result."""
        if kind(node) not in _FREE or len(node.outputs) > 1:
            return False
        if node.output.type.size != start.outputs[0].type.size:
            return False
        return len(self.members[self.leader[node]]) == 1

    def _in(self, node: Node, leader: Node) -> bool:
        return self.leader.get(node) is leader

    def _merge(self, node: Node, start: Node) -> None:
        own, other = self.leader[start], self.leader[node]
        for member in self.members.pop(other):
            self.leader[member] = own
            self.members[own].append(member)

    def _take_producers(self, node: Node) -> None:
        """Let cheap nodes that only the group of `node` reads join it."""
        own = self.leader[node]
        if is_program(node):
            return
        for value in node.inputs:
            producer = self.graph.producers.get(value)
            if producer is None or producer not in self.leader or self.leader[producer] is own:
                continue
            if value in self.kept or len(self.members[self.leader[producer]]) > 1:
                continue
            if len(producer.outputs) > 1:  # other groups may need another one before this one runs
                continue
            readers = self.graph.consumers[value]
            if not all(self._in(reader, own) for reader in readers):
                continue
            if is_program(producer) or kind(producer) in _ANCHORS or not _is_cheap(producer, node):
                continue
            members = (*self.members[own], producer)
            operands = sum(len(member.inputs) for member in members)
            if len(members) <= MAX_NODES and operands <= 2 * MAX_NODES:
                self._merge(producer, node)
                self._take_producers(producer)


def _is_cheap(producer: Node, consumer: Node) -> bool:
    """Whether the consumer may compute the producer's elements where it reads them."""
    if kind(consumer) in (Kind.POINTWISE, Kind.MOVEMENT, Kind.REDUCTION, Kind.ROWS):
        return True
    if kind(consumer) is Kind.WINDOW:
        return kind(producer) is Kind.POINTWISE
    return False


def _post_dominators(graph: Graph) -> dict[Node, Node]:
    """The first node on all ways from a node's readers to the outputs, where there is one.

    Those with more than `MAX_NODES` on the way are left out.
    """
    place = {node: n for n, node in enumerate(graph.nodes)}
    kept = set(graph.outputs.values())
    found: dict[Node, Node] = {}
    for node in reversed(graph.nodes):
        readers = {r for v in node.outputs for r in graph.consumers.get(v, ())}
        if not 0 < len(readers) <= MAX_NODES or not kept.isdisjoint(node.outputs):
            continue
        meet: Node | None = None
        for reader in readers:
            meet = reader if meet is None else _meeting(meet, reader, place, found)
            if meet is None:
                break
        if meet is not None:
            found[node] = meet
    return found


def _meeting(a: Node, b: Node, place: dict[Node, int], dominators: dict[Node, Node]) -> Node | None:
    for _ in range(MAX_NODES):
        if a is b:
            return a
        if place[a] > place[b]:
            a, b = b, a
        above = dominators.get(a)
        if above is None:
            return None
        a = above
    return None


def _computes(graph: Graph, value: Value) -> Node | None:
    """The node that computes the memory of a value."""
    node = graph.producers.get(value)
    while node is not None and is_view(node):
        node = graph.producers.get(node.inputs[0])
    return node


def _in_order(graph: Graph, leaders: dict[Node, Node]) -> Iterator[list[Node]]:
    """The nodes of each group, in the order in which what they read is there."""
    members: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node in leaders:
            members.setdefault(leaders[node], []).append(node)

    def needed(nodes: Sequence[Node]) -> Iterator[Node]:
        """The leaders of the groups that compute what these nodes read."""
        for node in nodes:
            for value in node.inputs:
                producer = _computes(graph, value)
                if producer is not None:
                    yield leaders[producer]

    done: set[Node] = set()
    for first, nodes in members.items():
        pending = [] if first in done else [(first, needed(nodes))]
        done.add(first)
        while pending:
            leader, rest = pending[-1]
            other = next((o for o in rest if o not in done), None)
            if other is None:
                pending.pop()
                yield members[leader]
            else:
                done.add(other)
                pending.append((other, needed(members[other])))


def _group(graph: Graph, nodes: Sequence[Node], kept: set[Value]) -> Group:
    if is_program(nodes[0]):
        return Group((nodes[0],), _operands(nodes[0]), nodes[0].outputs)
    own = set(nodes)
    made = {value for node in nodes for value in node.outputs}
    inputs = dict.fromkeys(v for node in nodes for v in node.inputs if v not in made)
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if value in kept or any(r not in own for r in graph.consumers.get(value, ()))
    ]
    data = [v for v in inputs if not isinstance(v, Constant)]
    held = [v for v in inputs if isinstance(v, Constant) and v.type.size != 1]
    return Group(tuple(nodes), (*data, *held), tuple(outputs))
