"""ONNX's own definitions of operators: nodes are checked before they are translated."""

from __future__ import annotations

from typing import Any

from ...base.errors import ModelError


def check_node(node: Any, domain: str, version: int) -> None:
    """Raise `ModelError` for a node without what its definition demands.

    Numbers of inputs and outputs, required attributes and their types; names of attributes only
    where the translation asks for them. Nodes of other domains than ONNX's are not checked.
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
    for name, known in schema.attributes.items():
        attribute = node.attributes.get(name)
        if attribute is None:
            if known.required:
                raise ModelError("the attribute {0} is missing", name)
        elif attribute.type.name != known.type.name:
            raise ModelError(
                "the attribute {0} is {1}, not {2}", name, attribute.type.name, known.type.name
            )
