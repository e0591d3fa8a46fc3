"""Windows of pooling, and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.compose.basics import reshaped, wide
from ....graph.compose.sampling import Along, Kernel, Window, average_pool, resized
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import aten, spread

Sizes = Sequence[int] | int


def _batched(b: Builder, x: Value, rank: int) -> Value:
    """With a batch of one in front, if there is none."""
    return x if x.type.rank == rank + 2 else reshaped(b, x, (1, *x.shape))


def _window(
    extents: Sequence[int],
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Window:
    rank = len(extents)
    own = spread(kernel, rank)
    strides = spread(stride or kernel, rank)
    edges = spread(padding, rank)
    window = Window(own, strides, edges, edges, spread(dilation, rank))
    return window.with_last(extents) if ceil_mode else window


def _max_pool(
    rank: int,
    b: Builder,
    out: TensorType,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Value:
    own = _batched(b, x, rank)
    window = _window(own.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    return reshaped(b, window.of(b, "max_pool", own), out.shape)


def _max_pool_first(
    rank: int, b: Builder, out: TensorType, x: Value, *options: Any
) -> Sequence[Value]:
    """The largest elements only: their places are not supported."""
    return (_max_pool(rank, b, out, x, *options),)


def _average_pool(
    rank: int,
    b: Builder,
    out: TensorType,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    if divisor_override is not None:
        raise Unsupported(Reason.ATTRIBUTE, f"divisor_override={divisor_override}")
    own = _batched(b, x, rank)
    extents = own.shape[2:]
    declared = _window(extents, kernel, stride, padding, 1, False)
    window = declared.with_last(extents) if ceil_mode else declared
    high = [p + e for p, e in zip(declared.before, extents, strict=True)]
    low: Sequence[int] = declared.before
    if count_include_pad:
        low, high = [0] * rank, [n + a for n, a in zip(high, declared.after, strict=True)]
    return reshaped(b, average_pool(b, own, window, low, high), out.shape)


def _adaptive_average(rank: int, b: Builder, out: TensorType, x: Value, _size: Sizes) -> Value:
    """The mean of parts that may overlap: along each dimension a product with known weights."""
    first = x.type.rank - rank
    if out.shape[first:] == (1,) * rank:
        return b.add("mean", x, axes=tuple(range(first, x.type.rank)), keepdims=True)
    value = x
    for axis in range(first, x.type.rank):
        extent, size = x.shape[axis], out.shape[axis]
        if size == extent:
            continue
        starts = np.arange(size) * extent // size
        ends = -(-(np.arange(1, size + 1) * extent) // size)
        places = starts[:, None] + np.arange((ends - starts).max())
        weights = (places < ends[:, None]) / (ends - starts)[:, None]
        places = np.minimum(places, extent - 1)
        value = b.add(
            "resample", value, b.constant(places, "int32"), b.constant(weights, wide(x)), axis=axis
        )
    return value


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(partial(_max_pool, _rank))
    aten(f"max_pool{_rank}d_with_indices")(partial(_max_pool_first, _rank))
    aten(f"avg_pool{_rank}d")(partial(_average_pool, _rank))
    aten(f"adaptive_avg_pool{_rank}d")(partial(_adaptive_average, _rank))
    if _rank > 1:
        aten(f"_adaptive_avg_pool{_rank}d")(partial(_adaptive_average, _rank))


def _along(x: Value, out: TensorType, scales: Sequence[float | None] | None) -> list[Along]:
    given = scales or [None] * (x.type.rank - 2)
    return [
        Along(d, x.shape[d], out.shape[d], scale or out.shape[d] / x.shape[d])
        for d, scale in enumerate(given, 2)
    ]


def _nearest(
    b: Builder, out: TensorType, x: Value, _size: object, scales: Sequence[float] | None = None
) -> Value:
    along = _along(x, out, scales)
    return resized(b, x, along, coordinates="asymmetric", rounding=lambda _: "floor")


def _nearest_by_scales(
    b: Builder, out: TensorType, x: Value, _size: object, *scales: float | None
) -> Value:
    along = _along(x, out, scales)
    return resized(b, x, along, coordinates="asymmetric", rounding=lambda _: "floor")


def _weighted(
    kernel: Kernel,
    b: Builder,
    out: TensorType,
    x: Value,
    align: bool,
    scales: Sequence[float | None] | None,
) -> Value:
    """With its corners aligned the scales do not matter, only the sizes."""
    along = _along(x, out, None if align else scales)
    coordinates = "align_corners" if align else "half_pixel"
    return resized(b, x, along, coordinates=coordinates, kernel=kernel)


def _weighted_vec(
    kernel: Kernel,
    b: Builder,
    out: TensorType,
    x: Value,
    _size: object,
    align: bool,
    scales: Sequence[float] | None = None,
) -> Value:
    return _weighted(kernel, b, out, x, align, scales)


def _weighted_by_scales(
    kernel: Kernel,
    b: Builder,
    out: TensorType,
    x: Value,
    _size: object,
    align: bool,
    *scales: float | None,
) -> Value:
    return _weighted(kernel, b, out, x, align, scales)


for _name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"):
    aten(f"{_name}.vec")(_nearest)
    aten(_name)(_nearest_by_scales)

for _name, _kernel in (
    ("upsample_linear1d", Kernel()),
    ("upsample_bilinear2d", Kernel()),
    ("upsample_trilinear3d", Kernel()),
    ("upsample_bicubic2d", Kernel(cubic=-0.75)),
    ("_upsample_bilinear2d_aa", Kernel(antialias=True)),
    ("_upsample_bicubic2d_aa", Kernel(cubic=-0.5, antialias=True)),
):
    aten(f"{_name}.vec")(partial(_weighted_vec, _kernel))
    aten(_name)(partial(_weighted_by_scales, _kernel))

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


@aten("grid_sampler_2d", "grid_sampler_3d")
def grid_sample(
    b: Builder, _out: TensorType, x: Value, grid: Value, mode: int, padding: int, align: bool
) -> Value:
    if _MODES[mode] == "cubic" and padding:  # PyTorch moves each tap, not the place, inside
        raise Unsupported(Reason.ATTRIBUTE, f"cubic weights beyond the {_PADDINGS[padding]}")
    return b.add("grid_sample", x, grid, mode=_MODES[mode], padding=_PADDINGS[padding], align=align)
