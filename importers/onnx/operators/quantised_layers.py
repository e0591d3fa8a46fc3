"""Layers of quantised tensors: those of ONNX, and what quantising tools write."""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, onnx_op
from .common import in_rank
from .contraction import along_channels
from .integers import Whole, convolved, matrix_product, of_outputs
from .pointwise import cast_to
from .quantised import by_range, dequantised, quantised, reshaped

_MICROSOFT = "com.microsoft"


def _of_rows(b: Builder, values: Value) -> Value:
    """A value for all, or for each row of the left operand of a product, to broadcast."""
    if values.type.rank > 1:
        return values
    return reshaped(b, values, () if values.type.size == 1 else (values.type.size, 1))


def _of_columns(b: Builder, values: Value) -> Value:
    return values if values.type.size > 1 else reshaped(b, values, ())


def _product(b: Builder, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None) -> Value:
    """The int32 product of matrices or vectors less their zero points."""
    first, last = x.type.rank == 1, y.type.rank == 1
    x = reshaped(b, x, (1, *x.shape)) if first else x
    y = reshaped(b, y, (*y.shape, 1)) if last else y
    rows = Whole.of(b, x, None if x_zero is None else _of_rows(b, x_zero))
    columns = Whole.of(b, y, None if y_zero is None else _of_columns(b, y_zero))
    total = matrix_product(b, rows, columns)
    shape = list(total.shape)
    if last:
        del shape[-1]
    if first:
        del shape[-1 if last else -2]
    return reshaped(b, total, shape) if first or last else total


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
    value: Value = b.add("multiply", cast_to(b, total, scale.dtype), scale)
    bias = node.get(6)
    return value if bias is None else b.add("add", value, bias)


@onnx_op("DynamicQuantizeMatMul", domain=_MICROSOFT)
def dynamic_quantize_matmul(b: Builder, node: OnnxNode) -> Value:
    x, x_scale, x_zero = by_range(b, node[0])
    total = _product(b, x, node[1], x_zero, node.get(3))
    scale = b.add("multiply", x_scale, _of_columns(b, node[2]))
    value: Value = b.add("multiply", cast_to(b, total, scale.dtype), scale)
    bias = node.get(4)
    return value if bias is None else b.add("add", value, bias)


def _convolved(
    b: Builder, node: OnnxNode, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None
) -> Value:
    """The int32 convolution of tensors less their zero points."""
    own = None if x_zero is None else reshaped(b, x_zero, ())
    zero = None if w_zero is None else of_outputs(b, w_zero, w)
    return convolved(b, node, Whole.of(b, x, own), Whole.of(b, w, zero))


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


def _requantised(b: Builder, node: OnnxNode, place: int, y: Value, dtype: str) -> Value:
    scale, zero = _scalars(b, node, place)
    return quantised(b, b.add("divide", y, scale), zero, dtype)


@onnx_op("QLinearAdd", "QLinearMul", domain=_MICROSOFT)
def qlinear_binary(b: Builder, node: OnnxNode) -> Value:
    operands = [dequantised(b, node[n], *_scalars(b, node, n + 1)) for n in (0, 3)]
    y = b.add("add" if node.operator == "QLinearAdd" else "multiply", *operands)
    return _requantised(b, node, 6, y, node[0].dtype)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", domain=_MICROSOFT)
def qlinear_unary(b: Builder, node: OnnxNode) -> Value:
    x = dequantised(b, node[0], *_scalars(b, node, 1))
    if node.operator == "QLinearSigmoid":
        y = b.add("sigmoid", x)
    elif node.operator == "QLinearLeakyRelu":
        y = b.add("leaky_relu", x, slope=node.attribute("alpha", 0.01))
    else:
        last = node.attribute("channels_last", 0)
        axes = tuple(range(1, x.type.rank - 1) if last else range(2, x.type.rank))
        y = b.add("mean", x, axes=axes, keepdims=True)
    return _requantised(b, node, 3, y, node[0].dtype)


@onnx_op("QLinearConcat", domain=_MICROSOFT)
def qlinear_concat(b: Builder, node: OnnxNode) -> Value:
    places = range(2, len(node.inputs), 3)
    parts = [dequantised(b, node[n], *_scalars(b, node, n + 1)) for n in places]
    y = b.add("concatenate", *parts, axis=in_rank(node.attribute("axis"), parts[0].type.rank))
    return _requantised(b, node, 0, y, node[2].dtype)
