"""Quantised tensors and their layers: those of ONNX, and what quantising tools write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, in_rank, reshaped
from ....graph.compose.contraction import along_channels, matrices, of_matrices
from ....graph.compose.pointwise import promoted
from ....graph.compose.quantised import (
    Whole,
    along,
    by_range,
    centred,
    convolved,
    dequantised,
    is_one,
    is_zero,
    matrix_product,
    of_outputs,
    quantised,
)
from ....graph.ir import Value
from ..table import Items, OnnxNode, Operand, find, onnx_op
from .pointwise import dtype_of
from .window import convolution

_MICROSOFT = "com.microsoft"


@onnx_op("QuantizeLinear")
@onnx_op("QuantizeLinear", domain=_MICROSOFT)
def quantize(b: Builder, node: OnnxNode) -> Value:
    x, zero = node[0], node.get(2)
    wanted = node.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(wanted) if wanted else "uint8"
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale = along(b, node[1], x, axis, block)
    precision = node.attribute("precision", 0)
    if precision:
        wide = dtype_of(precision)
    else:
        own = x.dtype if dtypes.is_float(x.dtype) else scale.dtype
        wide = promoted(own, scale.dtype)
    scaled = cast_to(b, x, wide)
    if not is_one(scale):
        scaled = b.add("divide", scaled, cast_to(b, scale, wide))
    if dtypes.is_float(dtype):
        if zero is not None and not is_zero(zero):
            zero = along(b, zero, x, axis, block)
            scaled = b.add("add", scaled, cast_to(b, zero, wide))
        return cast_to(b, scaled, dtype, saturate=bool(node.attribute("saturate", 1)))
    zero = None if zero is None else along(b, zero, x, axis, block)
    return quantised(b, scaled, zero, dtype)


@onnx_op("DequantizeLinear")
@onnx_op("DequantizeLinear", domain=_MICROSOFT)
def dequantize(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale, zero = along(b, node[1], x, axis, block), node.get(2)
    own = None if zero is None else along(b, zero, x, axis, block)
    wanted = node.attribute("output_dtype", 0)
    return dequantised(b, x, scale, own, dtype_of(wanted) if wanted else None)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return by_range(b, node[0])


def _of_rows(b: Builder, values: Value) -> Value:
    """A value for all, or for each row of the left operand of a product, to broadcast."""
    if values.type.rank > 1:
        return values
    return reshaped(b, values, () if values.type.size == 1 else (values.type.size, 1))


def _of_columns(b: Builder, values: Value) -> Value:
    return values if values.type.size > 1 else reshaped(b, values, ())


def _product(b: Builder, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None) -> Value:
    """The int32 product of matrices or vectors less their zero points."""
    left, right = matrices(b, x, y)
    rows = Whole.of(b, left, None if x_zero is None else _of_rows(b, x_zero))
    columns = Whole.of(b, right, None if y_zero is None else _of_columns(b, y_zero))
    return of_matrices(b, matrix_product(b, rows, columns), x, y)


@onnx_op("MatMulInteger")
def matmul_integer(b: Builder, node: OnnxNode) -> Value:
    return _product(b, node[0], node[1], node.get(2), node.get(3))


@onnx_op("QLinearMatMul")
def qlinear_matmul(b: Builder, node: OnnxNode) -> Value:
    x, y, zero = node[0], node[3], node[7]
    total = cast_to(b, _product(b, x, y, node[2], node[5]), "float32")
    scales = [_of_rows(b, node[1]), _of_columns(b, node[4]), _of_rows(b, node[6])]
    rows, columns, result = (cast_to(b, s, "float32") for s in scales)
    scale = b.add("divide", b.add("multiply", rows, columns), result)
    return quantised(b, b.add("multiply", total, scale), _of_rows(b, zero), zero.dtype)


@onnx_op("MatMulIntegerToFloat", domain=_MICROSOFT)
def matmul_integer_to_float(b: Builder, node: OnnxNode) -> Value:
    total = _product(b, node[0], node[1], node.get(4), node.get(5))
    scale = b.add("multiply", _of_rows(b, node[2]), _of_columns(b, node[3]))
    value = b.add("multiply", cast_to(b, total, scale.dtype), scale)
    bias = node.get(6)
    return value if bias is None else b.add("add", value, bias)


@onnx_op("DynamicQuantizeMatMul", domain=_MICROSOFT)
def dynamic_quantize_matmul(b: Builder, node: OnnxNode) -> Value:
    x, x_scale, x_zero = by_range(b, node[0])
    total = _product(b, x, node[1], x_zero, node.get(3))
    scale = b.add("multiply", x_scale, _of_columns(b, node[2]))
    value = b.add("multiply", cast_to(b, total, scale.dtype), scale)
    bias = node.get(4)
    return value if bias is None else b.add("add", value, bias)


def _convolved(
    b: Builder, node: OnnxNode, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None
) -> Value:
    """The int32 convolution of tensors less their zero points."""
    own = None if x_zero is None else reshaped(b, x_zero, ())
    zero = None if w_zero is None else of_outputs(b, w_zero, w)
    return convolved(b, convolution(node, x, w), Whole.of(b, x, own), Whole.of(b, w, zero))


@onnx_op("ConvInteger")
def conv_integer(b: Builder, node: OnnxNode) -> Value:
    return _convolved(b, node, node[0], node[1], node.get(2), node.get(3))


@onnx_op("QLinearConv")
def qlinear_conv(b: Builder, node: OnnxNode) -> Value:
    zero, bias = node[7], node.get(8)
    total = _convolved(b, node, node[0], node[3], node[2], node[5])
    if bias is not None:
        total = b.add("add", total, along_channels(b, bias, total))
    scale = b.add("multiply", reshaped(b, node[1], ()), along_channels(b, node[4], total))
    scale = b.add("divide", scale, reshaped(b, node[6], ()))
    scaled = b.add("multiply", cast_to(b, total, "float32"), scale)
    return quantised(b, scaled, reshaped(b, zero, ()), zero.dtype)


def _scalars(b: Builder, node: OnnxNode, place: int) -> tuple[Value, Value | None]:
    """The scale and zero point from an input on."""
    zero = node.get(place + 1)
    return reshaped(b, node[place], ()), None if zero is None else reshaped(b, zero, ())


def _rescaled(b: Builder, node: OnnxNode, place: int, result: int) -> Value:
    """A tensor in units of the result's scale: where scales are alike, what is in the middle of two
    integers stays there."""
    scale, zero = _scalars(b, node, place + 1)
    return dequantised(b, node[place], b.add("divide", scale, _scalars(b, node, result)[0]), zero)


def _requantised(b: Builder, node: OnnxNode, place: int, y: Value, dtype: str) -> Value:
    scale, zero = _scalars(b, node, place)
    return quantised(b, b.add("divide", y, scale), zero, dtype)


@onnx_op("QLinearAdd", domain=_MICROSOFT)
def qlinear_add(b: Builder, node: OnnxNode) -> Value:
    x, y = (_rescaled(b, node, n, 6) for n in (0, 3))
    return _moved(b, node, b.add("add", x, y))


@onnx_op("QLinearMul", domain=_MICROSOFT)
def qlinear_mul(b: Builder, node: OnnxNode) -> Value:
    (x, x_zero), (y, y_zero) = (_scalars(b, node, n) for n in (1, 4))
    product = b.add("multiply", centred(b, node[0], x_zero), centred(b, node[3], y_zero))
    scale = b.add("divide", b.add("multiply", x, y), _scalars(b, node, 6)[0])
    return _moved(b, node, b.add("multiply", product, scale))


def _moved(b: Builder, node: OnnxNode, scaled: Value) -> Value:
    """Plus the zero point, which is part of their formulas: rounded after it, not before."""
    zero = _scalars(b, node, 6)[1]
    if zero is not None:
        scaled = b.add("add", scaled, cast_to(b, zero, "float32"))
    return quantised(b, scaled, None, node[0].dtype)


_OF_FLOATS = {
    "QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool", "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearReduceMean": "ReduceMean",
}  # fmt: skip


@onnx_op(*_OF_FLOATS, domain=_MICROSOFT)
def qlinear_unary(b: Builder, node: OnnxNode) -> Value:
    """ONNX's operator on floats, of opset 13 but for a softmax that says its own."""
    x = dequantised(b, node[0], *_scalars(b, node, 1))
    rank = x.type.rank
    last = bool(node.attribute("channels_last", 0))
    x = b.add("transpose", x, axes=(0, rank - 1, *range(1, rank - 1))) if last else x
    version, name = node.attribute("opset", 13), _OF_FLOATS[node.operator]
    inner = replace(node, operator=name, domain="", version=version, inputs=(x,))
    y = find("", name, version)(b, inner)
    assert isinstance(y, Value)
    y = b.add("transpose", y, axes=(0, *range(2, rank), 1)) if last else y
    return _requantised(b, node, 3, y, node[0].dtype)


