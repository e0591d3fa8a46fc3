"""Random numbers of a captured graph: PyTorch draws them, and they are further arguments of it.

Graphs of Tilewright have no state to draw from. What is drawn mostly depends on shapes and numbers
alone, such as the mask of a dropout. Before each call PyTorch draws it, from its own generator and
in the order of the graph: the numbers are those of eager execution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch._decomp import decompositions
from torch._functorch.compile_utils import rand_ops
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.utils._pytree import tree_leaves

Draw: TypeAlias = "Callable[[Sequence[Any]], Sequence[Any]]"
"""What draws the tensors of one node, of the arguments of a call and what was drawn before."""

_aten = torch.ops.aten
_WRITING = {
    getattr(_aten, name).default: getattr(torch.Tensor, f"{name.removesuffix('_functional')}_")
    for name in (
        "cauchy", "exponential", "geometric", "log_normal", "normal_functional", "uniform",
    )
}  # fmt: skip
"""Operators that return what one of a tensor writes into its first operand."""
_OF_FORM = (
    *_WRITING,
    _aten.bernoulli.p,
    _aten.rand_like.default,
    _aten.randint_like.default,
    _aten.randint_like.low_dtype,
    _aten.randn_like.default,
)
"""Operators that read the sizes, strides and dtype of their first operand, and no element."""

rand_ops.extend(packet for o in _OF_FORM if (packet := o.overloadpacket) not in rand_ops)
"""PyTorch merges equal nodes of a graph, but for those that it knows to be random."""


def separate(module: Any) -> tuple[Any, Sequence[Draw]]:
    """A graph that takes what it draws behind its arguments, and what draws that, in its order.

    The shapes of the module are static. It stays as it is. What depends on elements is left in the
    graph, as are branches and loops that draw.
    """
    if not any(map(_draws, module.graph.nodes)):
        return module, ()
    graph = deepcopy(module.graph)
    nodes = list(graph.nodes)
    arguments = [node for node in nodes if node.op == "placeholder"]
    drawing = [node for node in nodes if _draws(node)]
    draws = []
    for node in drawing:
        saves = node.target is run_and_save_rng_state
        results = {item.args[1]: item for item in node.users} if saves else {0: node}
        draws.append(_draw(node, arguments, tuple(results)))
        for number, result in results.items():
            is_state = saves and number == 0  # whose size PyTorch leaves open
            example = torch.get_rng_state() if is_state else result.meta["val"]
            with graph.inserting_before(nodes[len(arguments)]):
                argument = graph.placeholder(f"drawn_{result.name}")
            argument.meta.update(val=example, drawn=True)
            result.replace_all_uses_with(argument)
    for node in reversed(drawing):
        for unused in [*node.users, node]:
            graph.erase_node(unused)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph), draws


def partition(joint: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
    """PyTorch's graphs forward and backward. It keeps draws in both; unread ones are forward."""
    forward, backward = min_cut_rematerialization_partition(joint, *args, **options)
    drawn = {node.name for node in forward.graph.nodes if _draws(node)}
    for node in reversed(backward.graph.nodes):
        if node.name in drawn and not node.users:
            backward.graph.erase_node(node)
    backward.recompile()
    return forward, backward


def _draws(node: Any) -> bool:
    """Whether a node draws numbers that depend on no element."""
    if node.op != "call_function":
        return False
    operator, args = _operator(node)
    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return False
    if node.target is run_with_rng_state and node.args[0].op != "placeholder":
        return False
    read = tree_leaves((args[1:] if operator in _OF_FORM else args, node.kwargs))
    return not any(isinstance(argument, torch.fx.Node) for argument in read)


def _operator(node: Any) -> tuple[Any, Sequence[Any]]:
    """The operator that a node draws by, and its operands; those in a checkpoint, too."""
    if node.target is run_and_save_rng_state:
        return node.args[0], node.args[1:]
    if node.target is run_with_rng_state:
        return node.args[1], node.args[2:]
    return node.target, node.args


