"""Movement: parts, borders, tiles, triangles, and what is chosen by indices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Constant, Value
from .basics import in_rank, reshaped, room


def sliced(
    b: Builder,
    x: Value,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Value:
    """The elements from `starts` to `ends` along some axes, by numpy's rules of slices."""
    places = [range(e) for e in x.shape]
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = in_rank(axis, x.type.rank)
        places[axis] = range(x.shape[axis])[start:end:step]
    if all(p == range(e) for p, e in zip(places, x.shape, strict=True)):
        return x
    return b.add(
        "slice",
        x,
        starts=tuple(p.start if len(p) else 0 for p in places),
        steps=tuple(p.step for p in places),
        shape=tuple(map(len, places)),
    )


def padded(
    b: Builder,
    x: Value,
    widths: Sequence[int],
    axes: Sequence[int] | None = None,
    fill: float = 0,
    mode: str = "constant",
) -> Value:
    """With borders along some axes: the widths before each, then those after; negative ones cut."""
    before, after = [0] * x.type.rank, [0] * x.type.rank
    axes = tuple(range(x.type.rank)) if axes is None else axes
    for n, given in enumerate(axes):
        axis = in_rank(given, x.type.rank)
        before[axis], after[axis] = widths[n], widths[n + len(axes)]
    cut = [min(w, 0) for w in before], [min(w, 0) for w in after]
    if any((*cut[0], *cut[1])):
        starts = tuple(-w for w in cut[0])
        ends = tuple(e + w for e, w in zip(x.shape, cut[1], strict=True))
        if any(end < start for start, end in zip(starts, ends, strict=True)):
            raise ModelError("{0} is cut by {1}", x.type, widths)
        x = sliced(b, x, starts, ends)
        before, after = [max(w, 0) for w in before], [max(w, 0) for w in after]
    if not any((*before, *after)):
        return x
    return b.add("pad", x, before=tuple(before), after=tuple(after), value=fill, mode=mode)


def padded_with(
    b: Builder, x: Value, widths: Sequence[int], axes: Sequence[int] | None, fill: Value
) -> Value:
    """With borders of a number that may not be known."""
    if isinstance(fill, Constant):
        return padded(b, x, widths, axes, fill.data.reshape(-1)[0].item())
    whole = b.add("broadcast_to", b.constant(True), shape=x.shape)
    inside = padded(b, whole, widths, axes)
    own = padded(b, x, widths, axes)
    return b.add("where", inside, own, reshaped(b, fill, ()))


def dilated(b: Builder, x: Value, steps: Sequence[int], fill: Value) -> Value:
    """The elements so many places apart along each dimension, with a fill between them."""
    rank = x.type.rank
    if all(step == 1 for step in steps) or not x.type.size:
        return x
    split = reshaped(b, x, [n for extent in x.shape for n in (extent, 1)])
    after = [n for step in steps for n in (0, step - 1)]
    split = padded_with(b, split, (*(0,) * 2 * rank, *after), None, fill)
    wide = [extent * step for extent, step in zip(x.shape, steps, strict=True)]
    spans = [(extent - 1) * step + 1 for extent, step in zip(x.shape, steps, strict=True)]
    return sliced(b, reshaped(b, split, wide), (0,) * rank, spans)


