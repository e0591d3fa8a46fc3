"""Pooling, and resizing by places and weights that are known, one dimension after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value
from ..operator import Array
from .basics import cast_to, reshaped, room, wide


@dataclass(frozen=True)
class Window:
    """The attributes of pooling, for each spatial dimension; `before` and `after` pad it."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilations: tuple[int, ...]

    def of(self, b: Builder, operator: str, x: Value) -> Value:
        return b.add(operator, x, **vars(self))

    def with_last(self, extents: Sequence[int]) -> Window:
        """With more padding after, so that a last window that starts inside fits."""
        after = list(self.after)
        for n, e in enumerate(extents):
            k, s, d = self.kernel[n], self.strides[n], self.dilations[n]
            span = (k - 1) * d + 1
            last = -(-(e + self.before[n] + self.after[n] - span) // s)
            last -= last * s >= e + self.before[n]
            after[n] = max(last * s + span - e - self.before[n], 0)
        return replace(self, after=tuple(after))

    def counts(
        self, extents: Sequence[int], declared: Window, *, count_padding: bool = False
    ) -> Array:
        """How many elements each window holds, of those that are counted.

        These are the elements, or with `count_padding` those of the padding that is `declared` too.
        """
        result = np.ones((), np.float64)
        for n, e in enumerate(extents):
            k, s, d = self.kernel[n], self.strides[n], self.dilations[n]
            outputs = (self.before[n] + e + self.after[n] - (k - 1) * d - 1) // s + 1
            room(outputs, k)
            places = np.arange(outputs)[:, None] * s + np.arange(k) * d
            low, high = self.before[n], self.before[n] + e
            if count_padding:
                low, high = 0, high + declared.after[n]
            inside = ((places >= low) & (places < high)).sum(1)
            room(result.size, outputs)
            result = result[..., None] * inside
        return result


def average_pool(
    b: Builder, x: Value, declared: Window, *, ceil: bool, count_padding: bool
) -> Value:
    """Sums of windows over the counts, which are known (see `Window.counts`)."""
    window = declared.with_last(x.shape[2:]) if ceil else declared
    counts = window.counts(x.shape[2:], declared, count_padding=count_padding)
    total = window.of(b, "sum_pool", cast_to(b, x, wide(x)))
    if counts.min() == counts.max():
        counts = counts.reshape(-1)[:1].reshape(())
    mean = b.add("multiply", total, b.constant(1 / counts, wide(x)))
    return cast_to(b, mean, x.dtype)


def largest(b: Builder, x: Value, along: Sequence[Array]) -> tuple[Value, Value]:
    """The largest element of windows of the last dimensions, and its place in all of these.

    `along` has for each of them the places (outputs, kernel) that a window sees, -1 for none.
    """
    rank = len(along)
    first = x.type.rank - rank
    extents, sizes = x.shape[first:], [len(places) for places in along]
    room(math.prod(x.shape[:first]), *(places.size for places in along))
    flat = np.zeros((1,) * 2 * rank, np.int64)
    known = np.ones((1,) * 2 * rank, bool)
    for d, places in enumerate(along):
        shape = [1] * 2 * rank
        shape[d], shape[rank + d] = places.shape
        flat = flat * extents[d] + np.maximum(places, 0).reshape(shape)
        known = known & (places >= 0).reshape(shape)
    flat, known = (a.reshape(math.prod(sizes), -1) for a in np.broadcast_arrays(flat, known))
    rows = reshaped(b, x, (*x.shape[:first], math.prod(extents)))
    seen = b.add("take", rows, b.constant(flat, "int64"), axis=first)
    if not known.all():
        least = b.constant(dtypes.extremes(x.dtype)[0], x.dtype)
        seen = b.add("where", b.constant(known), seen, least)
    last = seen.type.rank - 1
    chosen = b.add("argmax", seen, axis=last, keepdims=True)
    count = b.constant(np.arange(flat.shape[1]), "int64")
    is_chosen, zero = b.add("equal", chosen, count), b.constant(0, "int64")
    own = b.add("where", is_chosen, b.constant(flat, "int64"), zero)
    found = b.add("max", seen, axes=(last,)), b.add("sum", own, axes=(last,))
    value, place = (reshaped(b, v, (*x.shape[:first], *sizes)) for v in found)
    return value, place


def adaptive_bounds(extent: int, size: int) -> tuple[Array, Array]:
    """Where each of so many parts of an extent, which may overlap, starts and ends."""
    places = np.arange(size) * extent
    return places // size, -(-(places + extent) // size)


def lp_pool(b: Builder, x: Value, p: int, window: Window | None) -> Value:
    """`sum(abs(x) ** p) ** (1 / p)` of each window, or of all spatial dimensions."""

    def total(terms: Value) -> Value:
        if window is not None:
            return window.of(b, "sum_pool", terms)
        return b.add("sum", terms, axes=tuple(range(2, x.type.rank)), keepdims=True)

    own = b.add("abs", cast_to(b, x, wide(x)))
    if p == 1:
        return cast_to(b, total(own), x.dtype)
    if p == 2:
        return cast_to(b, b.add("sqrt", total(b.add("multiply", own, own))), x.dtype)
    powers = total(b.add("power", own, b.constant(p, wide(x))))
    return cast_to(b, b.add("power", powers, b.constant(1 / p, wide(x))), x.dtype)


def unpooled(b: Builder, x: Value, places: Value, shape: Sequence[int]) -> Value:
    """Zeros of a shape, but for the elements at their places of the whole tensor."""
    zeros = b.add("broadcast_to", b.constant(0, x.dtype), shape=(math.prod(shape),))
    flat = [reshaped(b, v, (v.type.size,)) for v in (places, x)]
    return reshaped(b, b.add("scatter", zeros, *flat, axis=0, reduction="none"), shape)


def affine_grid(b: Builder, theta: Value, shape: Sequence[int], *, align: bool) -> Value:
    """A known grid of (n, c, *extents), whose places are homogeneous, times the matrices."""
    extents = shape[2:]
    if theta.shape != (shape[0], len(extents), len(extents) + 1):
        raise ModelError("an affine grid of {0} for {1}", theta.type, shape)
    room(*extents)
    sides = [np.linspace(-1, 1, e) if align else (2 * np.arange(e) + 1) / e - 1 for e in extents]
    places = np.stack([*np.meshgrid(*sides, indexing="ij")][::-1], -1).reshape(-1, len(extents))
    whole = np.concatenate([places, np.ones((len(places), 1))], 1)
    grid = b.add("matmul", b.constant(whole, theta.dtype), theta, transpose_b=True)
    return reshaped(b, grid, (shape[0], *extents, len(extents)))


@dataclass(frozen=True)
class Along:
    """One dimension: its extents, the scale between them, and the part that is resized."""

    axis: int
    extent: int
    size: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def length(self) -> float:
        return self.scale * self.extent

    @property
    def last(self) -> int:
        return self.extent - 1


def _cropped(a: Along, y: Array) -> Array:
    start, end = a.roi
    if a.length == 1:
        return y * 0 + (end - start) * a.last / 2 + start * a.last
    return y * ((end - start) * a.last / (a.length - 1)) + start * a.last


def _symmetric(a: Along, y: Array) -> Array:
    return a.extent / 2 * (1 - a.size / a.length) + (y + 0.5) / a.scale - 0.5


CROP = "tf_crop_and_resize"
COORDINATES: dict[str, Callable[[Along, Array], Array]] = {
    "asymmetric": lambda a, y: y / a.scale,
    "align_corners": lambda a, y: y * (a.last / (a.length - 1)) if a.length != 1 else y * 0,
    "half_pixel": lambda a, y: (y + 0.5) / a.scale - 0.5,
    "pytorch_half_pixel": lambda a, y: (y + 0.5) / a.scale - 0.5 if a.length != 1 else y * 0 - 0.5,
    "tf_half_pixel_for_nn": lambda a, y: (y + 0.5) / a.scale,
    "half_pixel_symmetric": _symmetric,
    CROP: _cropped,
}
"""Where in `x` element `y` of the result is."""

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda w: np.asarray(np.ceil(w - 0.5)),
    "round_prefer_ceil": lambda w: np.asarray(np.floor(w + 0.5)),
}
"""Which element is the nearest."""


