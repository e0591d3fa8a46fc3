"""Operators that move elements."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, onnx_op


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
    axis = axis + x.type.rank if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis], dtype=object))
    value: Value = b.add("reshape", x, shape=(rows, x.type.size // max(rows, 1)))
    return value


def _axes(node: OnnxNode) -> tuple[int, ...] | None:
    return node.integers(1) if len(node.inputs) > 1 else node.attribute("axes")


@onnx_op("Squeeze")
def squeeze(b: Builder, node: OnnxNode) -> Value:
    x, axes = node[0], _axes(node)
    rank = x.type.rank
    places = {a % rank for a in axes} if axes else {n for n, e in enumerate(x.shape) if e == 1}
    if any(x.shape[p] != 1 for p in places):
        raise ModelError("axes {0} of {1} are not 1", sorted(places), x.type)
    shape = tuple(e for n, e in enumerate(x.shape) if n not in places)
    value: Value = b.add("reshape", x, shape=shape)
    return value


@onnx_op("Unsqueeze")
def unsqueeze(b: Builder, node: OnnxNode) -> Value:
    x, axes = node[0], _axes(node) or ()
    rank = x.type.rank + len(axes)
    places = {a % rank for a in axes}
    rest = iter(x.shape)
    shape = tuple(1 if n in places else next(rest) for n in range(rank))
    value: Value = b.add("reshape", x, shape=shape)
    return value


@onnx_op("Transpose")
def transpose(b: Builder, node: OnnxNode) -> Value:
    axes = node.attribute("perm") or tuple(reversed(range(node[0].type.rank)))
    value: Value = b.add("transpose", node[0], axes=tuple(axes))
    return value


@onnx_op("Concat")
def concat(b: Builder, node: OnnxNode) -> Value:
    parts = [node[n] for n in range(len(node.inputs))]
    if len(parts) == 1:
        return parts[0]
    axis = node.attribute("axis", 1) % parts[0].type.rank
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
        axis %= x.type.rank
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
    fill = node.known(2)
    value = 0 if fill is None or not fill.size else fill.reshape(-1)[0].item()
    return _padded(b, x, widths, axes, value, node.attribute("mode", "constant"))


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
    for n, axis in enumerate(axes):
        before[axis], after[axis] = widths[n], widths[n + len(axes)]
    cut = [min(w, 0) for w in before], [min(w, 0) for w in after]
    if any((*cut[0], *cut[1])):
        starts = tuple(-w for w in cut[0])
        ends = tuple(e + w for e, w in zip(x.shape, cut[1], strict=True))
        x = _sliced(b, x, starts, ends, None, None)
        before, after = [max(w, 0) for w in before], [max(w, 0) for w in after]
    if not any((*before, *after)):
        return x
    value: Value = b.add("pad", x, before=tuple(before), after=tuple(after), value=fill, mode=mode)
    return value


@onnx_op("Gather")
def gather(b: Builder, node: OnnxNode) -> Value:
    x, indices = node[0], node[1]
    axis = node.attribute("axis", 0) % x.type.rank
    if isinstance(indices, Constant):
        part = _as_slice(b, x, indices, axis)
        if part is not None:
            return part
    value: Value = b.add("take", x, indices, axis=axis)
    return value


def _as_slice(b: Builder, x: Value, indices: Constant, axis: int) -> Value | None:
    """Elements at known indices that are a slice, as one."""
    flat = [int(i) % max(x.shape[axis], 1) for i in indices.data.reshape(-1)]
    steps = {q - p for p, q in pairwise(flat)} or {1}
    if len(steps) > 1 or not flat or steps == {0}:
        return None
    starts, strides, shape = [0] * x.type.rank, [1] * x.type.rank, list(x.shape)
    starts[axis], strides[axis], shape[axis] = flat[0], steps.pop(), len(flat)
    part = b.add("slice", x, starts=tuple(starts), steps=tuple(strides), shape=tuple(shape))
    final = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    value: Value = b.add("reshape", part, shape=final)
    return value
