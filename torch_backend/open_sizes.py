"""Captured graphs in which Dynamo has left sizes open: a program for each of a few sizes.

Graphs of Tilewright have static shapes. Where sizes vary from call to call, a captured graph is
made static for those of the call, and built as a `CompiledGraph`. Dynamo sees one graph, which it
does not capture again. Sizes beyond the limit are left to PyTorch, and counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from ..base.errors import BuildError
from .compiled_graph import CompiledGraph
from .options import Options
from .report import CapturedGraph

_log = logging.getLogger(__name__)


def is_open(example: Any) -> bool:
    """Whether an argument is a number, or has a size, that Dynamo has left open."""
    if not isinstance(example, torch.Tensor):
        return isinstance(example, torch.SymInt)
    if example.layout != torch.strided:
        return False
    numbers = (*example.shape, *example.stride(), example.storage_offset())
    return any(isinstance(number, torch.SymInt) for number in numbers)


class OpenGraph:
    """A captured graph with open sizes, as AOTAutograd calls it: with a list of arguments."""

    def __init__(
        self,
        module: Any,
        examples: Sequence[Any],
        weights: Sequence[int],
        options: Options,
        record: CapturedGraph,
    ) -> None:
        self._boxed_call = True
        self._module = module
        self._weights = weights
        self._options = options
        self._record = record
        self._open = [number for number, example in enumerate(examples) if is_open(example)]
        self._names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        self._lock = threading.Lock()
        self._graphs: dict[Hashable, CompiledGraph] = {}

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Raises `BuildError` for sizes beyond the limit where breaks are to fail."""
        sizes = tuple([_size(arguments[number]) for number in self._open])
        graph = self._graphs.get(sizes) or self._built(sizes, arguments)
        if graph is not None:
            return graph(arguments)
        given = list(arguments)
        arguments.clear()
        self._record.calls += 1
        self._record.left += 1
        return list(self._module(*given))

    def _built(self, sizes: Hashable, arguments: Sequence[Any]) -> CompiledGraph | None:
        """The graph of sizes that are new; `None` where there are too many."""
        with self._lock:
            graph = self._graphs.get(sizes)  # of another thread
            if graph is None and self._has_room(sizes):
                module = static(self._module, arguments)
                graph = CompiledGraph(module, self._weights, self._options, self._record)
                self._graphs[sizes] = graph
            return graph

    def _has_room(self, sizes: Hashable) -> bool:
        limit = torch._dynamo.config.recompile_limit
        if len(self._graphs) < limit:
            return True
        if self._record.left and self._options.breaks != "fail":
            return False  # which has been told
        varied = self._varied(sizes)
        if self._options.breaks == "fail":
            raise BuildError(
                "{0} is built for {1} sizes, and called with another: {2}",
                self._record.function, limit, _first(varied), hint=_HINT, dims=varied,
            )  # fmt: skip
        _log.warning(
            "%s (%s) is built for %d sizes; PyTorch runs it for others: %s; %s",
            self._record.function, self._record.source, limit, _first(varied), _HINT,
        )  # fmt: skip
        return False

    def _varied(self, sizes: Any) -> list[str]:
        """The open dims that had several values, with all of them; else such numbers."""
        seen: list[Any] = [*self._graphs, sizes]
        dims: list[str] = []
        numbers: list[str] = []
        for place, number in enumerate(self._open):
            values, name = [size[place] for size in seen], self._names[number]
            if isinstance(values[0], int):
                numbers += _varying(name, values)
                continue
            for dim, extents in enumerate(zip(*values, strict=True)):
                dims += _varying(f"dim {dim} of {name}", extents)
        return dims or numbers


_HINT = (
    "pad to a few sizes (for generate(), cache_implementation='static'), or raise "
    "torch._dynamo.config.recompile_limit"
)


def _first(varied: Sequence[str], count: int = 3) -> str:
    """Some of the dims: each cache of a model has one."""
    more = [f"and {len(varied) - count} more"] if len(varied) > count else []
    return "; ".join([*varied[:count], *more])


def _varying(what: str, values: Sequence[int]) -> list[str]:
    distinct = dict.fromkeys(values)
    return [f"{what} was {', '.join(map(str, distinct))}"] if len(distinct) > 1 else []


def _size(argument: Any) -> Hashable:
    size: Hashable = argument.shape if isinstance(argument, torch.Tensor) else argument
    return size


def static(module: Any, arguments: Sequence[Any]) -> Any:
    """The graph of a module for the sizes of these arguments, whose elements are not read.

    Its nodes are those of the module, in which numbers are known. They are not traced anew, as a
    flag that this sets in the process makes calls of other threads fail.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [
        mode.from_tensor(argument, static_shapes=True)
        if isinstance(argument, torch.Tensor)
        else argument
        for argument in arguments
    ]
    made, copies = torch.fx.Graph(), dict[Any, Any]()
    interpreter = torch.fx.Interpreter(module, garbage_collect_values=False)
    interpreter.args_iter = iter(fakes)
    with mode:
        for node in module.graph.nodes:
            value = copies[node] = interpreter.env[node] = interpreter.run_node(node)
            is_number = isinstance(value, int | float)
            if node.op == "placeholder" or not is_number:
                copy = made.node_copy(node, copies.__getitem__)
                copy.meta["val"] = value
                copies[node] = value if is_number else copy
    made.eliminate_dead_code()  # such as results of an operator that nothing reads
    return torch.fx.GraphModule(module, made)
