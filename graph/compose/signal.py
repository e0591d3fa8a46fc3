"""Signals: windows that are known, and Fourier transforms as products with known matrices."""

from __future__ import annotations

import math

import numpy as np

from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value
from ..operator import Array
from .basics import reshaped, room
from .contraction import Convolution


def cosine_window(size: int, factors: tuple[float, float, float], *, periodic: bool) -> Array:
    """The sum of 1, -cos(t) and cos(2 * t) times their factors."""
    room(size)
    steps = size if periodic else max(size - 1, 1)
    angle = 2 * math.pi * np.arange(size) / steps
    one, single, double = factors
    return np.asarray(one - single * np.cos(angle) + double * np.cos(2 * angle))


def mel_matrix(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    """Triangles over the bins of a spectrum, evenly spaced on the mel scale between two hertz."""
    room(length // 2 + 1, bands)
    edges = [2595 * math.log10(1 + n / 700) for n in (low, high)]
    step = (edges[1] - edges[0]) / (bands + 2)
    hertz = 700 * (10 ** ((edges[0] + step * np.arange(bands + 2)) / 2595) - 1)
    bins = ((length + 1) * hertz // rate).astype(np.int64)
    found = np.zeros((length // 2 + 1, bands))
    for k in range(bands):
        first, centre, last = bins[k : k + 3]
        if first == centre:
            found[centre, k] = 1
        for j in range(first, centre + 1) if first != centre else ():
            found[j, k] = (j - first) / (centre - first)
        for j in range(centre, last):
            found[j, k] = (last - j) / (last - centre)
    return found


def _fourier(length: int, outputs: int, *, inverse: bool = False) -> Array:
    """The matrices (2, length, outputs) of the real and the imaginary part of a transform."""
    room(4, length, outputs)
    # Exact multiples first: the angle of a large product has no digits left.
    places = np.outer(np.arange(length), np.arange(outputs)) % length
    angle = 2 * math.pi * places / length
    scale = 1 / length if inverse else 1.0
    return scale * np.stack([np.cos(angle), np.sin(angle) if inverse else -np.sin(angle)])


def dft(
    b: Builder,
    x: Value,
    axis: int,
    length: int | None = None,
    *,
    inverse: bool = False,
    onesided: bool = False,
) -> Value:
    """The discrete Fourier transform along an axis; the last one has the real, imaginary parts.

    `onesided` is half of a spectrum, of the result or, if `inverse`, of `x`.
    """
    rank = x.type.rank
    parts, extent = x.shape[-1], x.shape[axis]
    if axis == rank - 1 or parts not in (1, 2):
        raise ModelError("DFT of {0} along {1}", x.type, axis)
    folded = inverse and onesided  # half of a spectrum, whose other half is its conjugate
    default = 2 * (extent - 1) if folded else extent
    length = default if length is None else length
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
    return b.add("transpose", y, axes=tuple(back))


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


def stft(
    b: Builder, x: Value, step: int, length: int, window: Value | None = None, *, onesided: bool
) -> Value:
    """Transforms of frames of (n, time) or (n, time, parts), `step` apart, below a window.

    It is a convolution with waves.
    """
    parts = x.shape[2] if x.type.rank == 3 else 1
    outputs = length // 2 + 1 if onesided else length
    real, imaginary = _fourier(length, outputs).transpose(0, 2, 1)
    rows = [np.stack([real, -imaginary][:parts], 1), np.stack([imaginary, real][:parts], 1)]
    waves = np.stack(rows, 1).reshape(2 * outputs, parts, length)
    weights: Value = b.constant(waves, x.dtype)
    if window is not None:
        weights = b.add("multiply", weights, reshaped(b, window, (length,)))
    signal = b.add("reshape", x, shape=(*x.shape[:2], parts))
    signal = b.add("transpose", signal, axes=(0, 2, 1))
    frames = Convolution((step,), (0,), (0,), (1,)).of(b, signal, weights)
    frames = b.add("transpose", frames, axes=(0, 2, 1))
    return b.add("reshape", frames, shape=(*frames.shape[:2], outputs, 2))
