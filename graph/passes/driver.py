"""Running the passes one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ...tir.node import CHECK
from ..builder import Rules, rebuilt
from ..ir import Graph
from . import activations, algebra, attention, lookups, movement, precision, rows, weights

MAX_ROUNDS = 16
"""How often a graph is rebuilt by one pass, if its rules still answer."""


@dataclass(frozen=True)
class Pass:
    """Rules that are applied until none answers.

    Outputs stay equal, or within `roundings` of the largest, by the narrowest float of the graph.
    """

    name: str
    rules: Rules
    roundings: int = 0

    def run(self, graph: Graph) -> tuple[Graph, Counter[str]]:
        """The graph with the rules applied, and how often each was; the same if none was."""
        counts = Counter[str]()
        for _ in range(MAX_ROUNDS):
            new, found = rebuilt(graph, {**movement.VIEWS, **self.rules})
            if not found and len(new.nodes) == len(graph.nodes):
                break
            graph = new
            counts += found
            if not found:
                break
        return graph, counts


PASSES = (
    Pass("algebra", algebra.RULES),
    Pass("movement", movement.RULES),
    Pass("lookups", lookups.RULES, roundings=256),
    Pass("activations", activations.RULES, roundings=16),
    Pass("rows", rows.RULES, roundings=16),
    Pass("attention", attention.RULES, roundings=16),
    Pass("precision", precision.RULES, roundings=4),
    Pass("weights", weights.RULES, roundings=256),
)
"""All passes, in their order."""


@dataclass(frozen=True)
class Stage:
    """A graph after a pass, and how often each rule of it was applied."""

    name: str
    graph: Graph
    applied: Mapping[str, int]


def stages(graph: Graph) -> tuple[Stage, ...]:
    """The graph after each pass.

    With `TILEWRIGHT_CHECK=1` each is compared with the one before: see `check.py`.
    """
    found = list[Stage]()
    for each in PASSES:
        new, counts = each.run(graph)
        if CHECK and new is not graph:
            from .check import compare

            compare(each, graph, new)
        graph = new
        found.append(Stage(each.name, graph, counts))
    return tuple(found)
