"""Reading an ONNX model: its file, its dims, its nodes one by one.

`onnx_ir` reads files: external data are mapped, and stay within the model's folder. Functions are
inlined, but for operators of users. All dims get values first, so that shapes are concrete and what
exporters compute of them folds as it is translated.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, TilewrightError, UnsupportedError, similar
from ...base.files import open_regular
from ...graph.ir import Graph, Source, TensorType, Value
from ...graph.passes import integers
from ..translation import Translation, UntranslatedError
from ..unsupported import Reason, Unsupported, unsupported_error
from .definitions import check_node, check_results
from .foreign import Kept, emit, keep, kept_constant, names_of
from .reader import array, is_extent, loaded
from .table import NEWEST, Items, OnnxNode, Operand, find, is_of_user

MAX_BODIES = 1 << 14
"""Of branches and of iterations of loops, which are written out."""


def import_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    *,
    foreign: bool = False,
) -> Graph:
    """The graph of an ONNX model: a path, its bytes, or an `onnx.ModelProto`.

    `shapes` gives named dims their values, `{"N": 1}`, or an input its whole shape. `constants`
    gives inputs their values, such as one that decides a shape or a branch; they are no inputs of
    the graph then. With `foreign`, nodes without a translation are kept as they are: the graph can
    be built where a provider runs them (see `tw.build`). Extents that data decide are -1 then, of
    outputs. Raises `ModelError` for a malformed model, and for dims without a value, which
    it lists, and `UnsupportedError` with all nodes that are not supported.
    """
    try:
        import onnx_ir
    except ImportError as error:
        raise ModelError(
            "onnx_ir is not installed", hint="pip install 'tilewright[onnx]'"
        ) from error
    for name, given in (("shapes", shapes), ("constants", constants)):
        if not isinstance(given, Mapping | None):
            raise ModelError("{0}: expected values by name, found {1!r:.40}", name, given)
    read = loaded(model)
    try:
        importer = _Importer(read, dict(shapes or {}), dict(constants or {}), foreign=foreign)
        return replace(importer.translated(), importer=_facts(model, read))
    except (onnx_ir.passes.PassError, OSError) as error:
        raise ModelError("the model cannot be read: {0}", error) from error


def _facts(model: Any, read: Any) -> dict[str, str]:
    """What is known of a model's file, for artifacts that are built of it."""
    facts = {
        "importer": "onnx",
        "onnx_ir": metadata.version("onnx-ir"),
        "opset": str(versions(read)[""]),
        "producer": " ".join(filter(None, (read.producer_name, read.producer_version))),
    }
    if isinstance(model, bytes):
        facts["sha256"] = hashlib.sha256(model).hexdigest()
    elif isinstance(model, str | os.PathLike):
        digest = hashlib.sha256()
        with open_regular(Path(model), ModelError) as (file, _):
            while part := file.read(1 << 20):
                digest.update(part)
        facts["sha256"] = digest.hexdigest()
    return {name: text for name, text in facts.items() if text}


def inlined(model: Any) -> Any:
    """The model without functions: their bodies stand where they are called, but for those that are
    operators of a user.

    Raises `ModelError` for a function of another opset than the model's.
    """
    from onnx_ir.passes.common import InlinePass

    try:
        return InlinePass(_is_inlined)(model).model if model.functions else model
    except ValueError as error:
        raise ModelError("functions of the model cannot be inlined: {0}", error) from error


def _is_inlined(function: Any) -> bool:
    return bool(function.overload) or not is_of_user(function.domain, function.name)


def versions(model: Any) -> dict[str, int]:
    """The opsets of a model by domain; ONNX's own is the domain without a name."""
    found = dict(model.opset_imports)
    found.setdefault("", found.get("ai.onnx", 1))
    return found


def dim_name(value: str, place: int, dim: Any) -> str:
    """The name by which an open dim of an input gets its value.

    Dims without a name, and those that exporters call `?`, 0 or -1, are named by their place.
    Raises `ModelError` for a name that is no text.
    """
    own = None if isinstance(dim, int) else dim.value
    if isinstance(own, bytes):
        raise ModelError("{0}: the name of dim {1} is no text", value, place)
    return own if own and own != "?" else f"{value}.{place}"


Known: TypeAlias = "Operand | Kept | None"
"""What a value of the file is; `None` if it is not known, as something is not supported."""


