"""The steps of a model: which kernel runs on which memory, and what has to be copied.

Views are other names for memory. What a kernel computes for an output is written there; an output
that is an input, a constant or another output too is copied at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..base import dtypes
from ..codegen.compiled import Compiled
from ..codegen.sequence import Address, Copy, Fill, KernelCall, SequenceStep
from ..graph.groups import Group, is_view
from ..graph.ir import Constant, Graph, Node, Value
from ..graph.limits import open_limits
from ..graph.operator import Limits, find
from ..runtime.guards import Guard
from ..runtime.model import WEIGHTS
from ..runtime.signature import Argument, Signature, compact_strides
from .memory_plan import Block, Plan, live, plan
from .weights import Weights

V = TypeVar("V")


@dataclass(frozen=True)
class Steps(Generic[V]):
    """The signature and steps of a model, and where its values `V` live."""

    signature: Signature
    steps: tuple[SequenceStep, ...]
    memory: Plan[V | int]
    blocks: Mapping[V | int, Block]
    """What lives in the arena: values, and workspaces by the number of their step."""
    copied: tuple[str, ...]
    """Outputs that are copied at the end."""

    @property
    def live_bytes(self) -> int:
        """The largest sum of bytes that are needed at one step: no arena is smaller."""
        return live((block.bytes, block) for block in self.blocks.values())


def steps_of(
    graph: Graph, groups: Sequence[Group], kernels: Sequence[Compiled], weights: Weights, name: str
) -> Steps[Value]:
    """The steps of a graph's groups, whose kernels are given in the same order.

    The arguments are the inputs, the outputs, and the weights as bytes, where there are any.
    """
    inputs = [Argument(n, v.dtype, v.shape) for n, v in graph.inputs.items()]
    held = weights.bytes
    own = _distinct(WEIGHTS, graph.inputs.keys(), "_bytes")
    last = [Argument(own, "uint8", (held,), constant=True)] if held else []
    taken = {*graph.inputs, own}
    outputs = list[Argument]()
    for wanted, v in graph.outputs.items():
        outputs.append(Argument(_distinct(wanted, taken, "_out"), v.dtype, v.shape, role="out"))
        taken.add(outputs[-1].name)
    places: dict[Value, Address] = {v: Address(n) for n, v in enumerate(graph.inputs.values())}
    copies: list[tuple[Value, int]] = []
    made = {v for group in groups for v in group.outputs}
    for n, value in enumerate(graph.outputs.values(), len(inputs)):
        base = root(graph, value)
        if base in made and base not in places:
            places[base] = Address(n)
        elif value.type.bytes:
            copies.append((value, n))
    blocks = _blocks(graph, groups, kernels, places, [v for v, _ in copies])
    memory = plan(blocks)
    for key, offset in memory.offsets.items():
        if isinstance(key, Value):
            places[key] = Address(None, offset)
    blob = len(inputs) + len(outputs)

    def place(value: Value) -> Address:
        base = root(graph, value)
        if isinstance(base, Constant):
            return Address(blob, weights.plain(base))
        return places[base]

    guards = Guards(graph)
    steps: list[SequenceStep] = []
    for number, (group, kernel) in enumerate(zip(groups, kernels, strict=True)):
        operands: list[Address] = []
        for value, argument in zip(group.inputs, kernel.signature.arguments, strict=False):
            base = root(graph, value)
            if not value.type.bytes:
                operands.append(Address(len(inputs)))  # any pointer: nothing is read there
            elif isinstance(base, Constant):
                operands.append(Address(blob, weights.place(base, kernel, argument)))
            else:
                operands.append(place(value))
        operands += [places[value] for value in group.outputs]
        if group.loop is not None and held:
            operands.append(Address(blob))
        work = memory.offsets.get(number)
        workspace = None if work is None else Address(None, work)
        steps.append(KernelCall(kernel, tuple(operands), workspace, tuple(guards.of(group, place))))
    for value, n in copies:
        steps.append(Copy(place(value), Address(n), value.type.bytes))
    signature = Signature(name, (*inputs, *outputs, *last), memory.bytes)
    copied = tuple(outputs[n - len(inputs)].name for _, n in copies)
    return Steps(signature, tuple(steps), memory, blocks, copied)


def poisoned(plan: Steps[V]) -> Iterator[SequenceStep]:
    """The steps of a plan, in which memory holds no numbers before it is written and when it dies.

    A plan in which two live values overlap, and a kernel that reads what nothing has written, then
    give wrong results.
    """
    ends = defaultdict[int, list[V | int]](list)
    for key, block in plan.blocks.items():
        ends[block.last].append(key)
    yield Fill(Address(None), plan.memory.bytes)
    for number, step in enumerate(plan.steps):
        yield step
        for key in ends[number]:
            yield Fill(Address(None, plan.memory.offsets[key]), plan.blocks[key].bytes)


def root(graph: Graph, value: Value) -> Value:
    """The value whose memory it is: that of a view is its operand's."""
    node = graph.producers.get(value)
    while node is not None and is_view(node):
        value = node.inputs[0]
        node = graph.producers.get(value)
    return value


