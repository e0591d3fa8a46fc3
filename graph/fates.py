"""What became of the nodes of the model that a graph was read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from .groups import Group
from .ir import Graph, Node, Source, Value


class Became(StrEnum):
    """What became of a node of a file."""

    GROUP = "group"  # a group computes it
    VIEW = "view"  # another name for the memory of its operand
    FOLDED = "folded"  # computed ahead
    MERGED = "merged"  # equal to a node before it
    OPERAND = "operand"  # it changes nothing
    UNUSED = "unused"  # nothing needs it, or other nodes stand for it and what reads it


class Fate(NamedTuple):
    """What became of a node of a file, and the number of its group if it has one."""

    source: Source
    became: Became
    group: int | None


def fates(graph: Graph, groups: Sequence[Group]) -> Iterator[Fate]:
    """The fate of each source of a graph that is divided into these groups."""
    numbers: dict[Node, int] = {node: n for n, group in enumerate(groups) for node in group.nodes}
    owned: set[Value] = set()
    for source in graph.sources:
        computed = [value for value in source.outputs if value is not None]
        used = [value for value in computed if value in graph.producers]
        number = numbers.get(graph.producers[used[0]]) if used else None
        if not computed:
            became = Became.FOLDED
        elif source.passes:
            became = Became.OPERAND
        elif not used:
            became = Became.UNUSED
        elif owned.issuperset(used):
            became = Became.MERGED
        else:
            became = Became.VIEW if number is None else Became.GROUP
        owned.update(used)
        yield Fate(source, became, number)
