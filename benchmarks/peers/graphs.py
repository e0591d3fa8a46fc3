"""The cases as ONNX graphs, for the peers that run those."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .. import suite
from ..suite import Array, Case

NAMES = ("a", "b", "c")
_TYPES = {
    "float32": TensorProto.FLOAT,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
}


def graph(case: Case, arrays: list[Array]) -> tuple[ModelProto, dict[str, Array]]:
    """The model of a case, whose result is `y`, and its feeds: the operands not known ahead."""
    p = case.params
    bias = bool(p.get("bias"))
    known = {
        "matmul": int(bias or p.get("constant_b", False)),
        "conv2d": 1 + bias,
        "layer_norm": 2,
    }.get(case.op, 0)
    split = len(arrays) - known
    feeds = dict(zip(NAMES, arrays[:split], strict=False))
    weights = [
        numpy_helper.from_array(array, name)
        for array, name in zip(arrays[split:], NAMES[split:], strict=False)
    ]
    result = suite.output(case)
    made = helper.make_graph(
        _nodes(case),
        "case",
        [helper.make_tensor_value_info(n, _TYPES[a.dtype.name], a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info("y", _TYPES[result.dtype.name], result.shape)],
        [*weights, *_constants(case)],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model, feeds


def _constants(case: Case) -> list[Any]:
    if case.op == "sum":
        axes = np.array([case.params["axis"]], np.int64)
        return [numpy_helper.from_array(axes, "axes")]
    if case.op == "attention":
        scale = np.array(case.params["dim"] ** -0.5, np.float32)
        return [numpy_helper.from_array(scale, "scale")]
    return []


def _nodes(case: Case) -> list[Any]:
    node, p = helper.make_node, case.params
    match case.op:
        case "matmul" if p.get("epilogue") == "gelu":
            return [
                node("MatMul", ["a", "b"], ["ab"]),
                node("Add", ["ab", "c"], ["abc"]),
                node("Gelu", ["abc"], ["y"]),
            ]
        case "matmul":
            return [node("MatMul", ["a", "b"], ["y"])]
        case "int8_matmul":
            return [node("MatMulInteger", ["a", "b"], ["y"])]
        case "conv2d":
            relu = p.get("epilogue") == "relu"
            conv = node(
                "Conv",
                ["a", "b", "c"] if p.get("bias") else ["a", "b"],
                ["conv" if relu else "y"],
                strides=[p["stride"]] * 2,
                pads=[p["padding"]] * 4,
                group=p.get("groups", 1),
            )
            return [conv, node("Relu", ["conv"], ["y"])] if relu else [conv]
        case "softmax":
            return [node("Softmax", ["a"], ["y"], axis=-1)]
        case "layer_norm":
            return [node("LayerNormalization", ["a", "b", "c"], ["y"], axis=-1, epsilon=1e-5)]
        case "add_relu":
            return [node("Add", ["a", "b"], ["ab"]), node("Relu", ["ab"], ["y"])]
        case "sum":
            return [node("ReduceSum", ["a", "axes"], ["y"], keepdims=0)]
        case "transpose":
            return [node("Transpose", ["a"], ["y"], perm=[1, 0])]
        case "attention":
            return [
                node("Transpose", ["b"], ["kt"], perm=[0, 1, 3, 2]),
                node("MatMul", ["a", "kt"], ["scores"]),
                node("Mul", ["scores", "scale"], ["scaled"]),
                node("Softmax", ["scaled"], ["weights"], axis=-1),
                node("MatMul", ["weights", "c"], ["y"]),
            ]
        case _:
            raise KeyError(case.op)
