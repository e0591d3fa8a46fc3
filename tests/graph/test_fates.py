"""What became of the nodes of a file: all of them are accounted for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Graph
from tilewright.graph.builder import Builder, rebuilt
from tilewright.graph.fates import fates
from tilewright.graph.groups import divide
from tilewright.graph.ir import Node, Value

onnx = pytest.importorskip("onnx")


def imported() -> Graph:
    node = onnx.helper.make_node
    nodes = [
        node("Transpose", ["w"], ["t"], name="ahead", perm=[1, 0]),
        node("MatMul", ["x", "t"], ["h"], name="product"),
        node("Identity", ["h"], ["i"], name="nothing"),
        node("Relu", ["i"], ["r"], name="first"),
        node("Relu", ["h"], ["s"], name="second"),
        node("Add", ["r", "s"], ["a"], name="sum"),
        node("Flatten", ["a"], ["f"], name="flat", axis=0),
        node("Softmax", ["f"], ["y"], name="softmax"),
        node("Exp", ["h"], ["e"], name="idle"),
    ]
    weights = onnx.numpy_helper.from_array(np.ones((4, 8), np.float32), "w")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [3, 8]), ("y", None))
    ]
    graph = onnx.helper.make_graph(nodes, "fates", ends[:1], ends[1:], [weights])
    opsets = [onnx.helper.make_opsetid("", 17)]
    return tw.import_onnx(onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets))


def told(graph: Graph) -> dict[str, tuple[str, int | None]]:
    found = fates(graph, divide(graph))
    return {source.name: (became.value, group) for source, became, group in found}


def test_each_node_of_a_file_has_a_fate() -> None:
    assert told(imported()) == {
        "ahead": ("folded", None),
        "product": ("group", 0),
        "nothing": ("operand", 0),
        "first": ("group", 0),
        "second": ("merged", 0),
        "sum": ("group", 0),
        "flat": ("view", None),
        "softmax": ("group", 1),
        "idle": ("unused", None),
    }


def test_fates_follow_rewrites() -> None:
    def without_sums(builder: Builder, node: Node) -> Value | None:
        """`x + x` is `2 * x`."""
        left, right = node.inputs
        if left is not right:
            return None
        made: Value = builder.add("multiply", left, builder.constant(2, left.dtype))
        return made

    graph, applied = rebuilt(imported(), {"add": [without_sums]})
    assert applied == {"without_sums": 1}
    after = told(graph)
    assert after["sum"] == ("group", 0)
    assert after == told(imported())


def test_evidence_has_the_nodes_of_the_file() -> None:
    evidence = tw.build(imported(), "cpu -threads=1").evidence
    assert len(evidence.sources) == 9
    counts = Counter(source.became for source in evidence.sources)
    assert counts["group"] == 4
    assert "9 nodes: 4 in groups" in str(evidence)
    assert evidence.rewrites == imported().rewrites()
