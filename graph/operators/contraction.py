"""Sums of products of two operands: matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ops
from ...base import dtypes
from ...base.errors import IRError
from ...ops.operands import accumulator
from ...tir import te
from ...tir.te import Expr, Tensor
from ..operator import Array, Kind, one_float, operator


def _wide(x: Array, dtype: str | None) -> np.dtype[Any]:
    """What products of `x` are computed in, for results of `dtype`."""
    own = dtypes.from_numpy(x.dtype)
    return dtypes.to_numpy(accumulator(own) if dtypes.is_float(own) else dtype or own)


def _product(
    a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, dtype: str | None
) -> Array:
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    b = np.swapaxes(b, -1, -2) if transpose_b else b
    wide = _wide(a, dtype)
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide)))


@operator(Kind.CONTRACTION, reference=_product)
def matmul(
    a: Tensor,
    b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Matrix products of two dimensions or more; the leading ones broadcast.

    `transpose_a` takes a as (.., k, n), `transpose_b` b as (.., m, k). The result is of `dtype`, by
    default that of `a`: int32 of integers of 8 bits, whose dtypes may differ.
    """
    one_float("matmul", a, b)
    wanted = dtype or a.dtype
    return ops.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, dtype=wanted)


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:
    """(n, c, *outputs, *kernel) of (n, c, *extents)."""
    outputs = [
        (e - (k - 1) * d - 1) // s + 1
        for e, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    steps = x.strides[2:]
    moved = [t * s for t, s in zip(steps, strides, strict=True)]
    within = [t * d for t, d in zip(steps, dilations, strict=True)]
    shape = (*x.shape[:2], *outputs, *kernel)
    return np.lib.stride_tricks.as_strided(
        x, shape, (*x.strides[:2], *moved, *within), writeable=False
    )


def _convolved(
    x: Array,
    w: Array,
    *,
    strides: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    dtype: str | None,
) -> Array:
    wide = _wide(x, dtype)
    widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    padded = np.ascontiguousarray(np.pad(x.astype(wide), widths))
    kernel = w.shape[2:]
    seen = windows(padded, kernel, strides, dilations)
    rank = len(kernel)
    channels, outputs = w.shape[1], w.shape[0] // groups
    results = []
    for g in range(groups):
        part = seen[:, g * channels : (g + 1) * channels]
        weights = w[g * outputs : (g + 1) * outputs].astype(wide)
        axes = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
        results.append(np.moveaxis(np.tensordot(part, weights, axes), -1, 1))
    return np.concatenate(results, 1)


@operator(Kind.CONTRACTION, reference=_convolved)
def conv(
    x: Tensor,
    w: Tensor,
    *,
    strides: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    dtype: str | None = None,
) -> Tensor:
    """Convolution without flipping: x (n, c, *extents), w (o, c / groups, *kernel).

    The result is (n, o, *outputs), of `dtype` as for `matmul`. `before` and `after` are zeros
    around each spatial dimension.
    """
    one_float("conv", x, w)
    rank = x.ndim - 2
    if w.ndim != x.ndim or any(len(v) != rank for v in (strides, before, after, dilations)):
        raise IRError("conv: {0} and {1} with strides {2}", x.extents, w.extents, strides)
    if min((*strides, *dilations), default=1) < 1:
        raise IRError("conv: strides {0}, dilations {1}, expected 1 and more", strides, dilations)
    n, channels, *extents = x.extents
    outputs, group, *kernel = w.extents
    if channels != group * groups or outputs % groups:
        raise IRError("conv: {0} channels, weights {1}, {2} groups", channels, w.extents, groups)
    sizes = [
        (b + e + a - (k - 1) * d - 1) // s + 1
        for e, b, a, k, d, s in zip(extents, before, after, kernel, dilations, strides, strict=True)
    ]
    if min(sizes, default=1) < 1:
        raise IRError("conv: a window of {0} does not fit into {1}", kernel, extents)
    padded = x
    if any((*before, *after)):
        edges = [(0, 0), (0, 0), *zip(before, after, strict=True)]
        padded = ops.pad(x, edges, 0, name="conv_pad")
    if rank == 2:
        return ops.conv2d(
            padded, w, stride=(strides[0], strides[1]), dilation=(dilations[0], dilations[1]),
            groups=groups, dtype=dtype or x.dtype, name="conv",
        )  # fmt: skip
    wide = accumulator(dtypes.promote(x.dtype, w.dtype))
    window = [te.reduce_axis(k, name=f"r{d}") for d, k in enumerate(kernel)]
    rc = None if group == 1 and groups > 1 else te.reduce_axis(group, name="rc")

    def element(b: Expr, o: Expr, *places: Expr) -> Expr:
        within: Expr | int = 0 if rc is None else rc
        c = within if groups == 1 else o // (outputs // groups) * group + within
        at = [p * s + r * d for p, s, r, d in zip(places, strides, window, dilations, strict=True)]
        product = te.cast(padded[(b, c, *at)], wide) * te.cast(w[(o, within, *window)], wide)
        axes = window if rc is None else [rc, *window]
        return te.cast(te.sum(product, axis=axes), dtype or x.dtype)

    axes = ["n", "o", *(f"y{d}" for d in range(rank))]
    return te.compute((n, outputs, *sizes), element, name="conv", axes=axes)
