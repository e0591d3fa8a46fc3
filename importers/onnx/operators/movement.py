"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank, room


@onnx_op("Reshape", since=5)
def reshape(b: Builder, node: OnnxNode) -> Value:
    x, wanted = node[0], node.integers(1) or ()
    kept = not node.attribute("allowzero", 0)
    shape = [x.shape[n] if e == 0 and kept and n < x.type.rank else e for n, e in enumerate(wanted)]
    if shape.count(-1) == 1:
        known = int(np.prod([e for e in shape if e != -1], dtype=object))
        shape[shape.index(-1)] = x.type.size // known if known else 0
    value: Value = b.add("reshape", x, shape=tuple(shape))
    return value


@onnx_op("Flatten")
def flatten(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    axis = node.attribute("axis", 1)
    axis = x.type.rank if axis == x.type.rank else in_rank(axis, x.type.rank)
    rows = int(np.prod(x.shape[:axis], dtype=object))
    value: Value = b.add("reshape", x, shape=(rows, x.type.size // max(rows, 1)))
    return value


def _axes(node: OnnxNode) -> tuple[int, ...] | None:
    return node.integers(1) if len(node.inputs) > 1 else node.attribute("axes")


@onnx_op("Squeeze")
def squeeze(b: Builder, node: OnnxNode) -> Value:
    x, axes = node[0], _axes(node)
    rank = x.type.rank
    places = (
        {in_rank(a, rank) for a in axes} if axes else {n for n, e in enumerate(x.shape) if e == 1}
    )
    if any(x.shape[p] != 1 for p in places):
        raise ModelError("axes {0} of {1} are not 1", sorted(places), x.type)
    shape = tuple(e for n, e in enumerate(x.shape) if n not in places)
    value: Value = b.add("reshape", x, shape=shape)
    return value


@onnx_op("Unsqueeze")
def unsqueeze(b: Builder, node: OnnxNode) -> Value:
    x, axes = node[0], _axes(node) or ()
    rank = x.type.rank + len(axes)
    places = {in_rank(a, rank) for a in axes}
    if len(places) < len(axes):
        raise ModelError("axes are {0}, one of them twice", axes)
    rest = iter(x.shape)
    shape = tuple(1 if n in places else next(rest) for n in range(rank))
    value: Value = b.add("reshape", x, shape=shape)
    return value


@onnx_op("Transpose")
def transpose(b: Builder, node: OnnxNode) -> Value:
    axes = node.attribute("perm") or tuple(reversed(range(node[0].type.rank)))
    if min(axes, default=0) < 0:
        raise ModelError("perm is {0}, whose axes count from the front", axes)
    value: Value = b.add("transpose", node[0], axes=tuple(axes))
    return value


@onnx_op("Concat")
def concat(b: Builder, node: OnnxNode) -> Value:
    parts = [node[n] for n in range(len(node.inputs))]
    if len(parts) == 1:
        return parts[0]
    axis = in_rank(node.attribute("axis", 1), parts[0].type.rank)
    value: Value = b.add("concatenate", *parts, axis=axis)
    return value


@onnx_op("Expand")
def expand(b: Builder, node: OnnxNode) -> Value:
    x, wanted = node[0], node.integers(1) or ()
    shape = np.broadcast_shapes(x.shape, wanted)
    if shape == x.shape:
        return x
    value: Value = b.add("broadcast_to", x, shape=shape)
    return value


@onnx_op("Slice")
def slice_by_attributes(b: Builder, node: OnnxNode) -> Value:
    starts, ends = node.attribute("starts"), node.attribute("ends")
    return _sliced(b, node[0], starts, ends, node.attribute("axes"), None)


@onnx_op("Slice", since=10)
def slice_(b: Builder, node: OnnxNode) -> Value:
    starts, ends = node.integers(1) or (), node.integers(2) or ()
    return _sliced(b, node[0], starts, ends, node.integers(3), node.integers(4))


def _sliced(
    b: Builder,
    x: Value,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Value:
    places = [range(e) for e in x.shape]
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = in_rank(axis, x.type.rank)
        places[axis] = range(x.shape[axis])[start:end:step]
    if all(p == range(e) for p, e in zip(places, x.shape, strict=True)):
        return x
    value: Value = b.add(
        "slice",
        x,
        starts=tuple(p.start if len(p) else 0 for p in places),
        steps=tuple(p.step for p in places),
        shape=tuple(map(len, places)),
    )
    return value


@onnx_op("Pad", since=11)
def pad(b: Builder, node: OnnxNode) -> Value:
    x, widths, axes = node[0], node.integers(1) or (), node.integers(3)
    fill, mode = node.get(2), node.attribute("mode", "constant")
    if fill is None or not fill.type.size or mode != "constant":
        return _padded(b, x, widths, axes, 0, mode)
    if isinstance(fill, Constant):
        return _padded(b, x, widths, axes, fill.data.reshape(-1)[0].item(), mode)
    inside = _padded(b, b.constant(np.ones(x.shape, bool)), widths, axes, 0, mode)
    own = _padded(b, x, widths, axes, 0, mode)
    value: Value = b.add("where", inside, own, b.add("reshape", fill, shape=()))
    return value


@onnx_op("Pad", since=2)
def pad_by_attributes(b: Builder, node: OnnxNode) -> Value:
    fill, mode = node.attribute("value", 0.0), node.attribute("mode", "constant")
    return _padded(b, node[0], node.attribute("pads"), None, fill, mode)


def _padded(
    b: Builder,
    x: Value,
    widths: tuple[int, ...],
    axes: tuple[int, ...] | None,
    fill: float,
    mode: str,
) -> Value:
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
        x = _sliced(b, x, starts, ends, None, None)
        before, after = [max(w, 0) for w in before], [max(w, 0) for w in after]
    if not any((*before, *after)):
        return x
    value: Value = b.add("pad", x, before=tuple(before), after=tuple(after), value=fill, mode=mode)
    return value


@onnx_op("Tile", since=6)
def tile(b: Builder, node: OnnxNode) -> Value:
    x, repeats = node[0], node.integers(1) or ()
    between = [e for pair in zip((1,) * x.type.rank, x.shape, strict=True) for e in pair]
    wide = [e for pair in zip(repeats, x.shape, strict=True) for e in pair]
    spread = b.add("broadcast_to", b.add("reshape", x, shape=tuple(between)), shape=tuple(wide))
    shape = tuple(e * n for e, n in zip(x.shape, repeats, strict=True))
    value: Value = b.add("reshape", spread, shape=shape)
    return value


@onnx_op("DepthToSpace")
def depth_to_space(b: Builder, node: OnnxNode) -> Value:
    x, block = node[0], node.attribute("blocksize")
    n, c, h, w = x.shape
    depth = c // (block * block)
    if node.attribute("mode", "DCR") == "DCR":
        shape, axes = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        shape, axes = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = b.add("transpose", b.add("reshape", x, shape=shape), axes=axes)
    value: Value = b.add("reshape", moved, shape=(n, depth, h * block, w * block))
    return value


@onnx_op("SpaceToDepth")
def space_to_depth(b: Builder, node: OnnxNode) -> Value:
    x, block = node[0], node.attribute("blocksize")
    n, c, h, w = x.shape
    parts = b.add("reshape", x, shape=(n, c, h // block, block, w // block, block))
    dcr = node.attribute("mode", "DCR") == "DCR"
    moved = b.add("transpose", parts, axes=(0, 3, 5, 1, 2, 4) if dcr else (0, 1, 3, 5, 2, 4))
    shape = (n, c * block * block, h // block, w // block)
    value: Value = b.add("reshape", moved, shape=shape)
    return value


@onnx_op("Split")
def split(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """Before opset 13 the lengths are an attribute; without lengths the last part is shorter."""
    x, count = node[0], len(node.outputs)
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    lengths = node.integers(1) or node.attribute("split")
    if node.attribute("num_outputs", count) != count:
        raise ModelError(
            "{0} outputs, and num_outputs is {1}", count, node.attribute("num_outputs")
        )
    if lengths is None:
        each = -(-x.shape[axis] // count)
        lengths = [max(min(each, x.shape[axis] - k * each), 0) for k in range(count)]
    if sum(lengths) != x.shape[axis] or min(lengths, default=0) < 0 or len(lengths) != count:
        raise ModelError(
            "{0} parts of {1} do not make {2} of {3}", count, list(lengths), x.shape[axis], x
        )
    parts: list[Value] = []
    start = 0
    for length in lengths:
        parts.append(_sliced(b, x, (start,), (start + length,), (axis,), None))
        start += length
    return parts


@onnx_op("Trilu")
def triangle(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    k = node.number(1) if node.get(1) is not None else 0
    rows, columns = x.shape[-2:]
    room(rows, columns)
    upper = node.attribute("upper", 1)
    mask = ~np.tri(rows, columns, k - 1, bool) if upper else np.tri(rows, columns, k, bool)
    value: Value = b.add("where", b.constant(mask), x, b.constant(0, x.dtype))
    return value


@onnx_op("CenterCropPad")
def center_crop_pad(b: Builder, node: OnnxNode) -> Value:
    x, wanted = node[0], node.integers(1) or ()
    axes = node.attribute("axes") or tuple(range(x.type.rank))
    for axis, extent in zip(axes, wanted, strict=True):
        axis = in_rank(axis, x.type.rank)
        own = x.shape[axis]
        if extent < own:
            start = (own - extent) // 2
            x = _sliced(b, x, (start,), (start + extent,), (axis,), None)
        elif extent > own:
            before = (extent - own) // 2
            x = _padded(b, x, (before, extent - own - before), (axis,), 0, "constant")
    return x


@onnx_op("ReverseSequence")
def reverse_sequence(b: Builder, node: OnnxNode) -> Value:
    """The places within the length of a sequence are counted from its end."""
    x, lengths = node[0], node[1]
    along, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)
    if {along, batch} != {0, 1}:
        raise Unsupported(Reason.ATTRIBUTE, f"time_axis={along}, batch_axis={batch}")
    steps, count = x.shape[along], x.shape[batch]
    place = b.constant(np.arange(steps).reshape(1, steps), "int64")
    ends = b.add("reshape", b.add("cast", lengths, dtype="int64"), shape=(count, 1))
    turned = b.add("subtract", b.add("subtract", ends, b.constant(1, "int64")), place)
    places = b.add("where", b.add("less", place, ends), turned, place)
    swap = (1, 0, *range(2, x.type.rank))
    rows = b.add("transpose", x, axes=swap) if along == 0 else x
    at = b.add("reshape", places, shape=(count, steps, 1))
    taken: Value = b.add("take_nd", rows, at, batch=1)
    return b.add("transpose", taken, axes=swap) if along == 0 else taken
