"""Loops as they are built: their bodies with the constants that they are given, in groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .builder import Builder
from .groups import Group, divide
from .ir import Constant, Graph, Node, Value
from .operator import Kind, find
from .operators.loop import body_of


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop: its body after all passes, the groups of that, and how often it runs.

    The inputs of the body are `carried` states, rows of as many operands as are `sliced`, and other
    operands but for constants, which are the body's own.
    """

    body: Graph
    groups: tuple[Group, ...]
    count: int
    carried: int
    sliced: int

    @property
    def name(self) -> str:
        return f"loop of {', '.join(group.name for group in self.groups) or 'copies'}"


def is_loop(node: Node) -> bool:
    return find(node.operator).kind is Kind.LOOP


def loop_of(node: Node) -> Loop:
    """The loop of a node, which is one."""
    a, body = node.attributes, body_of(str(node.attributes["body"]))
    count, carried, sliced = (int(a[k]) for k in ("count", "carried", "sliced"))  # type: ignore[arg-type]
    builder = Builder(body.name)
    new: dict[Value, Value] = {}
    for place, ((name, value), operand) in enumerate(
        zip(body.inputs.items(), node.inputs, strict=True)
    ):
        known = place >= carried + sliced and isinstance(operand, Constant)
        new[value] = operand if known else builder.input(name, value.type)
    new.update((held, builder.constant(held.data)) for held in body.constants)
    for inner in body.nodes:
        outputs = builder.copy(inner, [new[value] for value in inner.inputs])
        new.update(zip(inner.outputs, outputs, strict=True))
    graph = builder.graph({n: new[v] for n, v in body.outputs.items()}).optimized()
    return Loop(graph, tuple(divide(graph)), count, carried, sliced)


def kernel_groups(groups: Iterable[Group], runs: int = 1) -> Iterator[tuple[Group, int]]:
    """The groups that kernels are made of, those of loops' bodies too, and how often each runs."""
    for group in groups:
        loop = group.loop
        if loop is None:
            yield group, runs
        else:
            yield from kernel_groups(loop.groups, runs * loop.count)


def nodes_of(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, and those of loops' bodies."""
    for node in graph.nodes:
        yield node
        if is_loop(node):
            yield from nodes_of(body_of(str(node.attributes["body"])))
