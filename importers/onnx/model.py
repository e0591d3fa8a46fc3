"""Reading an ONNX model: its file, its dims, its nodes one by one.

`onnx_ir` reads files: external data are mapped, and stay within the model's folder. Functions are
inlined. All dims get values first, so that shapes are concrete and what exporters compute of them
folds as it is translated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, TilewrightError, UnsupportedError, similar
from ...graph.builder import Builder
from ...graph.ir import Graph, TensorType, Value
from .table import OnnxNode, Reason, Unsupported, find


def import_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph of an ONNX model: a path, its bytes, or an `onnx.ModelProto`.

    `shapes` gives named dims their values, `{"N": 1}`, or an input its whole shape. `constants`
    gives inputs their values, such as one that decides a shape or a branch; they are no inputs of
    the graph then. Raises `ModelError` for a malformed model, and for dims without a value, which
    it lists, and `UnsupportedError` with all nodes that are not supported.
    """
    try:
        import onnx_ir
    except ImportError as error:
        raise ModelError(
            "onnx_ir is not installed", hint="pip install 'tilewright[onnx]'"
        ) from error
    loaded = _loaded(model)
    try:
        importer = _Importer(loaded, dict(shapes or {}), dict(constants or {}))
        return importer.graph()
    except (onnx_ir.passes.PassError, OSError) as error:
        raise ModelError("the model cannot be read: {0}", error) from error


def _loaded(model: Any) -> Any:
    import onnx_ir

    try:
        if isinstance(model, bytes):
            import onnx

            return onnx_ir.serde.deserialize_model(onnx.load_model_from_string(model))
        if isinstance(model, str | os.PathLike):
            path = Path(model)
            if not path.is_file():
                raise ModelError("there is no file {0}", path)
            return onnx_ir.load(path)
        if type(model).__name__ == "ModelProto":
            return onnx_ir.serde.deserialize_model(model)
    except TilewrightError:
        raise
    except Exception as error:  # the reader raises whatever a damaged file leads to
        raise ModelError("the model cannot be read: {0}", error) from error
    raise ModelError("expected a path, bytes or a ModelProto, found {0}", type(model).__name__)


class _UntranslatedError(Exception):
    """An output of a body is not known, as something in it is not supported."""


