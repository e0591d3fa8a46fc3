"""Reading an exported program: its inputs, its weights, its nodes one by one.

Operators that the table has stay as they are; others are decomposed into those of core ATen.
Weights are not copied: arrays share the memory of the tensors.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, UnsupportedError
from ...graph.builder import Builder
from ...graph.ir import Constant, Graph, Source, TensorType, Value
from ...graph.mapped import shared
from ...graph.operator import Array
from ..unsupported import Reason, Unsupported, unsupported_error
from .table import TABLE, Translate, dtype_name

Result: TypeAlias = "Value | tuple[Value, ...]"

_PLACES = frozenset({"device", "layout", "memory_format", "non_blocking", "pin_memory"})
"""Arguments that say where elements lie, not what they are."""
_DATA_DEPENDENT = frozenset(
    {
        "_assert_scalar.default",
        "_local_scalar_dense.default",
        "masked_select.default",
        "nonzero.default",
        "sym_size.int",
    }
)
_DECOMPOSED = (
    "_addmm_activation.default",
    "dist.default",
    "ldexp.Tensor",
    "native_group_norm.default",
    "native_layer_norm.default",
    "tril_indices.default",
    "triu_indices.default",
)
"""Operators of core ATen that PyTorch can decompose too."""
_OF_MEMORY = frozenset(
    {"as_strided.default", "as_strided_copy.default", "as_strided_scatter.default"}
)
"""Operators on elements as they lie in memory."""
_CHECKS = frozenset({"_assert_tensor_metadata.default"})
"""Operators that compare dtypes, which are known."""


def import_torch(program: Any, name: str = "") -> Graph:
    """The graph of a `torch.export.ExportedProgram`, whose shapes are static.

    Inputs are named as the arguments of the module, outputs by their keys or places in what it
    returns. Parameters and buffers are constants, whose memory is that of the tensors. Raises
    `UnsupportedError` with all nodes that are not supported, with open dims, with buffers that are
    written, and with results that are no tensors; `ModelError` for what is no such program.
    """
    try:
        import torch
    except ImportError as error:
        raise ModelError(
            "torch is not installed", hint="pip install 'tilewright[torch]'"
        ) from error
    if not isinstance(program, torch.export.ExportedProgram):
        raise ModelError(
            "expected a torch.export.ExportedProgram, found {0}", type(program).__name__,
            hint="torch.export.export(module.eval(), args) makes one of a module",
        )  # fmt: skip
    from . import operators  # noqa: F401  # registers all

    return _Importer(_decomposed(program), name).graph()


def _decomposed(program: Any) -> Any:
    """The program in core ATen operators, and in those that the table has."""
    import torch

    table = torch.export.default_decompositions()
    for overload in list(table):
        if str(overload).removeprefix("aten.") in TABLE:
            table.pop(overload)
    for name in _DECOMPOSED:
        overload = operator.attrgetter(name)(torch.ops.aten)
        table[overload] = torch._decomp.decomposition_table[overload]
    return program.run_decompositions(table)


class _Importer:
    def __init__(self, program: Any, name: str) -> None:
        self.program = program
        self.module = program.graph_module if program is not None else None
        self.builder = Builder(name or "model")
        self.unsupported: list[tuple[str, str, Reason, str]] = []
        self.sources: list[Source] = []

    def graph(self) -> Graph:
        module, signature = self.program.graph_module, self.program.graph_signature
        scope: dict[Any, Result] = {}
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            self._input(node, spec, scope)
        results = self._nodes(module.graph, scope)
        outputs = self._outputs(signature.output_specs, results)
        if not outputs and not self.unsupported:
            self.unsupported.append(("", "output", Reason.TYPE, "there is no tensor"))
        if self.unsupported:
            raise unsupported_error(self.unsupported)
        return replace(self.builder.graph(outputs), sources=tuple(self.sources))

    def _input(self, node: Any, spec: Any, scope: dict[Any, Result]) -> None:
        from torch.export.graph_signature import ConstantArgument, TensorArgument

        name = spec.target or node.name
        if isinstance(spec.arg, ConstantArgument):
            return  # a number or `None`, which the program has where it is used
        try:
            if not isinstance(spec.arg, TensorArgument):
                raise Unsupported(Reason.TYPE, type(spec.arg).__name__)
            type_ = _type(node.meta["val"])
            if spec.kind.name == "USER_INPUT":
                scope[node] = self.builder.input(node.name, type_)
            elif spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                held = self.program.state_dict.get(spec.target)
                held = self.program.constants[spec.target] if held is None else held
                scope[node] = self.builder.constant(_array(held), name=spec.target)
            else:
                raise Unsupported(Reason.TYPE, spec.kind.name)
        except Unsupported as problem:
            self.unsupported.append((name, "input", problem.reason, problem.detail))

    def _outputs(self, specs: Sequence[Any], results: Sequence[Result | None]) -> dict[str, Value]:
        """The results by their names. What the program writes, and no tensors, are refused."""
        from torch.export.graph_signature import TensorArgument

        own = [(s, r) for s, r in zip(specs, results, strict=True) if s.kind.name == "USER_OUTPUT"]
        names = _names(self.program.call_spec.out_spec, "")
        outputs: dict[str, Value] = {}
        for name, (spec, result) in zip(names, own, strict=True):
            if name in outputs:
                raise ModelError("two results would be named {0}", name)
            if isinstance(result, Value):
                outputs[name] = result
            elif not isinstance(spec.arg, TensorArgument):
                kind = type(getattr(spec.arg, "value", spec.arg)).__name__
                self.unsupported.append((name, "output", Reason.TYPE, kind))
            elif not self.unsupported:
                raise ModelError("nothing computes the result {0} ({1})", name, spec.arg.name)
        for spec in specs:
            if spec.kind.name != "USER_OUTPUT":
                detail = f"{spec.kind.name.lower()}, which a call would write"
                self.unsupported.append((spec.target or "", "output", Reason.TYPE, detail))
        return outputs

    def _nodes(self, graph: Any, scope: dict[Any, Result]) -> list[Result | None]:
        """Translate the nodes of a graph; returns its results, `None` for those not known."""
        results: list[Result | None] = []
        for node in graph.nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                self._item(node, scope)
            elif node.op == "call_function":
                self._node(node, scope)
            elif node.op == "output":
                results = [scope.get(value) if _is_node(value) else None for value in node.args[0]]
            elif node.op == "get_attr":
                self._attribute(node, scope)
            elif node.op != "placeholder":
                self._refuse(node, Unsupported(Reason.OPERATOR, node.op))
        return results

    def _attribute(self, node: Any, scope: dict[Any, Result]) -> None:
        """A tensor that the module holds; others are of operators that refuse themselves."""
        import torch

        held = operator.attrgetter(node.target)(self.module)
        if isinstance(held, torch.Tensor):
            scope[node] = self.builder.constant(_array(held), name=node.target)
        elif not isinstance(held, torch.fx.GraphModule):
            self._refuse(node, Unsupported(Reason.TYPE, type(held).__name__))

    def _item(self, node: Any, scope: dict[Any, Result]) -> None:
        source, place = node.args
        values = scope.get(source)
        if isinstance(values, tuple) and place < len(values):
            scope[node] = values[place]
        elif values is not None:
            self._refuse(source, Unsupported(Reason.ATTRIBUTE, f"result {place}"))

    def _node(self, node: Any, scope: dict[Any, Result]) -> None:
        overload = str(node.target).removeprefix("aten.")
        if overload in _CHECKS:
            return
        try:
            translate = _find(node.target, overload)
            args, kwargs = _arguments(node, scope)
            if overload in _OF_MEMORY:
                _check_order(node.args[0].meta["val"])
            declared = [None if v is None else _type(v) for v in _flat(node.meta["val"])]
            first = next(t for t in declared if t is not None)
            made = _applied(translate, self.builder, first, args, kwargs)
            results = (made,) if isinstance(made, Value) else tuple(made)
            types = declared[: len(results)]
        except _UntranslatedError:
            return  # what is not supported has been noted
        except Unsupported as problem:
            self._refuse(node, problem)
            return
        except UnsupportedError as problem:  # of compositions, which refuse dtypes
            self._refuse(node, Unsupported(Reason.DTYPE, str(problem)))
            return
        except ModelError as error:
            raise ModelError("node {0} ({1}): {2}", _place(node), node.target, error) from error
        except Exception as error:  # values that no translation expects
            raise ModelError(
                "node {0} ({1}) is not understood: {2!r}", _place(node), node.target, error
            ) from error
        for result, wanted in zip(results, types, strict=True):
            if wanted is not None and result.type != wanted:
                raise ModelError(
                    "node {0} ({1}) is {2}, by PyTorch {3}",
                    _place(node), node.target, result.type, wanted,
                )  # fmt: skip
        scope[node] = made if isinstance(made, Value) else results
        stand = tuple(None if isinstance(value, Constant) else value for value in results)
        read = {scope[n] for n in node.all_input_nodes if isinstance(scope.get(n), Value)}
        passes = read.issuperset(results)
        self.sources.append(Source(_place(node), str(node.target), stand, passes))

    def _refuse(self, node: Any, problem: Unsupported) -> None:
        self.unsupported.append((_place(node), _name(node.target), problem.reason, problem.detail))


class _UntranslatedError(Exception):
    """An operand is the result of a node that is not supported."""


def _find(target: Any, overload: str) -> Translate:
    found = TABLE.get(overload)
    if found is not None:
        return found
    if getattr(target, "namespace", "") == "aten":
        known = overload in _DATA_DEPENDENT
        raise Unsupported(Reason.DATA_DEPENDENT if known else Reason.OPERATOR, overload)
    if not hasattr(target, "namespace"):  # a function of Python, on numbers
        raise Unsupported(Reason.DATA_DEPENDENT, f"the number {_name(target)}")
    raise Unsupported(Reason.DOMAIN, str(target))


def _name(target: Any) -> str:
    """The name of an operator, or of a function of Python."""
    return str(target) if hasattr(target, "namespace") else str(getattr(target, "__name__", target))


def _check_order(tensor: Any) -> None:
    """Refuse a tensor whose elements do not lie in row-major order, from the first on."""
    if not tensor.is_contiguous() or tensor.storage_offset():
        raise Unsupported(Reason.ATTRIBUTE, f"strides {tuple(tensor.stride())}")


def _applied(
    translate: Translate, b: Builder, out: TensorType, args: Any, kwargs: dict[str, Any]
) -> Value | Sequence[Value]:
    """What a translation makes. Arguments that it does not have are not supported."""
    try:
        bound = inspect.signature(translate).bind(b, out, *args, **kwargs)
    except TypeError as error:
        raise Unsupported(Reason.ATTRIBUTE, str(error)) from error
    return translate(*bound.args, **bound.kwargs)


def _arguments(node: Any, scope: dict[Any, Result]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a node, in which values of the graph stand for nodes."""

    def known(argument: Any) -> Any:
        if _is_node(argument):
            if argument in scope:
                return scope[argument]
            if "val" in argument.meta and not hasattr(argument.meta["val"], "dtype"):
                raise Unsupported(Reason.DATA_DEPENDENT, f"the number {argument.name}")
            raise _UntranslatedError
        if isinstance(argument, list | tuple):
            return [known(item) for item in argument]
        return argument

    kwargs = {k: known(v) for k, v in node.kwargs.items() if k not in _PLACES}
    return known(node.args), kwargs


