"""Operators that move elements, and those that read or write them at places that data decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base import dtypes
from ....graph.ir import Constant, Node
from ..writer import Writer, writes


@writes("reshape")
def reshape(w: Writer, node: Node, x: str) -> str:
    return w.reshape(x, node.output.shape)


@writes("transpose")
def transpose(w: Writer, node: Node, x: str) -> str:
    axes: Any = node.attributes["axes"]
    return w.transpose(x, axes)


@writes("broadcast_to")
def broadcast_to(w: Writer, node: Node, x: str) -> str:
    return w.add("Expand", x, w.integers(node.output.shape))


@writes("concatenate")
def concatenate(w: Writer, node: Node, *inputs: str) -> str:
    return w.add("Concat", *inputs, axis=node.attributes["axis"])


@writes("slice")
def slice_(w: Writer, node: Node, x: str) -> str:
    """The end of a slice that goes backwards to the first element counts from far behind it."""
    a: Any = node.attributes
    cut = list[tuple[int, int, int, int]]()
    for axis, (start, step, count, extent) in enumerate(
        zip(a["starts"], a["steps"], a["shape"], node.inputs[0].shape, strict=True)
    ):
        if count == 0:
            cut.append((axis, 0, 0, 1))
        elif step == 0 and count > 1:
            x = w.add("Gather", x, w.integers([start] * count), axis=axis)
        elif count != extent or step != 1:
            last = start + step * (count - 1)
            cut.append((axis, start, last + 1 if step >= 0 else last - 1, step or 1))
    if not cut:
        return x
    ends = [end if end >= 0 else -(1 << 62) for _, _, end, _ in cut]
    axes, starts, _, steps = zip(*cut, strict=True)
    return w.add("Slice", x, *map(w.integers, (starts, ends, axes, steps)))


@writes("pad")
def pad(w: Writer, node: Node, x: str) -> str:
    a: Any = node.attributes
    widths = w.integers((*a["before"], *a["after"]))
    if a["mode"] == "constant":
        return w.add("Pad", x, widths, w.constant(np.asarray(a["value"]), node.output.dtype))
    since = 19 if a["mode"] == "wrap" else 0
    return w.add("Pad", x, widths, mode=a["mode"], since=since)


@writes("take")
def take(w: Writer, node: Node, x: str, indices: str) -> str:
    axis: Any = node.attributes["axis"]
    places = _places(w, node, indices, node.inputs[0].shape[axis])
    return w.add("Gather", x, places, axis=axis)


def _places(w: Writer, node: Node, indices: str, extents: int | Sequence[int]) -> str:
    """Indices as ONNX takes them: negative ones that do not count are beyond the dimension."""
    places, given = w.cast(indices, "int64"), node.inputs[1]
    known = isinstance(given, Constant) or dtypes.int_limits(given.dtype)[0] == 0
    if node.attributes["negative"] or known:
        return places
    below = w.add("Less", places, w.constant(0, "int64"))
    return w.add("Where", below, w.constant(extents, "int64"), places)


@writes("windows")
def windows(w: Writer, node: Node, x: str) -> str:
    a: Any = node.attributes
    axis = a["axis"]
    places = a["step"] * np.arange(node.output.shape[axis])[:, None] + np.arange(a["size"])
    return w.add("Gather", x, w.constant(places, "int64"), axis=axis)


@writes("take_along")
def take_along(w: Writer, node: Node, x: str, indices: str) -> str:
    axis: Any = node.attributes["axis"]
    places = _places(w, node, indices, node.inputs[0].shape[axis])
    return w.add("GatherElements", x, places, axis=axis)


@writes("take_nd")
def take_nd(w: Writer, node: Node, x: str, indices: str) -> str:
    batch: Any = node.attributes["batch"]
    extents = node.inputs[0].shape[batch : batch + node.inputs[1].shape[-1]]
    return w.add("GatherND", x, _places(w, node, indices, extents), batch_dims=batch)


@writes("scatter")
def scatter(w: Writer, node: Node, x: str, indices: str, updates: str) -> str:
    axis: Any = node.attributes["axis"]
    places = _places(w, node, indices, node.inputs[0].shape[axis])
    reduction = node.attributes["reduction"]
    return w.add("ScatterElements", x, places, updates, axis=axis, reduction=reduction)


@writes("scatter_nd")
def scatter_nd(w: Writer, node: Node, x: str, indices: str, updates: str) -> str:
    places = _places(w, node, indices, node.inputs[0].shape[: node.inputs[1].shape[-1]])
    return w.add("ScatterND", x, places, updates, reduction=node.attributes["reduction"])


@writes("resize_nearest")
def resize_nearest(w: Writer, node: Node, x: str) -> str:
    """Elements at known places along one dimension after the other."""
    a: Any = node.attributes
    for axis, ((m, s, d), count) in enumerate(zip(a["scales"], a["shape"], strict=True)):
        places = (m * np.arange(count) + s) // d
        if not np.array_equal(places, np.arange(node.inputs[0].shape[axis])):
            x = w.add("Gather", x, w.integers(places), axis=axis)
    return x


@writes("interleave")
def interleave(w: Writer, node: Node, x: str) -> str:
    a: Any = node.attributes
    n, channels, *extents = node.inputs[0].shape
    rank = len(extents)
    own = channels // int(np.prod(a["factors"]))
    split = w.reshape(x, (n, own, *a["factors"], *extents))
    order = [0, 1, *(d for p in range(rank) for d in (2 + rank + p, 2 + p))]
    whole = [e * f for e, f in zip(extents, a["factors"], strict=True)]
    moved = w.reshape(w.transpose(split, order), (n, own, *whole))
    if list(a["shape"]) == whole:
        return moved
    ends = [s + e for s, e in zip(a["starts"], a["shape"], strict=True)]
    axes = range(2, 2 + rank)
    return w.add("Slice", moved, *map(w.integers, (a["starts"], ends, axes)))


@writes("resample")
def resample(w: Writer, node: Node, x: str, places: str, weights: str) -> str:
    """Sums of the elements at some places times their weights."""
    axis: Any = node.attributes["axis"]
    dtype = node.output.dtype
    wide = dtype if dtype in ("float32", "float64") else "float32"
    taken = w.add("Gather", w.cast(x, wide), w.cast(places, "int64"), axis=axis)
    size, count = node.inputs[1].shape
    rest = node.output.type.rank - axis - 1
    factors = w.reshape(w.cast(weights, wide), (size, count, *(1,) * rest))
    product = w.add("Mul", taken, factors)
    return w.cast(w.add("ReduceSum", product, w.integers([axis + 1]), keepdims=0), dtype)


@writes("asserted")
def asserted(w: Writer, node: Node, x: str, violations: str) -> str:
    """The only one of its kind at a place that has to be 0."""
    place = w.add("ReduceMax", w.add("Abs", w.cast(violations, "int64")), keepdims=0)
    return w.add("Gather", w.reshape(x, (1, *node.output.shape)), place, axis=0)


@writes("grid_sample")
def grid_sample(w: Writer, node: Node, x: str, grid: str) -> str:
    a: Any = node.attributes
    return w.add(
        "GridSample", x, grid, mode=a["mode"], padding_mode=a["padding"],
        align_corners=int(a["align"]),
    )  # fmt: skip


@writes("roi_align")
def roi_align(w: Writer, node: Node, x: str, rois: str, batches: str) -> str:
    a: Any = node.attributes
    return w.add(
        "RoiAlign", x, rois, w.cast(batches, "int64"),
        mode="max" if a["largest"] else "avg", sampling_ratio=a["samples"],
        output_height=a["size"][0], output_width=a["size"][1], spatial_scale=a["scale"],
        coordinate_transformation_mode="half_pixel" if a["half"] else "output_half_pixel",
    )  # fmt: skip
