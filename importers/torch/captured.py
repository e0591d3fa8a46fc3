"""Reading a graph that PyTorch has captured at run time: operators of ATen on plain tensors.

Where a tensor is dense in another order of its dimensions (channels last, say), the graph takes or
makes it as it lies in memory: an input is what lies there, row-major, and is transposed by a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from ...base.errors import ModelError
from ...graph.compose.complex import Complex
from ...graph.ir import Constant, Graph, Value
from ..unsupported import Reason, Unsupported
from .decompositions import with_ours
from .nodes import (
    AtenNodes,
    constant_of,
    extents_of,
    input_of,
    is_node,
    is_token,
    output_of,
    place,
)


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory: its sizes and strides in elements, and its dtype as PyTorch has it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Given:
    """An output that is the argument of that number itself."""

    argument: int


@dataclass(frozen=True)
class Known:
    """An output that is no tensor: a number or `None`."""

    value: Any


@dataclass(frozen=True)
class View:
    """An output in the memory of the output of that number, which has it all."""

    output: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


Output: TypeAlias = Tensor | Given | Known | View


@dataclass(frozen=True)
class Captured:
    """A graph, with the numbers and forms of the arguments that are its inputs, in their order.

    `outputs` are the results of a call: those that are a `Tensor` are the graph's, in their order.
    """

    graph: Graph
    inputs: Mapping[int, Tensor]
    outputs: tuple[Output, ...]


def import_captured(
    module: Any, constants: Mapping[int, Any], name: str, *, views: bool = False
) -> Captured | None:
    """The graph of a `torch.fx.GraphModule` of ATen operators, whose shapes are static.

    `constants` are tensors for arguments, by their numbers: their memory is that of the graph's
    constants. With `views` outputs share memory where PyTorch says that they do. `None` for a
    module that computes no tensor. Raises `UnsupportedError` with all nodes that are not supported.
    """
    from . import operators  # noqa: F401  # registers all

    nodes = AtenNodes(name, module)
    inputs: dict[int, Tensor] = {}
    numbers = {}
    for number, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder"):
        numbers[node] = number
        held = _argument(nodes, node, constants.get(number))
        if held is not None:
            inputs[number] = held
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, type(module)) else ():
            _as_aten(node)
    end = next(reversed(module.graph.nodes))
    shared = _views(end.args[0]) if views else {}
    outputs, values = _results(nodes, end.args[0], nodes.translate(), numbers, shared)
    nodes.check()
    return Captured(nodes.graph(values), inputs, outputs) if values else None


@cache
def decompositions() -> Mapping[Any, Any]:
    """PyTorch's decompositions into core ATen, of the operators that the table has not."""
    import torch

    return with_ours(torch._decomp.core_aten_decompositions())


def _argument(nodes: AtenNodes, node: Any, constant: Any) -> Tensor | None:
    """Its form, if the argument is an input of the graph."""
    example = node.meta.get("val")
    try:
        if is_token(node):
            return None
        if not hasattr(example, "dtype"):
            nodes.scope[node] = example  # a number, which the program has where it is used
            return None
        if constant is not None:
            nodes.scope[node] = constant_of(nodes.builder, constant, node.name)
            return None
        held = _form(example)
        nodes.scope[node] = input_of(nodes.builder, node.name, example, _order(held))
    except Unsupported as problem:
        nodes.refuse(place(node), "input", problem)
        return None
    return held


