"""Each record, on generated cases: its types, its reference, its lowering and its kernel agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.graph import Graph, TensorType
from tilewright.graph.groups import divide
from tilewright.graph.lower import lowered
from tilewright.graph.operator import OPERATORS, Kind, find
from tilewright.graph.verify import verify
from tilewright.tir.interpreter import interpret

from ..long import examples
from ..schedule.random_cases import visits
from .mutants import changed
from .random_graphs import GraphCase, check_graph
from .random_operators import CASES
from .random_values import Pick, Pool, Style

OWN = sorted(n for n, record in OPERATORS.items() if record.kind is not Kind.FOREIGN)
"""Those that are no other program's."""
STYLES = (
    Style("normal", fresh=8),
    Style("whole", floats=("float32", "float16", "float64"), fresh=8),
    Style("edges", floats=("float32", "bfloat16"), fresh=8),
    Style("normal", zeros=True, fresh=8),
)
MOST_VISITS = 3000
"""Of a program that is interpreted."""


def test_every_operator_has_a_generator_of_cases() -> None:
    assert sorted(CASES) == OWN


@pytest.mark.parametrize("name", OWN)
def test_references_and_lowerings_agree(name: str) -> None:
    tried = 0

    @settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal tried
        case = drawn(name, lambda n: data.draw(st.integers(0, n - 1)))
        if case is not None:
            check_graph(case, compiled=False)
            tried += check_interpreted(case)

    check()
    # A view has no program, nor has a loop, and no NaN is equal to another for the text of bits.
    assert tried or find(name).kind in (Kind.VIEW, Kind.LOOP)


@pytest.mark.parametrize("name", OWN)
def test_kernels_agree(name: str) -> None:
    left = examples(4)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        case = drawn(name, lambda n, rng=rng: int(rng.integers(n)))  # type: ignore[misc]
        if case is not None and case.graph.nodes:
            check_graph(case)
            left -= 1
        if not left:
            break
    assert not left, f"{left} cases are lacking"


def test_floats_of_several_dtypes_are_refused() -> None:
    """As ONNX refuses them: places of a grid alone may be of another dtype."""
    refused, accepted = set[str](), set[str]()
    for name, seed in product(OWN, range(20)):
        rng = np.random.default_rng(seed)
        pool = Pool(lambda n, rng=rng: int(rng.integers(n)), Style("normal", fresh=8))  # type: ignore[misc]
        inputs, attributes = CASES[name](pool)
        types = [v.type for v in inputs]
        complete = find(name).checked(types, dict(attributes))
        floats = [k for k, type in enumerate(types) if dtypes.is_float(type.dtype)]
        with suppress(ModelError):
            find(name).types(types, complete)
            for k in floats if len(floats) > 1 else ():
                mixed = [*types]
                mixed[k] = TensorType("float64", types[k].shape)
                try:
                    find(name).types(mixed, complete)
                    accepted.add(name)
                except ModelError:
                    refused.add(name)
    assert accepted == {"grid_sample"}
    assert refused >= {"add", "attention", "concatenate", "conv", "matmul", "recurrence", "scatter"}


PLACES = [(n, a) for n in OWN for a in ("axis", "axes") if a in find(n).attributes]


@pytest.mark.parametrize(("name", "axis"), PLACES)
def test_axes_of_nodes_count_from_the_front(name: str, axis: str) -> None:
    pool = Pool(lambda n: n - 1, Style("normal", fresh=8))
    operands, attributes = CASES[name](pool)
    inputs = [pool.builder.input(f"of{k}", value.type) for k, value in enumerate(operands)]
    rank = inputs[0].type.rank

    def graph(*places: int) -> Graph:
        given = {**attributes, axis: places if axis == "axes" else places[0]}
        return pool.graph(pool.builder.add_all(name, *inputs, **given))

    given = attributes[axis] if axis == "axes" else [attributes[axis]]
    front = [a % rank for a in given]
    right = graph(*front)
    assert right.digest == graph(*(a - rank for a in front)).digest
    verify(right)
    for wrong in (rank, -rank - 1):
        with pytest.raises(ModelError):
            graph(*front[1:], wrong)
    if axis == "axes":
        with pytest.raises(ModelError):
            graph(*front[1:], front[-1])
    (node,) = right.nodes
    behind = tuple(a - rank for a in front)
    other = {**node.attributes, axis: behind if axis == "axes" else behind[0]}
    with pytest.raises(ModelError):
        verify(replace(right, nodes=(replace(node, attributes=other),)))


@pytest.mark.parametrize("name", [name for name in OWN if find(name).attributes])
def test_changed_attributes_are_refused_or_agree(name: str) -> None:
    for seed in range(examples(60)):
        rng = np.random.default_rng(seed)
        try:
            case = drawn(name, lambda n, rng=rng: int(rng.integers(n)), changed)  # type: ignore[misc]
        except IndexError:  # an index out of another dimension
            continue
        if case is not None and max(v.type.size for v in case.graph.values()) <= MOST_VISITS:
            check_graph(case, compiled=False)
            check_interpreted(case)


def drawn(
    name: str, pick: Pick, change: Callable[[Any, Pick], Any] | None = None
) -> GraphCase | None:
    """A graph of the operator alone; `None` if its operands are refused, or say little.

    With `change` one of its attributes is changed.
    """
    pool = Pool(pick, STYLES[pick(len(STYLES))])
    inputs, attributes = CASES[name](pool)
    if change is not None and attributes:
        one = list(attributes)[pick(len(attributes))]
        attributes = {**attributes, one: change(attributes[one], pick)}
    made = pool.add(name, *inputs, **attributes)
    if made is None:
        return None
    graph = pool.graph(made)
    wanted = {n: pool.held[v] for n, v in graph.outputs.items()}
    return GraphCase(graph, pool.arguments, wanted, pool.held)


def check_interpreted(case: GraphCase) -> bool:
    """Compare the program of the only group, and say whether there is a small one."""
    groups = divide(case.graph)
    if len(groups) != 1 or groups[0].loop is not None:
        return False
    func = lowered(groups[0])
    if visits(func.body) > MOST_VISITS:
        return False
    given = [case.held[v].own for v in groups[0].inputs]
    made = [np.empty(v.shape, dtypes.to_numpy(v.dtype)) for v in groups[0].outputs]
    interpret(func, *given, *made)
    for value, array in zip(groups[0].outputs, made, strict=True):
        assert not case.held[value].difference(array)
    return True