def _distinct(name: str, taken: Set[str], ending: str) -> str:
    while name in taken:
        name += ending
    return name


def _blocks(
    graph: Graph,
    groups: Sequence[Group],
    kernels: Sequence[Compiled],
    places: dict[Value, Address],
    copied: Sequence[Value],
) -> dict[Value | int, Block]:
    """The lifetimes of values by value, and of workspaces by the number of the step."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for number, group in enumerate(groups):
        for value in group.outputs:
            if value not in places:
                first[value] = last[value] = number
        for value in group.inputs:
            base = root(graph, value)
            if base in first:
                last[base] = number
    for number, value in enumerate(copied, len(groups)):
        base = root(graph, value)
        if base in first:
            last[base] = number
    blocks: dict[Value | int, Block] = {
        value: Block(value.type.bytes, first[value], last[value]) for value in first
    }
    for number, kernel in enumerate(kernels):
        size = kernel.signature.workspace_bytes
        if size:
            blocks[number] = Block(size, number, number)
    return blocks


def _names(graph: Graph) -> dict[Node, str]:
    """What errors call nodes: as in the file that they were read from. One of several that stand
    for a node of the file is named with that, which is that of all that read it."""
    sources = {v: s for s in graph.sources for v in s.outputs if v is not None}
    read_by = defaultdict[Value, set[str]](set)
    names: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        source = next((sources[v] for v in node.outputs if v in sources), None)
        if source is not None:
            own = {names.setdefault(node, f"{source.operator} {source.name}".rstrip())}
        else:
            own = {name for value in node.outputs for name in read_by[value]}
            names[node] = (
                f"{node.operator} of {next(iter(own))}" if len(own) == 1 else node.operator
            )
        for value in node.inputs:
            read_by[value] |= own
    return names


class Guards:
    """The guards of groups, in their order, each once: which indices are compared with limits."""

    def __init__(self, graph: Graph) -> None:
        self._limits = open_limits(graph)
        self._names = _names(graph)
        self._known = set[tuple[Value, Limits]]()

    def of(self, group: Group, place: Callable[[Value], Address]) -> Iterator[Guard]:
        """Those of a group's indices that no group before it has."""
        for node in group.nodes:
            for value, limits in self._limits.get(node, ()):
                key = value, replace(limits, operand=0)
                if key not in self._known:
                    self._known.add(key)
                    yield self._guard(node, value, limits, place(value))

    def _guard(self, node: Node, value: Value, limits: Limits, place: Address) -> Guard:
        """What the indices of a node have to be, named as in the file that it was read from."""
        name = self._names[node] if limits.by is None else limits.by
        operand = find(node.operator).operand_names[limits.operand]
        data, offset = Argument(operand, value.dtype, value.shape), place.offset
        if limits.column is not None:
            shape, columns = value.shape[:-1], value.shape[-1]
            strides = tuple(n * columns for n in compact_strides(shape))
            data = replace(data, shape=shape, strides=strides)
            offset += limits.column * dtypes.nbytes(value.dtype)
        lowest, highest = dtypes.int_limits(value.dtype)
        least, most = max(limits.least, lowest), min(limits.greatest, highest)
        return Guard(name, data, place.argument, offset, least, most, limits.column, limits.broken)
