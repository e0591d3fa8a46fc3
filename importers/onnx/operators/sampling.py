"""Grids, regions of interest, and columns of windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import room
from .contraction import interleaved_conv

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@onnx_op("GridSample", since=16)
def grid_sample(b: Builder, node: OnnxNode) -> Value:
    mode = node.attribute("mode", "linear")
    value: Value = b.add(
        "grid_sample",
        node[0],
        node[1],
        mode=_MODES.get(mode, mode),
        padding=node.attribute("padding_mode", "zeros"),
        align=bool(node.attribute("align_corners", 0)),
    )
    return value


@onnx_op("AffineGrid", since=20)
def affine_grid(b: Builder, node: OnnxNode) -> Value:
    """A known grid, whose places are homogeneous, times the matrices."""
    theta, size = node[0], node.integers(1) or ()
    extents = size[2:]
    if theta.shape != (size[0], len(extents), len(extents) + 1):
        raise ModelError("AffineGrid of {0} for {1}", theta.type, size)
    align = bool(node.attribute("align_corners", 0))
    room(*extents)
    sides = [np.linspace(-1, 1, e) if align else (2 * np.arange(e) + 1) / e - 1 for e in extents]
    places = np.stack([*np.meshgrid(*sides, indexing="ij")][::-1], -1).reshape(-1, len(extents))
    whole = np.concatenate([places, np.ones((len(places), 1))], 1)
    grid = b.add("matmul", b.constant(whole, theta.dtype), theta, transpose_b=True)
    value: Value = b.add("reshape", grid, shape=(size[0], *extents, len(extents)))
    return value


@onnx_op("RoiAlign", since=10)
def roi_align_without_offset(b: Builder, node: OnnxNode) -> Value:
    return _roi_align(b, node, half=False)


@onnx_op("RoiAlign", since=16)
def roi_align(b: Builder, node: OnnxNode) -> Value:
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    return _roi_align(b, node, half=mode == "half_pixel")


def _roi_align(b: Builder, node: OnnxNode, *, half: bool) -> Value:
    samples = node.attribute("sampling_ratio", 0)
    if samples < 1:
        raise Unsupported(Reason.DATA_DEPENDENT, "sampling_ratio=0: regions decide the samples")
    value: Value = b.add(
        "roi_align",
        node[0],
        node[1],
        node[2],
        size=(node.attribute("output_height", 1), node.attribute("output_width", 1)),
        samples=samples,
        scale=node.attribute("spatial_scale", 1.0),
        half=half,
        largest=node.attribute("mode", "avg") == "max",
    )
    return value


@onnx_op("Col2Im", since=18)
def columns_to_image(b: Builder, node: OnnxNode) -> Value:
    """A transposed convolution of each channel, which adds each tap to its place."""
    x, image, block = node[0], node.integers(1) or (), node.integers(2) or ()
    rank, taps = len(block), math.prod(block)
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    pads = tuple(node.attribute("pads") or (0,) * (2 * rank))
    before, after = pads[:rank], pads[rank:]
    counts = [
        (e + p + q - (k - 1) * d - 1) // s + 1
        for e, p, q, k, d, s in zip(image, before, after, block, dilations, strides, strict=True)
    ]
    channels = x.shape[1] // taps
    if x.shape[1] % taps or math.prod(counts) != x.shape[2]:
        raise ModelError("Col2Im of {0} to {1}", x.type, image)
    own = b.add("reshape", x, shape=(x.shape[0], x.shape[1], *counts))
    one = np.eye(taps).reshape(taps, 1, *block)
    weights: Any = np.tile(one, (channels, 1, *(1,) * rank))
    return interleaved_conv(
        b, own, b.constant(weights, x.dtype), strides, dilations, channels, before, image
    )


@onnx_op("MaxUnpool", since=9)
def max_unpool(b: Builder, node: OnnxNode) -> Value:
    """Zeros, but for the elements at their places of the whole tensor."""
    x, indices = node[0], node[1]
    kernel = node.attributes["kernel_shape"]
    rank = len(kernel)
    strides = node.attribute("strides") or (1,) * rank
    pads = node.attribute("pads") or (0,) * (2 * rank)
    extents = [
        (e - 1) * s - pads[n] - pads[n + rank] + k
        for n, (e, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    inner, wanted = (*x.shape[:2], *extents), node.integers(2)
    zeros = b.add("broadcast_to", b.constant(0, x.dtype), shape=(math.prod(inner),))
    flat = [b.add("reshape", v, shape=(v.type.size,)) for v in (indices, x)]
    value = b.add("scatter", zeros, *flat, axis=0, reduction="none")
    value = b.add("reshape", value, shape=inner)
    if wanted is not None and tuple(wanted) != inner:
        after = tuple(w - e for w, e in zip(wanted, inner, strict=True))
        value = b.add("pad", value, before=(0,) * len(inner), after=after)
    result: Value = value
    return result
