"""Pointwise and quantised operators: kernels and references agree, also at the edges of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import dtypes
from tilewright.base.errors import ModelError, UnsupportedError
from tilewright.graph import Builder, TensorType
from tilewright.graph.ir import Constant, Value

onnx = pytest.importorskip("onnx")
TARGET = "cpu -threads=1"

FLOATS = [0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 7, -7, 20, -20, 300, -300, 1e-5]
FLOATS += [np.inf, -np.inf, np.nan]
UNARY = ["negative", "tan", "asinh", "erf", "round", "sign", "is_nan", "relu", "sigmoid"]
UNARY += ["softplus", "softsign", "mish", "gelu", "gelu_by_tanh"]
WITH_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "elu": {"alpha": 0.7}, "celu": {"alpha": 0.7}, "selu": {"alpha": 1.6, "gamma": 1.05},
    "leaky_relu": {"slope": 0.1}, "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "hard_swish": {"alpha": 0.2, "beta": 0.5}, "swish": {"alpha": 1.7},
    "clip": {"low": -1, "high": 5},
}  # fmt: skip
BINARY = ["add", "multiply", "divide", "maximum", "remainder", "fmod", "power", "equal", "less"]
INTEGER_UNARY = ["negative", "abs", "sign", "bitwise_not"]
INTEGER_BINARY = [
    *BINARY,
    *["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"],
]
TOLERANCE = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13}


def edges_of(dtype: str) -> np.ndarray[Any, Any]:
    """Numbers at which functions change, and the limits of integers."""
    if dtypes.is_float(dtype):
        return np.array(FLOATS).astype(dtypes.to_numpy(dtype))
    low, high = dtypes.int_limits(dtype)
    wanted = (0, 1, 2, 3, 7, 8, 31, 32, 33, 64, high, high - 1, low, low + 1, -1, -2, -3, -8)
    return np.array([v for v in wanted if low <= v <= high], dtypes.to_numpy(dtype))


@pytest.mark.parametrize(
    ("dtype", "unary", "binary", "casts"),
    [
        (
            "float32",
            [*UNARY, *WITH_ATTRIBUTES],
            BINARY,
            ["int8", "uint8", "int64", "bool", "float16"],
        ),
        ("float16", ["gelu", "round"], ["power"], ["int32"]),
        ("bfloat16", ["softplus"], [], ["uint8"]),
        ("int32", INTEGER_UNARY, INTEGER_BINARY, ["int8", "bool", "float16"]),
        ("int8", ["abs"], ["divide", "shift_right"], ["uint64"]),
    ],
)
def test_kernels_and_references_agree_at_the_edges(
    dtype: str, unary: list[str], binary: list[str], casts: list[str]
) -> None:
    values = edges_of(dtype)
    b = Builder("edges")
    x = b.input("x", TensorType(dtype, (len(values), 1)))
    y = b.input("y", TensorType(dtype, (len(values),)))
    attributes = {**WITH_ATTRIBUTES, "clip": {"low": 1, "high": 5}}
    outputs = {name: b.add(name, x, **attributes.get(name, {})) for name in unary}
    outputs |= {name: b.add(name, x, y) for name in binary}
    outputs |= {f"cast_{name}": b.add("cast", x, dtype=name) for name in casts}
    graph = b.graph(outputs)
    model = tw.build(graph, TARGET)
    found = model(values[:, None], values)
    wanted = graph.reference(values[:, None], values)
    for name, one, other in zip(outputs, found, wanted, strict=True):
        assert one.dtype == other.dtype == dtypes.to_numpy(outputs[name].dtype), name
        if dtypes.is_float(outputs[name].dtype):
            tolerance = TOLERANCE[outputs[name].dtype]
            wide = one.astype(np.float64), other.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance / 10, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_an_operator_of_several_outputs_has_no_one_output() -> None:
    b = Builder("top")
    x = b.constant([1.0, 3.0, 2.0], "float32")
    with pytest.raises(ModelError):
        b.add("top", x, axis=0, count=2)
    assert [listed(v) for v in b.add_all("top", x, axis=0, count=2)] == [[3, 2], [1, 2]]


def listed(value: Value) -> list[Any]:
    """The elements of a constant."""
    assert isinstance(value, Constant)
    return list(value.data.tolist())


def test_integers_divide_and_shift_as_onnx_says() -> None:
    b = Builder("integers")
    low, high = -(2**31), 2**31 - 1
    x, y = (b.constant(v, "int32") for v in ([7, -7, 7, low, low, 5], [2, 2, -2, 2, -1, 0]))
    quotient, rest = b.add("divide", x, y), b.add("fmod", x, y)
    assert listed(quotient) == [3, -3, -3, low // 2, low, 5]
    assert listed(rest) == [1, -1, 1, 0, 0, 0]
    assert listed(b.add("remainder", x, y)) == [1, 1, -1, 0, 0, 0]
    count = b.constant([1, 31, 32, -1, 64, 0], "int32")
    ones = b.constant([-4, -4, -4, -4, high, high], "int32")
    assert listed(b.add("shift_right", ones, count)) == [-2, -1, -1, -1, 0, high]
    assert listed(b.add("shift_left", ones, count)) == [-8, 0, 0, 0, 0, high]
    base, exponent = (
        b.constant(v, "int64") for v in ([3, -3, 2, -1, 0, 7], [39, 3, 64, 71, 0, -1])
    )
    assert listed(b.add("power", base, exponent)) == [3**39, -27, 0, -1, 1, 0]


def test_floats_become_integers_within_their_limits() -> None:
    b = Builder("casts")
    x = b.constant([1e10, -1e10, np.nan, 2.9, -2.9], "float32")
    assert listed(b.add("cast", x, dtype="int8")) == [127, -128, 0, 2, -2]
    assert listed(b.add("cast", x, dtype="uint64")) == [10**10, 0, 0, 2, 0]
    huge = b.constant([1e19, np.inf], "float64")
    assert listed(b.add("cast", huge, dtype="int64")) == [2**63 - 1] * 2


def imported(
    operator: str,
    inputs: dict[str, Any],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 21,
    outputs: int = 1,
    **attributes: Any,
) -> Any:
    """The graph of one node, whose inputs are given by their names."""
    held = constants or {}
    given = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
        )
        for n, a in inputs.items()
        if n not in held
    ]
    names = [f"y{n}" for n in range(outputs)]
    node = onnx.helper.make_node(operator, list(inputs), names, **attributes)
    graph = onnx.helper.make_graph(
        [node], "one", given, [onnx.helper.make_empty_tensor_value_info(n) for n in names],
        [onnx.numpy_helper.from_array(a, n) for n, a in held.items()],
    )  # fmt: skip
    versions = [onnx.helper.make_opsetid("", opset)]
    return tw.import_onnx(onnx.helper.make_model(graph, opset_imports=versions))


@pytest.mark.parametrize(("kind", "known"), [("uint8", True), ("int8", False)])
def test_integer_products_take_off_zero_points(kind: str, known: bool) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(kind)
    a, w = (rng.integers(info.min, info.max + 1, s).astype(kind) for s in ((2, 3, 40), (40, 5)))
    p, q = np.array(info.max, kind), rng.integers(info.min, info.max + 1, 5).astype(kind)
    graph = imported(
        "MatMulInteger",
        {"a": a, "w": w, "p": p, "q": q},
        {"w": w, "p": p, "q": q} if known else None,
    )
    model = tw.build(graph, TARGET)
    wanted = (a.astype(np.int32) - p) @ (w.astype(np.int32) - q)
    np.testing.assert_array_equal(model(a) if known else model(a, w, p, q), wanted)


@pytest.mark.parametrize("known", [True, False])
def test_integer_convolutions_pad_by_the_zero_point(known: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 2, 5, 6)).astype("uint8")
    w = rng.integers(-128, 128, (3, 2, 3, 3)).astype("int8")
    p = np.array(100, "uint8")
    graph = imported(
        "ConvInteger", {"x": x, "w": w, "p": p}, {"w": w, "p": p} if known else None,
        opset=10, pads=[1, 0, 1, 2],
    )  # fmt: skip
    padded = np.pad(x.astype(np.int32) - p, ((0, 0), (0, 0), (1, 1), (0, 2)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", seen, w.astype(np.int32))
    compute = tw.build(graph, TARGET) if known else lambda *given: graph.reference(*given)[0]
    np.testing.assert_array_equal(compute(x) if known else compute(x, w, p), wanted)


def test_quantised_numbers_round_to_even_and_stay_within_limits() -> None:
    x = np.array([0.5, 1.5, -0.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
    scale, zero = np.array(1, np.float32), np.array(13, np.uint8)
    graph = imported("QuantizeLinear", {"x": x, "s": scale, "z": zero}, {"s": scale, "z": zero})
    wanted = [13, 15, 13, 255, 0, 255, 0]
    assert graph.reference(x)[0].tolist() == wanted
    assert tw.build(graph, TARGET)(x).tolist() == wanted


def test_blocks_of_an_axis_have_their_scales() -> None:
    q = np.arange(10, dtype=np.int8).reshape(2, 5)
    scale = np.array([[1, 10], [100, 1000]], np.float32)
    graph = imported("DequantizeLinear", {"q": q, "s": scale}, axis=1, block_size=3)
    assert graph.reference(q, scale)[0].tolist() == (q * scale.repeat(3, 1)[:, :5]).tolist()


def test_broadcasting_by_an_axis_is_refused() -> None:
    x, y = np.ones((2, 3, 4), np.float32), np.ones(3, np.float32)
    with pytest.raises(UnsupportedError) as raised:
        imported("Add", {"x": x, "y": y}, opset=6, broadcast=1, axis=1)
    assert [r[2] for r in raised.value.data["reasons"]] == ["VERSION"]


def test_dropout_of_training_is_refused() -> None:
    x = np.ones(3, np.float32)
    ratio, training = np.array(0.5, np.float32), np.array(True)
    given = {"x": x, "r": ratio, "t": training}
    with pytest.raises(UnsupportedError) as raised:
        imported("Dropout", given, {"r": ratio, "t": training})
    assert [r[2] for r in raised.value.data["reasons"]] == ["ATTRIBUTE"]
    still = imported("Dropout", given, {"r": ratio, "t": np.array(False)}, outputs=2)
    kept, mask = still.reference(x)
    assert kept.tolist() == x.tolist()
    assert mask.all()
