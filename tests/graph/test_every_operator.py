"""Each record, on generated cases: its types, its reference, its lowering and its kernel agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.base import dtypes
from tilewright.graph.groups import divide
from tilewright.graph.lower import lowered
from tilewright.graph.operator import OPERATORS, Kind, find
from tilewright.tir.interpreter import interpret

from ..long import examples
from ..schedule.random_cases import visits
from .random_graphs import GraphCase, check_graph
from .random_operators import CASES
from .random_values import Pick, Pool, Style

STYLES = (
    Style("normal", fresh=8),
    Style("whole", floats=("float32", "float16", "float64"), fresh=8),
    Style("edges", floats=("float32", "bfloat16"), fresh=8),
    Style("normal", zeros=True, fresh=8),
)
MOST_VISITS = 3000
"""Of a program that is interpreted."""


def test_every_operator_has_a_generator_of_cases() -> None:
    assert set(CASES) == set(OPERATORS)


@pytest.mark.parametrize("name", sorted(OPERATORS))
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
    # A view has no program, and no NaN is equal to another for the text of bits.
    assert tried or find(name).kind is Kind.VIEW


@pytest.mark.parametrize("name", sorted(OPERATORS))
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


def drawn(name: str, pick: Pick) -> GraphCase | None:
    """A graph of the operator alone; `None` if its operands are refused, or say little."""
    pool = Pool(pick, STYLES[pick(len(STYLES))])
    inputs, attributes = CASES[name](pool)
    made = pool.add(name, *inputs, **attributes)
    if made is None:
        return None
    graph = pool.graph(made)
    wanted = {n: pool.held[v] for n, v in graph.outputs.items()}
    return GraphCase(graph, pool.arguments, wanted, pool.held)


def check_interpreted(case: GraphCase) -> bool:
    """Compare the program of the only group, and say whether there is a small one."""
    groups = divide(case.graph)
    if len(groups) != 1:
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
