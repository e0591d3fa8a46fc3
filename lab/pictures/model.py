"""The pictures of graphs and of models: what each node became, memory, where time went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import htpy as h

from ...base.durations import format_seconds
from ...base.text import format_bytes
from ...building.explain_model import GraphExplanation
from ...graph import Graph
from ...graph.groups import divide
from ...runtime.evidence import Evidence, Lifetime
from ...runtime.model import Model
from ...runtime.module import Origin
from ...runtime.profile import Profile
from .bars import bars, parts
from .charts import figure, number, svg
from .page import text
from .tables import Column, facts, table

_LINES = 300
"""The most lines of a graph's text."""


def graph_view(value: Graph | Model | GraphExplanation) -> h.Node:
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


_WIDE = 900
"""Pixels of a picture of many groups, at most."""
_STEP = 24
"""Pixels of a group, at most."""
_HIGH = 200
_NODE = 7
"""Pixels of a node of a group."""
_MOST_NODES = 12
"""Nodes that make a group higher."""


def evidence_view(evidence: Evidence) -> h.Node:
    """The picture of the evidence of a model."""
    columns, rows = evidence.table()
    return h.section(".result")[
        facts({name: text(value) for name, value in evidence.facts().items()}),
        table_of("Kernels, the slowest first", columns, rows),
        _sources(evidence),
        _grouping(evidence),
        _memory(evidence),
        parts("Where the time of the build went", [*evidence.seconds.items()], format_seconds),
    ]


def table_of(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> h.Element:
    """The table that a command prints; its columns have marks (see `Evidence.table`)."""
    heads = [Column(name.lstrip(">~?"), number=name.startswith(">")) for name in columns]
    return table(caption, heads, [[text(cell) for cell in row] for row in rows])


def _sources(evidence: Evidence) -> h.Node:
    """The nodes of the file, folded."""
    if not evidence.sources:
        return None
    rows = [
        (text(s.name), text(s.operator), s.became, "" if s.group is None else str(s.group))
        for s in evidence.sources
    ]
    columns = [Column("node"), Column("operator"), Column("became"), Column("group", number=True)]
    return h.details[
        h.summary["The nodes of the file"], table("Nodes of the file", columns, rows, sortable=True)
    ]


def _grouping(evidence: Evidence) -> h.Node:
    """The groups in their order, with the nodes of each, and arcs from what they read."""
    nodes: list[list[str]] = [[] for _ in evidence.groups]
    for node in evidence.nodes:
        if node.group is not None:
            nodes[node.group].append(f"{node.operator} {', '.join(node.types)}")
    place = _places(len(nodes))
    far = max((n - r for n, group in enumerate(evidence.groups) for r in group.reads), default=1)
    high = min(_HIGH / 2, (place(far) - place(0)) / 2) + 4
    drawn: list[h.Node] = []
    for n, group in enumerate(evidence.groups):
        for read in group.reads:
            begin, end = place(read + 0.5), place(n + 0.5)
            flat = min(1.0, 2 * (high - 4) / (end - begin))
            arc = f"A{number((end - begin) / 2)} {number(flat * (end - begin) / 2)} 0 0 1"
            path = f"M{number(begin)} {number(high)}{arc} {number(end)} {number(high)}"
            drawn.append(h.path(".line.strong", d=path))
        tall = _NODE * min(len(nodes[n]), _MOST_NODES)
        drawn.append(
            h.rect(
                ".bar", x=number(place(n)), y=number(high), height=str(tall),
                width=number(max(place(1) - place(0) - 2, 1)),
            )[h.title[text(f"group {n}: {', '.join(nodes[n])}")]]
        )  # fmt: skip
    rows = [
        (
            str(n),
            h.code[text(group.kernel)],
            text("; ".join(nodes[n])),
            ", ".join(map(str, group.reads)),
        )
        for n, group in enumerate(evidence.groups)
    ]
    columns = [Column("group"), Column("kernel"), Column("nodes", sentence=True), Column("reads")]
    total = sum(map(len, nodes))
    tallest = min(max(map(len, nodes), default=1), _MOST_NODES)
    title = f"{total} nodes in {len(nodes)} groups"
    return figure(
        title,
        svg(title, high + _NODE * tallest, drawn, place(len(nodes))),
        "A bar is a group, as high as it has nodes; arcs lead to it from the groups that it reads.",
        table=table("Groups", columns, rows),
        broad=True,
    )


def _memory(evidence: Evidence) -> h.Node:
    """The arena over time: each lifetime from its first to its last group, at its offset."""
    memory = evidence.memory
    title = f"An arena of {format_bytes(memory.arena_bytes)}"
    if not memory.arena_bytes:
        return figure(title, None, "Nothing lives between kernels.")
    steps = max(life.last for life in memory.lifetimes) + 1
    place, scale = _places(steps), _HIGH / memory.arena_bytes
    drawn = [
        h.rect(
            ".life.work" if life.workspace else ".life",
            x=number(place(life.first)),
            y=number(_HIGH - scale * (life.offset + life.bytes)),
            width=number(place(life.last + 1) - place(life.first)),
            height=number(max(scale * life.bytes, 0.5)),
        )[h.title[text(_told(life))]]
        for life in memory.lifetimes
    ]
    columns = [
        Column("value"), Column("bytes", number=True), Column("offset", number=True),
        Column("first group", number=True), Column("last group", number=True),
    ]  # fmt: skip
    rows = [
        (text(_name(life)), f"{life.bytes:,}", f"{life.offset:,}", str(life.first), str(life.last))
        for life in memory.lifetimes
    ]
    return figure(
        title,
        svg(f"{title} over time", _HIGH, drawn, place(steps)),
        f"At most {format_bytes(memory.live_bytes)} live at one group. From left to right are the "
        "groups in their order, from below the bytes; dashed are workspaces of kernels.",
        table=table("Lifetimes", columns, rows),
        broad=True,
    )


def _places(count: int) -> Callable[[float], float]:
    """The pixel of the beginning of a group."""
    step = min(_STEP, max(_WIDE / max(count, 1), 2))
    return lambda n: step * n


def _name(life: Lifetime) -> str:
    return f"workspace of group {life.first}" if life.workspace else life.name


def _told(life: Lifetime) -> str:
    return f"{_name(life)}: {format_bytes(life.bytes)}, groups {life.first} to {life.last}"


_BARS = 20
"""Kernels with a bar, the slowest ones."""


def profile_view(profile: Profile) -> h.Node:
    """The picture of a profile."""
    columns, rows = profile.table()
    slowest = [(kernel.operators, kernel.seconds) for kernel in profile.kernels[:_BARS]]
    return h.section(".result")[
        facts({name: text(value) for name, value in profile.facts().items()}),
        bars("The slowest kernels", slowest, head=("kernel", "time"), write=format_seconds),
        h.details[h.summary["All kernels"], table_of("Kernels", columns, rows)],
    ]
