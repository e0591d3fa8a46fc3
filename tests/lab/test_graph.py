"""Pictures of graphs and models, and what takes neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Graph, TensorType
from tilewright.lab.pictures.views import html_of
from tilewright.lab.report import report

from .databases import NOON
from .test_report import shown

SERIAL = "cpu -threads=1"


def shifted(name: str = "a<b>") -> Graph:
    b = Builder(name)
    x = b.input("<x>", TensorType("float32", (2, 3)))
    held = b.constant(np.arange(6).reshape(2, 3), "float32")
    return b.graph({"y": b.add("add", x, held)})


def test_graphs_and_models_show_what_they_are(tmp_path: Path) -> None:
    graph = shifted()
    (kernel,) = (func.name for func in graph.kernels())
    model = tw.build(graph, SERIAL, allow=("default",))
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        told = tw.explain(graph, SERIAL, database)
    for value in (graph, model, told):
        html = html_of(value)
        assert html == value._repr_html_()
        assert "<x>" not in html
        assert "a<b>" not in html
        assert value is graph or kernel in html
    assert "&lt;x&gt;: float32[2, 3]" in html_of(graph)
    assert "add(" in html_of(graph)
    assert "chosen by the analytic model" in html_of(model)


def test_a_long_graph_is_cut() -> None:
    b = Builder("long")
    x = b.input("x", TensorType("float32", (2,)))
    for _ in range(400):
        x = b.add("sin", x)
    assert "more lines; print it" in html_of(b.graph({"y": x}))


@pytest.mark.parametrize("call", [tw.lab, tw.Schedule, lambda graph: tw.build_all([graph], SERIAL)])
def test_what_takes_one_program_says_so(call: Callable[[Any], Any]) -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        call(shifted("plain"))
    assert "[*graph.kernels()][0]" in str(refused.value)


def test_a_page_of_a_graph_and_of_a_model() -> None:
    """The graph before and after, and of a model the groups, and the arena over time."""
    b = Builder("a<b>")
    x = b.input("<x>", TensorType("float32", (2, 3)))
    turned = b.add(
        "transpose", b.add("transpose", b.add("softmax", x, axis=1), axes=(1, 0)), axes=(1, 0)
    )
    graph = b.graph({"y": b.add("softmax", turned, axis=0)})
    page = report(graph, now=NOON)
    told = shown(page)
    assert "<x>" not in page
    assert told.index("The graph before") < told.index("transpose(") < told.index("The graph after")
    assert "transpose(" not in told[told.index("The graph after") :]
    assert "transpose_of_transpose 1" in told
    page = report(tw.build(graph, SERIAL, allow=("default",)), now=NOON)
    told = shown(page)
    assert "2 nodes in 2 groups" in told
    assert "An arena of " in told
    assert ' class="life"' in page