def _is_node(value: Any) -> bool:
    import torch

    return isinstance(value, torch.fx.Node)


def _flat(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _type(value: Any) -> TensorType:
    """The type of a tensor. Raises `Unsupported` for other things, and for open dims."""
    if not hasattr(value, "dtype"):
        raise Unsupported(Reason.TYPE, type(value).__name__)
    if str(value.layout) != "torch.strided":
        raise Unsupported(Reason.TYPE, str(value.layout))
    dims = tuple(value.shape)
    if not all(isinstance(extent, int) for extent in dims):
        known = ", ".join(map(str, dims))
        raise Unsupported(Reason.DATA_DEPENDENT, f"[{known}]: shapes have to be static")
    return TensorType(dtype_name(value.dtype), tuple(map(int, dims)))


def _array(tensor: Any) -> Array:
    """The elements of a tensor of this process, not copied if they are compact and row-major."""
    import torch

    dtype = dtypes.to_numpy(_type(tensor).dtype)
    try:
        own = tensor.detach().contiguous().cpu()
        if dtype.name in dtypes.ML_DTYPES:  # of which torch makes no array
            bits = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
            elements = own.view(bits).numpy().view(dtype)
        else:
            elements = own.numpy()
    except (RuntimeError, TypeError) as error:  # it has no elements, or they are not in memory
        raise ModelError("{0} cannot be read: {1}", type(tensor).__name__, error) from error
    if tensor.is_inference():  # it is not counted how often these are written
        return np.array(elements)
    return shared(elements, lambda: int(tensor._version))


def _names(spec: Any, prefix: str) -> Iterator[str]:
    """A name for each result of a module: keys of what it returns, or places."""
    if spec.is_leaf():
        yield prefix if prefix and not prefix[0].isdigit() else f"output{prefix and '_'}{prefix}"
        return
    children = spec.children()
    keys = _keys(spec.context)
    for place, child in enumerate(children):
        key = keys[place] if len(keys) == len(children) else place
        yield from _names(child, f"{prefix}_{key}" if prefix else str(key))


def _keys(context: Any) -> Sequence[Any]:
    """What a dictionary, a named tuple or a dataclass calls its values; nothing of others."""
    if isinstance(context, type):
        return getattr(context, "_fields", ())
    if not isinstance(context, list):
        return ()
    fields = context[0] if context and isinstance(context[0], list) else None
    return context if fields is None else fields  # of a dataclass, before those that are none


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def _place(node: Any) -> str:
    """Where a node is from: the path of its module, and the line of the user's source."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if "/torch/nn/" not in PurePath(f[0]).as_posix()]
    line = f"{PurePath(own[-1][0]).name}:{own[-1][1]}" if own else ""
    return " ".join(filter(None, (path, line))) or str(node.name)
