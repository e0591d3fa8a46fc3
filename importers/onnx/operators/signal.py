"""Signals: windows that are known, and Fourier transforms as products with known matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ....base import dtypes
from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank, room
from .pointwise import dtype_of

Array: TypeAlias = "np.ndarray[Any, Any]"

_WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Factors of 1, -cos(t) and cos(2t)."""


@onnx_op(*_WINDOWS)
def window(b: Builder, node: OnnxNode) -> Value:
    size = int(node.number(0))
    room(size)
    steps = size if node.attribute("periodic", 1) else max(size - 1, 1)
    angle = 2 * math.pi * np.arange(size) / steps
    one, single, double = _WINDOWS[node.operator]
    values = one - single * np.cos(angle) + double * np.cos(2 * angle)
    return b.constant(values, dtype_of(node.attribute("output_datatype", 1)))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(b: Builder, node: OnnxNode) -> Value:
    """Triangles over the bins of a spectrum, evenly spaced on the mel scale."""
    bands, length, rate = (int(node.number(n)) for n in range(3))
    room(length // 2 + 1, bands)
    edges = [2595 * math.log10(1 + node.number(n) / 700) for n in (3, 4)]
    step = (edges[1] - edges[0]) / (bands + 2)
    hertz = 700 * (10 ** ((edges[0] + step * np.arange(bands + 2)) / 2595) - 1)
    bins = ((length + 1) * hertz // rate).astype(np.int64)
    found = np.zeros((length // 2 + 1, bands))
    for k in range(bands):
        low, centre, high = bins[k : k + 3]
        if low == centre:
            found[centre, k] = 1
        for j in range(low, centre + 1) if low != centre else ():
            found[j, k] = (j - low) / (centre - low)
        for j in range(centre, high):
            found[j, k] = (high - j) / (high - centre)
    return b.constant(found, dtype_of(node.attribute("output_datatype", 1)))


def _fourier(length: int, outputs: int, *, inverse: bool = False) -> Array:
    """The matrices (2, length, outputs) of the real and the imaginary part of a transform."""
    room(4, length, outputs)
    # Exact multiples first: the angle of a large product has no digits left.
    places = np.outer(np.arange(length), np.arange(outputs)) % length
    angle = 2 * math.pi * places / length
    scale = 1 / length if inverse else 1.0
    return scale * np.stack([np.cos(angle), np.sin(angle) if inverse else -np.sin(angle)])


@onnx_op("DFT", since=17)
def dft_along_attribute(b: Builder, node: OnnxNode) -> Value:
    return _dft(b, node, node.attribute("axis", 1))


@onnx_op("DFT", since=20)
def dft(b: Builder, node: OnnxNode) -> Value:
    return _dft(b, node, -2 if node.get(2) is None else int(node.number(2)))


def _dft(b: Builder, node: OnnxNode, axis: int) -> Value:
    x = node[0]
    rank = x.type.rank
    axis = in_rank(axis, rank)
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    parts, extent = x.shape[-1], x.shape[axis]
    if axis == rank - 1 or parts not in (1, 2):
        raise ModelError("DFT of {0} along {1}", x.type, axis)
    folded = inverse and onesided  # half of a spectrum, whose other half is its conjugate
    default = 2 * (extent - 1) if folded else extent
    length = default if node.get(1) is None else int(node.number(1))
    read = length // 2 + 1 if folded else length
    if length < 1:
        raise ModelError("DFT of {0} elements", length)
    x = _fitted(b, x, axis, read)
    order = [*(d for d in range(rank - 1) if d != axis), axis, rank - 1]
    x = b.add("transpose", x, axes=tuple(order))
    lead = x.shape[:-2]
    outputs = length // 2 + 1 if onesided and not inverse else length
    real, imaginary = _fourier(length, outputs, inverse=inverse)
    if folded:
        # Elements that are there twice, the second time conjugated.
        twice = np.array([1 if k in (0, length - k) else 2 for k in range(read)])[:, None]
        real, imaginary = real[:read] * twice, imaginary[:read] * twice
        matrix = np.stack([real, -imaginary], 1)[:, :parts, :, None]
    else:
        # (length, part of the input, outputs, part of the output)
        matrix = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], 1)[
            :, :parts
        ]
    size, given, made, wanted = matrix.shape
    held = b.constant(matrix.reshape(size * given, made * wanted), x.dtype)
    rows = math.prod(lead)
    y = b.add("matmul", b.add("reshape", x, shape=(rows, size * given)), held)
    y = b.add("reshape", y, shape=(*lead, made, wanted))
    back = [order.index(d) for d in range(rank)]
    value: Value = b.add("transpose", y, axes=tuple(back))
    return value


def _fitted(b: Builder, x: Value, axis: int, size: int) -> Value:
    """`x` cut, or with zeros behind it, to `size` along `axis`."""
    extent = x.shape[axis]
    rank = x.type.rank
    shape = tuple(size if d == axis else e for d, e in enumerate(x.shape))
    if extent > size:
        x = b.add("slice", x, starts=(0,) * rank, steps=(1,) * rank, shape=shape)
    elif extent < size:
        after = tuple(size - extent if d == axis else 0 for d in range(rank))
        x = b.add("pad", x, before=(0,) * rank, after=after)
    return x


@onnx_op("STFT", since=17)
def stft(b: Builder, node: OnnxNode) -> Value:
    """A convolution with waves below a window, whose stride is the step between frames."""
    x, step, given = node[0], int(node.number(1)), node.get(2)
    if not dtypes.is_float(x.dtype):
        raise Unsupported(Reason.DTYPE, x.dtype)
    parts = x.shape[2] if x.type.rank == 3 else 1
    if given is not None:
        length = given.type.size
    else:
        length = int(node.number(3))
    outputs = length // 2 + 1 if node.attribute("onesided", 1) else length
    real, imaginary = _fourier(length, outputs).transpose(0, 2, 1)
    rows = [np.stack([real, -imaginary][:parts], 1), np.stack([imaginary, real][:parts], 1)]
    waves = np.stack(rows, 1).reshape(2 * outputs, parts, length)
    weights: Value = b.constant(waves, x.dtype)
    if given is not None:
        weights = b.add("multiply", weights, b.add("reshape", given, shape=(length,)))
    signal = b.add("reshape", x, shape=(*x.shape[:2], parts))
    signal = b.add("transpose", signal, axes=(0, 2, 1))
    one: dict[str, Sequence[int]] = {"before": (0,), "after": (0,), "dilations": (1,)}
    frames = b.add("conv", signal, weights, strides=(step,), groups=1, **one)
    frames = b.add("transpose", frames, axes=(0, 2, 1))
    value: Value = b.add("reshape", frames, shape=(*frames.shape[:2], outputs, 2))
    return value