def _draw(node: Any, arguments: Sequence[Any], wanted: Sequence[int]) -> Draw:
    """What draws the results of a node that are wanted, of a graph with these arguments."""
    operator, args = _operator(node)
    call: Callable[[], Any] = partial(operator, *args, **node.kwargs)
    if operator in _OF_FORM:
        function = {**_WRITING, _aten.bernoulli.p: _bernoulli}.get(operator, operator)
        form = _form(args[0].meta["val"], written=function is not operator)
        call = lambda: function(form(), *args[1:], **node.kwargs)  # noqa: E731
    if node.target is run_with_rng_state:
        state = arguments.index(node.args[0])
        return lambda given: [_again(given[state], call)]
    if node.target is run_and_save_rng_state:
        return lambda _given: list(map([torch.get_rng_state(), call()].__getitem__, wanted))
    return lambda _given: [call()]


def _form(example: Any, *, written: bool) -> Callable[[], Any]:
    """What makes tensors of the sizes, strides and dtype of an example, of any elements.

    If it is to be written, no two elements share memory, as they do in a batch of `torch.vmap`.
    """
    shared = any(not s and e > 1 for s, e in zip(example.stride(), example.shape, strict=True))
    if written and shared:
        example = torch.empty_like(example)
    return partial(
        torch.empty_strided, tuple(example.shape), example.stride(),
        dtype=example.dtype, device=example.device,
    )  # fmt: skip


def _again(state: Any, call: Callable[[], Any]) -> Any:
    """What was drawn in that state; the generator stays in its own."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        return call()


def _bernoulli(out: Any, p: float) -> Any:
    """Write ones with probability `p`, as PyTorch does, in less time where that is known."""
    if not _is_uniform_below() or not 0 <= p <= 1:
        return out.bernoulli_(p)
    numbers = torch.empty_like(out, dtype=torch.float64).uniform_()
    return torch.lt(numbers, p, out=out) if out.dtype == torch.bool else out.copy_(numbers < p)


@cache
def _is_uniform_below() -> bool:
    """Whether `bernoulli_` compares uniform numbers, one by one; with MKL it does not."""
    seeded = [torch.Generator().manual_seed(1) for _ in range(2)]
    empty = partial(torch.empty, 999, device="cpu")
    ones = empty(dtype=torch.bool).bernoulli_(0.3, generator=seeded[0])
    numbers = empty(dtype=torch.float64).uniform_(generator=seeded[1])
    states = [generator.get_state() for generator in seeded]
    return bool(torch.equal(ones, numbers < 0.3) and torch.equal(*states))


def with_row_major_bernoulli(module: Any) -> None:
    """Have Dynamo's graph call `bernoulli(x, p)` of row-major tensors, whose order is eager's.

    `x.bernoulli_(p)` draws in the order of its memory, and is captured as the same operator.
    """
    for part in module.modules():
        for node in list(part.graph.nodes) if isinstance(part, torch.fx.GraphModule) else ():
            bernoulli = node.target in (torch.bernoulli, "bernoulli")
            if bernoulli and (len(node.args) > 1 or "p" in node.kwargs):
                x = node.args[0] if node.args else node.kwargs["input"]
                with part.graph.inserting_before(node):
                    rows = part.graph.call_method("contiguous", (x,))
                node.args = (rows, *node.args[1:])
                node.kwargs = {name: v for name, v in node.kwargs.items() if name != "input"}
                part.recompile()


@contextmanager
def with_recurrent_layers() -> Iterator[None]:
    """Capture what PyTorch's decomposition of recurrent layers leaves out: the dropout between
    them, and gradients by weights alone."""
    helper = decompositions._rnn_helper
    decompositions._rnn_helper = partial(_layer_by_layer, helper)
    try:
        yield
    finally:
        decompositions._rnn_helper = helper


def _layer_by_layer(
    run: Callable[..., Any],
    x: Any,
    states: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    *options: Any,
) -> tuple[Any, list[Any]]:
    """What PyTorch's function `run` computes of recurrent layers, with a dropout between them."""
    layers, dropout, train, bidirectional, batch_first, one_layer = options
    trains = torch.is_grad_enabled() and any(w.requires_grad for w in tree_leaves(params))
    if trains and one_layer is decompositions.mkldnn_one_layer_lstm:
        one_layer = decompositions.one_layer_lstm
    ways, ends = 1 + bidirectional, list[Any]()
    x = x.transpose(0, 1) if batch_first else x
    for first in range(0, layers * ways, ways):
        if first and train and dropout:
            x = torch.dropout(x, dropout, train=True)
        own, weights = (held[first : first + ways] for held in (states, params))
        x, found = run(
            x, own, weights, has_biases, 1, 0.0, train, bidirectional, False, one_layer
        )  # fmt: skip
        ends += found
    return x.transpose(0, 1) if batch_first else x, ends


