"""ONNX's own definitions of operators: nodes are checked before they are translated, and what they
became afterwards, by its inference of shapes.
"""

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
_POOLS = ("AveragePool", "LpPool", "MaxPool")
_POOLS_ARE_TOLD = 22
"""The opset from which `ceil_mode` counts no window that begins behind the input."""


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

    if node.op_type in _POOLS and version < _POOLS_ARE_TOLD and "ceil_mode" in node.attributes:
        return
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
        if schema.deprecated:
            return ()
        found = onnx.shape_inference.infer_node_outputs(
            schema, asked, types, data, opset_imports=[onnx.helper.make_opsetid("", version)]
        )
    except onnx.shape_inference.InferenceError as error:
        raise ModelError("{0}", str(error).strip()) from error
    except onnx.defs.SchemaError:
        return ()
    return [_told(found.get(name)) if name else None for name in asked.output]


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


ONNX_NAMES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn",
    "float8_e5m2": "float8e5m2",
}  # fmt: skip
"""What ONNX calls dtypes, where that is another name."""


def type_string(dtype: str) -> str:
    """The type of a tensor, as definitions have it: `tensor(float)`."""
    return f"tensor({ONNX_NAMES.get(dtype, dtype)})"


def check_node(node: Any, domain: str, version: int, dtypes: Sequence[str | None]) -> None:
    """Raise `ModelError` for a node without what its definition demands.

    Numbers of inputs and outputs, the dtypes of inputs as far as they are known, required
    attributes and their types; names of attributes only where the translation asks for them. Nodes
    of other domains than ONNX's are not checked.
    """
    import onnx

    if domain or not onnx.defs.has(node.op_type):
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return
    for kind, values, least, most in (
        ("inputs", node.inputs, schema.min_input, schema.max_input),
        ("outputs", node.outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(values) <= most:
            raise ModelError("expected {0} to {1} {2}, found {3}", least, most, kind, len(values))
    _check_types(schema, dtypes)
    for name, known in schema.attributes.items():
        attribute = node.attributes.get(name)
        if attribute is None:
            if known.required:
                raise ModelError("the attribute {0} is missing", name)
        elif attribute.type.name != known.type.name:
            raise ModelError(
                "the attribute {0} is {1}, not {2}", name, attribute.type.name, known.type.name
            )


def _check_types(schema: Any, dtypes: Sequence[str | None]) -> None:
    """Raise `ModelError` for a dtype that a type variable does not allow, or for two in one."""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    bound: dict[str, tuple[str, str]] = {}
    for place, dtype in enumerate(dtypes):
        declared = schema.inputs[min(place, len(schema.inputs) - 1)]
        if dtype is None:
            continue
        own, variable = type_string(dtype), declared.type_str
        takes = allowed.get(variable, {variable})
        if not any(type.startswith("tensor(") for type in takes):
            continue  # it has no tensors, which is said by its translation
        if own not in takes:
            raise ModelError("the input {0} is {1}", declared.name, dtype)
        first, other = bound.setdefault(variable, (declared.name, dtype))
        if other != dtype and declared.is_homogeneous:
            raise ModelError(
                "the inputs {0} and {1} are {2} and {3}, and not of one dtype",
                first, declared.name, other, dtype,
            )  # fmt: skip
