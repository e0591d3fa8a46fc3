"""Quantised tensors: integers `q` that stand for `(q - zero) * scale`.

Products of integers of 8 bits are summed as they are, in int32; the zero points are taken off the
sums afterwards, which wraps around as the sums do:

    sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * sum(a) + count * p * q

Sums over constants fold, and zero points that are 0 cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....base import dtypes
from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank
from .contraction import along_channels, convolution, edges
from .pointwise import cast_to, dtype_of, promoted

_MICROSOFT = "com.microsoft"
_TO = {"uint8", "int8", "uint16", "int16"}


def _is_zero(value: Value) -> bool:
    return isinstance(value, Constant) and not value.data.any()


def _along(b: Builder, values: Value, x: Value, axis: int, block: int = 0) -> Value:
    """Values for a tensor, for each place of an axis, or for each block of it, to broadcast."""
    if values.type.rank <= 1 and values.type.size == 1 and not block:
        return _reshaped(b, values, ())
    axis %= max(x.type.rank, 1)
    if values.type.rank == 1:
        if values.type.size != x.shape[axis]:
            raise ModelError("{0} scales for an axis of {1}", values.type.size, x.shape[axis])
        return _reshaped(b, values, (-1,), axis=axis, rank=x.type.rank)
    if values.type.rank != x.type.rank or block < 1:
        raise ModelError("scales {0} do not go with {1}", values.type, x.type)
    lead, count, rest = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    value = _reshaped(b, values, (*lead, count, 1, *rest))
    value = b.add("broadcast_to", value, shape=(*lead, count, block, *rest))
    value = _reshaped(b, value, (*lead, count * block, *rest))
    if count * block < x.shape[axis]:
        raise ModelError("{0} blocks of {1} for an axis of {2}", count, block, x.shape[axis])
    starts, steps = (0,) * x.type.rank, (1,) * x.type.rank
    return (
        value
        if value.shape == x.shape
        else b.add("slice", value, starts=starts, steps=steps, shape=x.shape)
    )


def _reshaped(
    b: Builder, x: Value, shape: Sequence[int], axis: int | None = None, rank: int = 0
) -> Value:
    if axis is not None:
        shape = [x.type.size if d == axis else 1 for d in range(rank)]
    value: Value = b.add("reshape", x, shape=tuple(shape))
    return value


def _dequantised(
    b: Builder, x: Value, scale: Value, zero: Value | None, dtype: str | None = None
) -> Value:
    """`(x - zero) * scale`, computed in float32, as the dtype of `scale` or another one."""
    wide = cast_to(b, x, "float32")
    if zero is not None and not _is_zero(zero):
        wide = b.add("subtract", wide, cast_to(b, zero, "float32"))
    product = b.add("multiply", wide, cast_to(b, scale, "float32"))
    return cast_to(b, product, dtype or scale.dtype)


def _quantised(b: Builder, scaled: Value, zero: Value | None, dtype: str) -> Value:
    """The nearest integers plus `zero`, within the limits of `dtype`. Of two the even one."""
    if dtype not in _TO:
        raise Unsupported(Reason.DTYPE, f"quantised to {dtype}")
    whole = cast_to(b, b.add("round", scaled), "float32")
    if zero is not None and not _is_zero(zero):
        whole = b.add("add", whole, cast_to(b, zero, "float32"))
    low, high = dtypes.int_limits(dtype)
    return cast_to(b, b.add("clip", whole, low=float(low), high=float(high)), dtype)


@onnx_op("QuantizeLinear")
@onnx_op("QuantizeLinear", domain=_MICROSOFT)
def quantize(b: Builder, node: OnnxNode) -> Value:
    x, zero = node[0], node.get(2)
    wanted = node.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(wanted) if wanted else "uint8"
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale = _along(b, node[1], x, axis, block)
    precision = node.attribute("precision", 0)
    if precision:
        wide = dtype_of(precision)
    else:
        own = x.dtype if dtypes.is_float(x.dtype) else scale.dtype
        wide = promoted(own, scale.dtype)
    scaled = b.add("divide", cast_to(b, x, wide), cast_to(b, scale, wide))
    if dtypes.is_float(dtype):
        if zero is not None and not _is_zero(zero):
            zero = _along(b, zero, x, axis, block)
            scaled = b.add("add", scaled, cast_to(b, zero, wide))
        return cast_to(b, scaled, dtype, saturate=bool(node.attribute("saturate", 1)))
    zero = None if zero is None else _along(b, zero, x, axis, block)
    return _quantised(b, scaled, zero, dtype)


@onnx_op("DequantizeLinear")
@onnx_op("DequantizeLinear", domain=_MICROSOFT)
def dequantize(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale, zero = _along(b, node[1], x, axis, block), node.get(2)
    zero = None if zero is None else _along(b, zero, x, axis, block)
    wanted = node.attribute("output_dtype", 0)
    return _dequantised(b, x, scale, zero, dtype_of(wanted) if wanted else None)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return _by_range(b, node[0])


def _by_range(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """`x` as uint8, and scale and zero point by its least and largest element."""
    axes = tuple(range(x.type.rank))
    nothing = b.constant(0, x.dtype)
    low = b.add("minimum", b.add("min", x, axes=axes), nothing)
    high = b.add("maximum", b.add("max", x, axes=axes), nothing)
    scale = b.add("divide", b.add("subtract", high, low), b.constant(255, x.dtype))
    place = b.add("divide", b.add("subtract", nothing, low), scale)
    place = b.add("clip", place, low=0.0, high=255.0)
    zero = cast_to(b, b.add("round", place), "uint8")
    return _quantised(b, b.add("divide", x, scale), zero, "uint8"), scale, zero


def _of_rows(b: Builder, values: Value) -> Value:
    """A value for all, or for each row of the left operand of a product, to broadcast."""
    if values.type.rank > 1:
        return values
    return _reshaped(b, values, () if values.type.size == 1 else (values.type.size, 1))


def _of_columns(b: Builder, values: Value) -> Value:
    return values if values.type.size > 1 else _reshaped(b, values, ())


def _product(b: Builder, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None) -> Value:
    """The int32 product of matrices or vectors of 8 bits less their zero points."""
    first, last = x.type.rank == 1, y.type.rank == 1
    x = _reshaped(b, x, (1, *x.shape)) if first else x
    y = _reshaped(b, y, (*y.shape, 1)) if last else y
    total = b.add("matmul", x, y, dtype="int32")
    p = q = None
    if x_zero is not None and not _is_zero(x_zero):
        p = cast_to(b, _of_rows(b, x_zero), "int32")
    if y_zero is not None and not _is_zero(y_zero):
        q = cast_to(b, _of_columns(b, y_zero), "int32")
    if p is not None:
        columns = _sum(b, y, y.type.rank - 2)
        if q is not None:
            count = b.constant(y.shape[-2], "int32")
            columns = b.add("subtract", columns, b.add("multiply", count, q))
        total = b.add("subtract", total, b.add("multiply", p, columns))
    if q is not None:
        total = b.add("subtract", total, b.add("multiply", q, _sum(b, x, x.type.rank - 1)))
    shape = list(total.shape)
    if last:
        del shape[-1]
    if first:
        del shape[-1 if last else -2]
    return _reshaped(b, total, shape) if first or last else total


def _sum(b: Builder, x: Value, *axes: int) -> Value:
    """The int32 sum; at once if `x` is known, whose cast may be too large to fold."""
    if isinstance(x, Constant):
        return b.constant(x.data.sum(axes, np.int32, keepdims=True))
    value: Value = b.add("sum", cast_to(b, x, "int32"), axes=axes, keepdims=True)
    return value


@onnx_op("MatMulInteger")
def matmul_integer(b: Builder, node: OnnxNode) -> Value:
    return _product(b, node[0], node[1], node.get(2), node.get(3))


@onnx_op("QLinearMatMul")
def qlinear_matmul(b: Builder, node: OnnxNode) -> Value:
    x, y, zero = node[0], node[3], node[7]
    if dtypes.is_float(x.dtype) or dtypes.is_float(y.dtype):
        raise Unsupported(Reason.DTYPE, f"{x.dtype} and {y.dtype}")
    total = cast_to(b, _product(b, x, y, node[2], node[5]), "float32")
    scales = [_of_rows(b, node[1]), _of_columns(b, node[4]), _of_rows(b, node[6])]
    rows, columns, result = (cast_to(b, s, "float32") for s in scales)
    scale = b.add("divide", b.add("multiply", rows, columns), result)
    return _quantised(b, b.add("multiply", total, scale), _of_rows(b, zero), zero.dtype)


@onnx_op("MatMulIntegerToFloat", domain=_MICROSOFT)
def matmul_integer_to_float(b: Builder, node: OnnxNode) -> Value:
    total = _product(b, node[0], node[1], node.get(4), node.get(5))
    scale = b.add("multiply", _of_rows(b, node[2]), _of_columns(b, node[3]))
    value: Value = b.add("multiply", cast_to(b, total, scale.dtype), scale)
    bias = node.get(6)
    return value if bias is None else b.add("add", value, bias)


@onnx_op("DynamicQuantizeMatMul", domain=_MICROSOFT)
def dynamic_quantize_matmul(b: Builder, node: OnnxNode) -> Value:
    x, x_scale, x_zero = _by_range(b, node[0])
    total = _product(b, x, node[1], x_zero, node.get(3))
    scale = b.add("multiply", x_scale, _of_columns(b, node[2]))
    value: Value = b.add("multiply", cast_to(b, total, scale.dtype), scale)
    bias = node.get(4)
    return value if bias is None else b.add("add", value, bias)


def _convolved(
    b: Builder, node: OnnxNode, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None
) -> Value:
    """The int32 convolution of tensors of 8 bits less their zero points, which padding is too."""
    if w_zero is not None and not _is_zero(w_zero):
        shape = (w_zero.type.size, *(1,) * (w.type.rank - 1)) if w_zero.type.size > 1 else ()
        zero = cast_to(b, _reshaped(b, w_zero, shape), "int32")
        w = b.add("subtract", cast_to(b, w, "int32"), zero)
    if x_zero is None or _is_zero(x_zero):
        return convolution(b, node, x, w, "int32")
    zero = cast_to(b, _reshaped(b, x_zero, ()), "int32")
    if not isinstance(x_zero, Constant) or w.dtype == "int32":
        centred = b.add("subtract", cast_to(b, x, "int32"), zero)
        return convolution(b, node, centred, w, "int32")
    rank = x.type.rank - 2
    ones = (1,) * rank
    strides, dilations = node.attribute("strides") or ones, node.attribute("dilations") or ones
    before, after = edges(node, x.shape[2:], w.shape[2:], strides, dilations)
    if any((*before, *after)):
        x = b.add(
            "pad", x, before=(0, 0, *before), after=(0, 0, *after), value=int(x_zero.data.item())
        )
    inner = {**node.attributes, "pads": (0,) * (2 * rank), "auto_pad": "NOTSET"}
    total = convolution(b, replace(node, attributes=inner), x, w, "int32")
    weights = _reshaped(b, _sum(b, w, *range(1, w.type.rank)), (w.shape[0],))
    value: Value = b.add(
        "subtract", total, along_channels(b, b.add("multiply", weights, zero), total)
    )
    return value


@onnx_op("ConvInteger")
def conv_integer(b: Builder, node: OnnxNode) -> Value:
    return _convolved(b, node, node[0], node[1], node.get(2), node.get(3))


@onnx_op("QLinearConv")
def qlinear_conv(b: Builder, node: OnnxNode) -> Value:
    zero, bias = node[7], node.get(8)
    total = _convolved(b, node, node[0], node[3], node[2], node[5])
    if bias is not None:
        total = b.add("add", total, along_channels(b, bias, total))
    scale = b.add("multiply", _reshaped(b, node[1], ()), along_channels(b, node[4], total))
    scale = b.add("divide", scale, _reshaped(b, node[6], ()))
    scaled = b.add("multiply", cast_to(b, total, "float32"), scale)
    return _quantised(b, scaled, _reshaped(b, zero, ()), zero.dtype)


def _scalars(b: Builder, node: OnnxNode, place: int) -> tuple[Value, Value | None]:
    """The scale and zero point from an input on."""
    zero = node.get(place + 1)
    return _reshaped(b, node[place], ()), None if zero is None else _reshaped(b, zero, ())


def _requantised(b: Builder, node: OnnxNode, place: int, y: Value, dtype: str) -> Value:
    scale, zero = _scalars(b, node, place)
    return _quantised(b, b.add("divide", y, scale), zero, dtype)


@onnx_op("QLinearAdd", "QLinearMul", domain=_MICROSOFT)
def qlinear_binary(b: Builder, node: OnnxNode) -> Value:
    operands = [_dequantised(b, node[n], *_scalars(b, node, n + 1)) for n in (0, 3)]
    y = b.add("add" if node.operator == "QLinearAdd" else "multiply", *operands)
    return _requantised(b, node, 6, y, node[0].dtype)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", domain=_MICROSOFT)
def qlinear_unary(b: Builder, node: OnnxNode) -> Value:
    x = _dequantised(b, node[0], *_scalars(b, node, 1))
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
    parts = [_dequantised(b, node[n], *_scalars(b, node, n + 1)) for n in places]
    y = b.add("concatenate", *parts, axis=in_rank(node.attribute("axis"), parts[0].type.rank))
    return _requantised(b, node, 0, y, node[2].dtype)


@onnx_op("FusedMatMul", domain=_MICROSOFT)
def fused_matmul(b: Builder, node: OnnxNode) -> Value:
    x, y = node[0], node[1]
    if x.type.rank < 2 or y.type.rank < 2:
        raise Unsupported(Reason.ATTRIBUTE, "a product of vectors")
    x = _batch_last(b, x) if node.attribute("transBatchA", 0) else x
    y = _batch_last(b, y) if node.attribute("transBatchB", 0) else y
    value: Value = b.add(
        "matmul",
        x,
        y,
        transpose_a=bool(node.attribute("transA", 0)),
        transpose_b=bool(node.attribute("transB", 0)),
    )
    alpha = node.attribute("alpha", 1.0)
    return value if alpha == 1 else b.add("multiply", value, b.constant(alpha, value.dtype))


def _batch_last(b: Builder, x: Value) -> Value:
    """A tensor (n, *batch, m) as (*batch, n, m)."""
    value: Value = b.add("transpose", x, axes=(*range(1, x.type.rank - 1), 0, x.type.rank - 1))
    return value
