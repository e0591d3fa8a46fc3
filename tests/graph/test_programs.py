"""Operators that are programs, and those that read and write at places of data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import dtypes
from tilewright.base.errors import GuardError, ModelError
from tilewright.graph.builder import Builder
from tilewright.graph.ir import Graph, TensorType
from tilewright.graph.operators.cells import ACTIVATIONS, GATES, tile_width
from tilewright.graph.verify import verify

RNG = np.random.default_rng(0)
DEFAULTS = {
    "rnn": (("tanh", 0.0, 0.0),),
    "gru": (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)),
    "lstm": (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)),
}


def graph_of(operator: str, *arrays: Any, **attributes: Any) -> Graph:
    builder = Builder("one")
    inputs = [
        builder.input(f"x{n}", TensorType(dtypes.from_numpy(a.dtype), a.shape))
        for n, a in enumerate(arrays)
    ]
    outputs = builder.add_all(operator, *inputs, **attributes)
    graph = builder.graph({f"y{n}": value for n, value in enumerate(outputs)})
    verify(graph)
    return graph


def check(operator: str, *arrays: Any, tolerance: float = 0, **attributes: Any) -> Any:
    """The kernel computes what the reference does, which is returned."""
    graph = graph_of(operator, *arrays, **attributes)
    expected = graph.reference(*arrays)
    found = tw.build(graph, "cpu -threads=1")(*arrays)
    found = found if isinstance(found, tuple) else (found,)
    for own, right in zip(found, expected, strict=True):
        assert own.dtype == right.dtype
        np.testing.assert_allclose(own, right, rtol=tolerance, atol=tolerance)
    return expected[0] if len(expected) == 1 else expected


def normal(*shape: int, dtype: str = "float32") -> Any:
    return (RNG.standard_normal(shape) * 0.5).astype(dtype)


@pytest.mark.parametrize(
    ("cell", "n", "hidden", "given"),
    [
        ("rnn", 1, 5, ()),
        ("rnn", 5, 67, ("lengths",)),
        ("gru", 2, 130, ("lengths",)),
        ("gru", 1, 33, ("bias",)),
        ("lstm", 1, 64, ("cell",)),
        ("lstm", 3, 20, ()),
        ("lstm", 6, 9, ("cell", "peepholes", "lengths")),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_recurrence(
    cell: str, n: int, hidden: int, given: tuple[str, ...], backwards: bool
) -> None:
    shapes = {"cell": (n, hidden), "bias": (hidden,), "peepholes": (3 * hidden,)}
    others = [
        RNG.integers(0, 4, n).astype(np.int32) if name == "lengths" else normal(*shapes[name])
        for name in given
    ]
    columns = GATES[cell] * hidden
    width = tile_width(hidden, n) or columns
    check(
        "recurrence", normal(3, n, columns), normal(columns // width, hidden, width),
        normal(n, hidden), *others,
        cell=cell, activations=DEFAULTS[cell], given=given, backwards=backwards,
        clip=0.8 if backwards else None, input_forget=backwards, tolerance=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    check(
        "recurrence", normal(2, 1, 8), normal(1, 8, 8), normal(1, 8),
        cell="rnn", activations=((name, 0.3, 0.4),), tolerance=1e-5,
    )  # fmt: skip


def test_recurrence_of_narrow_floats_keeps_its_states_wide() -> None:
    x, r, h = (normal(*s, dtype="float16") for s in ((20, 1, 8), (1, 8, 8), (1, 8)))
    options: dict[str, Any] = {"cell": "rnn", "activations": DEFAULTS["rnn"]}
    check("recurrence", x, r, h, tolerance=1e-3, **options)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_accumulate(dtype: str, axis: int) -> None:
    x = (RNG.integers(-3, 4, (6, 7))).astype(dtype)
    expected = check("accumulate", x, axis=axis)
    np.testing.assert_array_equal(expected, np.cumsum(x, axis, dtype=dtype))
    check("accumulate", x, axis=axis, exclusive=True, reverse=True)
    check("accumulate", x, axis=axis, product=True)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint64"])
def test_top(dtype: str, largest: bool) -> None:
    """Places of elements in their order: equal ones by place, NaN as the largest of all."""
    x = RNG.integers(0, 6, (3, 33, 2)).astype(dtypes.to_numpy(dtype))
    if dtypes.is_float(dtype):
        x[1, 5:15:4], x[2, ::7], x[0, 1::9] = np.nan, -np.inf, -0.0
    order = np.argsort(-x.astype(float) if largest else x.astype(float), 1, kind="stable")
    if largest:
        nan = np.isnan(np.take_along_axis(x, order, 1).astype(float))
        order = np.take_along_axis(order, np.argsort(~nan, 1, kind="stable"), 1)
    for count in (0, 5, 33):
        values, places = check("top", x, axis=1, count=count, largest=largest)
        np.testing.assert_array_equal(places, order[:, :count])
        found = np.take_along_axis(x, places, 1)
        np.testing.assert_array_equal(found.astype(float), values.astype(float))


@pytest.mark.parametrize("kind", ["rising", "falling"])
def test_top_of_elements_in_order(kind: str) -> None:
    x = np.arange(70.0, dtype=np.float32)[:: 1 if kind == "rising" else -1].copy()
    for count in (1, 7):
        values, _ = check("top", x, axis=-1, count=count)
        np.testing.assert_array_equal(values, np.arange(69, 69 - count, -1))


@pytest.mark.parametrize(("axis", "count"), [(2, 1), (-3, 1), (1, 4), (1, -1)])
def test_top_that_is_not_there(axis: int, count: int) -> None:
    with pytest.raises(ModelError):
        graph_of("top", normal(2, 3), axis=axis, count=count)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter(reduction: str) -> None:
    x, updates = (RNG.integers(-3, 4, s).astype("float32") for s in ((4, 5), (3, 5)))
    places = RNG.integers(-4, 4, (3, 5))
    check("scatter", x, places, updates, axis=0, reduction=reduction)
    check("scatter_nd", x, RNG.integers(-4, 4, (3, 1)), updates, reduction=reduction)


def test_scatter_of_single_elements() -> None:
    x, places = normal(4, 5), np.array([[0, -1], [3, 2]])
    expected = check("scatter_nd", x, places, np.array([7, 8], np.float32))
    assert expected[0, 4] == 7
    assert expected[3, 2] == 8


def test_take_along_and_nd() -> None:
    x = normal(3, 4, 5)
    places = RNG.integers(-4, 4, (3, 2, 5))
    expected = check("take_along", x, places, axis=1)
    np.testing.assert_array_equal(expected, np.take_along_axis(x, places % 4, 1))
    check("take_nd", x, np.array([[0, -1], [2, 3]]))
    check("take_nd", x, RNG.integers(-4, 4, (3, 6, 1)), batch=1)


@pytest.mark.parametrize("operator", ["take_along", "scatter"])
def test_kernels_stay_within_memory_for_any_index(operator: str) -> None:
    x, places = normal(4, 5), np.full((2, 5), 1 << 40)
    others = [normal(2, 5)] if operator == "scatter" else []
    graph = graph_of(operator, x, places, *others, axis=0)
    with pytest.raises(GuardError):
        graph.reference(x, places, *others)
    (kernel,) = graph.kernels()
    found = np.empty_like(x) if others else np.empty((2, 5), x.dtype)
    tw.build(kernel, "cpu -threads=1")(x, places, *others, found)
    np.testing.assert_array_equal(found[-1], others[0][-1] if others else x[-1])


def test_what_follows_a_program_is_another_kernel() -> None:
    builder = Builder("two")
    x = builder.input("x", TensorType("float32", (4, 6)))
    total = builder.add("accumulate", builder.add("relu", x), axis=1)
    graph = builder.graph({"y": builder.add("add", total, x)})
    a = normal(4, 6)
    expected = np.cumsum(np.maximum(a, 0), 1) + a
    np.testing.assert_allclose(tw.build(graph, "cpu -threads=1")(a), expected, atol=1e-5)


def test_threads_share_the_products_of_a_large_recurrence() -> None:
    """Its results are the same on any number of threads."""
    hidden = 320
    width = tile_width(hidden, 1)
    operands = {
        "x": normal(4, 1, 3 * hidden),
        "r": normal(3 * hidden // width, hidden, width) / np.float32(16.0),
        "h": normal(1, hidden),
    }
    b = tw.graph.Builder("gru")
    x, r, h = (b.input(name, TensorType("float32", a.shape)) for name, a in operands.items())
    states, _ = b.add_all("recurrence", x, r, h, cell="gru", activations=DEFAULTS["gru"])
    graph = b.graph({"y": states})
    alone, shared = (tw.build(graph, f"cpu -mcpu=x86-64-v2 -threads={n}") for n in (1, 2))
    assert "in T.parallel" in shared.module.source("tir").split("for t in")[1]
    np.testing.assert_array_equal(shared(**operands), alone(**operands))
    exact = graph.reference(*operands.values(), dtype="float64")[0]
    np.testing.assert_allclose(shared(**operands), exact, atol=1e-4)
