"""Interpolation at places that data decide: on grids, and in regions of interest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ...base.errors import IRError
from ...ops.operands import accumulator, widened
from ...tir import te
from ...tir.te import Expr, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, Limits, one_float, operator

_CUBIC = -0.75
_TAPS = {"nearest": range(1), "linear": range(2), "cubic": range(-1, 3)}


def _weights(mode: str, t: Any) -> list[Any]:
    """The weights of the elements around a place that is `t` behind the first of two."""
    if mode == "nearest":
        return [1.0]
    if mode == "linear":
        return [1 - t, t]

    def near(d: Any) -> Any:
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _edges(extent: int, align: bool) -> tuple[float, float]:
    return (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)


def _reflected(x: Array, extent: int, align: bool) -> Array:
    low, high = _edges(extent, align)
    if high == low:
        return x * 0
    distance = np.abs(x - low)
    times = np.floor(distance / (high - low))
    rest = distance - times * (high - low)
    inside = np.where(times % 2 == 0, low + rest, high - rest)
    return np.where((x < low) | (x > high), inside, x)


def _sampled(x: Array, grid: Array, *, mode: str, padding: str, align: bool) -> Array:
    rank = x.ndim - 2
    wide: Any = np.float64 if x.dtype == np.float64 else np.float32
    firsts, ratios = list[Array](), list[list[Any]]()
    for d, extent in enumerate(x.shape[2:]):
        own = grid[..., rank - 1 - d].astype(wide)
        at = (own + 1) / 2 * (extent - 1) if align else ((own + 1) * extent - 1) / 2
        at = np.where(np.isnan(at), wide(0), at)
        at = np.rint(at) if mode == "nearest" else at
        if padding == "border":
            low, high = _edges(extent, align)
            at = np.where((at < low) | (at > high), np.clip(at, 0, extent - 1), at)
        elif padding == "reflection":
            at = _reflected(at, extent, align)
        at = np.clip(at, -4, extent + 4)
        first = np.trunc(at) if mode == "nearest" else np.floor(at)
        firsts.append(first.astype(np.int64))
        ratios.append(_weights(mode, at - first))
    batch: Any = np.arange(x.shape[0]).reshape(-1, *(1,) * rank)
    total: Any = 0
    for taps in product(enumerate(_TAPS[mode]), repeat=rank):
        factor: Any = np.ones(grid.shape[:-1], wide)
        corners = list[Array]()
        parts = zip(taps, firsts, ratios, x.shape[2:], strict=True)
        for (k, tap), first, ratio, extent in parts:
            place: Any = first + tap
            weight: Any = ratio[k]
            if padding == "zeros":
                weight = np.where((place >= 0) & (place < extent), weight, 0)
            elif padding == "reflection":
                place = _reflected(place.astype(wide), extent, align).astype(np.int64)
            corners.append(np.clip(place, 0, extent - 1))
            factor = factor * weight
        taken = np.moveaxis(x[(batch, slice(None), *corners)], -1, 1)
        total = total + taken * np.expand_dims(factor, 1)
    return np.asarray(total, x.dtype)


def _reflection(value: Expr, extent: int, align: bool) -> Expr:
    low, high = _edges(extent, align)
    dtype = value.dtype
    if high == low:
        return te.const(0, dtype)
    size = high - low
    distance = te.abs(value - low)
    times = te.floor(distance / size)
    rest = distance - times * size
    is_even = te.floor(times / 2) * 2 == times
    inside = te.select(is_even, low + rest, high - rest)
    return te.select((value < low) | (value > high), inside, value)


def _within(place: Expr, extent: int) -> Expr:
    least, last = te.const(0, place.dtype), te.const(extent - 1, place.dtype)
    return te.minimum(te.maximum(place, least), last)


@operator(Kind.INDEXING, reference=_sampled)
def grid_sample(x: Tensor, grid: Tensor, *, mode: str, padding: str, align: bool) -> Tensor:
    """x (n, c, *extents) at the places of grid (n, *outputs, rank): the result is (n, c, *outputs).

    The last dimension of a grid counts from the last dimension of `x`; -1 and 1 are its ends: the
    centres of the outer elements with `align`, their outer edges without. `mode` is nearest,
    linear or cubic; what is outside is zeros, the border or a reflection, as `padding` says. Places
    between the outer elements and the edges are not outside: cubic weights reach further there.
    """
    rank = x.ndim - 2
    if grid.ndim != x.ndim or grid.extents[-1] != rank or grid.extents[0] != x.extents[0]:
        raise IRError("grid_sample: {0} at {1}", x.extents, grid.extents)
    if 0 in x.extents[2:]:
        raise IRError("grid_sample: there is no element in {0}", x.extents)
    if mode not in _TAPS or padding not in ("zeros", "border", "reflection"):
        raise IRError("grid_sample: mode {0}, padding {1}", mode, padding)
    wide = accumulator(x.dtype)
    outputs = grid.extents[1:-1]

    def along(d: int) -> Tensor:
        extent = x.extents[2 + d]

        def place(*i: Expr) -> Expr:
            own = te.cast(grid[(*i, rank - 1 - d)], wide)
            at = (own + 1) / 2 * (extent - 1) if align else ((own + 1) * extent - 1) / 2
            at = te.select(te.isnan(at), te.const(0, wide), at)
            at = te.round(at) if mode == "nearest" else at
            if padding == "border":
                low, high = _edges(extent, align)
                at = te.select((at < low) | (at > high), _within(at, extent), at)
            elif padding == "reflection":
                at = _reflection(at, extent, align)
            return te.minimum(te.maximum(at, te.const(-4, wide)), te.const(extent + 4, wide))

        return te.compute(grid.extents[:-1], place, name=f"place{d}")

    where = [along(d) for d in range(rank)]

    def element(b: Expr, c: Expr, *i: Expr) -> Expr:
        choices: list[list[tuple[Expr, Any]]] = []
        for d, extent in enumerate(x.extents[2:]):
            at = where[d][(b, *i)]
            first = at if mode == "nearest" else te.floor(at)
            start = te.cast(first, "int64")
            taps = list[tuple[Expr, Any]]()
            for tap, weight in zip(_TAPS[mode], _weights(mode, at - first), strict=True):
                place = start + tap
                if padding == "zeros":
                    inside = (place >= 0) & (place < extent)
                    own = te.const(weight, wide) if isinstance(weight, float) else weight
                    weight = te.select(inside, own, te.const(0, wide))
                elif padding == "reflection":
                    turned = _reflection(te.cast(place, wide), extent, align)
                    place = te.cast(turned, "int64")
                taps.append((_within(place, extent), weight))
            choices.append(taps)
        total: Any = None
        for corner in product(*choices):
            value: Any = widened(x[(b, c, *(place for place, _ in corner))])
            for _, weight in corner:
                value = value * weight
            total = value if total is None else total + value
        return te.cast(total, x.dtype)

    return te.compute((*x.extents[:2], *outputs), element, name="grid_sample")


def _pooled(
    x: Array,
    rois: Array,
    batches: Array,
    *,
    size: Sequence[int],
    samples: int,
    scale: float,
    half: bool,
    largest: bool,
) -> Array:
    wide: Any = np.float64 if x.dtype == np.float64 else np.float32
    given = rois.astype(wide) * wide(scale) - wide(0.5 if half else 0)
    axes: list[list[tuple[Any, Any]]] = []
    for d, extent in enumerate(x.shape[2:]):
        start, end = given[:, 1 - d], given[:, 3 - d]
        span = end - start if half else np.maximum(end - start, 1)
        step = (np.arange(size[d] * samples) + 0.5) / samples
        at = (start[:, None] + step * (span / size[d])[:, None]).astype(wide)
        at = np.where(np.isnan(at), wide(-2), at)
        outside = (at < -1) | (at > extent)
        at = np.clip(at, 0, extent - 1)
        low = np.floor(at)
        ratio = np.where(outside, 0, at - low)
        first = np.where(outside, 0, 1 - (at - low))
        places = low.astype(np.int64)
        axes.append([(places, first), (np.minimum(places + 1, extent - 1), ratio)])
    whole = np.take(x, batches.astype(np.int64), 0)
    index: Any = np.arange(len(whole))[:, None, None]
    corners = [
        np.moveaxis(whole[index, :, p[:, :, None], q[:, None, :]], -1, 1)
        * (v[:, :, None] * w[:, None, :])[:, None]
        for (p, v), (q, w) in product(*axes)
    ]
    value: Any = np.max(corners, 0) if largest else sum(corners)
    shape = (*value.shape[:2], size[0], samples, size[1], samples)
    split = value.reshape(shape)
    return np.asarray(split.max((3, 5)) if largest else split.mean((3, 5)), x.dtype)


def _images(x: TensorType, *_: TensorType, **_attributes: Any) -> list[Limits]:
    return [Limits(2, 0, x.shape[0] - 1)]


@operator(Kind.INDEXING, reference=_pooled, limits=_images)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    *,
    size: Sequence[int],
    samples: int,
    scale: float,
    half: bool,
    largest: bool = False,
) -> Tensor:
    """Regions of interest in images, as tensors of one size (r, c, *size).

    A region is two corners (x, y), times `scale`, of the image `batches[r]`. Each element is the
    mean (with `largest` the maximum) of samples at `samples` * `samples` places. With `half` the
    centres of elements are at 0.5.
    """
    one_float("roi_align", x, rois)
    if x.ndim != 4 or rois.ndim != 2 or rois.extents[1] != 4 or samples < 1:
        raise IRError("roi_align: {0} at {1}, {2} samples", x.extents, rois.extents, samples)
    if 0 in (x.extents[0], *x.extents[2:]):
        raise IRError("roi_align: there is no element in {0}", x.extents)
    wide = accumulator(x.dtype)

    def along(d: int) -> Tensor:
        def place(r: Expr, k: Expr) -> Expr:
            start, end = (te.cast(rois[r, n - d], wide) * scale for n in (1, 3))
            if half:
                start, end = start - 0.5, end - 0.5
            span = end - start if half else te.maximum(end - start, te.const(1, wide))
            step = (te.cast(k, wide) + 0.5) / samples
            at = start + step * (span / size[d])
            return te.select(te.isnan(at), te.const(-2, wide), at)

        return te.compute((rois.extents[0], size[d] * samples), place, name=f"place{d}")

    where = [along(0), along(1)]

    def taps(d: int, r: Expr, k: Expr) -> list[tuple[Expr, Expr]]:
        at, extent = where[d][r, k], x.extents[2 + d]
        outside = (at < -1) | (at > extent)
        inner = _within(at, extent)
        low = te.floor(inner)
        first = _within(te.cast(low, "int64"), extent)
        zero = te.const(0, wide)
        ratio = inner - low
        return [
            (first, te.select(outside, zero, 1 - ratio)),
            (_within(first + 1, extent), te.select(outside, zero, ratio)),
        ]

    def element(r: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        p, q = te.reduce_axis(samples, name="p"), te.reduce_axis(samples, name="q")
        image = _within(te.cast(batches[r], "int64"), x.extents[0])
        combine: Callable[..., Any] = te.maximum if largest else (lambda a, b: a + b)
        total: Any = None
        for (y, v), (z, w) in product(taps(0, r, i * samples + p), taps(1, r, j * samples + q)):
            value = widened(x[image, c, y, z]) * (v * w)
            total = value if total is None else combine(total, value)
        if largest:
            return te.cast(te.max(total, axis=[p, q]), x.dtype)
        return te.cast(te.sum(total, axis=[p, q]) / float(samples * samples), x.dtype)

    shape = (rois.extents[0], x.extents[1], *size)
    return te.compute(shape, element, name="roi_align")
