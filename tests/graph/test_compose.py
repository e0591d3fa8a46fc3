"""Compositions, which importers of all formats use: of constants, which fold, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ModelError, UnsupportedError
from tilewright.graph import Builder
from tilewright.graph.compose.attention import Seen, attention
from tilewright.graph.compose.contraction import transposed_conv
from tilewright.graph.compose.einsum import einsum
from tilewright.graph.compose.quantised import Whole, matrix_product
from tilewright.graph.compose.rows import batch_norm, group_norm, layer_norm
from tilewright.graph.compose.sampling import Along, Kernel, resized
from tilewright.graph.ir import Constant, TensorType, Value

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def held(value: Value) -> Any:
    assert isinstance(value, Constant)
    return value.data


def test_queries_see_keys_from_their_own_place_backwards() -> None:
    b = Builder("attention")
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
    seen = Seen(left=2, right=0, past=2)
    operands = [b.constant(a, "float64") for a in (q, k, v)]
    found, scores = attention(b, operands[0], operands[1], operands[2], seen, cap=3.0)
    products = np.einsum("ngqd,ngkd->ngqk", q, np.repeat(k, 2, 1)) / np.sqrt(8)
    distance = np.arange(5) - np.arange(2, 5)[:, None]
    masked = np.where((distance <= 0) & (distance >= -2), 3 * np.tanh(products / 3), -np.inf)
    weights = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    np.testing.assert_allclose(held(scores[0]), products, atol=1e-12)
    np.testing.assert_allclose(held(scores[3]), weights, atol=1e-12)
    np.testing.assert_allclose(held(found), weights @ np.repeat(v, 2, 1), atol=1e-12)


def test_a_query_that_sees_nothing_has_zeros() -> None:
    b = Builder("attention")
    q, k, v = (b.constant(normal(1, 1, 2, 4), "float64") for _ in range(3))
    mask = b.constant([[False, False], [True, False]])
    found = held(attention(b, q, k, v, Seen(mask))[0])
    assert not found[0, 0, 0].any()
    np.testing.assert_allclose(found[0, 0, 1], held(v)[0, 0, 0], atol=1e-12)


def test_norms_are_by_rows_groups_and_channels() -> None:
    b = Builder("norms")
    x, scale, bias = normal(2, 6, 4), normal(6), normal(6)
    own = b.constant(x, "float64")
    one, other = b.constant(scale, "float64"), b.constant(bias, "float64")

    def by(axes: tuple[int, ...], of: Any) -> Any:
        return (of - of.mean(axes, keepdims=True)) / np.sqrt(of.var(axes, keepdims=True) + 1e-5)

    columns = scale[:, None], bias[:, None]
    groups = by((2, 3), x.reshape(2, 3, 2, 4)).reshape(x.shape) * columns[0] + columns[1]
    np.testing.assert_allclose(held(group_norm(b, own, 3, one, other, 1e-5)), groups, atol=1e-9)
    turned = b.constant(x.transpose(0, 2, 1), "float64")
    rows = by((2,), x.transpose(0, 2, 1)) * scale + bias
    found = layer_norm(b, turned, one, other, axis=2, epsilon=1e-5)
    np.testing.assert_allclose(held(found), rows, atol=1e-9)
    mean, variance = (b.constant(a, "float64") for a in (x.mean((0, 2)), x.var((0, 2))))
    channels = by((0, 2), x) * columns[0] + columns[1]
    found = batch_norm(b, own, one, other, mean, variance, 1e-5)
    np.testing.assert_allclose(held(found), channels, atol=1e-9)


def test_products_of_integers_take_off_both_zero_points() -> None:
    b = Builder("integers")
    x, y = RNG.integers(0, 256, (3, 5)), RNG.integers(-128, 128, (5, 4))
    rows = Whole.of(b, b.constant(x, "uint8"), b.constant(200, "uint8"))
    columns = Whole.of(b, b.constant(y, "int8"), b.constant([1, -2, 0, 127], "int8"))
    assert (held(matrix_product(b, rows, columns)) == (x - 200) @ (y - [1, -2, 0, 127])).all()
    with pytest.raises(UnsupportedError):
        Whole.of(b, b.constant(x, "int32"), None)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_transposed_convolution_adds_taps_to_their_places(
    stride: int, dilation: int, before: int
) -> None:
    b = Builder("transposed")
    x, w = normal(1, 2, 4), normal(2, 3, 3)
    reach = 2 * dilation + 1
    whole = np.zeros((1, 3, 3 * stride + reach + 2))
    for place in range(4):
        taps = slice(stride * place, stride * place + reach, dilation)
        whole[0, :, taps] += np.einsum("c,cok->ok", x[0, :, place], w)
    whole = whole[:, :, before:]
    own, weights = b.constant(x, "float64"), b.constant(w, "float64")
    found = transposed_conv(b, own, weights, (stride,), (dilation,), 1, (before,), whole.shape[2:])
    np.testing.assert_allclose(held(found), whole, atol=1e-12)


def test_a_transposed_convolution_without_stride_has_no_zeros_between_taps() -> None:
    b = Builder("transposed")
    x = b.input("x", TensorType("float32", (1, 2, 9)))
    w = b.input("w", TensorType("float32", (2, 3, 3)))
    node = b.producer(transposed_conv(b, x, w, (1,), (4,), 1, (0,), (17,)), "conv")
    assert node is not None
    assert node.attributes["dilations"] == (4,)
    assert node.inputs[1].type.shape == (3, 2, 3)


def test_sizes_double_between_the_centres_of_pixels() -> None:
    b = Builder("resize")
    x = b.constant([[0.0, 4.0]], "float64")
    along = [Along(1, 2, 4, 2.0)]
    assert held(resized(b, x, along, kernel=Kernel())).tolist() == [[0, 1, 3, 4]]
    assert held(resized(b, x, along)).tolist() == [[0, 0, 4, 4]]


def test_sums_of_products_are_by_their_labels() -> None:
    b = Builder("einsum")
    x, y = normal(2, 3, 4), normal(4, 3)
    operands = [b.constant(a, "float64") for a in (x, y)]
    np.testing.assert_allclose(
        held(einsum(b, "nij,ji->ni", operands)), np.einsum("nij,ji->ni", x, y), atol=1e-12
    )
    with pytest.raises(ModelError):
        einsum(b, "nij,ji->nk", operands)