class _Importer(Translation):
    def __init__(
        self, model: Any, shapes: dict[str, Any], constants: dict[str, Any], *, foreign: bool
    ) -> None:
        self.model = model = inlined(model)
        # Tools that rewrite models leave bodies in front of what they read. Of a cycle no order
        # helps, which the first node that reads what is not there says.
        with contextlib.suppress(ValueError):
            model.graph.sort()
        self.versions = versions(model)
        if self.versions[""] > NEWEST:
            detail = f"opset {self.versions['']}, {NEWEST} is the newest"
            raise unsupported_error([("", "opset_import", Reason.VERSION, detail)])
        self.shapes = shapes
        self.bound: dict[str, int] = {}
        self.given = constants
        super().__init__(model.graph.name or "model", integers.RULES)
        self.bodies = 0
        self.foreign = foreign

    def translated(self) -> Graph:
        from . import operators  # noqa: F401  # registers all

        top = self.model.graph
        if not top.outputs:
            raise ModelError("the model has no outputs")
        scope: dict[Any, Known] = {}
        self._inputs(top, scope)
        outputs = self._nodes(top, scope)
        return self.graph(outputs)

    def _inputs(self, graph: Any, scope: dict[Any, Known]) -> None:
        held = set(graph.initializers)
        open_dims: dict[str, None] = {}
        names: set[str] = set()
        wanted: list[tuple[Any, TensorType]] = []
        for value in graph.inputs:
            if value.name in held and value.name not in self.given:
                continue
            names.add(value.name)
            _check_type(value)
            if value.name in self.given:
                data = _given(value, self.given[value.name])
                self._bind(value, data.shape)
                scope[value] = self.builder.constant(data, name=value.name)
                continue
            shape = self._shape(value, open_dims, names)
            if shape is not None:
                wanted.append((value, TensorType(dtype_name(value), shape)))
        for key in [*self.shapes, *self.given]:
            if key not in names:
                raise ModelError(
                    "the model has no dim or input {0!r}; it has {1}",
                    key,
                    ", ".join(sorted(names)),
                    hint=similar(key, names),
                )  # fmt: skip
        if open_dims:
            raise ModelError(
                "these dims have no value: {0}", ", ".join(open_dims),
                hint=f"shapes={{{', '.join(f'{d!r}: 1' for d in open_dims)}}}",
                dims=list(open_dims),
            )  # fmt: skip
        for value, type in wanted:
            scope[value] = self.builder.input(value.name, type)

    def _shape(
        self, value: Any, open_dims: dict[str, None], names: set[str]
    ) -> tuple[int, ...] | None:
        whole = self.shapes.get(value.name)
        if isinstance(whole, Sequence) and not isinstance(whole, str):
            return self._bind(value, tuple(_extent(value.name, e) for e in whole))
        if value.shape is None:
            open_dims[value.name] = None
            return None
        shape: list[int] = []
        for place, dim in enumerate(value.shape):
            if is_extent(dim, self.model.producer_name):
                shape.append(dim)
                continue
            name = dim_name(value.name, place, dim)
            names.add(name)
            found = self.shapes.get(name)
            if found is None:
                open_dims[name] = None
            else:
                shape.append(_extent(name, found))
        return self._bind(value, tuple(shape)) if len(shape) == len(value.shape) else ()

    def _bind(self, value: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an input. Raises `ModelError` if it is not as declared, or if a named dim
        would have two values."""
        if value.shape is None:
            return shape
        if len(shape) != len(value.shape):
            raise ModelError(
                "{0}: expected {1} dims, {2}; found {3}",
                value.name, len(value.shape), value.shape, list(shape),
            )  # fmt: skip
        for place, (dim, extent) in enumerate(zip(value.shape, shape, strict=True)):
            if isinstance(dim, int):
                if dim != extent and is_extent(dim, self.model.producer_name):
                    raise ModelError("{0}: dim {1} is {2}, not {3}", value.name, place, dim, extent)
            elif dim.value and dim.value != "?":
                known = self.bound.setdefault(dim.value, extent)
                if known != extent:
                    raise ModelError("the dim {0} is {1} and {2}", dim.value, known, extent)
        return shape

    def _nodes(self, graph: Any, scope: dict[Any, Known]) -> dict[str, Value]:
        """Translate the nodes of a graph or body; returns its outputs by name."""
        strict = graph is self.model.graph and all(map(_is_concrete, graph.inputs))
        read = {i for node in graph for i in node.inputs} | set(graph.outputs)
        read |= {i for node in graph for i in _captured(node)}
        for name, value in graph.initializers.items():
            if value in read and value not in scope:
                self._initializer(name, value, scope)
        for node in graph:
            self._node(node, scope, read)
        outputs: dict[str, Value] = {}
        kept: dict[str, Kept] = {}
        for value in graph.outputs:
            found = scope.get(value)
            if isinstance(found, Kept):
                kept[value.name] = found
            elif isinstance(found, Items):
                if graph is self.model.graph:
                    raise unsupported_error([(value.name, "output", Reason.TYPE, "SequenceType")])
            elif found is not None:
                _check_declared(value, found.type, strict=strict)
                outputs[value.name] = found
            elif not self.refused:
                raise ModelError("the output {0} is computed by no node", value.name)
        if kept and graph is self.model.graph and not self.refused:
            made = self._emitted(kept)
            return {v.name: made.get(v.name) or outputs[v.name] for v in graph.outputs}
        return outputs

    def _emitted(self, kept: dict[str, Kept]) -> dict[str, Value]:
        """The outputs of the model that stayed among kept nodes, of one foreign node."""
        wanted = list(dict.fromkeys(kept.values()))
        try:
            made = dict(zip(wanted, emit(self.builder, wanted, self.versions), strict=True))
        except Unsupported as problem:
            raise unsupported_error(
                [(", ".join(kept), "output", problem.reason, problem.detail)]
            ) from problem
        self.sources += [Source(*names, tuple(made.values())) for names in names_of(wanted)]
        return {name: made[one] for name, one in kept.items()}

    def _initializer(self, name: str, value: Any, scope: dict[Any, Known]) -> None:
        try:
            made = self.builder.constant(array(value.const_value), name=name)
        except Unsupported as problem:
            if not self.foreign:
                self.refuse(name, "initializer", problem)
                return
            scope[value] = kept_constant(name, value.const_value)
            return
        _check_declared(value, made.type, strict=value.is_graph_input())
        scope[value] = made

    def _node(self, node: Any, scope: dict[Any, Known], read: set[Any]) -> None:
        name, domain = node.name or "", domain_of(node)
        version = self.versions.get(domain, 1)

        def keep(_problem: Unsupported) -> None:
            with self.node(name, node.op_type):
                self._keep(node, scope, read)

        with self.node(name, node.op_type, keep if self.foreign else None):
            translate = find(domain, node.op_type, version)
            inputs = self._operands(node, scope)
            operands = tuple(value for value in inputs if not isinstance(value, Kept))
            in_bodies = (scope.get(value) for value in _captured(node))
            if len(operands) < len(inputs) or any(isinstance(v, Kept) for v in in_bodies):
                raise Unsupported(Reason.TYPE, "what kept nodes compute")
            given = [v.dtype if isinstance(v, Value) else None for v in operands]
            check_node(node, domain, version, given)
            seen = OnnxNode(
                node.op_type,
                domain,
                version,
                name,
                operands,
                {name: _attribute(a) for name, a in node.attributes.items()},
                tuple(output in read for output in node.outputs),
                partial(self._body, node, scope),
                self.apart,
            )
            made = translate(self.builder, seen)
            results = (made,) if isinstance(made, Value | Items) else tuple(made)
            check_results(node, domain, version, operands, results)
            scope.update(zip(node.outputs, results, strict=False))
            self.source(name, node.op_type, _tensors(operands), _tensors(results))

    def _operands(self, node: Any, scope: dict[Any, Known]) -> list[Known]:
        """What a node reads. Raises `UntranslatedError` if that is not supported."""
        inputs: list[Known] = []
        for operand in node.inputs:
            if operand is None or not operand.name:
                inputs.append(None)
            elif operand in scope:
                inputs.append(scope[operand])
            elif self.refused:
                raise UntranslatedError
            else:
                raise ModelError("it reads {0}, which no node computes", operand.name)
        return inputs

    def _body(
        self, node: Any, scope: dict[Any, Known], name: str, values: Sequence[Operand] = ()
    ) -> tuple[Operand, ...]:
        """What a body among the attributes of a node returns for values of its inputs."""
        self.bodies += 1
        if self.bodies > MAX_BODIES:
            raise Unsupported(Reason.OPERATOR, f"loops of more than {MAX_BODIES} bodies in all")
        inner = node.attributes[name].as_graph()
        own = dict(scope)
        own.update(zip(inner.inputs, values, strict=False))
        self._nodes(inner, own)
        results = [own.get(value) for value in inner.outputs]
        if None in results:
            raise UntranslatedError
        if any(isinstance(value, Kept) for value in results):
            raise Unsupported(Reason.DATA_DEPENDENT, f"a type in the body {name}")
        return tuple(value for value in results if isinstance(value, Value | Items))

    def _keep(self, node: Any, scope: dict[Any, Known], read: set[Any]) -> None:
        """Keep a node as it is, to be run by a provider."""
        import onnx_ir

        inputs = self._operands(node, scope)
        given = {o.name: v for o, v in zip(node.inputs, inputs, strict=True) if v is not None}
        given |= {v.name: known for v in _captured(node) if (known := scope.get(v)) is not None}
        proto = onnx_ir.serde.serialize_node(node)
        proto.domain = domain_of(node)
        for place, output in enumerate(node.outputs):
            if output not in read:
                proto.output[place] = ""
        declared = {v.name: _declared(v) for v in node.outputs}
        made = keep(self.builder, proto, given, declared, self.versions)
        scope.update(zip(node.outputs, made, strict=True))
        values = tuple(value for value in made if isinstance(value, Value))
        if values:
            self.sources.append(Source(node.name or "", node.op_type, values))


def _tensors(values: Sequence[Operand | None]) -> list[Value]:
    """Values, those of sequences too."""
    found: list[Value] = []
    for value in values:
        if value is not None:
            found += value.values if isinstance(value, Items) else (value,)
    return found


def _declared(value: Any) -> Any:
    """The type that a file gives a value, as ONNX has it; `None` if it gives none."""
    import onnx_ir

    if value.type is None or value.shape is None:
        return None
    return onnx_ir.serde.serialize_value(value).type


def domain_of(node: Any) -> str:
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


def _attribute(attribute: Any) -> Any:
    kind = attribute.type.name
    if kind == "TENSOR":
        return array(attribute.as_tensor())
    if kind in ("GRAPH", "GRAPHS"):
        return attribute.value
    value = attribute.value
    return tuple(value) if isinstance(value, list | tuple) else value


def _extent(name: str, given: Any) -> int:
    if isinstance(given, int | np.integer) and not isinstance(given, bool) and given >= 0:
        return int(given)
    raise ModelError("{0}: expected an integer from 0 on, found {1!r:.40}", name, given)


def _given(value: Any, given: Any) -> np.ndarray[Any, Any]:
    """The value of an input that is a constant, in its dtype, if that changes no element."""
    dtype = dtypes.to_numpy(dtype_name(value))
    try:
        found = np.asarray(given)
        with np.errstate(all="ignore"):
            data = found.astype(dtype)
        floats = dtypes.is_float(dtype_name(value)) and found.dtype.kind == "f"
        same = floats or np.array_equal(data, found)
    except Exception as error:  # whatever an object raises that is asked for its elements
        raise ModelError("{0}: {1}", value.name, error) from error
    if not same:
        raise ModelError("{0}: expected {1}, found {2!r:.40}", value.name, dtype_name(value), given)
    return data


def _check_type(value: Any) -> None:
    """Raise for an input that is no tensor; an optional tensor is one that is given."""
    kind = type(value.type).__name__
    if kind not in ("TensorType", "OptionalType", "NoneType", "SequenceType"):
        raise unsupported_error([(value.name, "input", Reason.TYPE, kind)])


def _check_declared(value: Any, type: TensorType, *, strict: bool) -> None:
    """Raise `ModelError` if a value is not of its declared dtype or, where strict, shape.

    Declarations with open dims, or of models with open dims, are not relied on: exporters get them
    wrong, ranks too, or leave there what the dims of their example made.
    """
    declared = "" if value.type is None or value.dtype is None else dtype_name(value)
    shape = () if value.shape is None else tuple(value.shape)
    wrong = strict and shape != type.shape and shape and _is_concrete(value)
    if wrong or (declared and declared != type.dtype):
        raise ModelError("{0} is declared as {1}{2}, and is {3}", value.name, declared, shape, type)


def _is_concrete(value: Any) -> bool:
    """Whether a shape is declared, without open dims."""
    return value.shape is not None and all(isinstance(d, int) and d > 0 for d in value.shape)


def dtype_name(value: Any) -> str:
    if value.dtype is None:
        raise ModelError("the input {0} has no type", value.name)
    try:
        return dtypes.from_numpy(value.dtype.numpy())
    except (TilewrightError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedError(
            "the input {0} is {1}", value.name, value.dtype.name,
            reasons=[(value.name, "input", Reason.DTYPE.name, value.dtype.name)],
        ) from error  # fmt: skip