@dataclass(frozen=True)
class Kernel:
    """How elements are weighted by their distance; `cubic` is the coefficient of cubic weights.

    `antialias` stretches the weights where a dimension shrinks; `exclude_outside` leaves out places
    that are not there, which are else those at the border.
    """

    cubic: float | None = None
    antialias: bool = False
    exclude_outside: bool = False


def resized(
    b: Builder,
    x: Value,
    along: Sequence[Along],
    *,
    coordinates: str = "half_pixel",
    kernel: Kernel | None = None,
    rounding: Callable[[Along], str] = lambda _: "round_prefer_floor",
    outside: float = 0.0,
) -> Value:
    """Of other extents along some dimensions, by weights, or without a kernel by the nearest.

    `coordinates` is one of `COORDINATES`; `rounding` says which of `ROUNDINGS` a dimension takes,
    and `outside` what is outside of the part that is cut out.
    """
    result = x
    changed = [a for a in along if (a.size, a.scale) != (a.extent, 1) or coordinates == CROP]
    where = dict[int, Array]()
    for a in changed:
        room(a.size)
        where[a.axis] = COORDINATES[coordinates](a, np.arange(a.size, dtype=np.float64))
    if kernel is None:
        places = {}
        for a in changed:
            rounded = ROUNDINGS[rounding(a)](where[a.axis])
            places[a.axis] = np.clip(rounded, 0, a.last).astype(np.int64)
        result = nearest(b, x, places)
    else:
        result = cast_to(b, x, wide(x))
        for a in sorted(changed, key=lambda a: (a.size / a.extent, -a.axis)):
            found, weights = _weights(where[a.axis], a, kernel)
            result = b.add(
                "resample", result, b.constant(found, "int32"), b.constant(weights, wide(x)),
                axis=a.axis,
            )  # fmt: skip
        result = cast_to(b, result, x.dtype)
    if coordinates == CROP:
        missing = np.zeros((1,) * x.type.rank, bool)
        for a in changed:
            own = (where[a.axis] < 0) | (where[a.axis] > a.last)
            missing = missing | own.reshape([-1 if d == a.axis else 1 for d in range(x.type.rank)])
        if missing.any():
            result = b.add("where", b.constant(missing), b.constant(outside, x.dtype), result)
    return result


