"""Random numbers of a captured graph: PyTorch draws them, and they are further arguments of it.

Graphs of Tilewright have no state to draw from. What is drawn in a captured graph mostly depends on
shapes and numbers alone, such as the mask of a dropout. Before each call PyTorch draws it, from its
own generator and in the order of the graph: the numbers are those of eager execution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import torch

Draw: TypeAlias = "Callable[[], Any]"
"""What draws the elements of one tensor."""

_aten = torch.ops.aten
_OF_FORM = frozenset(
    {
        "bernoulli.p",
        "cauchy.default",
        "exponential.default",
        "geometric.default",
        "log_normal.default",
        "normal_functional.default",
        "rand_like.default",
        "randint_like.default",
        "randint_like.low_dtype",
        "randn_like.default",
        "random.default",
        "random.from",
        "random.to",
        "uniform.default",
    }
)
"""Operators that read the sizes, strides and dtype of their first operand, and no element."""


def separate(module: Any) -> tuple[Any, Sequence[Draw]]:
    """A graph that takes what it draws behind its arguments, and what draws that, in its order.

    The shapes of the module are static. It stays as it is. What depends on elements is left in the
    graph, as are branches and loops that draw.
    """
    if not any(map(_draws, module.graph.nodes)):
        return module, ()
    graph = deepcopy(module.graph)
    nodes = list(graph.nodes)
    first = next(node for node in nodes if node.op != "placeholder")
    draws = []
    for node in filter(_draws, nodes):
        if node.target is _aten.native_dropout.default:
            draws.append(_dropout(graph, node, first))
        else:
            draws.append(_draw(node))
            node.replace_all_uses_with(_argument(graph, first, node.name, node.meta["val"]))
            graph.erase_node(node)
    return torch.fx.GraphModule(module, graph), draws


def _draws(node: Any) -> bool:
    """Whether a node draws numbers that depend on no element."""
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in _tags(node.target):
        return False
    if node.target is _aten.native_dropout.default:
        _, p, train = node.args
        return isinstance(p, int | float) and train is True
    read = node.all_input_nodes
    if str(node.target).removeprefix("aten.") in _OF_FORM:
        return read == [node.args[0]]
    return not read


def _tags(target: Any) -> Sequence[Any]:
    return getattr(target, "tags", ())


def _draw(node: Any) -> Draw:
    if not node.all_input_nodes:
        return partial(node.target, *node.args, **node.kwargs)
    like, *numbers = node.args
    form = _form(like.meta["val"])
    return lambda: node.target(form(), *numbers, **node.kwargs)


def _dropout(graph: Any, node: Any, first: Any) -> Draw:
    """Make products of a node: `native_dropout(x, p)` -> `x * mask * (1 / (1 - p))`, and `mask`."""
    x, p, _ = node.args
    kept, mask = node.meta["val"]
    drawn = _argument(graph, first, f"{node.name}_mask", mask)
    with graph.inserting_before(node):
        product = graph.call_function(_aten.mul.Tensor, (x, drawn))
        scaled = graph.call_function(_aten.mul.Tensor, (product, 1 / (1 - p) if p < 1 else 0.0))
    product.meta = scaled.meta = {**node.meta, "val": kept}
    for item in list(node.users):
        item.replace_all_uses_with((scaled, drawn)[item.args[1]])
        graph.erase_node(item)
    graph.erase_node(node)
    form = _form(mask)
    if p == 1 or not mask.numel():  # for which eager execution draws nothing
        return lambda: form().zero_()
    return lambda: form().bernoulli_(1 - p)


def _argument(graph: Any, first: Any, name: str, example: Any) -> Any:
    """A further argument, before the first node that is none."""
    with graph.inserting_before(first):
        argument = graph.placeholder(name)
    argument.meta["val"] = example
    return argument


def _form(example: Any) -> Draw:
    """What makes a tensor of the sizes, strides and dtype of an example; its elements are any."""
    return partial(
        torch.empty_strided, tuple(example.shape), example.stride(),
        dtype=example.dtype, device=example.device,
    )  # fmt: skip
