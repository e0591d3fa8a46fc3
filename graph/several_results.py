"""Groups of pointwise nodes joined, where one reads what another of its shape computes or reads.

Such a kernel has several results, and what is between them stays in registers. The groups are
placed one after the other, in an order in which they can run: each in a kernel that is there, or
else in one of its own. Kernels have positions in such an order too. What a group needs is moved
before the kernel that it joins, unless that needs this kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from ..tir.ir import FLOAT_FUNCTIONS, ROUNDINGS, Call
from ..tir.program import stages_of
from ..tir.visit import walk
from .ir import Attribute, Graph, Node, TensorType, Value
from .operator import Kind, find, placeholder

MAX_NODES = 192
"""Nodes of a kernel that is one loop nest."""
MAX_STREAMS = 12
"""Arrays of the shape of its loops that a kernel reads and writes. More of them push each other out
of the first level of cache where they lie a multiple of 4 KB apart."""
_FORWARD = {"broadcast_to", "slice"}
"""Operators that read rows as rows: where they do does not decide how a nest is tiled."""
_LONG = frozenset(FLOAT_FUNCTIONS) - ROUNDINGS
"""Functions of tens of instructions an element."""
_LOOKED_AT = 64
"""The most kernels that are moved at once."""

Producer = Callable[[Value], Node | None]
"""The node that computes the memory of a value."""


@dataclass(eq=False)
class _Kernel:
    """Nodes that are computed together, and the kernels that they need, at smaller positions.

    `shape` is that of all that pointwise nodes compute for others; `None` if it takes no others.
    """

    position: float
    shape: tuple[int, ...] | None
    nodes: list[Node] = field(default_factory=list)
    needs: set[_Kernel] = field(default_factory=set)


def joined(
    graph: Graph, groups: Sequence[Sequence[Node]], closed: Set[Node], producer: Producer
) -> list[list[Node]]:
    """The groups, given and returned in an order in which they can run, with some of them joined.

    Nodes `closed` stay in their groups.
    """
    joining = _Joining(graph, closed, producer)
    for nodes in groups:
        joining.add(nodes)
    joining.take_producers()
    return [kernel.nodes for kernel in sorted(joining.kernels, key=lambda k: k.position)]


class _Joining:
    def __init__(self, graph: Graph, closed: Set[Node], producer: Producer) -> None:
        self.graph, self.closed, self.producer = graph, closed, producer
        self.place = {node: n for n, node in enumerate(graph.nodes)}
        self.returned = set(graph.outputs.values())
        self.kernels: list[_Kernel] = []
        self.home: dict[Node, _Kernel] = {}
        self.reader: dict[Value, _Kernel] = {}
        """The last kernel of pointwise nodes that reads a value."""

    def add(self, nodes: Sequence[Node]) -> None:
        """Place the next group."""
        shape = self._shape(nodes)
        needs = {self.home[node] for node in self._producers(nodes)}
        kernel = None if shape is None else self._found(nodes, shape, needs)
        if kernel is None:
            kernel = _Kernel(len(self.kernels) + 1.0, shape)
            self.kernels.append(kernel)
        self._merge(kernel, nodes, needs)

    def take_producers(self) -> None:
        """Let kernels that one other alone reads join it."""
        readers: dict[_Kernel, set[_Kernel]] = {kernel: set() for kernel in self.kernels}
        for kernel in self.kernels:
            for need in kernel.needs:
                readers[need].add(kernel)
        for kernel in sorted(self.kernels, key=lambda k: -k.position):
            if kernel.shape is None or len(readers[kernel]) != 1:
                continue
            (reader,) = readers[kernel]
            if self._fits(reader, kernel.nodes, kernel.shape, kernel, reader.nodes):
                self._merge(reader, kernel.nodes, kernel.needs)
                reader.needs.discard(kernel)
                self.kernels.remove(kernel)
                for need in kernel.needs:
                    readers[need] = (readers[need] - {kernel}) | {reader}

    def _merge(self, kernel: _Kernel, nodes: Sequence[Node], needs: set[_Kernel]) -> None:
        kernel.nodes += nodes
        kernel.needs |= needs - {kernel}
        self.home.update(dict.fromkeys(nodes, kernel))
        if kernel.shape is not None:
            self.reader.update((value, kernel) for node in nodes for value in node.inputs)

    def _producers(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """The nodes of other groups that compute what these nodes read."""
        own = set(nodes)
        for node in nodes:
            for value in node.inputs:
                found = self.producer(value)
                if found is not None and found not in own:
                    yield found

    def _shape(self, nodes: Sequence[Node]) -> tuple[int, ...] | None:
        """The shape of what these nodes compute for others, if pointwise ones do, in one shape."""
        if not all(map(self._is_free, nodes)):
            return None
        shapes = set[tuple[int, ...]]()
        for value in self._results(nodes):
            if find(self.graph.producers[value].operator).kind is not Kind.POINTWISE:
                return None
            shapes.add(value.shape)
        return shapes.pop() if len(shapes) == 1 else None

    def _is_free(self, node: Node) -> bool:
        pointwise = find(node.operator).kind is Kind.POINTWISE or node.operator in _FORWARD
        return pointwise and node not in self.closed

    def _results(self, nodes: Sequence[Node]) -> Iterator[Value]:
        own = set(nodes)
        for node in nodes:
            for value in node.outputs:
                readers = self.graph.consumers.get(value, ())
                if value in self.returned or not own.issuperset(readers):
                    yield value

    def _found(
        self, nodes: Sequence[Node], shape: tuple[int, ...], needs: set[_Kernel]
    ) -> _Kernel | None:
        """The kernel that these nodes join, the last one before others."""
        arrays = (v for node in nodes for v in node.inputs if v.shape == shape)
        beside = {self.reader[v] for v in arrays if v in self.reader}
        for kernel in sorted(needs | beside, key=lambda k: -k.position):
            if self._fits(kernel, nodes, shape, kernel, nodes) and _moved(kernel, needs - {kernel}):
                return kernel
        return None

    def _fits(
        self,
        kernel: _Kernel,
        nodes: Sequence[Node],
        shape: tuple[int, ...],
        writer: _Kernel,
        readers: Sequence[Node],
    ) -> bool:
        """Whether a kernel has room for these nodes.

        What `writer` computes has to be read by `readers` point by point, and not as a view.
        """
        if kernel.shape != shape or len(kernel.nodes) + len(nodes) > MAX_NODES:
            return False
        for node in readers:
            pointwise = find(node.operator).kind is Kind.POINTWISE
            for value in node.inputs:
                if self._home_of(value) is writer and not (
                    pointwise and self.graph.producers[value] in self.home
                ):
                    return False
        both = [*kernel.nodes, *nodes]
        if self._chained(both) > max(1, self._chained(kernel.nodes), self._chained(nodes)):
            return False
        made = {value for node in both for value in node.outputs}
        given = {v for node in both for v in node.inputs if v.shape == shape} - made
        return len(given) + sum(1 for _ in self._results(both)) <= MAX_STREAMS

    def _chained(self, nodes: Sequence[Node]) -> int:
        """How many functions of tens of instructions have to wait for each other.

        A loop in which more of them do is slower than several loops: an element takes so long that
        a processor begins few others meanwhile.
        """
        depths: dict[Value, int] = {}
        for node in sorted(nodes, key=self.place.__getitem__):
            before = max((depths.get(value, 0) for value in node.inputs), default=0)
            dtypes = tuple(value.dtype for value in node.inputs)
            depth = before + _calls(node.operator, dtypes, tuple(node.attributes.items()))
            depths.update(dict.fromkeys(node.outputs, depth))
        return max(depths.values(), default=0)

    def _home_of(self, value: Value) -> _Kernel | None:
        node = self.producer(value)
        return None if node is None else self.home.get(node)


@lru_cache(1024)
def _calls(
    operator: str, operands: tuple[str, ...], attributes: tuple[tuple[str, Attribute], ...]
) -> int:
    """How many such functions a pointwise operator calls for an element."""
    record = find(operator)
    if record.lower is None or record.kind is not Kind.POINTWISE:
        return 0
    elements = [placeholder(TensorType(dtype, (1,))) for dtype in operands]
    made = record.called("lowering", record.lower, *elements, **dict(attributes))
    stages = [] if made.stage is None else stages_of([made.stage])
    nodes = (n for stage in stages for result in stage.results for n in walk(result))
    return sum(type(n) is Call and n.fn in _LONG for n in nodes)


def _moved(kernel: _Kernel, others: set[_Kernel]) -> bool:
    """Move `others` before a kernel, with what they need. Returns whether that can be."""
    found = set[_Kernel]()
    pending = [k for k in others if k.position >= kernel.position]
    while pending:
        other = pending.pop()
        if other is kernel or len(found) == _LOOKED_AT:
            return False
        if other not in found:
            found.add(other)
            pending += [k for k in other.needs if k.position >= kernel.position]
    rest = {k for other in found for k in other.needs} - found
    low = max((k.position for k in rest), default=0.0)
    places = [low + (kernel.position - low) * (n + 1) / (len(found) + 1) for n in range(len(found))]
    if any(not a < b for a, b in zip([low, *places], [*places, kernel.position], strict=True)):
        return False  # floats have no more places there
    for other, place in zip(sorted(found, key=lambda k: k.position), places, strict=True):
        other.position = place
    return True
