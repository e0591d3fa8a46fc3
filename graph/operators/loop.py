"""Loops of a known number of steps: a body, which is a graph, and what goes from step to step."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ..ir import Graph, TensorType
from ..limits import open_limits
from ..operator import Array, Kind, Operator, find, register
from ..text import parse_graph

_KEPT = 64
"""Bodies that are not parsed again."""


def _source(*_: Any, body: str, count: int, carried: int, sliced: int) -> None:
    """The states after `count` steps, and what the steps compute beside, one after the other.

        states = initial
        for step in range(count):
            states, values[step] = body(states, [rows[step] for rows in sliced], others)

    The operands are the initial states, of which there are `carried`, then those `sliced` along
    their first dimension, which has the extent `count`, and others. `body` is the text of a graph
    whose constants are written out. Its inputs are the states, a row of each of what is sliced, and
    the others; its outputs the states, and what becomes a row of a further output. Indices in it
    hold their limits whatever the data are.
    """


@lru_cache(_KEPT)
def body_of(text: str) -> Graph:
    """The body of a loop. Raises `ModelError` for a text that is no graph."""
    return parse_graph(text)


def _infer(
    *given: TensorType, body: str, count: int, carried: int, sliced: int
) -> tuple[TensorType, ...]:
    graph = body_of(body)
    inputs = [value.type for value in graph.inputs.values()]
    outputs = [value.type for value in graph.outputs.values()]
    if count < 1 or carried < 0 or sliced < 0 or carried + sliced > len(given):
        raise IRError("{0} steps of {1} states and {2} sliced", count, carried, sliced)
    rows = given[carried : carried + sliced]
    if any(type.shape[:1] != (count,) for type in rows):
        raise IRError("{0} steps of rows of {1}", count, ", ".join(map(str, rows)))
    seen = [*given[:carried], *(TensorType(t.dtype, t.shape[1:]) for t in rows)]
    if inputs != [*seen, *given[carried + sliced :]] or outputs[:carried] != inputs[:carried]:
        taken, made = (", ".join(map(str, types)) for types in (inputs, outputs))
        raise IRError("the body takes {0} and returns {1}", taken, made)
    if open_limits(graph):
        raise IRError("data decide indices in the body, which may be out of range")
    if any(find(node.operator).kind is Kind.FOREIGN for node in graph.nodes):
        raise IRError("a node in the body is of another program")
    stacked = (TensorType(type.dtype, (count, *type.shape)) for type in outputs[carried:])
    return (*inputs[:carried], *stacked)


def _evaluate(
    *arrays: Array, body: str, count: int, carried: int, sliced: int
) -> tuple[Array, ...]:
    """Floats of another dtype than the body's are what all of it is computed in."""
    from ..reference import computed  # which asks for records

    graph = body_of(body)
    states, others = arrays[:carried], arrays[carried + sliced :]
    pairs = zip(graph.inputs.values(), arrays, strict=True)
    found = {(v.dtype, dtypes.from_numpy(a.dtype)) for v, a in pairs}
    wide = next((own for declared, own in found if own != declared and dtypes.is_float(own)), None)
    rows = list[tuple[Array, ...]]()
    for step in range(count):
        seen = (np.asarray(a[step]) for a in arrays[carried : carried + sliced])
        made = computed(graph, [*states, *seen, *others], wide)
        states = made[:carried]
        rows.append(made[carried:])
    return (*states, *map(np.stack, zip(*rows, strict=True)))


register(Operator("loop", Kind.LOOP, _evaluate, None, _infer, _source))