def reversed_(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """With the elements along some axes in the reverse order."""
    if not x.type.size:
        return x
    starts = [extent - 1 if d in axes else 0 for d, extent in enumerate(x.shape)]
    steps = [-1 if d in axes else 1 for d in range(x.type.rank)]
    return b.add("slice", x, starts=starts, steps=steps, shape=x.shape)


def cropped_or_padded(b: Builder, x: Value, axis: int, extent: int) -> Value:
    """The middle of an axis, or the axis in the middle of zeros."""
    axis = in_rank(axis, x.type.rank)
    own = x.shape[axis]
    if extent < own:
        start = (own - extent) // 2
        return sliced(b, x, (start,), (start + extent,), (axis,))
    if extent > own:
        before = (extent - own) // 2
        return padded(b, x, (before, extent - own - before), (axis,))
    return x


def tiled(b: Builder, x: Value, repeats: Sequence[int]) -> Value:
    """So often along each dimension."""
    between = [e for pair in zip((1,) * x.type.rank, x.shape, strict=True) for e in pair]
    many = [e for pair in zip(repeats, x.shape, strict=True) for e in pair]
    spread = b.add("broadcast_to", reshaped(b, x, between), shape=tuple(many))
    return reshaped(b, spread, [e * n for e, n in zip(x.shape, repeats, strict=True)])


def depth_to_space(b: Builder, x: Value, block: int, *, depth_first: bool = False) -> Value:
    """Channels as blocks of places; those of a block are neighbours if `depth_first`."""
    n, c, h, w = x.shape
    depth = c // (block * block)
    if depth_first:
        shape, axes = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    else:
        shape, axes = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    moved = b.add("transpose", reshaped(b, x, shape), axes=axes)
    return reshaped(b, moved, (n, depth, h * block, w * block))


def space_to_depth(b: Builder, x: Value, block: int, *, depth_first: bool = False) -> Value:
    """Blocks of places as channels; the other way of `depth_to_space`."""
    n, c, h, w = x.shape
    split = reshaped(b, x, (n, c, h // block, block, w // block, block))
    axes = (0, 1, 3, 5, 2, 4) if depth_first else (0, 3, 5, 1, 2, 4)
    shape = (n, c * block * block, h // block, w // block)
    return reshaped(b, b.add("transpose", split, axes=axes), shape)


def triangle(b: Builder, x: Value, k: int, *, upper: bool) -> Value:
    """The elements of matrices above or below diagonal `k`, and on it; the others are 0."""
    rows, columns = x.shape[-2:]
    # Computed from ranges, as a large triangle would be a large constant.
    room(rows)
    room(columns)
    own = b.constant(np.arange(rows).reshape(rows, 1) + min(max(k, -rows), columns), "int64")
    others = b.constant(np.arange(columns), "int64")
    sides = (own, others) if upper else (others, own)
    return b.add("where", b.add("less_equal", *sides), x, b.constant(0, x.dtype))


def sequences_reversed(b: Builder, x: Value, lengths: Value, *, along: int) -> Value:
    """Each sequence of a batch, its elements within its length counted from their end.

    The first two dimensions are the batch and, at `along`, the steps.
    """
    steps, count = x.shape[along], x.shape[1 - along]
    place = b.constant(np.arange(steps).reshape(1, steps), "int64")
    ends = reshaped(b, b.add("cast", lengths, dtype="int64"), (count, 1))
    turned = b.add("subtract", b.add("subtract", ends, b.constant(1, "int64")), place)
    places = b.add("where", b.add("less", place, ends), turned, place)
    swap = (1, 0, *range(2, x.type.rank))
    rows = b.add("transpose", x, axes=swap) if along == 0 else x
    taken = b.add("take_nd", rows, reshaped(b, places, (count, steps, 1)), batch=1)
    return b.add("transpose", taken, axes=swap) if along == 0 else taken


def taken(b: Builder, x: Value, indices: Value, axis: int, *, negative: bool = True) -> Value:
    """The elements at indices along an axis: a slice where known indices are one."""
    if not indices.type.size:
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return b.add("broadcast_to", b.constant(0, x.dtype), shape=shape)
    if isinstance(indices, Constant):
        found = _as_slice(b, x, indices, axis, negative=negative)
        if found is not None:
            return found
    return b.add("take", x, indices, axis=axis, negative=negative)


def _as_slice(
    b: Builder, x: Value, indices: Constant, axis: int, *, negative: bool
) -> Value | None:
    """Elements at known indices that are a slice, as one."""
    extent = x.shape[axis]
    least = -extent if negative else 0
    if not all(least <= i < extent for i in indices.data.reshape(-1)):
        return None  # for the operator to refuse
    flat = [int(i) % extent for i in indices.data.reshape(-1)]
    steps = {q - p for p, q in pairwise(flat)} or {1}
    if len(steps) > 1 or not flat or steps == {0}:
        return None
    starts, strides, shape = [0] * x.type.rank, [1] * x.type.rank, list(x.shape)
    starts[axis], strides[axis], shape[axis] = flat[0], steps.pop(), len(flat)
    part = b.add("slice", x, starts=tuple(starts), steps=tuple(strides), shape=tuple(shape))
    final = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return b.add("reshape", part, shape=final)


def written(
    b: Builder, past: Value, update: Value, first: Value | None, axis: int, *, circular: bool
) -> Value:
    """Updates of each sequence of a batch from its own place on, which may go round."""
    shape = [1] * past.type.rank
    shape[axis] = update.shape[axis]
    places: Value = b.constant(np.arange(update.shape[axis]).reshape(shape), "int64")
    if first is not None:
        batch = (past.shape[0], *(1 for _ in past.shape[1:]))
        begin = b.add("reshape", b.add("cast", first, dtype="int64"), shape=batch)
        places = b.add("add", places, begin)
    if circular:
        extent = b.constant(past.shape[axis], "int64")
        laps = b.add("multiply", b.add("divide", places, extent), extent)
        places = b.add("subtract", places, laps)
    at = b.add("broadcast_to", places, shape=update.shape)
    return b.add("scatter", past, at, update, axis=axis, reduction="none")


def one_hot(b: Builder, indices: Value, depth: int, values: Value, axis: int) -> Value:
    """Along a new axis the second of two values at the index, and the first elsewhere.

    Indices that are out of range have no place; they may be floats.
    """
    rank = indices.type.rank + 1
    room(depth)
    wide = indices.dtype if indices.dtype in ("float32", "float64") else "int64"
    own = b.add("cast", indices, dtype=wide)
    counted = b.add("add", own, b.constant(depth, wide))
    own = b.add("where", b.add("less", own, b.constant(0, wide)), counted, own)
    spread = b.add("reshape", own, shape=(*indices.shape[:axis], 1, *indices.shape[axis:]))
    places = np.arange(depth).reshape(depth, *(1 for _ in range(rank - axis - 1)))
    off, on = (
        b.add("reshape", b.add("slice", values, starts=(k,), steps=(1,), shape=(1,)), shape=())
        for k in range(2)
    )
    return b.add("where", b.add("equal", spread, b.constant(places, wide)), on, off)