@onnx_op("QLinearWhere", domain=_MICROSOFT)
def qlinear_where(b: Builder, node: OnnxNode) -> Value:
    x, y = (dequantised(b, node[n], *_scalars(b, node, n + 1)) for n in (1, 4))
    return _requantised(b, node, 7, b.add("where", node[0], x, y), node[1].dtype)


@onnx_op("QGemm", domain=_MICROSOFT)
def qgemm(b: Builder, node: OnnxNode) -> Value:
    """`C` are integers of the sums' scale, which are added to them."""
    x, w = node[0], node[3]
    x = b.add("transpose", x, axes=(1, 0)) if node.attribute("transA", 0) else x
    w = b.add("transpose", w, axes=(1, 0)) if node.attribute("transB", 0) else w
    total, c = _product(b, x, w, node[2], node.get(5)), node.get(6)
    total = total if c is None else b.add("add", total, c)
    scale = b.add("multiply", _of_columns(b, node[4]), reshaped(b, node[1], ()))
    alpha = node.attribute("alpha", 1.0)
    scale = scale if alpha == 1 else b.add("multiply", scale, b.constant(alpha, scale.dtype))
    if node.get(7) is None:
        return b.add("multiply", cast_to(b, total, scale.dtype), scale)
    result, zero = _scalars(b, node, 7)
    scaled = b.add("multiply", cast_to(b, total, "float32"), b.add("divide", scale, result))
    return quantised(b, scaled, zero, x.dtype if zero is None else zero.dtype)