class _Importer:
    def __init__(self, model: Any, shapes: dict[str, Any], constants: dict[str, Any]) -> None:
        from onnx_ir.passes.common import InlinePass

        if model.functions:
            model = InlinePass()(model).model
        self.model = model
        self.versions: dict[str, int] = dict(model.opset_imports)
        self.versions.setdefault("", self.versions.get("ai.onnx", 1))
        self.shapes = shapes
        self.given = constants
        name = model.graph.name or "model"
        self.builder = Builder(name)
        self.unsupported: list[tuple[str, str, Reason, str]] = []

    def graph(self) -> Graph:
        from . import operators  # noqa: F401  # registers all

        top = self.model.graph
        if not top.outputs:
            raise ModelError("the model has no outputs")
        scope: dict[Any, Value | None] = {}
        self._inputs(top, scope)
        outputs = self._nodes(top, scope)
        if self.unsupported:
            raise _unsupported(self.unsupported)
        return self.builder.graph(outputs)

    def _inputs(self, graph: Any, scope: dict[Any, Value | None]) -> None:
        held = set(graph.initializers)
        open_dims: dict[str, None] = {}
        names: set[str] = set()
        wanted: list[tuple[Any, TensorType]] = []
        for value in graph.inputs:
            if value.name in held:
                continue
            names.add(value.name)
            if value.name in self.given:
                data = np.asarray(self.given[value.name], _dtype(value))
                scope[value] = self.builder.constant(data, name=value.name)
                continue
            shape = self._shape(value, open_dims, names)
            if shape is not None:
                wanted.append((value, TensorType(_dtype_name(value), shape)))
        if open_dims:
            raise ModelError(
                "these dims have no value: {0}", ", ".join(open_dims),
                hint=f"shapes={{{', '.join(f'{d!r}: 1' for d in open_dims)}}}",
                dims=list(open_dims),
            )  # fmt: skip
        for key in [*self.shapes, *self.given]:
            if key not in names:
                raise ModelError(
                    "the model has no dim or input {0!r}; it has {1}",
                    key,
                    ", ".join(sorted(names)),
                    hint=similar(key, names),
                )  # fmt: skip
        for value, type in wanted:
            scope[value] = self.builder.input(value.name, type)

    def _shape(
        self, value: Any, open_dims: dict[str, None], names: set[str]
    ) -> tuple[int, ...] | None:
        whole = self.shapes.get(value.name)
        if isinstance(whole, Sequence):
            known = () if value.shape is None else value.shape
            for place, dim in enumerate(known):
                if isinstance(dim, int) and dim > 0 and place < len(whole) and whole[place] != dim:
                    raise ModelError("{0}: dim {1} is {2}, not {3}", value.name, place, dim, whole)
            return tuple(int(e) for e in whole)
        if value.shape is None:
            open_dims[value.name] = None
            return None
        shape: list[int] = []
        for place, dim in enumerate(value.shape):
            if isinstance(dim, int) and dim > 0:
                shape.append(dim)
                continue
            # Dims without a name, and those exporters call `?`, 0 or -1, are named by their place.
            own = None if isinstance(dim, int) else dim.value
            name = own if own and own != "?" else f"{value.name}.{place}"
            names.add(name)
            found = self.shapes.get(name)
            if isinstance(found, int | np.integer):
                shape.append(int(found))
            elif isinstance(dim, int) and dim == 0 and own is None and found is None:
                open_dims[name] = None
            else:
                open_dims[name] = None
        return tuple(shape)

    def _nodes(self, graph: Any, scope: dict[Any, Value | None]) -> dict[str, Value]:
        """Translate the nodes of a graph or body; returns its outputs by name."""
        for name, value in graph.initializers.items():
            if value not in scope:
                scope[value] = self.builder.constant(_array(value.const_value), name=name)
        read = {i for node in graph for i in node.inputs} | set(graph.outputs)
        read |= {i for node in graph for i in _captured(node)}
        for node in graph:
            self._node(node, scope, read)
        outputs: dict[str, Value] = {}
        for value in graph.outputs:
            found = scope.get(value)
            if found is not None:
                outputs[value.name] = found
            elif not self.unsupported:
                raise ModelError("the output {0} is computed by no node", value.name)
        return outputs

    def _node(self, node: Any, scope: dict[Any, Value | None], read: set[Any]) -> None:
        inputs: list[Value | None] = []
        for operand in node.inputs:
            if operand is None or not operand.name:
                inputs.append(None)
            elif operand in scope:
                inputs.append(scope[operand])
            elif self.unsupported:
                self._look_up(node)
                return  # it is an output of what is not translated
            else:
                raise ModelError(
                    "{0} reads {1}, which no node computes", node.op_type, operand.name
                )
        domain = _domain(node)

        def body(name: str, values: Sequence[Value] = ()) -> tuple[Value, ...]:
            inner = node.attributes[name].as_graph()
            own = dict(scope)
            own.update(zip(inner.inputs, values, strict=False))
            self._nodes(inner, own)
            results = [own.get(value) for value in inner.outputs]
            if None in results:
                raise _UntranslatedError
            return tuple(value for value in results if value is not None)

        try:
            translate = find(domain, node.op_type, self.versions.get(domain, 1))
            seen = OnnxNode(
                node.op_type,
                domain,
                self.versions.get(domain, 1),
                node.name or "",
                tuple(inputs),
                {name: _attribute(a) for name, a in node.attributes.items()},
                tuple(output in read for output in node.outputs),
                body,
            )
            made = translate(self.builder, seen)
        except _UntranslatedError:
            return  # what is not supported in the body has been noted
        except Unsupported as problem:
            self.unsupported.append((node.name or "", node.op_type, problem.reason, problem.detail))
            return
        except ModelError as error:
            raise ModelError(
                "node {0} ({1}): {2}", node.name or "without a name", node.op_type, error
            ) from error
        results = (made,) if isinstance(made, Value) else tuple(made)
        scope.update(zip(node.outputs, results, strict=False))

    def _look_up(self, node: Any) -> None:
        """Note that an operator is not supported, of a node whose operands are not known."""
        domain = _domain(node)
        try:
            find(domain, node.op_type, self.versions.get(domain, 1))
        except Unsupported as problem:
            self.unsupported.append((node.name or "", node.op_type, problem.reason, problem.detail))


def _domain(node: Any) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)


def _captured(node: Any) -> list[Any]:
    """What bodies among the attributes of a node read, all of it."""
    found: list[Any] = []
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH":
            graph = attribute.as_graph()
            found += list(graph.outputs)
            for inner in graph:
                found += [*list(inner.inputs), *_captured(inner)]
    return found


def _unsupported(found: Sequence[tuple[str, str, Reason, str]]) -> UnsupportedError:
    lines = [f"  {op} {name!r}: {reason.value} ({detail})" for name, op, reason, detail in found]
    return UnsupportedError(
        "{0} nodes are not supported:\n{1}",
        len(found),
        "\n".join(dict.fromkeys(lines)),
        reasons=[(name, op, reason.name, detail) for name, op, reason, detail in found],
    )


def _attribute(attribute: Any) -> Any:
    kind = attribute.type.name
    if kind == "TENSOR":
        return _array(attribute.as_tensor())
    if kind in ("GRAPH", "GRAPHS"):
        return attribute.value
    value = attribute.value
    return tuple(value) if isinstance(value, list | tuple) else value


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(tensor.numpy())
    try:
        dtypes.from_numpy(array.dtype)
    except (TilewrightError, ValueError, KeyError, TypeError) as error:
        raise Unsupported(Reason.DTYPE, str(array.dtype)) from error
    return array


def _dtype(value: Any) -> np.dtype[Any]:
    return dtypes.to_numpy(_dtype_name(value))


def _dtype_name(value: Any) -> str:
    if value.dtype is None:
        raise ModelError("the input {0} has no type", value.name)
    try:
        return dtypes.from_numpy(value.dtype.numpy())
    except (TilewrightError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedError(
            "the input {0} is {1}", value.name, value.dtype.name,
            reasons=[(value.name, "input", Reason.DTYPE.name, value.dtype.name)],
        ) from error  # fmt: skip
