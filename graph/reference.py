"""What a graph computes, by numpy: the oracle that every step of the compiler is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError, GuardError
from .ir import Graph, TensorType, Value
from .operator import Array, find


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
    given = bound(graph, arguments, named or {})
    held: dict[Value, Array] = {}

    def cast(array: Array) -> Array:
        wide = dtype is not None and dtypes.is_float(dtypes.from_numpy(array.dtype))
        return array.astype(dtypes.to_numpy(dtype)) if wide and dtype is not None else array

    for name, value in graph.inputs.items():
        held[value] = cast(given[name])
    for value in graph.constants:
        held[value] = cast(value.data)
    last = _last_uses(graph)
    for count, node in enumerate(graph.nodes):
        record = find(node.operator)
        attributes = dict(node.attributes)
        if dtype is not None and dtypes.is_float(str(attributes.get("dtype"))):
            attributes["dtype"] = dtype
        try:
            with np.errstate(all="ignore"):
                results = record.evaluate([held[v] for v in node.inputs], attributes)
        except IndexError as error:
            raise GuardError("{0}: {1}", node.operator, error) from error
        for output, result in zip(node.outputs, results, strict=True):
            exact = dtype is not None and dtypes.is_float(output.dtype)
            wanted = dtypes.to_numpy(dtype if exact and dtype else output.dtype)
            held[output] = result.astype(wanted, copy=False).reshape(output.shape)
        for value in last.get(count, ()):
            del held[value]
    return tuple(held[value] for value in graph.outputs.values())


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


def bound(
    graph: Graph, arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Array]:
    """Arguments by the names of inputs, as arrays of their types.

    Raises `ArgumentError` for one that is missing, unknown or given twice, or not of its type.
    """
    return bound_to({name: v.type for name, v in graph.inputs.items()}, arguments, named)


def bound_to(
    types: Mapping[str, TensorType], arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Array]:
    names = list(types)
    if len(arguments) > len(names):
        raise ArgumentError(
            "expected {0} inputs ({1}), found {2}", len(names), ", ".join(names), len(arguments)
        )
    given = dict(zip(names, arguments, strict=False))
    for name, argument in named.items():
        if name not in types or name in given:
            problem = "is given twice" if name in given else f"is none of {', '.join(names)}"
            raise ArgumentError("the input {0} {1}", name, problem)
        given[name] = argument
    missing = [name for name in names if name not in given]
    if missing:
        raise ArgumentError("the inputs {0} are missing", ", ".join(missing))
    return {name: _array(name, given[name], types[name]) for name in names}


def _array(name: str, argument: Any, type: TensorType) -> Array:
    if not isinstance(argument, np.ndarray) and hasattr(argument, "__dlpack__"):
        argument = np.from_dlpack(argument)
    array = np.asarray(argument)
    plain = isinstance(argument, bool | int | float)
    dtype = dtypes.to_numpy(type.dtype)
    if array.shape != type.shape or (array.dtype != dtype and not plain):
        raise ArgumentError(
            "{0}: the graph takes {1}, found {2}{3}", name, type, array.dtype, list(array.shape),
            expected=str(type),
        )  # fmt: skip
    return array.astype(dtype) if plain else array


