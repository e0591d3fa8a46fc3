"""Windows of pooling, resizing, and sampling where data decide; of torchvision too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, part, reshaped, times, wide
from ....graph.compose.contraction import Convolution, biased
from ....graph.compose.deformable import deformable_conv
from ....graph.compose.sampling import (
    Along,
    Kernel,
    Window,
    adaptive_bounds,
    average_pool,
    largest,
    nearest,
    resized,
)
from ....graph.ir import TensorType, Value
from ....graph.operator import Array
from ...unsupported import Reason, Unsupported
from ..table import aten, spread

Sizes = Sequence[int] | int


def batched(b: Builder, x: Value, rank: int) -> Value:
    """With a batch of one in front, if there is none."""
    return x if x.type.rank == rank + 2 else reshaped(b, x, (1, *x.shape))


def pool_window(
    rank: int, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = 1
) -> Window:
    """The window of pooling, with the padding that is declared."""
    own = spread(kernel, rank)
    edges = spread(padding, rank)
    return Window(own, spread(stride or kernel, rank), edges, edges, spread(dilation, rank))


def _max_pool(
    rank: int,
    with_places: bool,
    b: Builder,
    out: TensorType,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Value | Sequence[Value]:
    """The largest elements of windows, and their places in the image."""
    extents = x.shape[x.type.rank - rank :]
    window = pool_window(rank, kernel, stride, padding, dilation)
    window = window.with_last(extents) if ceil_mode else window
    value = reshaped(b, window.of(b, "max_pool", batched(b, x, rank)), out.shape)
    if not with_places:
        return value
    along = []
    for d, extent in enumerate(extents):
        span = (window.kernel[d] - 1) * window.dilations[d] + 1
        outputs = (extent + window.before[d] + window.after[d] - span) // window.strides[d] + 1
        taps = np.arange(window.kernel[d]) * window.dilations[d] - window.before[d]
        places = np.arange(outputs)[:, None] * window.strides[d] + taps
        along.append(np.where((places >= 0) & (places < extent), places, -1))
    return value, largest(b, x, along)[1]


def _adaptive_max(
    rank: int, b: Builder, out: TensorType, x: Value, _size: Sizes
) -> Sequence[Value]:
    first = x.type.rank - rank
    along = []
    for extent, size in zip(x.shape[first:], out.shape[first:], strict=True):
        places, inside = _pieces(extent, size)
        along.append(np.where(inside, places, -1))
    return largest(b, x, along)


def _pieces(extent: int, size: int) -> tuple[Array, Array]:
    """The places (size, longest) of the elements of each part, and which of them are in it."""
    starts, ends = adaptive_bounds(extent, size)
    places = starts[:, None] + np.arange((ends - starts).max(initial=0))
    return places, places < ends[:, None]


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
    own = batched(b, x, rank)
    window = pool_window(rank, kernel, stride, padding)
    if divisor_override is None:
        mean = average_pool(b, own, window, ceil=ceil_mode, count_padding=count_include_pad)
        return reshaped(b, mean, out.shape)
    window = window.with_last(own.shape[2:]) if ceil_mode else window
    total = window.of(b, "sum_pool", cast_to(b, own, wide(x)))
    mean = times(b, total, 1 / divisor_override)
    return reshaped(b, cast_to(b, mean, x.dtype), out.shape)


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
        places, inside = _pieces(extent, size)
        weights = inside / inside.sum(1, keepdims=True)
        places = np.minimum(places, extent - 1)
        value = b.add(
            "resample", value, b.constant(places, "int32"), b.constant(weights, wide(x)), axis=axis
        )
    return value


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(partial(_max_pool, _rank, False))
    aten(f"max_pool{_rank}d_with_indices")(partial(_max_pool, _rank, True))
    aten(f"avg_pool{_rank}d")(partial(_average_pool, _rank))
    aten(f"adaptive_avg_pool{_rank}d")(partial(_adaptive_average, _rank))
    if _rank > 1:
        aten(f"_adaptive_avg_pool{_rank}d")(partial(_adaptive_average, _rank))
        aten(f"adaptive_max_pool{_rank}d")(partial(_adaptive_max, _rank))


Scales = Sequence[float | None]


def _scales(given: Sequence[Any], rank: int) -> Scales:
    """Factors of the spatial dimensions, which overloads have as a list, each alone, or not."""
    first = given[0] if given else None
    own = given if first is None or isinstance(first, int | float) else first
    return own if len(own) == rank else (None,) * rank


def _nearest(
    half: float, b: Builder, out: TensorType, x: Value, _size: object, *scales: Any
) -> Value:
    """Places are computed as by PyTorch: in the dtype of its scales, then rounded to float32."""
    dtype = np.dtype(wide(x)).type
    places = {}
    for axis, scale in enumerate(_scales(scales, x.type.rank - 2), 2):
        extent, size = x.shape[axis], out.shape[axis]
        factor = dtype(1 / scale) if scale else dtype(extent) / dtype(size)
        at = np.floor(((np.arange(size, dtype=dtype) + dtype(half)) * factor).astype(np.float32))
        places[axis] = np.minimum(at, extent - 1).astype(np.int64)
    return nearest(b, x, places)


def _weighted(
    kernel: Kernel,
    b: Builder,
    out: TensorType,
    x: Value,
    _size: object,
    align: bool,
    *scales: Any,
) -> Value:
    """With its corners aligned the scales do not matter, only the sizes."""
    along = []
    for axis, scale in enumerate(_scales(scales, x.type.rank - 2), 2):
        extent, size = x.shape[axis], out.shape[axis]
        own = size / extent if align or not scale else scale
        if align and kernel.antialias:  # places are as without, of this scale
            own = (size - 1) / (extent - 1) if min(size, extent) > 1 else math.inf
        along.append(Along(axis, extent, size, own))
    coordinates = "align_corners" if align and not kernel.antialias else "half_pixel"
    return resized(b, x, along, coordinates=coordinates, kernel=kernel)


def _resizing(name: str, translate: Callable[..., Value]) -> None:
    aten(name, f"{name}.vec")(translate)


for _rank in (1, 2, 3):
    _resizing(f"upsample_nearest{_rank}d", partial(_nearest, 0.0))
    _resizing(f"_upsample_nearest_exact{_rank}d", partial(_nearest, 0.5))

for _name, _kernel in (
    ("upsample_linear1d", Kernel()),
    ("upsample_bilinear2d", Kernel()),
    ("upsample_trilinear3d", Kernel()),
    ("upsample_bicubic2d", Kernel(cubic=-0.75)),
    ("_upsample_bilinear2d_aa", Kernel(antialias=True, exclude_outside=True)),
    ("_upsample_bicubic2d_aa", Kernel(cubic=-0.5, antialias=True, exclude_outside=True)),
):
    _resizing(_name, partial(_weighted, _kernel))

SAMPLING_MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


@aten("grid_sampler_2d", "grid_sampler_3d")
def grid_sample(
    b: Builder, _out: TensorType, x: Value, grid: Value, mode: int, padding: int, align: bool
) -> Value:
    if SAMPLING_MODES[mode] == "cubic" and padding:  # PyTorch moves each tap, not the place, inside
        raise Unsupported(Reason.ATTRIBUTE, f"cubic weights beyond the {PADDINGS[padding]}")
    return b.add(
        "grid_sample", x, grid, mode=SAMPLING_MODES[mode], padding=PADDINGS[padding], align=align
    )


@aten("torchvision.roi_align.default")
def roi_align(
    b: Builder,
    out: TensorType,
    x: Value,
    rois: Value,
    scale: float,
    _height: int,
    _width: int,
    samples: int,
    aligned: bool,
) -> Value:
    """Each row of `rois` has the number of an image, and two corners."""
    if samples < 1:
        raise Unsupported(Reason.DATA_DEPENDENT, "sampling_ratio <= 0: regions decide the samples")
    images = reshaped(b, part(b, rois, 1, 0, 1), (rois.shape[0],))
    return b.add(
        "roi_align",
        x,
        part(b, rois, 1, 1, 4),
        b.add("cast", images, dtype="int64"),
        size=out.shape[2:],
        samples=samples,
        scale=scale,
        half=aligned,
    )


@aten("torchvision.deform_conv2d.default")
def deform_conv(
    b: Builder,
    _out: TensorType,
    x: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    *geometry: int,
) -> Value:
    """Strides, padding, dilations, groups, parts of channels, and whether the mask is used."""
    down, right, top, left, high, broad, groups, _parts, use_mask = geometry
    conv = Convolution((down, right), (top, left), (top, left), (high, broad), groups)
    y = deformable_conv(b, x, weight, offset, mask if use_mask else None, conv)
    return biased(b, y, bias)
