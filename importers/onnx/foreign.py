"""Nodes without a translation, kept as they are: a foreign node of a graph has an ONNX model.

What a kept node computes is a value of the graph if it is a tensor whose type is known, by ONNX's
inference. Otherwise (its extents depend on data, or it is a sequence or text) it stays among kept
nodes: those that read it are kept with it, up to where types are known again, or to an output of
the model, of which extents may be unknown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, TilewrightError, UnsupportedError
from ...graph.builder import Builder
from ...graph.ir import Constant, TensorType, Value
from ..unsupported import Reason, Unsupported
from .table import Items

_RANDOM = {
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
"""Operators that draw numbers: graphs are pure. Dropout that draws none is translated."""
_MOST_DATA = 1 << 12
"""Bytes of a constant whose elements the inference is told."""


@dataclass(frozen=True, eq=False)
class Kept:
    """A value among kept nodes: its name and type in ONNX, and the nodes that it takes, in order.

    `operands` are the values of the graph that these read, by name.
    """

    name: str
    type: Any
    nodes: tuple[Any, ...]
    operands: Mapping[str, Value]


Inputs = Mapping[str, "Value | Items | Kept"]
"""What a node reads, in its bodies too, by name."""


def keep(
    b: Builder, node: Any, inputs: Inputs, declared: Mapping[str, Any], versions: Mapping[str, int]
) -> list[Value | Kept | None]:
    """The outputs of an ONNX node that is kept: values of the graph where their types are known.

    `declared` has the types that the file gives outputs: they count where nothing is inferred.
    Raises `Unsupported` for random numbers.
    """
    for one in within([node]):
        if one.op_type in _RANDOM and not one.domain:
            raise Unsupported(Reason.OPERATOR, f"{one.op_type} draws numbers, and graphs are pure")
    nodes, operands, types = _joined(inputs)
    found = _inferred(node, types, operands, versions)
    nodes = (*nodes, node)
    kept = [
        Kept(name, found.get(name) or declared.get(name), nodes, operands) if name else None
        for name in node.output
    ]
    known = [one for one in kept if one is not None and _type(one) is not None]
    made = dict(zip((k.name for k in known), emit(b, known, versions), strict=True))
    return [None if one is None else made.get(one.name, one) for one in kept]


def emit(b: Builder, wanted: Sequence[Kept], versions: Mapping[str, int]) -> tuple[Value, ...]:
    """The values of a foreign node that computes kept ones. Raises `Unsupported` for no tensors."""
    from onnx import helper

    if not wanted:
        return ()
    nodes, operands, _ = _joined({one.name: one for one in wanted})
    types = [_type(one, partly=True) for one in wanted]
    for one, type in zip(wanted, types, strict=True):
        if type is None:
            raise Unsupported(Reason.TYPE, f"{one.name} is no tensor of a known rank and dtype")
    graph = helper.make_graph(
        nodes,
        "foreign",
        [helper.make_value_info(name, _proto(value.type)) for name, value in operands.items()],
        [helper.make_value_info(one.name, one.type) for one in wanted],
    )
    domains = {n.domain for n in within(nodes)}
    opsets = [helper.make_opsetid(d, versions.get(d, 1)) for d in sorted({"", *domains})]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True)
    )
    return b.add_all(
        "foreign",
        *operands.values(),
        operators=tuple(dict.fromkeys(node.op_type for node in nodes)),
        types=tuple(map(str, types)),
        model=base64.b64encode(model.SerializeToString(deterministic=True)).decode(),
    )


def kept_constant(name: str, tensor: Any) -> Kept:
    """An initializer that is no constant of graphs, such as one of texts."""
    import onnx_ir
    from onnx import helper

    proto = onnx_ir.serde.serialize_tensor(tensor)
    node = helper.make_node("Constant", [], [name], value=proto)
    type = helper.make_tensor_type_proto(proto.data_type, proto.dims)
    return Kept(name, type, (node,), {})


def names_of(kept: Sequence[Kept]) -> list[tuple[str, str]]:
    """The names and operators of the nodes that kept values take."""
    nodes, _, _ = _joined({one.name: one for one in kept})
    return [(node.name, node.op_type) for node in nodes]


def model_of(text: str) -> Any:
    """The `onnx.ModelProto` of a foreign node."""
    import onnx

    return onnx.load_model_from_string(base64.b64decode(text))


@lru_cache(64)
def evaluator(text: str) -> Any:
    """ONNX's own evaluator of a foreign node. Raises what that raises for what it has not."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model_of(text))


