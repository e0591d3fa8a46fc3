"""What the passes make of a graph, as text."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..graph.ir import Graph


def check_pass(name: str | None) -> None:
    """Refuse the name of a pass that does not exist."""
    from ..graph.passes import PASSES

    names = [each.name for each in PASSES]
    if name is not None and name not in names:
        raise typer.BadParameter(
            f"there is no pass {name!r}; in this order there are {', '.join(names)}",
            param_hint="--after",
        )


def graph_after(graph: Graph, name: str | None) -> Graph:
    """The graph after a pass; as it was imported for `None`."""
    from ..graph.passes import stages

    return next((s.graph for s in stages(graph) if s.name == name), graph)


def changes(graph: Graph, name: str | None) -> str:
    """What that pass changes, or each, as differences of texts in which values keep their names."""
    from ..graph.passes import stages
    from ..graph.text import graph_text

    lines = list[str]()
    before = "imported"
    old = graph_text(graph, own_names=True).splitlines()
    for stage in stages(graph):
        new = graph_text(stage.graph, own_names=True).splitlines()
        if name in (None, stage.name):
            lines += unified_diff(old, new, before, stage.name, n=0, lineterm="")
        before, old = stage.name, new
    return "\n".join(lines) or "nothing changes"
