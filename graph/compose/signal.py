"""Signals: windows that are known, and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import numpy as np

from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value
from ..operator import Array
from ..operators.fourier import radices, twiddles
from .basics import part, reshaped, room

_MOST, _MOST_OF_FEW = 4096, 256
"""The longest transforms that are one kernel: of many at once, and of few."""
_MOST_OF_MATRIX = 64
"""The longest transforms of a prime length that are products with their matrix."""
_LANES = 8
"""Transforms that fill a vector."""


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
    if length < 1:
        raise ModelError("DFT of {0} elements", length)
    x = _fitted(b, x, axis, length // 2 + 1 if folded else length)
    own = _first(b, x, axis)
    if folded:
        y = _real_of_half(b, own, length)
    elif parts == 1 and not inverse:
        y = _half_of_real(b, own)
        y = y if onesided else mirrored(b, y, length)
    else:
        y = _of_complex(b, _as_complex(b, own), inverse=inverse)
        y = part(b, y, 0, 0, length // 2 + 1) if onesided else y
    return _back(b, y, axis, x.shape)


def _first(b: Builder, x: Value, axis: int) -> Value:
    """(extent, parts, lanes): an axis and the parts in front of all other dimensions."""
    extent, parts = x.shape[axis], x.shape[-1]
    lanes = x.type.size // max(extent * parts, 1)
    if axis == x.type.rank - 2:  # as a matrix, whose transpose is fast
        turned = b.add("transpose", reshaped(b, x, (lanes, extent * parts)), axes=(1, 0))
    else:
        order = [d for d in range(x.type.rank - 1) if d != axis]
        turned = b.add("transpose", x, axes=(axis, x.type.rank - 1, *order))
    return reshaped(b, turned, (extent, parts, lanes))


def _back(b: Builder, y: Value, axis: int, shape: Sequence[int]) -> Value:
    """The inverse of `_first`; only that axis, and the parts, may have another extent."""
    extent, parts, lanes = y.shape
    rank = len(shape)
    order = [d for d in range(rank - 1) if d != axis]
    others = [shape[d] for d in order]
    if axis == rank - 2:
        turned = b.add("transpose", reshaped(b, y, (extent * parts, lanes)), axes=(1, 0))
        return reshaped(b, turned, (*others, extent, parts))
    order = [axis, rank - 1, *order]
    own = reshaped(b, y, (extent, parts, *others))
    return b.add("transpose", own, axes=[order.index(d) for d in range(rank)])


def _as_complex(b: Builder, x: Value) -> Value:
    """Numbers (n, 1, lanes) as complex ones (n, 2, lanes)."""
    if x.shape[1] == 2:
        return x
    zeros = b.add("broadcast_to", b.constant(0, x.dtype), shape=x.shape)
    return b.add("concatenate", x, zeros, axis=1)


def mirrored(b: Builder, half: Value, length: int) -> Value:
    """All of a spectrum of real elements (n, 2, lanes), given half of it."""
    _, _, lanes = half.shape
    rest = length - half.shape[0]
    if not rest:
        return half
    shape = (rest, 2, lanes)
    back = b.add("slice", half, starts=(rest, 0, 0), steps=(-1, 1, 1), shape=shape)
    conjugate = b.add("multiply", back, b.constant([[1], [-1]], half.dtype))
    return b.add("concatenate", half, conjugate, axis=0)


def _half_of_real(b: Builder, x: Value) -> Value:
    """Half of the spectrum (length / 2 + 1, 2, lanes) of (length, 1, lanes)."""
    length, _, lanes = x.shape
    if length % 2 or not _has_stages(length // 2, lanes):
        return part(b, _of_complex(b, _as_complex(b, x)), 0, 0, length // 2 + 1)
    own = reshaped(b, x, (length, lanes))
    return _by_stages(b, own, length, "of_real")


def _real_of_half(b: Builder, x: Value, length: int) -> Value:
    """The inverse of `_half_of_real`."""
    half = _as_complex(b, x)
    lanes = x.shape[2]
    if length % 2 or not _has_stages(length // 2, lanes):
        whole = _of_complex(b, mirrored(b, half, length), inverse=True)
        return part(b, whole, 1, 0, 1)
    return reshaped(b, _by_stages(b, half, length, "to_real", 1 / length), (length, 1, lanes))


def _has_stages(length: int, lanes: int) -> bool:
    """Whether one kernel has a transform: of factors that it has, in the cache."""
    smooth = radices(length) is not None
    return smooth and length <= (_MOST if lanes >= _LANES else _MOST_OF_FEW)


def _of_complex(b: Builder, x: Value, *, inverse: bool = False) -> Value:
    """Transforms along the first dimension of (length, 2, lanes), by the way that is fastest."""
    length, _, lanes = x.shape
    if _has_stages(length, lanes):
        scale = 1 / length if inverse else 1.0
        return _by_stages(b, x, length, "complex", scale, inverse=inverse)
    first = _divisor(length)
    if first > 1:
        return _by_steps(b, x, first, inverse=inverse)
    return (_by_chirps if length > _MOST_OF_MATRIX else _by_product)(b, x, inverse=inverse)


def _by_stages(
    b: Builder, x: Value, length: int, form: str, scale: float = 1.0, *, inverse: bool = False
) -> Value:
    factors = b.constant(twiddles(length, form), x.dtype)
    return b.add("fourier", x, factors, length=length, form=form, inverse=inverse, scale=scale)


def _divisor(length: int) -> int:
    """The smaller factor of a length, as close to its root as there is one."""
    return max(d for d in range(1, math.isqrt(length) + 1) if length % d == 0)


def _by_steps(b: Builder, x: Value, first: int, *, inverse: bool) -> Value:
    """Transforms of the two factors of a length, with a rotation between them.

    Element `second * j + i` is at (j, i), result `k + first * l` at (l, k).
    """
    length, _, lanes = x.shape
    second = length // first
    own = reshaped(b, x, (first, second, 2, lanes))
    own = reshaped(b, b.add("transpose", own, axes=(0, 2, 1, 3)), (first, 2, second * lanes))
    own = _of_complex(b, own, inverse=inverse)
    turns = np.outer(np.arange(first), np.arange(second)) / length
    own = _scaled(b, reshaped(b, own, (first, 2, second, lanes)), _turns(turns, inverse=inverse))
    own = reshaped(b, b.add("transpose", own, axes=(2, 1, 0, 3)), (second, 2, first * lanes))
    own = _of_complex(b, own, inverse=inverse)
    own = b.add("transpose", reshaped(b, own, (second, 2, first, lanes)), axes=(0, 2, 1, 3))
    return reshaped(b, own, (length, 2, lanes))


def _scaled(b: Builder, x: Value, factors: Array) -> Value:
    """(count, 2, ...) times complex numbers, one for each of the first dimension, or more."""
    rest = (1,) * (x.type.rank - 1 - factors.ndim)
    first, *others = factors.shape
    real = factors.real.reshape(first, 1, *others, *rest)
    imag = factors.imag.reshape(first, 1, *others, *rest)
    starts, steps = [0] * x.type.rank, [1] * x.type.rank
    starts[1], steps[1] = 1, -1
    turned = b.add("slice", x, starts=starts, steps=steps, shape=x.shape)
    own = b.add("multiply", x, b.constant(real, x.dtype))
    other = b.constant(np.concatenate([-imag, imag], 1), x.dtype)
    return b.add("add", own, b.add("multiply", turned, other))


def _turns(turns: Array, *, inverse: bool) -> Array:
    """e(-x), or of an inverse e(x), of so many turns."""
    return np.asarray(np.exp((2j if inverse else -2j) * math.pi * turns))


def _by_chirps(b: Builder, x: Value, *, inverse: bool) -> Value:
    """As a convolution with a chirp, by transforms of a length that has stages (Bluestein's)."""
    length = x.shape[0]
    size = next(n for n in count(2 * length - 1) if radices(n) is not None)
    chirp = _turns(np.arange(length) ** 2 % (2 * length) / (2 * length), inverse=inverse)
    wave = np.zeros(size, complex)
    wave[:length] = chirp.conj()
    wave[size - length + 1 :] = chirp.conj()[:0:-1]
    own = b.add("pad", _scaled(b, x, chirp), before=(0, 0, 0), after=(size - length, 0, 0))
    own = _scaled(b, _of_complex(b, own), np.fft.fft(wave))
    own = part(b, _of_complex(b, own, inverse=True), 0, 0, length)
    return _scaled(b, own, chirp / length if inverse else chirp)


def _by_product(b: Builder, x: Value, *, inverse: bool) -> Value:
    """Products with the matrix of a transform."""
    length, _, lanes = x.shape
    real, imaginary = _fourier(length, length, inverse=inverse)
    # (outputs, part of the output, inputs, part of the input)
    rows = [np.stack([real, -imaginary], -1), np.stack([imaginary, real], -1)]
    matrix = np.stack(rows, 1).reshape(2 * length, 2 * length)
    own = reshaped(b, x, (2 * length, lanes))
    return reshaped(b, b.add("matmul", b.constant(matrix, x.dtype), own), x.shape)


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
    """Transforms of frames of (n, time) or (n, time, parts), `step` apart, below a window."""
    parts = x.shape[2] if x.type.rank == 3 else 1
    signal = reshaped(b, x, (*x.shape[:2], parts))
    frames = b.add("windows", signal, axis=1, size=length, step=step)
    if window is not None:
        frames = b.add("multiply", frames, reshaped(b, window, (length, 1)))
    return dft(b, frames, 2, onesided=onesided)
