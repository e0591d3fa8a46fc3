"""Groups of large graphs: what dividing them takes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tilewright.graph import Builder, Graph, TensorType, Value
from tilewright.graph.groups import divide

X = TensorType("float32", (4, 16))


def _add(b: Builder, operator: str, x: Value) -> Value:
    value: Value = b.add(operator, x, **({"axis": 1} if operator == "softmax" else {}))
    return value


def skips(count: int, operator: str) -> Graph:
    """A U: what is computed first is read last."""
    b = Builder("skips")
    x = b.input("x", X)
    kept = []
    for _ in range(count):
        x = b.add("sigmoid", _add(b, operator, x))
        kept.append(x)
    for value in reversed(kept):
        x = b.add("add", _add(b, operator, x), value)
    return b.graph({"y": x})


def a_sum(count: int, operator: str) -> Graph:
    """The sum of all values of a chain."""
    b = Builder("sum")
    x = b.input("x", X)
    kept = [x]
    for _ in range(count):
        kept.append(_add(b, operator, kept[-1]))
    total = kept[0]
    for value in kept[1:]:
        total = b.add("add", total, value)
    return b.graph({"y": total})


def spread(count: int, operator: str) -> Graph:
    """A value that all others read."""
    b = Builder("spread")
    early = _add(b, operator, b.input("x", X))
    x = early
    for _ in range(count):
        x = b.add("add", _add(b, operator, x), early)
    return b.graph({"y": x})


def calls(graph: Graph) -> int:
    """How many functions are called to divide a graph."""
    made = 0

    def counted(*_: object) -> None:
        nonlocal made
        made += 1

    sys.setprofile(counted)
    try:
        divide(graph)
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize("operator", ["sqrt", "softmax"])
@pytest.mark.parametrize("make", [skips, a_sum, spread])
def test_dividing_is_linear(make: Callable[[int, str], Graph], operator: str) -> None:
    def of(count: int) -> Graph:
        return make(count, operator)

    assert calls(of(400)) < 2.2 * calls(of(200))


@pytest.mark.parametrize("count", [33, 64, 200])
def test_no_kernel_has_very_many_operands(count: int) -> None:
    """The parts of a concatenation of many stay apart, and have what they alone read."""
    b = Builder("many")
    x = b.input("x", X)
    parts = [b.add("sqrt", b.add("add", x, b.input(f"x{n}", X))) for n in range(count)]
    groups = divide(b.graph({"y": b.add("concatenate", *parts, axis=0)}).optimized())
    assert all(len(group.inputs) <= 64 for group in groups)
    assert sum(node.operator == "sqrt" for group in groups for node in group.nodes) == count


def test_a_group_that_waits_for_thousands() -> None:
    b = Builder("deep")
    early = b.add("softmax", b.input("x", X), axis=1)
    late = b.input("y", X)
    for _ in range(2000):
        late = b.add("softmax", late, axis=1)
    groups = divide(b.graph({"z": b.add("add", early, late)}))
    assert len(groups) == 2001
    assert groups[-1].name == "softmax_add"