@onnx_op("DynamicQuantizeLSTM", domain=_MICROSOFT)
def dynamic_quantize_lstm(b: Builder, node: OnnxNode) -> Sequence[Operand]:
    """An LSTM of floats, whose weights are the quantised ones, (directions, size, 4 * hidden).

    States and inputs are not rounded to 8 bits, which leaves the result nearer to that of floats.
    """

    def weights(place: int, scales: int) -> Value:
        q, scale, zero = node[place], node[scales], node[scales + 1]
        shape = (q.shape[0], 1, scale.type.size // q.shape[0])
        own, taken = (reshaped(b, v, shape) for v in (scale, zero))
        return b.add("transpose", dequantised(b, q, own, taken), axes=(0, 2, 1))

    inputs = (node[0], weights(1, 8), weights(2, 10), *node.inputs[3:8])
    made = find("", "LSTM", 14)(b, replace(node, operator="LSTM", domain="", inputs=inputs))
    assert not isinstance(made, Value | Items)
    return made


@onnx_op("QLinearConcat", domain=_MICROSOFT)
def qlinear_concat(b: Builder, node: OnnxNode) -> Value:
    parts = [_rescaled(b, node, n, 0) for n in range(2, len(node.inputs), 3)]
    y = b.add("concatenate", *parts, axis=in_rank(node.attribute("axis"), parts[0].type.rank))
    return quantised(b, y, _scalars(b, node, 0)[1], node[2].dtype)