def _results(
    nodes: AtenNodes,
    returned: Sequence[Any],
    results: Sequence[Any],
    numbers: Mapping[Any, int],
    shared: Mapping[int, View],
) -> tuple[tuple[Output, ...], dict[str, Value]]:
    outputs: list[Output] = []
    values: dict[str, Value] = {}
    for number, (node, result) in enumerate(zip(returned, results, strict=True)):
        if not is_node(node):
            outputs.append(Known(node))
        elif is_token(node):
            outputs.append(Known(None))
        elif node in numbers:
            outputs.append(Given(numbers[node]))
        elif number in shared:
            outputs.append(shared[number])
        elif isinstance(result, Constant) and not hasattr(node.meta["val"], "dtype"):
            outputs.append(Known(result.data.item()))
        elif isinstance(result, Value) and not hasattr(node.meta["val"], "dtype"):
            nodes.refuse(place(node), "output", Unsupported(Reason.DATA_DEPENDENT, "a number"))
        elif isinstance(result, Value | Complex):
            form = _form(node.meta["val"])
            values[f"output_{number}"] = output_of(nodes.builder, result, _order(form))
            outputs.append(form)
        elif not nodes.refused:  # else its operands are what is not supported
            raise ModelError("output {0} is no tensor, found {1!r:.80}", number, result)
    return tuple(outputs), values


def _views(returned: Sequence[Any]) -> dict[int, View]:
    """The outputs that share the memory of another one, which has all of it, by their numbers.

    Whoever writes one of them afterwards has written the others.
    """
    by_memory: dict[int, list[int]] = {}
    for number, node in enumerate(returned):
        value: Any = node.meta["val"] if is_node(node) else None
        if not hasattr(value, "dtype") or not all(isinstance(n, int) for n in value.shape):
            continue
        if node.op != "placeholder" or node.meta.get("drawn"):
            held = value.untyped_storage()
            by_memory.setdefault(held._cdata, []).append(number)
    found: dict[int, View] = {}
    for numbers in by_memory.values():
        tensors = {n: returned[n].meta["val"] for n in numbers}
        numbers.sort(key=lambda n: returned[n].op != "placeholder")
        whole = next((n for n in numbers if _is_whole(tensors[n])), None)
        for number, tensor in tensors.items():
            if whole is not None and whole != number and _reads(tensor) == _reads(tensors[whole]):
                shape, strides = (tuple(map(int, n)) for n in (tensor.shape, tensor.stride()))
                found[number] = View(whole, shape, strides, int(tensor.storage_offset()))
    return found


def _reads(tensor: Any) -> tuple[object, ...]:
    """What its memory means: conjugates and negatives may be views that say so."""
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor has all elements of its memory, once and from the first on."""
    form = Tensor(tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())), tensor.dtype)
    bytes = math.prod(form.shape) * tensor.element_size()
    return _dense(form) == form and bytes == tensor.untyped_storage().nbytes()


def _as_aten(node: Any) -> None:
    """Casts that PyTorch adds for numbers of a call are no operators of ATen."""
    if str(node.target) == "prims.convert_element_type.default":
        import torch

        value, dtype = node.args
        node.target, node.args = torch.ops.aten._to_copy.default, (value,)
        node.kwargs = {"dtype": dtype}


def _form(example: Any) -> Tensor:
    """The form of a tensor in memory of the processor. Raises `Unsupported` for others."""
    extents = extents_of(example)
    if example.device.type != "cpu":
        raise Unsupported(Reason.TYPE, f"a tensor on the device {example.device}")
    return _dense(Tensor(extents, tuple(map(int, example.stride())), example.dtype))


def _dense(tensor: Tensor) -> Tensor:
    """The tensor, row-major where its elements overlap or have gaps: it then has to be copied."""
    order = _order(tensor)
    step = 1
    for d in reversed(order):
        if tensor.shape[d] != 1 and tensor.strides[d] != step:
            return replace(tensor, strides=_row_major(tensor.shape))
        step *= tensor.shape[d]
    return tensor if math.prod(tensor.shape) else replace(tensor, strides=_row_major(tensor.shape))


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(1, e) for e in shape[d + 1 :]) for d in range(len(shape)))


def _order(tensor: Tensor) -> list[int]:
    """The dimensions from the outermost in memory to the innermost; those of one keep theirs."""
    wide = [d for d, extent in enumerate(tensor.shape) if extent != 1]
    wide.sort(key=lambda d: -tensor.strides[d])
    places = iter(wide)
    return [d if extent == 1 else next(places) for d, extent in enumerate(tensor.shape)]
