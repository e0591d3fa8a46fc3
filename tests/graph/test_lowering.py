"""Groups that become programs, and types that are inferred: each kind once."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.groups import divide
from tilewright.graph.lower import lowered, lowered_all
from tilewright.graph.operator import Operator
from tilewright.schedule.find import blocks_in


def layers(count: int, *, slope: float = 0.5) -> Graph:
    """Layers of one shape, each with weights of its own."""
    rng = np.random.default_rng(0)
    b = Builder("layers")
    x = b.input("x", TensorType("float32", (2, 4)))
    for _ in range(count):
        w = b.constant(rng.standard_normal((4, 4)), "float32")
        x = b.add("multiply", b.add("matmul", x, w), b.constant(slope, "float32"))
    return b.graph({"y": x})


def test_equal_groups_share_one_program() -> None:
    groups = divide(layers(5))
    funcs = lowered_all(groups)
    assert len({id(func) for func in funcs}) == 1
    assert [func.name for func in funcs] == [lowered(group).name for group in groups]


def test_groups_of_equal_programs_share_one_though_their_attributes_differ() -> None:
    b = Builder("products")
    x, y = (b.input(name, TensorType("float32", (4, 4))) for name in ("x", "y"))
    products = {
        "plain": b.add("matmul", x, y),
        "narrow": b.add("matmul", x, y, dtype="float32"),
        "turned": b.add("matmul", x, y, transpose_b=True),
    }
    graph = b.graph(products)
    plain, narrow, turned = lowered_all(divide(graph))
    assert plain is narrow
    assert plain is not turned
    assert sorted(graph.kernels().values()) == [1, 2]


def test_programs_differ_by_the_numbers_that_are_written_into_them() -> None:
    groups = [*divide(layers(1)), *divide(layers(1, slope=0.0)), *divide(layers(1, slope=-0.0))]
    assert len({func.name for func in lowered_all(groups)}) == 3


def test_types_of_equal_nodes_are_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    types = Operator.types

    def counted(self: Operator, *arguments: object) -> object:
        asked.append(self.name)
        return types(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Operator, "types", counted)
    layers(20)
    assert sorted(asked) == ["matmul", "multiply"]


def test_dimensions_of_one_are_read_as_they_are_written() -> None:
    """Vectors lie along all elements only if a schedule sees that these are contiguous."""
    b = Builder("one")
    x = b.input("x", TensorType("float32", (1, 6, 5, 1)))
    z = b.constant(3, "uint8")
    y = b.add("dequantize", b.add("quantize", b.add("tanh", x), z, dtype="uint8"), z)
    (group,) = divide(b.graph({"y": y}))
    func = lowered(group)
    for block in blocks_in(func.body):
        for read in block.reads:
            if len(read.ranges) == 4:
                assert [r.min for r in read.ranges] == [i.var for i in block.iters]
