"""What exporters compute of shapes: it is known, as all shapes are."""

from __future__ import annotations

import numpy as np

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import room
from .pointwise import dtype_of


@onnx_op("Shape")
def shape(b: Builder, node: OnnxNode) -> Value:
    extents = node[0].shape
    start, end = node.attribute("start", 0), node.attribute("end", None)
    return b.constant(np.array(extents[start:end], np.int64))


@onnx_op("Size")
def size(b: Builder, node: OnnxNode) -> Value:
    return b.constant(np.array(node[0].type.size, np.int64))


@onnx_op("Constant")
def constant(b: Builder, node: OnnxNode) -> Value:
    kinds = {"value_float": np.float32, "value_floats": np.float32}
    ((name, value),) = node.attributes.items()
    if name in ("value_string", "value_strings"):
        raise Unsupported(Reason.TYPE, name)
    if name == "value":
        return b.constant(value)
    return b.constant(np.asarray(value, kinds.get(name, np.int64)))


@onnx_op("ConstantOfShape")
def constant_of_shape(b: Builder, node: OnnxNode) -> Value:
    extents = node.integers(0) or ()
    fill = node.attribute("value", np.zeros(1, np.float32))
    value: Value = b.add("broadcast_to", b.constant(fill.reshape(())), shape=extents)
    return value


@onnx_op("Range")
def arange(b: Builder, node: OnnxNode) -> Value:
    start, stop, step = (node.number(n) for n in range(3))
    room(max((stop - start) / step, 0))
    return b.constant(np.arange(start, stop, step), node[0].dtype)


@onnx_op("EyeLike", since=9)
def eye(b: Builder, node: OnnxNode) -> Value:
    rows, columns = node[0].shape
    room(rows, columns)
    wanted = node.attribute("dtype")
    dtype = node[0].dtype if wanted is None else dtype_of(wanted)
    return b.constant(np.eye(rows, columns, node.attribute("k", 0)), dtype)
