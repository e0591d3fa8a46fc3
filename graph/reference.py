"""What a graph computes, by numpy: the oracle that every step of the compiler is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import GuardError
from ..runtime.model import bound
from ..runtime.signature import Argument
from .ir import Graph, Node, Value
from .operator import Array, Kind, find
from .operators.foreign import foreign_module


def run(
    graph: Graph,
    arguments: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    dtype: str | None = None,
) -> tuple[Array, ...]:
    """The outputs of a graph.

    With `dtype` (float64, say) all floats are computed in it. Raises `ArgumentError` for arguments
    that are not of the inputs' types, and `GuardError` for an index out of its range.
    """
    inputs = {n: Argument(n, v.dtype, v.shape) for n, v in graph.inputs.items()}
    return computed(graph, list(bound(inputs, arguments, named or {}).values()), dtype)


def computed(graph: Graph, given: Sequence[Array], dtype: str | None = None) -> tuple[Array, ...]:
    """The outputs of a graph for arrays of its inputs' types; see `run`."""
    held: dict[Value, Array] = {}

    def cast(array: Array) -> Array:
        wide = dtype is not None and dtypes.is_float(dtypes.from_numpy(array.dtype))
        return array.astype(dtypes.to_numpy(dtype)) if wide and dtype is not None else array

    for value, array in zip(graph.inputs.values(), given, strict=True):
        held[value] = cast(array)
    for value in graph.constants:
        held[value] = cast(value.data)
    last = _last_uses(graph)
    for count, node in enumerate(graph.nodes):
        record = find(node.operator)
        attributes = dict(node.attributes)
        own = attributes.get("dtype")
        if dtype is not None and isinstance(own, str) and dtypes.is_float(own):
            attributes["dtype"] = dtype
        if not any(o.type.size or dtypes.UNKNOWN in o.shape for o in node.outputs):
            held.update(
                (o, cast(np.empty(o.shape, dtypes.to_numpy(o.dtype)))) for o in node.outputs
            )
            continue
        operands = [held[v] for v in node.inputs]
        if record.kind is Kind.FOREIGN:  # takes its own dtypes only
            types = (dtypes.to_numpy(v.dtype) for v in node.inputs)
            operands = [a.astype(t, copy=False) for a, t in zip(operands, types, strict=True)]
        try:
            with np.errstate(all="ignore"):
                results = record.evaluate(
                    operands, attributes, [output.type for output in node.outputs]
                )
        except IndexError as error:
            raise GuardError("{0}: {1}", node.operator, error) from error
        for output, result in zip(node.outputs, results, strict=True):
            exact = dtype is not None and dtypes.is_float(output.dtype)
            wanted = dtypes.to_numpy(dtype if exact and dtype else output.dtype)
            shape = result.shape if dtypes.UNKNOWN in output.shape else output.shape
            held[output] = result.astype(wanted, copy=False).reshape(shape)
        for value in last.get(count, ()):
            del held[value]
    return tuple(held[value] for value in graph.outputs.values())


def not_computed(node: Node) -> str | None:
    """Why a node has no reference here; `None` if it has one."""
    if find(node.operator).kind is Kind.FOREIGN:
        try:
            foreign_module().evaluator(node.attributes["model"])
        except Exception as error:  # noqa: BLE001  of several kinds
            return f"{type(error).__name__}: {error}"
    return None


def _last_uses(graph: Graph) -> dict[int, list[Value]]:
    kept = {*graph.outputs.values(), *graph.constants, *graph.inputs.values()}
    last = dict[Value, int]()
    for count, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            if value not in kept:
                last[value] = count
    by_step: dict[int, list[Value]] = {}
    for value, count in last.items():
        by_step.setdefault(count, []).append(value)
    return by_step
