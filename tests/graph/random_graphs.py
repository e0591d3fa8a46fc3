"""Random graphs, with inputs, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.building.build_model import build_graph
from tilewright.building.choose import POLICIES
from tilewright.codegen.detect import resolve
from tilewright.graph import Graph
from tilewright.graph.ir import Value
from tilewright.graph.text import graph_text, parse_graph
from tilewright.graph.verify import verify

from .random_operators import call
from .random_values import Array, Held, Pool, Style

MOST_NODES = 14
STYLES = (
    *[Style("normal")] * 5,
    Style("normal", floats=("float32", "float16")),
    Style("normal", floats=("float32", "bfloat16", "float64")),
    Style("whole"),
    Style("whole", floats=("float32", "float64")),
    Style("edges", floats=("float32", "float16")),
    Style("normal", zeros=True),
)


@dataclass(frozen=True)
class GraphCase:
    """A graph, its arguments, and what its outputs have to be."""

    graph: Graph
    arguments: dict[str, Array]
    wanted: dict[str, Held]
    held: dict[Value, Held]
    threads: int = 1


def a_graph(seed: int) -> GraphCase:
    """The random graph of a seed."""
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    p = Pool(pick, STYLES[pick(len(STYLES))])
    made: list[Value] = []
    wanted = 1 + pick(MOST_NODES)
    for _ in range(4 * wanted):
        if len(made) >= wanted:
            break
        name, (inputs, attributes) = call(p)
        made += p.add(name, *inputs, **attributes) or ()
    ends = [v for v in made if pick(4) == 0] or made[-1:]
    read = {v for node in p.graph(made).nodes for v in node.inputs}
    ends += [v for v in made if v not in read and v not in ends][:4]
    if pick(8) == 0:
        ends.append(p.one_of(tuple(p.held)))
    if pick(8) == 0:
        ends.append(p.one_of(ends))
    graph = p.graph(ends)
    # Inputs that nothing reads stay some of the time only.
    keep = pick(4) == 0
    used = {v for node in graph.nodes for v in node.inputs} | set(ends)
    given = {n: v for n, v in graph.inputs.items() if keep or v in used}
    graph = Graph(graph.name, given, graph.nodes, graph.outputs)
    return GraphCase(
        graph,
        {n: p.arguments[n] for n in given},
        {n: p.held[v] for n, v in graph.outputs.items()},
        p.held,
        2 if pick(4) == 0 else 1,
    )


def check_graph(case: GraphCase, *, compiled: bool = True) -> None:
    """Raise `AssertionError` where the graph, its text, its reference or its program are wrong."""
    graph = case.graph
    verify(graph)
    text = graph_text(graph)
    again = parse_graph(text, {c.digest: c.data for c in graph.constants})
    assert again.digest == graph.digest, "another digest after its text is parsed"
    assert graph_text(again) == text, "another text after it is parsed"
    compare("reference", case, graph.reference(*case.arguments.values()))
    if compiled:
        # Starting processes takes longer than compiling these kernels.
        model = build_graph(graph, resolve(f"cpu -threads={case.threads}"), None, POLICIES, jobs=1)
        found: Any = model(*case.arguments.values())
        compare("compiled", case, found if isinstance(found, tuple) else (found,))


def compare(what: str, case: GraphCase, found: tuple[Array, ...]) -> None:
    for (name, held), array in zip(case.wanted.items(), found, strict=True):
        problem = held.difference(array)
        assert not problem, f"{what}: {name}: {problem}"
