"""Random graphs, and what they found: `python -m tests.fuzz graph` tries many."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.ir import Constant
from tilewright.graph.operator import Operator, find
from tilewright.graph.text import graph_text, parse_graph

from ..fuzz.graph_case import run_graph_case
from .random_graphs import a_graph

TARGET = "cpu -threads=1"


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int) -> None:
    assert run_graph_case(seed, compiled=True) is None


def test_a_wrong_lowering_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    record = find("sigmoid")
    wrong = Operator("sigmoid", record.kind, record.reference, find("tanh").lower, record.infer)
    monkeypatch.setitem(tw.graph.operator.OPERATORS, "sigmoid", wrong)
    seeds = [s for s in range(200) if any(n.operator == "sigmoid" for n in a_graph(s).graph.nodes)]
    problem = next(filter(None, (run_graph_case(s, compiled=True) for s in seeds)), "")
    assert "compiled: " in problem
    assert problem.count(" = sigmoid(") == 1
    assert problem.count(" = ") == 1 + problem.count("  const ")


def one(operator: str, *types: TensorType, **attributes: Any) -> Graph:
    b = Builder("one")
    inputs = [b.input(f"x{k}", type) for k, type in enumerate(types)]
    return b.graph({"y": b.add_all(operator, *inputs, **attributes)[0]})


@pytest.mark.parametrize(
    ("dtype", "elements"),
    [
        ("uint64", [2**64 - 1, 5]),  # no float64 has both
        ("float32", [np.nan, -np.nan, np.inf, -0.0]),  # NaN has bits that no text has
        ("bool", [True, False]),
    ],
)
def test_constants_of_a_text_have_all_their_bits(dtype: str, elements: list[Any]) -> None:
    b = Builder("held")
    held = b.constant(elements, dtype)
    graph = b.graph({"y": held})
    again = parse_graph(graph_text(graph), {held.digest: held.data})
    assert again.digest == graph.digest


@pytest.mark.parametrize(
    "written", ["1.5", "[1]", "true", "300", "-129", "null", '"1"', "[" * 100_000]
)
def test_elements_of_another_type_are_refused(written: str) -> None:
    text = f"graph g() -> (y):\n  const w0: int8[] = {written}\n  return y=w0\n"
    with pytest.raises(ModelError):
        parse_graph(text)


def test_names_that_are_no_text_are_refused() -> None:
    half = json.loads('"\\ud800"')
    type = TensorType("float32", (4,))
    names: list[Any] = [half, b"\xff"]
    for name in names:
        with pytest.raises(ModelError):
            Builder("g").input(name, type)
    b = Builder("g")
    with pytest.raises(ModelError):
        b.graph({half: b.input("x", type)})
    for text in (
        'g("{0}": {1}) -> (y):\n  return y="{0}"',
        'g(x: {1}) -> ("{0}"):\n  return "{0}"=x',
    ):
        with pytest.raises(ModelError):
            parse_graph("graph " + text.format("\\ud800", type) + "\n")


def test_padding_nothing_is_the_element() -> None:
    graph = one("pad", TensorType("float32", ()), before=(), after=())
    x = np.array(3, np.float32)
    assert graph.reference(x)[0] == tw.build(graph, TARGET)(x) == 3


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("operator", ["max", "min"])
def test_the_largest_of_nothing_is_less_than_all(operator: str, dtype: str) -> None:
    graph = one(operator, TensorType(dtype, (2, 0)), axes=(1,))
    x = np.empty((2, 0), dtype)
    info = np.iinfo(dtype) if dtype == "int8" else None
    low, high = (-np.inf, np.inf) if info is None else (info.min, info.max)
    for found in (graph.reference(x)[0], tw.build(graph, TARGET)(x)):
        assert found.tolist() == [low if operator == "max" else high] * 2


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("argmax", [(2, 0)], {"axis": 1}),
        ("accumulate", [()], {"axis": 0}),
        (
            "grid_sample",
            [(1, 1, 0), (1, 2, 1)],
            {"mode": "linear", "padding": "zeros", "align": True},
        ),
        (
            "roi_align",
            [(1, 1, 0, 3), (1, 4), (1,)],
            {"size": (1, 1), "samples": 1, "scale": 1.0, "half": True},
        ),
    ],
)
def test_what_reads_no_element_is_refused(
    operator: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    dtypes = ["float32"] * 2 + ["int64"]
    types = [TensorType(d, s) for d, s in zip(dtypes, shapes, strict=False)]
    with pytest.raises(ModelError):
        one(operator, *types, **attributes)


@pytest.mark.parametrize(
    ("operator", "type", "attributes"),
    [
        ("clip", "uint8[4]", {"low": -1, "high": 3}),
        ("clip", "int32[4]", {"low": 0.5, "high": 3}),
        ("clip", "float32[4]", {"low": "a", "high": 3}),
        ("mean", "int32[4, 0]", {"axes": (1,)}),
        ("sum", "float32[4]", {"axes": (0.0,)}),
        ("sum", "float32[4]", {"axes": (0,), "keepdims": 2}),
        ("resize_nearest", "float32[4]", {"scales": ((-1, 3, 1),), "shape": (4,)}),
        ("resize_nearest", "float32[4]", {"scales": ((1, 0, -1),), "shape": (4,)}),
        ("pad", "float32[4]", {"before": (0,), "after": (0,), "mode": "mirror"}),
        ("normalize", "float32[4]", {"axis": 0, "epsilon": 10**400}),
        ("leaky_relu", "float32[4]", {"slope": (1, 2)}),
        ("cast", "float32[4]", {"dtype": ""}),
    ],
)
def test_attributes_that_mean_nothing_are_refused(
    operator: str, type: str, attributes: dict[str, Any]
) -> None:
    given = ", ".join(f"{name}={value!r}" for name, value in attributes.items())
    with pytest.raises(ModelError):
        parse_graph(
            f"graph g(x: {type}) -> (y):\n  %0: {type} = {operator}(x, {given})\n  return y=%0\n"
        )
    dtype, _, shape = type.rstrip("]").partition("[")
    with pytest.raises(ModelError):
        one(operator, TensorType(dtype, tuple(map(int, shape.split(", ")))), **attributes)


@pytest.mark.parametrize("clip", [np.inf, 2.0, None])
@pytest.mark.parametrize("alpha", [np.inf, 0.5])
def test_numbers_of_a_cell_may_be_infinite(clip: float | None, alpha: float) -> None:
    types = [("float32", (2, 1, 3)), ("float32", (1, 3, 3)), ("float32", (1, 3))]
    graph = one(
        "recurrence", *(TensorType(*t) for t in types),
        cell="rnn", activations=[("thresholdedrelu", alpha, 0.0)], clip=clip,
    )  # fmt: skip
    given = [np.full(shape, 3, np.float32) for _, shape in types]
    model = tw.build(graph, TARGET)
    np.testing.assert_allclose(model(*given), graph.reference(*given)[0], rtol=1e-6)


@pytest.mark.parametrize(
    "names", [("tanh",), ("tanh", "sigmoid", "tanh", "tanh"), ("tanh", "a", "tanh")]
)
def test_activations_are_those_of_the_cell(names: tuple[str, ...]) -> None:
    types = [("float32", (2, 1, 12)), ("float32", (1, 3, 12)), ("float32", (1, 3))]
    with pytest.raises(ModelError):
        one(
            "recurrence", *(TensorType(*t) for t in types),
            cell="lstm", activations=[(name, 1.0, 0.0) for name in names],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [("exp", "int32"), ("sqrt", "int64"), ("add", "bool"), ("negative", "bool"), ("round", "uint8"),
     ("bitwise_and", "float32"), ("logical_and", "int32"), ("logical_not", "uint8"),
     ("elu", "int32")],
)  # fmt: skip
def test_dtypes_without_a_kernel_are_refused(operator: str, dtype: str) -> None:
    count, _ = find(operator).operands
    with pytest.raises(ModelError):
        one(operator, *[TensorType(dtype, (4,))] * count)
    b = Builder("folded")
    with pytest.raises(ModelError):
        b.add(operator, *[b.constant(1, dtype)] * count)


def test_regions_of_nan_are_outside() -> None:
    types = [("float32", (1, 1, 3, 3)), ("float32", (1, 4)), ("int64", (1,))]
    graph = one(
        "roi_align", *(TensorType(*t) for t in types),
        size=(1, 1), samples=1, scale=1.0, half=True,
    )  # fmt: skip
    given = [np.ones((1, 1, 3, 3), np.float32), np.full((1, 4), np.nan, np.float32)]
    given.append(np.zeros(1, np.int64))
    assert graph.reference(*given)[0] == tw.build(graph, TARGET)(*given) == 0


def test_constants_of_no_element_fold() -> None:
    b = Builder("empty")
    folded = b.add("softmax", b.constant(np.empty((0, 0), np.float32)), axis=1)
    assert isinstance(folded, Constant)
    assert folded.data.shape == (0, 0)


def test_a_scalar_is_transposed_in_onnx() -> None:
    model = one("transpose", TensorType("float32", ()), axes=()).to_onnx()
    x = np.array(3, np.float32)
    assert tw.import_onnx(model).reference(x)[0] == 3


def test_passes_are_compared_where_only_one_index_is_valid() -> None:
    b = Builder("one")
    x, at = b.input("x", TensorType("float32", (1,))), b.input("at", TensorType("int64", (16,)))
    taken = b.add("take_along", x, at, axis=0)
    graph = b.graph({"y": b.add("transpose", b.add("reshape", taken, shape=(16,)), axes=(0,))})
    assert len(graph.optimized().nodes) == 1


def test_cubic_weights_reach_further_within_the_edges() -> None:
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    graph = one(
        "grid_sample", TensorType("float32", (1, 1, 4, 3)), TensorType("float32", (1, 5, 3, 2)),
        mode="cubic", padding="border", align=False,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x, at = (rng.uniform(-1, 1, v.shape).astype(np.float32) for v in graph.inputs.values())
    (wanted,) = evaluator(graph.to_onnx()).run(None, {"x0": x, "x1": at})
    for found in (graph.reference(x, at)[0], tw.build(graph, TARGET)(x, at)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
