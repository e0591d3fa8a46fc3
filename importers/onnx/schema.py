"""ONNX's own definitions of operators: nodes are checked before they are translated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import ModelError

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
