"""The pictures of a graph, of a built model, and of where the schedules of either are from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import htpy as h

from ...base.text import format_bytes
from ...building.explain_model import GraphExplanation
from ...graph import Graph
from ...graph.groups import divide
from ...runtime.model import Model
from ...runtime.module import Origin
from .facts import facts
from .page import text
from .tables import Column, table

_LINES = 300
"""The most lines of a graph's text."""


def view(value: Graph | Model | GraphExplanation) -> h.Node:
    """The picture of any of these."""
    if isinstance(value, Graph):
        return _graph(value)
    if isinstance(value, Model):
        return _model(value)
    return h.div[
        facts({"Graph": h.code[text(value.graph)], "Schedules": value.summary}),
        _kernels(
            {k.name: k.origin for k in value.kernels}, {k.name: k.runs for k in value.kernels}
        ),
    ]


def _graph(graph: Graph) -> h.Node:
    lines = str(graph).splitlines()
    left = len(lines) - _LINES
    listing = "\n".join(lines[:_LINES]) + (f"\n... {left} more lines; print it" if left > 0 else "")
    return h.div[
        facts(
            {
                "Graph": h.code[text(graph.name)],
                "Inputs": _values((n, str(v.type)) for n, v in graph.inputs.items()),
                "Outputs": _values((n, str(v.type)) for n, v in graph.outputs.items()),
                "Nodes": f"{len(graph.nodes):,} in {len(divide(graph.optimized())):,} groups",
                "Weights": format_bytes(sum(c.type.bytes for c in graph.constants)),
            }
        ),
        h.pre(".tw-code", tabindex="0", role="group", aria_label="the graph as text")[
            h.code[text(listing)]
        ],
    ]


def _model(model: Model) -> h.Node:
    module = model.module
    return h.div[
        facts(
            {
                "Model": h.code[text(module.signature.name)],
                "Target": text(module.target),
                "Inputs": _values((a.name, a.type_text) for a in model.inputs.values()),
                "Outputs": _values((a.name, a.type_text) for a in model.outputs.values()),
                "Weights": "none" if model.weights is None else format_bytes(model.weights.nbytes),
                "Memory of a call": format_bytes(module.workspace_bytes),
                "Schedules": text(module.origin),
            }
        ),
        _kernels(model.kernels),
    ]


def _values(named: Iterable[tuple[str, str]]) -> h.Node:
    return [[h.code[text(f"{name}: {kind}")], " "] for name, kind in named]


def _kernels(origins: Mapping[str, Origin], runs: Mapping[str, int] | None = None) -> h.Node:
    """Where the schedule of each kernel comes from."""
    columns = [Column("kernel"), Column("schedule", sentence=True)]
    rows: list[list[h.Node]] = [[h.code[text(n)], text(o)] for n, o in origins.items()]
    if runs is not None:
        columns.insert(1, Column("runs", number=True))
        rows = [[name, str(runs[n]), o] for n, (name, o) in zip(origins, rows, strict=True)]
    return table("Kernels", columns, rows) if rows else None
