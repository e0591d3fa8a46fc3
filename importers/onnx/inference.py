"""A second opinion on each node: what ONNX's own inference of shapes says of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base import dtypes
from ...base.errors import ModelError
from ...graph.ir import Constant, Value
from .table import Items, Operand

_MOST_DATA = 1 << 12
"""Bytes of a constant whose elements it is told."""
_UNASKED = ("Constant", "Range", "STFT")
"""Operators whose types are plain, or whose inference is stricter than their definition, or wrong.

That of Range takes no known tensors of one element but scalars; that of STFT takes no default.
"""


class Inferred(NamedTuple):
    """What ONNX infers of an output: `shape` has `None` for extents, or is it, that are not known.

    `dtype` is a number of ONNX, 0 if it is not known.
    """

    dtype: int
    shape: tuple[int | None, ...] | None

    def holds(self, value: Value) -> bool:
        if self.dtype not in (0, _number(value.dtype)):
            return False
        if self.shape is None:
            return True
        pairs = zip(self.shape, value.shape, strict=False)
        return len(self.shape) == value.type.rank and all(e in (None, own) for e, own in pairs)

    def __str__(self) -> str:
        from onnx import TensorProto

        dims = ["?" if e is None else str(e) for e in self.shape or ()]
        return f"{TensorProto.DataType.Name(self.dtype).lower()}[{', '.join(dims)}]"


def check_results(
    node: Any,
    domain: str,
    version: int,
    inputs: Sequence[Operand | None],
    results: Sequence[Operand],
) -> None:
    """Raise `ModelError` where ONNX's own inference of shapes refuses a node, or says otherwise.

    Nodes with sequences, with bodies and of other domains are not checked.
    """
    import onnx

    bodies = any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values())
    sequences = any(isinstance(value, Items) for value in inputs)
    known = not domain and node.op_type not in _UNASKED and onnx.defs.has(node.op_type)
    if not known or bodies or sequences:
        return
    pairs = zip(_inferred(node, version, inputs), results, strict=False)
    for place, (want, value) in enumerate(pairs):
        if want is not None and isinstance(value, Value) and not want.holds(value):
            raise ModelError("output {0} is {1}, by its definition {2}", place, value.type, want)


def _inferred(
    node: Any, version: int, inputs: Sequence[Operand | None]
) -> Sequence[Inferred | None]:
    """What is inferred of the outputs, as far as something is."""
    import onnx
    import onnx_ir

    asked = onnx.NodeProto(op_type=node.op_type)
    asked.attribute.extend(map(onnx_ir.serde.serialize_attribute, node.attributes.values()))
    asked.input.extend("" if v is None else f"i{k}" for k, v in enumerate(inputs))
    asked.output.extend(f"o{k}" if v.name else "" for k, v in enumerate(node.outputs))
    types, data = {}, {}
    for k, value in enumerate(inputs):
        if not isinstance(value, Value):
            continue
        types[f"i{k}"] = onnx.helper.make_tensor_type_proto(_number(value.dtype), value.shape)
        if isinstance(value, Constant) and value.type.bytes <= _MOST_DATA:
            data[f"i{k}"] = onnx.numpy_helper.from_array(value.data)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
        found = onnx.shape_inference.infer_node_outputs(
            schema, asked, types, data, opset_imports=[onnx.helper.make_opsetid("", version)]
        )
    except onnx.shape_inference.InferenceError as error:
        raise ModelError("{0}", str(error).strip()) from error
    except onnx.defs.SchemaError:
        return ()
    return [_told(found.get(name)) for name in asked.output]


def _number(dtype: str) -> int:
    from onnx.helper import np_dtype_to_tensor_dtype

    return int(np_dtype_to_tensor_dtype(dtypes.to_numpy(dtype)))


def _told(type: Any) -> Inferred | None:
    if type is None or not type.HasField("tensor_type"):
        return None
    tensor = type.tensor_type
    if not tensor.HasField("shape"):
        return Inferred(tensor.elem_type, None)
    dims = (d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return Inferred(tensor.elem_type, tuple(dims))
