"""Products of integers are exact, are sums of uint8 times int8, and stand for dequantised ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Graph, TensorType

onnx = pytest.importorskip("onnx")
TARGET = "cpu -threads=1"

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(0)


def integers(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return _RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def imported(nodes: list[Any], inputs: dict[str, Array], held: dict[str, Array]) -> Graph:
    given = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
        )
        for n, a in inputs.items()
    ]
    output = onnx.helper.make_empty_tensor_value_info("y")
    initializers = [onnx.numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = onnx.helper.make_graph(nodes, "one", given, [output], initializers)
    opsets = [onnx.helper.make_opsetid("", 21)]
    return tw.import_onnx(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))


def products(graph: Graph) -> list[list[str]]:
    """The dtypes of the operands of each product."""
    found = [n for n in graph.nodes if n.operator in ("matmul", "conv")]
    return [[v.dtype for v in n.inputs] for n in found]


def convolved(x: Array, w: Array, pads: list[int], stride: int, groups: int) -> Array:
    """The convolution of whole numbers, two-dimensional."""
    widths = ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3]))
    padded = np.pad(x.astype(np.int64), widths)
    seen = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    seen = seen[:, :, ::stride, ::stride]
    parts = [
        np.einsum("nchwij,ocij->nohw", s, o.astype(np.int64))
        for s, o in zip(np.split(seen, groups, 1), np.split(w, groups, 0), strict=True)
    ]
    return np.concatenate(parts, 1)


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("known", [True, False])
def test_integer_convolutions(left: str, right: str, groups: int, *, known: bool) -> None:
    x, w = integers(left, 2, 4, 5, 6), integers(right, 8, 4 // groups, 3, 2)
    p, q = integers(left, 1)[0], integers(right, 8)
    pads = [1, 0, 2, 1]
    node = onnx.helper.make_node(
        "ConvInteger", ["x", "w", "p", "q"], ["y"], pads=pads, strides=[2, 2], group=groups
    )
    values = {"x": x, "w": w, "p": np.array(p), "q": q}
    inputs = {n: a for n, a in values.items() if n == "x" or not known}
    graph = imported([node], inputs, {n: a for n, a in values.items() if n not in inputs})
    wanted = convolved(
        x.astype(np.int64) - int(p), w.astype(np.int64) - q[:, None, None, None].astype(np.int64),
        pads, 2, groups,
    )  # fmt: skip
    assert products(graph) == [["uint8", "int16" if groups == 4 else "int8"]]
    (found,) = graph.reference(*inputs.values())
    np.testing.assert_array_equal(found, wanted)
    if (left, right, groups) == ("int8", "uint8", 2):
        np.testing.assert_array_equal(tw.build(graph, TARGET)(*inputs.values()), wanted)


def quantised_layer(
    operator: str, x: Array, w: Array, axis: int | None, **attributes: Any
) -> tuple[Graph, Array, Array]:
    """A layer of dequantised operands; what they are, exactly."""
    count = 1 if axis is None else w.shape[axis]
    scale = (_RNG.random(count) / 100).astype(np.float32)
    zero = np.full(count, 3, w.dtype)
    held = {
        "xs": np.array(0.02, np.float32), "xz": np.array(7, x.dtype), "w": w,
        "ws": scale if axis is not None else scale.reshape(()),
        "wz": zero if axis is not None else zero.reshape(()),
    }  # fmt: skip
    along = {} if axis is None else {"axis": axis}
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        onnx.helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], **along),
        onnx.helper.make_node(operator, ["xf", "wf"], ["y"], **attributes),
    ]
    shape = [1] * w.ndim
    if axis is not None:
        shape[axis] = count
    left = (x.astype(np.float64) - 7) * np.float64(held["xs"])
    right = (w.astype(np.float64) - 3) * scale.reshape(shape).astype(np.float64)
    return imported(nodes, {"x": x}, held), left, right


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
@pytest.mark.parametrize("whole", [True, False])
def test_products_of_dequantised_matrices_are_those_of_integers(
    left: str, right: str, *, whole: bool
) -> None:
    x, w = integers(left, 2, 5, 40), integers(right, 40, 6)
    graph, a, b = quantised_layer("MatMul", x, w, None if whole else 1)
    assert products(graph) == [["uint8", "int8"]]
    np.testing.assert_allclose(graph.reference(x)[0], a @ b, rtol=1e-6, atol=1e-6)
    graph, a, b = quantised_layer("Gemm", x[0], w.T.copy(), None if whole else 0, transB=1)
    assert products(graph) == [["uint8", "int8"]]
    np.testing.assert_allclose(graph.reference(x[0])[0], a @ b.T, rtol=1e-6, atol=1e-6)


def test_convolutions_of_dequantised_tensors_are_those_of_integers() -> None:
    x, w = integers("int8", 1, 4, 6, 6), integers("uint8", 8, 4, 3, 3)
    graph, a, b = quantised_layer("Conv", x, w, 0, pads=[1, 1, 0, 1])
    assert products(graph) == [["uint8", "int8"]]
    widths = ((0, 0), (0, 0), (1, 0), (1, 1))
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(a, widths), (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", seen, b)
    np.testing.assert_allclose(tw.build(graph, TARGET)(x), wanted, rtol=1e-6, atol=1e-5)


def test_sums_that_int32_may_not_hold_stay_floats() -> None:
    x, w = integers("uint8", 1, 70000), np.full((70000, 1), -128, np.int8)
    graph, a, b = quantised_layer("MatMul", x, w, None)
    assert products(graph) == [["float32", "float32"]]
    np.testing.assert_allclose(graph.reference(x)[0], a @ b, rtol=1e-5)


def test_scales_along_what_is_summed_stay_floats() -> None:
    x, w = integers("uint8", 3, 40), integers("int8", 40, 6)
    graph, a, b = quantised_layer("MatMul", x, w, 0)
    assert products(graph) == [["float32", "float32"]]
    np.testing.assert_allclose(graph.reference(x)[0], a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("scales", [(1e20, 1e20), (1e-23, 1e-23), (1e-30, 1e30)])
def test_scales_whose_product_leaves_the_range_of_floats(
    scales: tuple[float, float], computed: bool
) -> None:
    b = Builder("scales")
    x, w = b.input("x", TensorType("uint8", (2, 8))), b.input("w", TensorType("int8", (8, 3)))
    numbers = [np.float32(s) for s in scales]
    factors = [
        b.input(f"scale{n}", TensorType("float32", ())) if computed else b.constant(number)
        for n, number in enumerate(numbers)
    ]
    parts = [
        b.add("multiply", b.add("dequantize", v), factor)
        for v, factor in zip((x, w), factors, strict=True)
    ]
    graph = b.graph({"y": b.add("matmul", *parts)})
    given: tuple[np.ndarray, ...] = (
        np.array([[0] * 8, [255] * 8], np.uint8),
        np.full((8, 3), 127, np.int8),
    )
    given += tuple(np.array(n) for n in numbers) if computed else ()
    optimized = graph.optimized()
    with np.errstate(over="ignore"):
        wanted, found = (g.reference(*given)[0] for g in (graph, optimized))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
