"""Operators of users: how the importers translate what frameworks call by a name of the user's.

    @tw.graph_op("rows", reference=centred_arrays, onnx="com.example::Centred")
    def centred(x: te.Tensor, *, scale: float = 1.0) -> te.Tensor:
        ...

    @tw.imported_op(torch="example::gated")
    def gated(b: Builder, x: Value, gate: Value) -> Value:
        return b.add("multiply", x, b.add("sigmoid", gate))

The first is a record, as the operators of graphs are. The second is written in operators that there
are, and is nothing of its own in a graph: it is rewritten and fused with what is around it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..base.errors import ModelError, checked_call, similar
from ..graph.builder import Builder
from ..graph.ir import TensorType, Value
from ..graph.operator import OPERATORS, Kind, Limits, Operator
from .onnx.table import TABLE as ONNX
from .onnx.table import OfUser, OnnxNode
from .stablehlo.table import TABLE as STABLEHLO
from .stablehlo.table import Entry, Op
from .torch.table import TABLE as TORCH
from .unsupported import Reason, Unsupported

for _package in ("..graph", ".onnx", ".stablehlo", ".torch"):
    import_module(f"{_package}.operators", __package__)  # registers all, whose names are taken

Compose: TypeAlias = "Callable[..., Value | Sequence[Value]]"
Function = TypeVar("Function", bound=Callable[..., Any])

_OWNERS: dict[object, str] = {}
"""The functions of users that entries are of, by the identities of tables and the keys."""
TABLES: tuple[dict[Any, Any], ...] = (OPERATORS, ONNX, TORCH, STABLEHLO, _OWNERS)
"""What registering changes."""


@checked_call(ModelError, 'write @tw.graph_op("rows", reference=function, onnx="domain::Name")')
def graph_op(
    kind: str = "opaque",
    *,
    reference: Callable[..., Any],
    infer: Callable[..., Any] | None = None,
    limits: Callable[..., Sequence[Limits]] | None = None,
    onnx: str = "",
    torch: str = "",
    stablehlo: str = "",
) -> Callable[[Function], Function]:
    """Register the decorated function of `te` tensors as an operator of graphs.

    Its parameters are the operands, its keywords the attributes, annotated and with defaults. It
    returns a tensor or several. `reference` takes arrays and the same attributes, and is what
    `Graph.reference` computes; `infer`, of a `TensorType` for each operand, returns those of the
    results, which are else the lowering's. `limits` are those of indices among the operands.

    `kind` says what fusion may rely on, one of "pointwise", "reduction", "rows", "opaque" and the
    like (`graph/operator.py`); of "opaque" nothing. With "program" the function takes the types of
    the operands, and returns a `Func` whose parameters are the operands, then the results, which
    `infer` has to say: it is a kernel of its own. `check_graph_op` tries all of this.
    `onnx`, `torch` and `stablehlo` are names, as of `imported_op`, by which importers find it:
    tensors are operands in their order, all else but `None` are attributes by their names.

    A function that is defined again replaces the former one. Raises `ModelError` for a kind that is
    none, a program without `infer`, a function without a name, and the name of another operator.
    """
    kinds = {k.value: k for k in Kind if k is not Kind.FOREIGN} | {"program": Kind.OPAQUE}
    if kind not in kinds:
        raise ModelError(
            "there is no kind {0!r} of operators; expected one of {1}", kind, ", ".join(kinds),
            hint=similar(str(kind), kinds),
        )  # fmt: skip
    is_program = kind == "program"
    if is_program and infer is None:
        raise ModelError("an operator that is a program: expected infer=, the types of its results")

    def decorate(function: Function) -> Function:
        name = getattr(function, "__name__", "")
        if not (name.isidentifier() and name.isascii()):
            raise ModelError(
                "expected a function with a name in ASCII letters, found {0!r:.80}", function,
                hint="def name(x): ...",
            )  # fmt: skip
        lower, program = (None, function) if is_program else (function, None)
        record = Operator(
            name, kinds[kind], reference, lower, infer, function, program, outside=True
        )
        record = record if limits is None else replace(record, limits=limits)

        def add(b: Builder, *operands: Value, **attributes: Any) -> Sequence[Value]:
            return b.add_all(name, *operands, **attributes)

        names = _translations(add, onnx, torch, stablehlo)
        _register(function, [_Entry(name, OPERATORS, name, record), *names])
        return function

    return decorate


@checked_call(ModelError, 'write @tw.imported_op(onnx="domain::Name")')
def imported_op(
    *, onnx: str = "", torch: str = "", stablehlo: str = ""
) -> Callable[[Function], Function]:
    """Register the decorated function as what operators of frameworks are in a graph.

    It takes the `graph.Builder`, the operands as values, and attributes as keywords, and returns
    the result, or several. `onnx` is a domain and a name, `"com.example::Gated"`; `torch` one of
    `torch.library`, `"example::gated"`, to which an overload may be added after a point;
    `stablehlo` the target of a `custom_call`, as `jax.ffi` makes them.

    A function that is defined again replaces the former one. Raises `ModelError` for a name that is
    in another form, or that an importer has already.
    """

    def decorate(function: Function) -> Function:
        _register(function, _translations(function, onnx, torch, stablehlo))
        return function

    return decorate


class _Entry(NamedTuple):
    """What a table has at a key, and what users call that."""

    name: str
    table: dict[Any, Any]
    key: Any
    value: Any


def _translations(compose: Compose, onnx: str, torch: str, stablehlo: str) -> Iterator[_Entry]:
    if onnx:
        domain, name = _divided("onnx", onnx)
        domain = "" if domain == "ai.onnx" else domain
        yield _Entry(onnx, ONNX, (domain, name), {1: OfUser(_of_onnx(compose))})
    if torch:
        namespace, name = _divided("torch", torch)
        path = f"{namespace}.{name}" if "." in name else f"{namespace}.{name}.default"
        yield _Entry(torch, TORCH, path.removeprefix("aten."), _of_torch(compose, path))
    if stablehlo:
        entry = Entry(_of_stablehlo(compose), pointwise=False, lifts=False)
        yield _Entry(stablehlo, STABLEHLO, f"custom_call @{stablehlo}", entry)


def _register(function: Callable[..., Any], entries: Iterable[_Entry]) -> None:
    """Add all entries, or none: raises `ModelError` if one is there that is not of `function`."""
    owner = f"{function.__module__}.{function.__qualname__}"
    new = list(entries)
    for entry in new:
        if entry.key in entry.table and _OWNERS.get((id(entry.table), entry.key)) != owner:
            raise ModelError("there is an operator {0} already", entry.name)
    for entry in new:
        entry.table[entry.key] = entry.value
        _OWNERS[id(entry.table), entry.key] = owner


def _divided(framework: str, text: str) -> tuple[str, str]:
    namespace, _, name = str(text).partition("::")
    if not namespace or not name:
        raise ModelError("{0}={1!r}: expected a namespace and a name, a::b", framework, text)
    return namespace, name


def _of_onnx(compose: Compose) -> Callable[[Builder, OnnxNode], Value | Sequence[Value]]:
    def translate(b: Builder, node: OnnxNode) -> Value | Sequence[Value]:
        given = list(node.inputs)
        while given and given[-1] is None:
            given.pop()
        return _applied(compose, b, [node[k] for k in range(len(given))], node.attributes)

    return translate


def _of_torch(compose: Compose, path: str) -> Callable[..., Value | Sequence[Value]]:
    def translate(
        b: Builder, _out: TensorType, *args: Any, **kwargs: Any
    ) -> Value | Sequence[Value]:
        import torch

        schema = attrgetter(path)(torch.ops)._schema
        given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        operands = list[Value]()
        attributes = dict[str, Any]()
        for name, value in given.items():
            if isinstance(value, Value):
                operands.append(value)
            elif isinstance(value, list) and any(isinstance(v, Value) for v in value):
                operands += [v for v in value if v is not None]
            elif value is not None:
                attributes[name] = value
        return _applied(compose, b, operands, attributes)

    return translate


def _of_stablehlo(compose: Compose) -> Callable[[Builder, Op], Value | Sequence[Value]]:
    def translate(b: Builder, op: Op) -> Value | Sequence[Value]:
        given = op.attribute("mhlo.backend_config") or op.attribute("backend_config") or {}
        if not isinstance(given, dict):
            raise Unsupported(Reason.ATTRIBUTE, f"backend_config={given!r:.40}")
        return _applied(compose, b, op.operands, given)

    return translate


def _applied(
    compose: Compose, b: Builder, operands: Sequence[Value], attributes: dict[str, Any]
) -> Value | Sequence[Value]:
    """What a function makes. Arguments that it does not take are not supported."""
    try:
        bound = inspect.signature(compose).bind(b, *operands, **attributes)
    except TypeError as error:
        raise Unsupported(Reason.ATTRIBUTE, str(error)) from error
    made: object = compose(*bound.args, **bound.kwargs)
    results = (made,) if isinstance(made, Value) else made
    if not isinstance(results, list | tuple) or not all(map(b.has, results)):
        raise ModelError("expected values of the builder, found {0!r:.80}", made)
    return results[0] if len(results) == 1 else results
