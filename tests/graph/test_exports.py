"""What exporters write, of models whose dims are open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError

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
