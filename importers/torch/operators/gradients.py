"""Operators of training: norms with their statistics, and gradients that are not decomposed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.compose import gradients, rows
from ....graph.compose.basics import cast_to, reshaped, times, wide
from ....graph.compose.contraction import Convolution, transposed_conv
from ....graph.compose.movement import sliced
from ....graph.ir import Constant, TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import TABLE, Number, aten, spread
from .window import PADDINGS, SAMPLING_MODES, Sizes, batched, pool_window


def _plain(b: Builder, operator: str, out: TensorType, *given: object, **options: object) -> Value:
    """The translation of another operator, which has one result."""
    found = TABLE[f"{operator}.default"](b, out, *given, **options)
    assert isinstance(found, Value), operator
    return found


@aten("native_layer_norm")
def layer_norm_with_statistics(
    b: Builder,
    out: TensorType,
    x: Value,
    shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> Sequence[Value]:
    axes = range(x.type.rank - len(shape), x.type.rank)
    value = _plain(b, "layer_norm", out, x, shape, weight, bias, eps)
    return value, *(cast_to(b, v, x.dtype) for v in rows.mean_and_inverse(b, x, axes, eps))


@aten("native_group_norm")
def group_norm_with_statistics(
    b: Builder,
    out: TensorType,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    _images: int,
    _channels: int,
    _size: int,
    groups: int,
    eps: float,
) -> Sequence[Value]:
    value = _plain(b, "group_norm", out, x, groups, weight, bias, eps)
    split = reshaped(b, x, (x.shape[0], groups, x.type.size // (x.shape[0] * groups)))
    found = rows.mean_and_inverse(b, split, (2,), eps)
    return value, *(reshaped(b, cast_to(b, v, x.dtype), split.shape[:2]) for v in found)


@aten("_native_batch_norm_legit_functional")
def batch_norm_of_training(
    b: Builder,
    _out: TensorType,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Sequence[Value]:
    """Also the statistics of the batch, and the new running ones, whose variance is unbiased."""
    if not training:
        raise Unsupported(Reason.ATTRIBUTE, "training=False")
    channels = x.shape[1]
    count = x.type.size // channels
    own = wide(x)
    mean, variance = rows.of_batch(b, x, own)
    scale = b.constant(np.ones(channels), own) if weight is None else weight
    shift = b.constant(np.zeros(channels), own) if bias is None else bias
    value = rows.batch_norm(b, x, scale, shift, mean, variance, eps)
    inverse = rows.inverse_deviation(b, variance, eps)

    def moved(running: Value, new: Value) -> Value:
        old = times(b, cast_to(b, running, own), 1 - momentum)
        return cast_to(b, b.add("add", old, times(b, new, momentum)), running.dtype)

    unbiased = times(b, variance, count / max(count - 1, 1))
    return value, mean, inverse, moved(running_mean, mean), moved(running_variance, unbiased)


@aten("convolution_backward")
def convolution_gradients(
    b: Builder,
    _out: TensorType,
    gradient: Value,
    x: Value,
    weight: Value,
    _bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Sequence[Value]:
    """Those of the input, the weight and the bias; of one that is not asked for, no elements."""
    rank = x.type.rank - 2
    strides, edges, dilations = (spread(v, rank) for v in (stride, padding, dilation))
    conv = Convolution(strides, edges, edges, dilations, groups)
    none: Value = b.constant(np.empty(0), x.dtype)
    of_input, of_weight, of_bias = none, none, none
    if output_mask[0] and transposed:
        of_input = conv.of(b, gradient, weight)
        of_input = sliced(b, of_input, (0,) * x.type.rank, x.shape)
    elif output_mask[0]:
        of_input = transposed_conv(
            b, gradient, weight, strides, dilations, groups, edges, x.shape[2:]
        )
    if output_mask[1]:
        given, made = (gradient, x) if transposed else (x, gradient)
        of_weight = gradients.weight_gradient(b, given, made, weight.shape, conv)
    if output_mask[2]:
        of_bias = b.add("sum", gradient, axes=(0, *range(2, rank + 2)))
    return of_input, of_weight, of_bias


def _max_pool_gradient(
    rank: int, b: Builder, out: TensorType, gradient: Value, x: Value, *options: object
) -> Value:
    """Each gradient is added where its window had the largest element, in the order of windows."""
    *_windows, indices = options
    assert isinstance(indices, Value)
    planes = math.prod(x.shape[:-rank])
    zeros = b.add("broadcast_to", b.constant(0, x.dtype), shape=(planes, x.type.size // planes))
    size = gradient.type.size // planes
    flat = [reshaped(b, v, (planes, size)) for v in (indices, gradient)]
    total = b.add("scatter", zeros, *flat, axis=1, reduction="add", negative=False)
    return reshaped(b, total, out.shape)


for _rank in (2, 3):
    aten(f"max_pool{_rank}d_with_indices_backward", f"adaptive_max_pool{_rank}d_backward")(
        partial(_max_pool_gradient, _rank)
    )


def _average_pool_gradient(
    rank: int,
    b: Builder,
    out: TensorType,
    gradient: Value,
    x: Value,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    extents = x.shape[-rank:]
    declared = pool_window(rank, kernel, stride, padding)
    window = declared.with_last(extents) if ceil_mode else declared
    counts: Any = divisor_override
    if counts is None:
        counts = window.counts(extents, declared, count_padding=count_include_pad)
    own = batched(b, gradient, rank)
    planes = own.shape[0] * own.shape[1]
    scaled = b.add("multiply", cast_to(b, own, wide(x)), b.constant(1 / counts, wide(x)))
    flat = reshaped(b, scaled, (planes, 1, *own.shape[2:]))
    ones = b.constant(np.ones((1, 1, *window.kernel)), flat.dtype)
    spread_out = transposed_conv(
        b, flat, ones, window.strides, window.dilations, 1, window.before, extents
    )
    return cast_to(b, reshaped(b, spread_out, out.shape), out.dtype)


for _rank in (2, 3):
    aten(f"avg_pool{_rank}d_backward")(partial(_average_pool_gradient, _rank))


def _adaptive_average_gradient(
    rank: int, b: Builder, out: TensorType, gradient: Value, x: Value
) -> Value:
    value = gradient
    first = x.type.rank - rank
    if gradient.shape[first:] == (1,) * rank:
        scaled = times(b, value, 1 / math.prod(x.shape[first:]))
        return b.add("broadcast_to", scaled, shape=out.shape)
    for axis in range(first, x.type.rank):
        matrix = gradients.mean_window_matrix(x.shape[axis], gradient.shape[axis])
        value = gradients.along_axis(b, value, axis, matrix)
    return value


for _rank in (2, 3):
    aten(f"_adaptive_avg_pool{_rank}d_backward")(partial(_adaptive_average_gradient, _rank))


def _replication_gradient(
    b: Builder, out: TensorType, gradient: Value, _x: Value, padding: Sequence[int]
) -> Value:
    """Along each dimension an edge has what all copies of it have; the last one is padded first."""
    value = gradient
    for n, before in enumerate(padding[::2]):
        axis = out.rank - 1 - n
        extent, size = out.shape[axis], gradient.shape[axis]
        source = np.clip(np.arange(size) - before, 0, extent - 1)
        value = gradients.along_axis(b, value, axis, np.eye(extent)[source])
    return value


for _rank in (1, 2, 3):
    aten(f"replication_pad{_rank}d_backward")(_replication_gradient)


@aten("_weight_norm_interface_backward")
def weight_norm_gradients(
    b: Builder, _out: TensorType, gradient: Value, v: Value, g: Value, norms: Value, dim: int
) -> Sequence[Value]:
    """Those of `v` and `g` in `v * g / norms`, of norms over all dimensions of `v` but one."""
    axes = tuple(d for d in range(v.type.rank) if d != dim % v.type.rank)
    dtype = v.dtype
    gradient, v, g, norms = (cast_to(b, x, wide(v)) for x in (gradient, v, g, norms))
    along = b.add("sum", b.add("multiply", gradient, v), axes=axes, keepdims=True)
    of_g = b.add("divide", along, norms)
    direction = b.add("divide", v, norms)
    across = b.add("subtract", gradient, b.add("multiply", direction, of_g))
    of_v = b.add("multiply", b.add("divide", g, norms), across)
    return cast_to(b, of_v, dtype), cast_to(b, of_g, dtype)


def _resize_gradient(
    forward: str, aligned: bool, b: Builder, out: TensorType, gradient: Value, *options: object
) -> Value:
    """Along each dimension the transposed matrix of the resizing, which that of unit vectors is."""
    _size, shape, *rest = options
    scales = rest[1:] if aligned else rest
    value = gradient
    for axis in range(2, out.rank):
        extent, size = out.shape[axis], gradient.shape[axis]
        if extent == size:
            continue
        lines = [extent if d in (0, axis) else 1 for d in range(out.rank)]
        units = b.constant(np.eye(extent).reshape(lines), wide(gradient))
        made = TensorType(units.dtype, tuple(size if d == axis else e for d, e in enumerate(lines)))
        own = [s if d == axis else None for d, s in enumerate(scales, 2)]
        flags = rest[:1] if aligned else []
        found = _plain(b, forward, made, units, made.shape[2:], *flags, *own)
        if not isinstance(found, Constant):
            raise Unsupported(Reason.ATTRIBUTE, f"a resizing from {extent} to {size}")
        matrix = found.data.reshape(extent, size).T
        value = gradients.along_axis(b, value, axis, matrix)
    del shape
    return value


for _name, _aligned in (
    ("upsample_nearest1d", False),
    ("upsample_nearest2d", False),
    ("upsample_nearest3d", False),
    ("_upsample_nearest_exact1d", False),
    ("_upsample_nearest_exact2d", False),
    ("_upsample_nearest_exact3d", False),
    ("upsample_linear1d", True),
    ("upsample_bilinear2d", True),
    ("upsample_trilinear3d", True),
    ("upsample_bicubic2d", True),
    ("_upsample_bilinear2d_aa", True),
    ("_upsample_bicubic2d_aa", True),
):
    aten(f"{_name}_backward")(partial(_resize_gradient, _name, _aligned))


@aten("_cdist_backward")
def distance_gradient(
    b: Builder, out: TensorType, gradient: Value, x: Value, y: Value, p: float, distances: Value
) -> Value:
    """That of the rows of `x` (..., n, size), of distances (..., n, m) to those of `y`."""
    if p < 1:
        raise Unsupported(Reason.ATTRIBUTE, f"the gradient of p={p}")
    rows, columns = (*x.shape[:-1], 1, x.shape[-1]), (*y.shape[:-2], 1, *y.shape[-2:])
    apart = b.add("subtract", reshaped(b, x, rows), reshaped(b, y, columns))
    gradient, distances = (reshaped(b, v, (*v.shape, 1)) for v in (gradient, distances))
    zero, size = b.constant(0, x.dtype), b.add("abs", apart)
    if p == math.inf:
        farthest = b.add("equal", size, distances)
        growth = b.add("where", farthest, b.add("sign", apart), zero)
    elif p == 1:
        growth = b.add("sign", apart)
    else:
        same = b.add("equal", distances, zero)
        ratio = b.add("divide", size, b.add("where", same, b.constant(1, x.dtype), distances))
        powers = ratio if p == 2 else b.add("power", ratio, b.constant(p - 1, x.dtype))
        growth = b.add("multiply", b.add("sign", apart), powers)
    summed = b.add("sum", b.add("multiply", gradient, growth), axes=(apart.type.rank - 2,))
    return reshaped(b, summed, out.shape)


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sample_gradients(
    b: Builder,
    _out: TensorType,
    gradient: Value,
    x: Value,
    grid: Value,
    mode: int,
    padding: int,
    align: bool,
    _output_mask: Sequence[bool],
) -> Sequence[Value]:
    own, beyond = SAMPLING_MODES[mode], PADDINGS[padding]
    if own == "cubic" or beyond == "reflection":
        raise Unsupported(Reason.ATTRIBUTE, f"the gradient of {own} samples, {beyond} outside")
    return gradients.grid_gradients(b, gradient, x, grid, mode=own, padding=beyond, align=align)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def attention_of_inference(
    b: Builder,
    out: TensorType,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: Number | None = None,
) -> Sequence[Value]:
    """The result only: logarithms of sums are for gradients, which take another way.

    It says nowhere whether heads share keys: it is so where there are fewer of these.
    """
    given = q, k, v, attn_mask, dropout_p, is_causal
    return (_plain(b, "scaled_dot_product_attention", out, *given, scale=scale, enable_gqa=True),)