def evaluate(text: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a foreign node by ONNX's evaluator.

    Raises `UnsupportedError` for operators that it has not, and `ModelError` where it fails.
    """
    try:
        own = evaluator(text)
    except Exception as error:  # of several kinds
        reasons = [("", "foreign", Reason.OPERATOR.name, f"{type(error).__name__}: {error}")]
        raise UnsupportedError(
            "the evaluator of onnx has not all of a foreign node: {0}", error, reasons=reasons
        ) from error
    try:
        return tuple(own.run(None, dict(zip(own.input_names, arrays, strict=True))))
    except Exception as error:  # of several kinds
        raise ModelError(
            "the evaluator of onnx does not compute a foreign node: {0}: {1}",
            type(error).__name__, error,
            hint="onnxruntime may run it: providers=[..., 'onnxruntime']",
        ) from error  # fmt: skip


def within(nodes: Sequence[Any]) -> Iterator[Any]:
    """Nodes, and those of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from within(graph.node)


def _joined(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Value], dict[str, Any]]:
    """The nodes that stand before one that reads these, what they all read of the graph, and the
    types of what it reads."""
    from onnx import helper

    nodes: dict[int, Any] = {}
    operands: dict[str, Value] = {}
    types: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, Value):
            operands[name] = value
            types[name] = _proto(value.type)
        elif isinstance(value, Items):
            names = [f"{name}/{n}" for n in range(len(value.values))]
            operands.update(zip(names, value.values, strict=True))
            made = helper.make_node("SequenceConstruct", names, [name])
            nodes[id(made)] = made
            types[name] = helper.make_sequence_type_proto(_proto(_of_all(value.values)))
        else:
            nodes.update((id(node), node) for node in value.nodes)
            operands.update(value.operands)
            types[name] = value.type
    return tuple(nodes.values()), operands, types


def _of_all(values: Sequence[Value]) -> TensorType:
    """A type that all have: what differs of the extents is not known."""
    if not values:
        raise Unsupported(Reason.TYPE, "an empty sequence")
    extents = zip(*(value.shape for value in values), strict=False)
    shape = tuple(e[0] if len(set(e)) == 1 else dtypes.UNKNOWN for e in extents)
    return TensorType(values[0].dtype, shape)


def _inferred(
    node: Any, types: Mapping[str, Any], operands: Mapping[str, Value], versions: Mapping[str, int]
) -> dict[str, Any]:
    """The types of a node's outputs by name, as far as ONNX infers them."""
    from onnx import helper, numpy_helper, shape_inference

    small = {
        name: value
        for name, value in operands.items()
        if name in types and isinstance(value, Constant) and value.type.bytes <= _MOST_DATA
    }
    graph = helper.make_graph(
        [node],
        "node",
        [helper.make_value_info(n, t) for n, t in types.items() if n not in small],
        [],
        [numpy_helper.from_array(value.data, name) for name, value in small.items()],
    )
    domains = {n.domain for n in within([node])}
    opsets = [helper.make_opsetid(d, versions.get(d, 1)) for d in sorted({"", *domains})]
    try:
        model = helper.make_model(graph, opset_imports=opsets)
        found = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001  of several kinds: then nothing is known
        return {}
    return {info.name: info.type for info in found.graph.value_info}


def _proto(type: TensorType) -> Any:
    from onnx import helper

    number = helper.np_dtype_to_tensor_dtype(dtypes.to_numpy(type.dtype))
    dims = [None if e == dtypes.UNKNOWN else e for e in type.shape]
    return helper.make_tensor_type_proto(number, dims)


def _type(kept: Kept, *, partly: bool = False) -> TensorType | None:
    """The type of a kept value, if it is a tensor that graphs have, and its extents are known.

    `partly`: where they are not, they are `dtypes.UNKNOWN`.
    """
    from onnx import helper

    if kept.type is None or not kept.type.HasField("tensor_type"):
        return None
    tensor = kept.type.tensor_type
    if not tensor.HasField("shape") or not tensor.elem_type:
        return None
    shape = tuple(
        d.dim_value if d.HasField("dim_value") else dtypes.UNKNOWN for d in tensor.shape.dim
    )
    try:
        dtype = dtypes.from_numpy(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    except (TilewrightError, KeyError, TypeError):
        return None
    return None if dtypes.UNKNOWN in shape and not partly else TensorType(dtype, shape)
