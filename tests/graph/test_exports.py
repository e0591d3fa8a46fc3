"""What exporters write, of models whose dims are open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError, UnsupportedError

onnx = pytest.importorskip("onnx")
FLOAT = onnx.TensorProto.FLOAT


def info(name: str, shape: Any, dtype: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, dtype, shape)


def proto(nodes: Any, inputs: Any, outputs: Any, constants: Any = (), opset: int = 17) -> bytes:
    held = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in dict(constants).items()]
    graph = onnx.helper.make_graph(nodes, "exported", inputs, outputs, held)
    opsets = [onnx.helper.make_opsetid("", opset)]
    made = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
    return bytes(made.SerializeToString())


def test_an_output_may_be_declared_with_the_dims_of_the_example() -> None:
    """An exporter traced a batch of 2 and declared it, though the batch is open."""
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    model = proto([node], [info("x", ["N", 3])], [info("y", [2, 3])])
    assert tw.import_onnx(model, shapes={"N": 5}).outputs["y"].shape == (5, 3)
    with pytest.raises(ModelError):
        tw.import_onnx(proto([node], [info("x", [5, 3])], [info("y", [2, 3])]))


def test_a_list_that_a_loop_fills() -> None:
    """`torch.stack([f(x, i) for i in range(3)])`, scripted: a sequence with a known length."""
    node = onnx.helper.make_node
    sequence = onnx.helper.make_tensor_sequence_value_info
    body = onnx.helper.make_graph(
        [
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Add", ["x", "f"], ["row"]),
            node("SequenceInsert", ["before", "row"], ["after"]),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info("i", [], 7), info("go", [], 9), sequence("before", FLOAT, None)],
        [info("on", [], 9), sequence("after", FLOAT, None)],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["count", "", "none"], ["rows"], body=body),
        node("ConcatFromSequence", ["rows"], ["stacked"], axis=-1, new_axis=1),
        node("SplitToSequence", ["stacked", "two"], ["parts"], axis=-1),
        node("SequenceErase", ["parts", "zero"], ["rest"]),
        node("SequenceAt", ["rest", "zero"], ["last"]),
        node("SequenceConstruct", ["last", "last"], ["both"]),
        node("SequenceInsert", ["both", "last", "zero"], ["three"]),
        node("SequenceLength", ["three"], ["length"]),
        node("ConcatFromSequence", ["three"], ["joined"], axis=0),
        node("SplitToSequence", ["x"], ["elements"], axis=0, keepdims=0),
        node("SequenceAt", ["elements", "zero"], ["element"]),
    ]
    held = {"count": np.int64(3), "two": np.int64(2), "zero": np.int64(0)}
    outputs = [info("length", [], 7), info("joined", None), info("element", None)]
    graph = tw.import_onnx(proto(nodes, [info("x", [4])], outputs, held))
    x = np.arange(4, dtype=np.float32)
    size, joined, element = graph.reference(x)
    assert size == 3
    assert element == 0
    np.testing.assert_array_equal(joined, np.tile(x + 2, 3)[:, None])


@pytest.mark.parametrize(("place", "order"), [(-2, "xab"), (-1, "axb"), (0, "xab"), (2, "abx")])
def test_places_in_sequences_count_from_the_last_element(place: int, order: str) -> None:
    node = onnx.helper.make_node
    nodes = [
        node("SequenceConstruct", ["a", "b"], ["s"]),
        node("SequenceInsert", ["s", "x", "place"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    inputs = [info(name, [1]) for name in "abx"]
    graph = tw.import_onnx(proto(nodes, inputs, [info("y", [3])], {"place": np.int64(place)}))
    (found,) = graph.reference(*(np.array([n], np.float32) for n in range(3)))
    assert found.tolist() == ["abx".index(name) for name in order]


def test_a_sequence_is_no_tensor() -> None:
    node = onnx.helper.make_node
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("Relu", ["s"], ["y"])]
    with pytest.raises(UnsupportedError) as raised:
        tw.import_onnx(proto(nodes, [info("x", [4])], [info("y", None)]))
    assert [reason[2] for reason in raised.value.data["reasons"]] == ["TYPE"]
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["y"]),
    ]
    sequence = onnx.helper.make_tensor_sequence_value_info("y", FLOAT, None)
    with pytest.raises(UnsupportedError):
        tw.import_onnx(proto(nodes, [info("x", [4])], [sequence]))
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceAt", ["s", "place"], ["y"]),
    ]
    with pytest.raises(ModelError):
        tw.import_onnx(proto(nodes, [info("x", [4])], [info("y", None)], {"place": np.int64(2)}))
