"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.compose import movement
from ....graph.compose.basics import in_rank
from ....graph.compose.movement import padded, sliced
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op


@onnx_op("Reshape", since=5)
def reshape(b: Builder, node: OnnxNode) -> Value:
    x, wanted = node[0], node.integers(1) or ()
    kept = not node.attribute("allowzero", 0)
    shape = [x.shape[n] if e == 0 and kept and n < x.type.rank else e for n, e in enumerate(wanted)]
    if shape.count(-1) == 1:
        known = int(np.prod([e for e in shape if e != -1], dtype=object))
        shape[shape.index(-1)] = x.type.size // known if known else 0
    return b.add("reshape", x, shape=tuple(shape))


@onnx_op("Flatten")
def flatten(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    axis = node.attribute("axis", 1)
    axis = x.type.rank if axis == x.type.rank else in_rank(axis, x.type.rank)
    rows = int(np.prod(x.shape[:axis], dtype=object))
    return b.add("reshape", x, shape=(rows, x.type.size // max(rows, 1)))


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
    return b.add("reshape", x, shape=shape)


@onnx_op("Unsqueeze")
def unsqueeze(b: Builder, node: OnnxNode) -> Value:
    x, axes = node[0], _axes(node) or ()
    rank = x.type.rank + len(axes)
    places = {in_rank(a, rank) for a in axes}
    if len(places) < len(axes):
        raise ModelError("axes are {0}, one of them twice", axes)
    rest = iter(x.shape)
    shape = tuple(1 if n in places else next(rest) for n in range(rank))
    return b.add("reshape", x, shape=shape)


@onnx_op("Transpose")
def transpose(b: Builder, node: OnnxNode) -> Value:
    axes = node.attribute("perm") or tuple(reversed(range(node[0].type.rank)))
    if min(axes, default=0) < 0:
        raise ModelError("perm is {0}, whose axes count from the front", axes)
    return b.add("transpose", node[0], axes=tuple(axes))


@onnx_op("Concat")
def concat(b: Builder, node: OnnxNode) -> Value:
    parts = [node[n] for n in range(len(node.inputs))]
    if len(parts) == 1:
        return parts[0]
    axis = in_rank(node.attribute("axis", 1), parts[0].type.rank)
    return b.add("concatenate", *parts, axis=axis)


@onnx_op("Expand")
def expand(b: Builder, node: OnnxNode) -> Value:
    x, wanted = node[0], node.integers(1) or ()
    shape = np.broadcast_shapes(x.shape, wanted)
    if shape == x.shape:
        return x
    return b.add("broadcast_to", x, shape=shape)


@onnx_op("Slice")
def slice_by_attributes(b: Builder, node: OnnxNode) -> Value:
    starts, ends = node.attribute("starts"), node.attribute("ends")
    return sliced(b, node[0], starts, ends, node.attribute("axes"), None)


@onnx_op("Slice", since=10)
def slice_(b: Builder, node: OnnxNode) -> Value:
    starts, ends = node.integers(1) or (), node.integers(2) or ()
    return sliced(b, node[0], starts, ends, node.integers(3), node.integers(4))


@onnx_op("Pad", since=11)
def pad(b: Builder, node: OnnxNode) -> Value:
    x, widths, axes = node[0], node.integers(1) or (), node.integers(3)
    fill, mode = node.get(2), node.attribute("mode", "constant")
    if fill is None or not fill.type.size or mode != "constant":
        return padded(b, x, widths, axes, mode=mode)
    return movement.padded_with(b, x, widths, axes, fill)


@onnx_op("Pad", since=2)
def pad_by_attributes(b: Builder, node: OnnxNode) -> Value:
    fill, mode = node.attribute("value", 0.0), node.attribute("mode", "constant")
    return padded(b, node[0], node.attribute("pads"), None, fill, mode)


@onnx_op("Tile", since=6)
def tile(b: Builder, node: OnnxNode) -> Value:
    return movement.tiled(b, node[0], node.integers(1) or ())


@onnx_op("DepthToSpace", "SpaceToDepth")
def blocks(b: Builder, node: OnnxNode) -> Value:
    to_space = node.operator == "DepthToSpace"
    move = movement.depth_to_space if to_space else movement.space_to_depth
    depth_first = node.attribute("mode", "DCR") != "DCR"
    return move(b, node[0], node.attribute("blocksize"), depth_first=depth_first)


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
        parts.append(sliced(b, x, (start,), (start + length,), (axis,), None))
        start += length
    return parts


@onnx_op("Trilu")
def triangle(b: Builder, node: OnnxNode) -> Value:
    k = node.number(1) if node.get(1) is not None else 0
    return movement.triangle(b, node[0], k, upper=bool(node.attribute("upper", 1)))


@onnx_op("CenterCropPad")
def center_crop_pad(b: Builder, node: OnnxNode) -> Value:
    x, wanted = node[0], node.integers(1) or ()
    axes = node.attribute("axes") or tuple(range(x.type.rank))
    for axis, extent in zip(axes, wanted, strict=True):
        x = movement.cropped_or_padded(b, x, axis, extent)
    return x


@onnx_op("ReverseSequence")
def reverse_sequence(b: Builder, node: OnnxNode) -> Value:
    along, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)
    if {along, batch} != {0, 1}:
        raise Unsupported(Reason.ATTRIBUTE, f"time_axis={along}, batch_axis={batch}")
    return movement.sequences_reversed(b, node[0], node[1], along=along)
