"""Random graphs, with inputs, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import UnsupportedError
from tilewright.building.build_model import build_graph
from tilewright.codegen.detect import resolve
from tilewright.graph import Graph
from tilewright.graph.ir import Value
from tilewright.graph.text import graph_text, parse_graph
from tilewright.graph.verify import verify

from .random_operators import call
from .random_values import Array, Held, Pool, Style

MOST_NODES = 16
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
    chained = pick(4) > 0
    for _ in range(4 * wanted):
        if len(made) >= wanted:
            break
        name, (inputs, attributes) = call(p, chained=chained)
        found = p.add(name, *inputs, **attributes) or ()
        made += found
        if chained and found:
            p.last = found[0]
    read = {v for node in p.graph(made).nodes for v in node.inputs}
    unread = [v for v in made if v not in read][-4:] or made[-1:]
    ends = [*unread, *(v for v in made if v in read and pick(8) == 0)]
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
    """Raise `AssertionError` where the graph's text, reference, passes or program are wrong."""
    graph, given = case.graph, case.arguments.values()
    verify(graph)
    text = graph_text(graph)
    again = parse_graph(text, {c.digest: c.data for c in graph.constants})
    assert again.digest == graph.digest, "another digest after its text is parsed"
    assert graph_text(again) == text, "another text after it is parsed"
    compare("reference", case, graph.reference(*given))
    optimized = graph.optimized()
    verify(optimized)
    compare("passes", case, optimized.reference(*given))
    last = optimized.optimized()
    assert last.digest == optimized.digest, f"passes change what they made:\n{optimized}{last}"
    if compiled:
        # Starting processes takes longer than compiling these kernels.
        model = build_graph(graph, resolve(f"cpu -threads={case.threads}"), jobs=1)
        found: Any = model(*given)
        compare("compiled", case, found if isinstance(found, tuple) else (found,))


def check_onnx(case: GraphCase) -> None:
    """Raise `AssertionError` where the graph as ONNX is another one, or onnxruntime disagrees.

    What cannot be written, and what onnxruntime does not take, is no error.
    """
    ort = pytest.importorskip("onnxruntime")
    try:
        model = case.graph.to_onnx()
    except UnsupportedError:
        return
    again = tw.import_onnx(model, shapes={n: list(a.shape) for n, a in case.arguments.items()})
    arguments = [case.arguments[name] for name in again.inputs]
    edges = any(held.has_edges for held in case.held.values())
    compare("imported", case, again.reference(*arguments))
    # There NaN is another matter, constants of functions are float32, and all places are kept
    # within a border where one is outside.
    if (
        edges
        or any(v.dtype == "float64" for v in case.graph.values())
        or any(
            node.attributes.get("mode") == "cubic" and node.attributes["padding"] == "border"
            for node in case.graph.nodes
        )
    ):
        return
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = session.run(None, case.arguments)
    except Exception:  # noqa: BLE001  of types that are not public
        return
    compare("onnxruntime", case, tuple(map(np.asarray, found)))


def compare(what: str, case: GraphCase, found: tuple[Array, ...]) -> None:
    for (name, held), array in zip(case.wanted.items(), found, strict=True):
        problem = held.difference(array)
        assert not problem, f"{what}: {name}: {problem}"
