"""Operators of ONNX Runtime's tools: as their formulas in numpy say, and as onnxruntime does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import UnsupportedError

onnx = pytest.importorskip("onnx")

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def integers(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return _RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def model_of(
    operator: str, inputs: Sequence[Array | None], count: int, domain: str, **attributes: Any
) -> Any:
    """The model of one node whose inputs are x0, x1, ..; those that are `None` are not given."""
    names = ["" if a is None else f"x{n}" for n, a in enumerate(inputs)]
    given = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
        )
        for n, a in zip(names, inputs, strict=True)
        if a is not None
    ]
    outputs = [f"y{n}" for n in range(count)]
    node = onnx.helper.make_node(operator, names, outputs, domain=domain, **attributes)
    empty = [onnx.helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = onnx.helper.make_graph([node], "one", given, empty)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def results(
    operator: str,
    inputs: Sequence[Array | None],
    count: int = 1,
    domain: str = "com.microsoft",
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> tuple[list[Array], list[Array]]:
    """The outputs by our reference, and by onnxruntime; `constants` are known when it is built."""
    ort = pytest.importorskip("onnxruntime")
    model = model_of(operator, inputs, count, domain, **attributes)
    given = {f"x{n}": a for n, a in enumerate(inputs) if a is not None}
    held = {f"x{n}": given[f"x{n}"] for n in constants}
    graph = tw.import_onnx(model, constants=held)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    ours = graph.reference(*(given[n] for n in graph.inputs))
    return list(ours), session.run(None, given)


def close(ours: Array, others: Array, rounding: float = 2e-5) -> None:
    assert ours.dtype == others.dtype
    assert ours.shape == others.shape
    np.testing.assert_allclose(ours, others, rtol=rounding, atol=rounding)


def within_one(ours: Array, others: Array, share: float = 0.02) -> None:
    """Equal but for a share of numbers about the middle of two."""
    assert ours.dtype == others.dtype
    assert np.abs(ours.astype(int) - others.astype(int)).max() <= 1
    assert (ours != others).mean() < share


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 1, "opset": 11}),
        ("QLinearGlobalAveragePool", {"channels_last": 0}),
        ("QLinearAveragePool", {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [2, 1]}),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "channels_last": 1}),
        ("QLinearReduceMean", {"axes": [1, 2], "keepdims": 1}),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_functions_of_one_tensor(
    operator: str, attributes: dict[str, Any], dtype: str
) -> None:
    zero, result = (120, 3) if dtype == "uint8" else (-5, -100)
    x = integers(dtype, 2, 3, 4, 5)
    scales = [scalar(0.03), scalar(zero, dtype), scalar(0.007), scalar(result, dtype)]
    try:
        ours, others = results(operator, [x, *scales], **attributes)
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error):
            pytest.skip(f"onnxruntime: {error}")
        raise
    # onnxruntime's softmax and means are sums of integers.
    within_one(ours[0], others[0], 0.25)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("quantised", [True, False])
def test_quantised_gemm(dtype: str, *, quantised: bool) -> None:
    a, w = integers("uint8", 3, 40), integers(dtype, 6, 40)
    c = _RNG.integers(-500, 500, 6).astype(np.int32)
    scales = _RNG.random(6).astype(np.float32) / 1000
    zeros = integers(dtype, 6)
    inputs = [a, scalar(0.02), scalar(9, "uint8"), w, scales, zeros, c]
    inputs += [scalar(0.0011), scalar(100, "uint8")] if quantised else []
    ours, others = results("QGemm", inputs, transB=1, alpha=2.0)
    total = (a.astype(np.int32) - 9) @ (w.astype(np.int32) - zeros[:, None]).T + c
    wanted = total * (scales.astype(np.float64) * 0.02 * 2)
    if not quantised:
        np.testing.assert_allclose(ours[0], wanted, rtol=1e-6)
        close(ours[0], others[0], 1e-6)
    else:
        rounded = np.clip(np.rint(wanted / np.float64(np.float32(0.0011))) + 100, 0, 255)
        within_one(ours[0], rounded.astype(np.uint8))
        within_one(ours[0], others[0])


def test_quantised_choice() -> None:
    x, y = integers("uint8", 4, 5), integers("uint8", 4, 5)
    scales = [scalar(0.02), scalar(9, "uint8")]
    inputs = [x > 100, x, *scales, y, scalar(0.03), scalar(7, "uint8"), *scales]
    ours, others = results("QLinearWhere", inputs)
    within_one(ours[0], others[0])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_arithmetic_keeps_the_middle_of_two(dtype: str) -> None:
    x, y = integers(dtype, 40, 30), integers(dtype, 40, 30)
    own, zero = scalar(0.0137), scalar(17, dtype)
    inputs = [x, own, zero, y, scalar(float(own) / 2), zero, scalar(float(own) * 2), zero]
    limits = np.iinfo(dtype)

    def rounded(whole: Array) -> Array:
        limited: Array = np.clip(whole, limits.min, limits.max)
        return limited.astype(dtype)

    a, b = x.astype(np.float64) - 17, y.astype(np.float64) - 17
    ours, others = results("QLinearAdd", inputs)
    np.testing.assert_array_equal(ours[0], rounded(np.rint(a / 2 + b / 4 + 17)))
    np.testing.assert_array_equal(ours[0], others[0])
    ours, others = results("QLinearMul", inputs)
    within_one(ours[0], rounded(np.rint(a * b * (float(own) / 4) + 17)), 0.005)
    within_one(ours[0], others[0], 0.005)
    joined = [inputs[6], zero, *inputs[:3], *inputs[3:6]]
    ours, others = results("QLinearConcat", joined, axis=1)
    wanted = rounded(np.rint(np.concatenate([a / 2, b / 4], 1)) + 17)
    np.testing.assert_array_equal(ours[0], wanted)
    within_one(ours[0], others[0])


def test_lstm_of_quantised_weights_is_that_of_the_weights_that_they_stand_for() -> None:
    x, hidden = normal(5, 2, 8), 16
    w, r = integers("int8", 1, 8, 64), integers("int8", 1, hidden, 64)
    bias, scale, zero = normal(1, 128), scalar(0.004).reshape(1), np.zeros(1, np.int8)
    inputs = [x, w, r, bias, None, None, None, None, scale, zero, scale, zero]
    ours, others = results("DynamicQuantizeLSTM", inputs, 3, hidden_size=hidden)
    floats = [(q.transpose(0, 2, 1) * scale).astype(np.float32) for q in (w, r)]
    exact, _ = results("LSTM", [x, *floats, bias], 3, "", hidden_size=hidden)
    for found, wanted, other in zip(ours, exact, others, strict=True):
        close(found, wanted, 1e-6)
        close(found, other, 0.03)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("FusedConv", [normal(1, 3, 5, 5), normal(4, 3, 3, 3), normal(4), normal(1, 4, 3, 3)],
         {"activation": "Relu"}),
        ("FusedConv", [normal(1, 3, 5, 5), normal(4, 3, 3, 3), normal(4)],
         {"activation": "LeakyRelu", "activation_params": [0.1]}),
        ("FusedGemm", [normal(3, 4), normal(4, 5), normal(5)],
         {"activation": "LeakyRelu", "activation_alpha": 0.2, "alpha": 2.0}),
        ("FusedMatMul", [normal(2, 4, 3), normal(2, 4, 5)], {"transA": 1, "alpha": 0.5}),
        ("BiasGelu", [normal(2, 3, 8), normal(8)], {}),
        ("FastGelu", [normal(2, 3, 8), normal(8)], {}),
        ("QuickGelu", [normal(2, 3)], {"alpha": 1.702}),
        ("SkipLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8)], {}),
    ],
)  # fmt: skip
def test_fused_layers(operator: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    ours, others = results(operator, inputs, **attributes)
    close(ours[0], others[0], 1e-3 if operator == "FastGelu" else 2e-5)


_MASKS = {
    "none": None,
    "lengths": np.array([3, 2], np.int32),
    "keys": np.array([[1, 1, 0, 1], [1, 0, 0, 1]], np.int32),
}


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.mark.parametrize("mask", list(_MASKS))
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_inputs(mask: str, causal: int) -> None:
    x, w, bias = normal(2, 4, 12), normal(12, 24) / 3, normal(24)
    inputs = [x, w, bias, _MASKS[mask]]
    ours, others = results("Attention", inputs, num_heads=2, unidirectional=causal)
    close(ours[0], others[0])
    q, k, v = (p.reshape(2, 4, 2, 4).transpose(0, 2, 1, 3) for p in np.split(x @ w + bias, 3, 2))
    scores = q @ k.transpose(0, 1, 3, 2) / 2
    if mask == "keys":
        scores = scores + np.where(_MASKS["keys"] == 0, -10000, 0)[:, None, None]
    elif mask == "lengths":
        beyond = np.arange(4) >= np.array([3, 2])[:, None]
        scores = scores + np.where(beyond, -10000, 0)[:, None, None]
    if causal:
        scores = np.where(np.tri(4), scores, -np.inf)
    wanted = (_softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, 4, 8)
    np.testing.assert_allclose(ours[0], wanted, rtol=1e-4, atol=1e-5)


def test_attention_with_a_past() -> None:
    x, w, bias, past = normal(1, 3, 8), normal(8, 24) / 3, normal(24), normal(2, 1, 2, 5, 4)
    ours, others = results("Attention", [x, w, bias, None, past], 2, num_heads=2, unidirectional=1)
    for found, wanted in zip(ours, others, strict=True):
        close(found, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_attention(dtype: str) -> None:
    x, w, bias = integers("uint8", 2, 4, 12), integers(dtype, 12, 24), normal(24)
    scale, zero = scalar(0.01), scalar(130, "uint8")
    inputs = [x, w, bias, scale, scale, _MASKS["lengths"], zero, scalar(3, dtype)]
    ours, others = results("QAttention", inputs, num_heads=2)
    close(ours[0], others[0])


@pytest.mark.parametrize("case", ["plain", "masked", "past"])
def test_multi_head_attention(case: str) -> None:
    q, k, v = normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 12)
    inputs: list[Array | None] = [q, k, v]
    if case == "masked":
        inputs = [q, k, v, normal(28), _MASKS["keys"], normal(1, 2, 3, 4)]
    elif case == "past":
        inputs = [q, q, q, None, None, None, normal(2, 2, 5, 4), normal(2, 2, 5, 4)]
    count = 3 if case == "past" else 1
    ours, others = results("MultiHeadAttention", inputs, count, num_heads=2)
    for found, wanted in zip(ours, others, strict=True):
        close(found, wanted)


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("window", [-1, 3])
def test_group_query_attention_of_known_lengths(past: int, window: int) -> None:
    rows = 4 if past == 0 else 1
    q, k, v = normal(2, rows, 4 * 16), normal(2, rows, 2 * 16), normal(2, rows, 2 * 16)
    total, angles = past + rows, normal(12, 8)
    held: list[Any] = [normal(2, 2, past, 16), normal(2, 2, past, 16)] if past else [None, None]
    lengths = np.full(2, total - 1, np.int32)
    inputs = [q, k, v, *held, lengths, scalar(total, "int32"), np.cos(angles), np.sin(angles)]
    ours, others = results(
        "GroupQueryAttention", inputs, 3, constants=(5, 6), num_heads=4, kv_num_heads=2,
        do_rotary=1, local_window_size=window,
    )  # fmt: skip
    for found, wanted in zip(ours, others, strict=True):
        close(found, wanted)


def test_packed_operands_are_those_that_are_apart() -> None:
    parts = [normal(2, 3, 2, 1, 4) for _ in range(3)]
    whole: list[Array | None] = [np.concatenate(parts, 3)]
    apart: list[Array | None] = [p.reshape(2, 3, 8) for p in parts]
    half: list[Array | None] = [apart[0], np.concatenate(parts[1:], 3)]
    graphs = [
        tw.import_onnx(model_of("MultiHeadAttention", given, 1, "com.microsoft", num_heads=2))
        for given in (whole, apart, half)
    ]
    first, *others = (
        g.reference(*(a for a in given if a is not None))[0]
        for g, given in zip(graphs, (whole, apart, half), strict=True)
    )
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_lengths_that_data_decide_are_refused() -> None:
    q, k = normal(1, 2, 32), normal(1, 2, 16)
    inputs = [q, k, k, None, None, np.array([1], np.int32), scalar(2, "int32")]
    model = model_of("GroupQueryAttention", inputs, 3, "com.microsoft", num_heads=2, kv_num_heads=1)
    with pytest.raises(UnsupportedError) as caught:
        tw.import_onnx(model)
    assert [r[2] for r in caught.value.data["reasons"]] == ["DATA_DEPENDENT"]


def test_embeddings() -> None:
    ids = _RNG.integers(0, 9, (2, 4)).astype(np.int32)
    tables = [normal(9, 8), normal(6, 8), normal(2, 8)]
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    inputs = [ids, ids % 2, *tables, normal(8), normal(8), mask]
    ours, others = results("EmbedLayerNormalization", inputs, 3, epsilon=1e-6)
    for found, wanted in zip(ours, others, strict=True):
        close(found, wanted)