def _ordered(x: Any, p: float, **_generator: None) -> Any:
    """`bernoulli` of elements as they lie in memory: PyTorch takes its result to be row-major."""
    form = torch.empty_like(x)
    order = sorted(range(x.dim()), key=lambda d: -form.stride(d))
    back = sorted(range(x.dim()), key=order.__getitem__)
    if order == sorted(order):
        return NotImplemented
    return _aten.bernoulli.p(form.permute(order), p).permute(back)


def _ones(x: Any, p: Any = None, **_generator: None) -> Any:
    """Ones with computed probabilities, of the numbers that PyTorch compares with these: of their
    precision, in row-major order, or as the tensor that is written lies in memory."""
    form, p = (torch.empty(x.shape, dtype=x.dtype), x) if p is None else (x, p)
    known = ((p >= 0) & (p <= 1)).all()
    torch._assert_async(known, "bernoulli: a probability is not from 0 to 1")
    precision = torch.float64 if p.dtype == torch.float64 else torch.float32
    return (torch.rand_like(form, dtype=precision) < p).to(form.dtype)


def _dropout(x: Any, p: float, train: bool | None) -> Any:
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:  # for which `torch.nn.functional.dropout` draws nothing
        mask = torch.zeros_like(x, dtype=torch.bool)
        return x * mask, mask
    mask = _aten.bernoulli.p(torch.empty_like(x, dtype=torch.bool), 1 - p)
    return x * mask * (1 / (1 - p)), mask


def _normal(mean: Any, std: Any = 1.0, **_generator: None) -> Any:
    """Normal numbers around computed ones: only these depend on elements."""
    tensors = [t for t in (mean, std) if isinstance(t, torch.Tensor)]
    form = tensors[0].new_empty(torch.broadcast_shapes(*(t.shape for t in tensors)))
    if not isinstance(std, torch.Tensor):
        return _aten.normal_functional(form, 0.0, std) + mean
    torch._assert_async((std >= 0).all(), "normal: a standard deviation is below 0")
    return (_aten.normal_functional(form) * std + mean).to(form.dtype)


def _multinomial(p: Any, count: int, replacement: bool = False, **_generator: None) -> Any:
    """Numbers of rows without replacement: the first of arrivals at those rates."""
    if replacement and count != 1:
        return NotImplemented
    known = (p >= 0).all() & (p < math.inf).all() & (p.sum(-1) > 0).all()
    torch._assert_async(known, "multinomial: a probability is below 0 or not finite, or all are 0")
    ratios = p / _aten.exponential(torch.empty_like(p))
    if count == 1:
        return ratios.argmax(-1, keepdim=True)
    return ratios.topk(count).indices


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    _aten.bernoulli.default: _ones,
    _aten.bernoulli.p: _ordered,
    _aten.bernoulli.Tensor: _ones,
    _aten.native_dropout.default: _dropout,
    _aten.normal.Tensor_Tensor: _normal,
    _aten.normal.Tensor_float: _normal,
    _aten.normal.float_Tensor: _normal,
    _aten.multinomial.default: _multinomial,
}
"""Operators that draw numbers of no element, and then compute with them, as eager ones do."""
