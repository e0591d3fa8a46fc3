"""Deformable convolutions: each tap of a window reads where an offset of its own says."""

from __future__ import annotations

import math

import numpy as np

from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value
from ..operator import Array
from .basics import cast_to, reshaped, room, wide
from .contraction import Convolution


def deformable_conv(
    b: Builder, x: Value, w: Value, offsets: Value, mask: Value | None, conv: Convolution
) -> Value:
    """x (n, c, h, w), sampled linearly beside the taps of `conv`, times w (o, c / groups, *kernel).

    `offsets` (n, 2 * g * taps, *outputs) has for each of g parts of the channels and each tap how
    far down and to the right of it is read; outside of `x` are zeros. `mask` (n, g * taps,
    *outputs) are factors of what is read. It is a product of the weights with the sampled columns.

    Raises `ModelError` for other ranks and for operands that do not fit together.
    """
    if x.type.rank != 4 or w.type.rank != 4 or offsets.type.rank != 4:
        raise ModelError("deformable convolution of {0}, {1}, {2}", x.type, w.type, offsets.type)
    (n, channels, *extents), (filters, depth, *kernel) = x.shape, w.shape
    taps, outputs = math.prod(kernel), offsets.shape[2:]
    parts, rest = divmod(offsets.shape[1], 2 * taps)
    fits = not rest and parts and channels % parts == 0 and offsets.shape[0] == n
    fits = fits and depth * conv.groups == channels and filters % conv.groups == 0
    if not fits or (mask is not None and mask.shape != (n, parts * taps, *outputs)):
        raise ModelError(
            "deformable convolution of {0}, {1}: offsets of {2}, mask of {3}, {4} groups",
            x.type, w.type, offsets.type, None if mask is None else mask.type, conv.groups,
        )  # fmt: skip
    room(taps, *outputs)
    own = wide(x)
    shifts = reshaped(b, cast_to(b, offsets, own), (n * parts, taps, 2, *outputs))
    where = b.add("add", shifts, b.constant(_places(conv, tuple(kernel), outputs), own))
    # A grid counts in halves of an extent from the centre, the last dimension first.
    factor = np.array([2 / e for e in extents]).reshape(2, 1, 1)
    scaled = b.add("multiply", where, b.constant(factor, own))
    grid = b.add("add", scaled, b.constant(factor / 2 - 1, own))
    grid = b.add("transpose", grid, axes=(0, 1, 3, 4, 2))
    flipped = b.add("take", grid, b.constant(np.array([1, 0]), "int64"), axis=4)
    flat = reshaped(b, flipped, (n * parts, taps * outputs[0], outputs[1], 2))
    images = reshaped(b, x, (n * parts, channels // parts, *extents))
    read = b.add("grid_sample", images, flat, mode="linear", padding="zeros", align=False)
    shape = (n * parts, channels // parts, taps, *outputs)
    read = reshaped(b, read, shape)
    if mask is not None:
        factors = reshaped(b, mask, (n * parts, 1, taps, *outputs))
        read = b.add("multiply", read, cast_to(b, factors, read.dtype))
    columns = reshaped(b, read, (n, conv.groups, depth * taps, math.prod(outputs)))
    weights = reshaped(b, w, (conv.groups, filters // conv.groups, depth * taps))
    return reshaped(b, b.add("matmul", weights, columns), (n, filters, *outputs))


def _places(conv: Convolution, kernel: tuple[int, ...], outputs: tuple[int, ...]) -> Array:
    """Where the taps (taps, 2, *outputs) of the windows are without offsets."""
    along = [
        np.arange(size)[None] * stride - before + np.arange(k)[:, None] * dilation
        for size, stride, before, k, dilation in zip(
            outputs, conv.strides, conv.before, kernel, conv.dilations, strict=True
        )
    ]
    shape = (*kernel, *outputs)
    rows = np.broadcast_to(along[0][:, None, :, None], shape)
    columns = np.broadcast_to(along[1][None, :, None, :], shape)
    return np.stack([rows, columns], 2).reshape(math.prod(kernel), 2, *outputs)
