"""Quantised tensors: integers `q` that stand for `(q - zero) * scale`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....base import dtypes
from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank
from .pointwise import cast_to, dtype_of, promoted

_MICROSOFT = "com.microsoft"
_TO = {"uint8", "int8", "uint16", "int16"}


@dataclass(frozen=True)
class Dequantised:
    """What is noted of a float32 value: the integers of 8 bits that it was, scale and zero point.

    These are scalars, or have an element for each place of an axis.
    """

    data: Value
    scale: Value
    zero: Value | None
    axis: int | None


def _is_zero(value: Value) -> bool:
    return isinstance(value, Constant) and not value.data.any()


def _is_one(value: Value) -> bool:
    return isinstance(value, Constant) and bool((value.data == 1).all())


def _along(b: Builder, values: Value, x: Value, axis: int, block: int = 0) -> Value:
    """Values for a tensor, for each place of an axis, or for each block of it, to broadcast."""
    if values.type.rank <= 1 and values.type.size == 1 and not block:
        return reshaped(b, values, ())
    axis = in_rank(axis, x.type.rank)
    if values.type.rank == 1:
        if values.type.size != x.shape[axis]:
            raise ModelError("{0} scales for an axis of {1}", values.type.size, x.shape[axis])
        return reshaped(b, values, (-1,), axis=axis, rank=x.type.rank)
    if values.type.rank != x.type.rank or block < 1:
        raise ModelError("scales {0} do not go with {1}", values.type, x.type)
    lead, count, rest = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    value = reshaped(b, values, (*lead, count, 1, *rest))
    value = b.add("broadcast_to", value, shape=(*lead, count, block, *rest))
    value = reshaped(b, value, (*lead, count * block, *rest))
    if count * block < x.shape[axis]:
        raise ModelError("{0} blocks of {1} for an axis of {2}", count, block, x.shape[axis])
    starts, steps = (0,) * x.type.rank, (1,) * x.type.rank
    return (
        value
        if value.shape == x.shape
        else b.add("slice", value, starts=starts, steps=steps, shape=x.shape)
    )


def reshaped(
    b: Builder, x: Value, shape: Sequence[int], axis: int | None = None, rank: int = 0
) -> Value:
    if axis is not None:
        shape = [x.type.size if d == axis else 1 for d in range(rank)]
    value: Value = b.add("reshape", x, shape=tuple(shape))
    return value


def centred(b: Builder, x: Value, zero: Value | None) -> Value:
    """`x - zero` in float32."""
    if x.dtype in _TO:
        return b.add("dequantize", x, *_zeros(zero))  # type: ignore[no-any-return]
    wide = cast_to(b, x, "float32")
    if zero is not None and not _is_zero(zero):
        wide = b.add("subtract", wide, cast_to(b, zero, "float32"))
    return wide


def _zeros(zero: Value | None) -> tuple[Value, ...]:
    return () if zero is None or _is_zero(zero) else (zero,)


def dequantised(
    b: Builder, x: Value, scale: Value, zero: Value | None, dtype: str | None = None
) -> Value:
    """`(x - zero) * scale`, computed in float32, as the dtype of `scale` or another one."""
    value = centred(b, x, zero)
    if not _is_one(scale):
        value = b.add("multiply", value, cast_to(b, scale, "float32"))
    return cast_to(b, value, dtype or scale.dtype)


def quantised(b: Builder, scaled: Value, zero: Value | None, dtype: str) -> Value:
    """The nearest integers plus `zero`, within the limits of `dtype`. Of two the even one."""
    if dtype not in _TO:
        raise Unsupported(Reason.DTYPE, f"quantised to {dtype}")
    value: Value = b.add("quantize", scaled, *_zeros(zero), dtype=dtype)
    return value


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
    scaled = cast_to(b, x, wide)
    if not _is_one(scale):
        scaled = b.add("divide", scaled, cast_to(b, scale, wide))
    if dtypes.is_float(dtype):
        if zero is not None and not _is_zero(zero):
            zero = _along(b, zero, x, axis, block)
            scaled = b.add("add", scaled, cast_to(b, zero, wide))
        return cast_to(b, scaled, dtype, saturate=bool(node.attribute("saturate", 1)))
    zero = None if zero is None else _along(b, zero, x, axis, block)
    return quantised(b, scaled, zero, dtype)


@onnx_op("DequantizeLinear")
@onnx_op("DequantizeLinear", domain=_MICROSOFT)
def dequantize(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale, zero = _along(b, node[1], x, axis, block), node.get(2)
    own = None if zero is None else _along(b, zero, x, axis, block)
    wanted = node.attribute("output_dtype", 0)
    value = dequantised(b, x, scale, own, dtype_of(wanted) if wanted else None)
    if value.dtype == scale.dtype == "float32" and x.dtype in ("int8", "uint8") and not block:
        along = None if node[1].type.size == 1 else in_rank(axis, x.type.rank)
        node.notes[value] = Dequantised(x, node[1], zero, along)
    return value


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return by_range(b, node[0])


def by_range(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """`x` as uint8, and scale and zero point by its least and largest element."""
    axes = tuple(range(x.type.rank))
    nothing = b.constant(0, x.dtype)
    low = b.add("minimum", b.add("min", x, axes=axes), nothing)
    high = b.add("maximum", b.add("max", x, axes=axes), nothing)
    scale = b.add("divide", b.add("subtract", high, low), b.constant(255, x.dtype))
    place = b.add("divide", b.add("subtract", nothing, low), scale)
    place = b.add("clip", place, low=0.0, high=255.0)
    zero = cast_to(b, b.add("round", place), "uint8")
    return quantised(b, b.add("divide", x, scale), zero, "uint8"), scale, zero