def nearest(b: Builder, x: Value, places: Mapping[int, Array]) -> Value:
    """The elements at known places along some dimensions: by a formula where there is one."""
    scales, shape = [(1, 0, 1)] * x.type.rank, list(x.shape)
    rest = dict[int, Array]()
    for axis, own in places.items():
        scale = _formula(own, x.shape[axis])
        if scale is None:
            rest[axis] = own
        else:
            scales[axis], shape[axis] = scale, len(own)
    value = x
    if shape != list(x.shape) or any(s != (1, 0, 1) for s in scales):
        value = b.add("resize_nearest", x, scales=tuple(scales), shape=tuple(shape))
    for axis, own in rest.items():
        value = b.add("take", value, b.constant(own, "int32"), axis=axis)
    return value


def _formula(places: Array, extent: int) -> tuple[int, int, int] | None:
    """Numbers (m, s, d) such that place i is `(i * m + s) // d`, if there are small ones."""
    size = len(places)
    common = math.gcd(extent, size)
    i = np.arange(size)
    for times in (1, 2):
        m, d = times * extent // common, times * size // common
        if d > 64:
            return None
        for s in range(int(places[0]) * d, int(places[0] + 1) * d):
            if ((i * m + s) // d == places).all():
                return m, s, d
    return None


def _weights(where: Array, along: Along, kernel: Kernel) -> tuple[Array, Array]:
    """The places (size, taps) that each element reads, and their weights."""
    stretch = min(along.scale, 1.0) if kernel.antialias else 1.0
    reach = math.ceil((1 if kernel.cubic is None else 2) / stretch)
    room(len(where), 2 * reach)
    places = np.floor(where)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(places - where[:, None]) * stretch
    if kernel.cubic is None:
        weights = np.maximum(1 - distance, 0)
    else:
        a = kernel.cubic
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    inside = (places >= 0) & (places < along.extent)
    if kernel.exclude_outside:
        weights = weights * inside
    if kernel.exclude_outside or kernel.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    kept = weights.any(0)
    places = np.clip(places, 0, along.extent - 1).astype(np.int64)
    return places[:, kept], weights[:, kept]
