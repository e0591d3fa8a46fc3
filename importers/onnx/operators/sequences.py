"""Sequences of tensors, whose length is known: a sequence is the tuple of its values.

Exporters write them for lists that loops fill, and for splits into parts of one size.
"""

from __future__ import annotations

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import Items, OnnxNode, onnx_op
from .common import in_rank
from .control import row, stacked


@onnx_op("SequenceEmpty")
def empty(_b: Builder, _node: OnnxNode) -> Items:
    return Items(())


@onnx_op("SequenceConstruct")
def construct(_b: Builder, node: OnnxNode) -> Items:
    return Items(tuple(node[k] for k in range(len(node.inputs))))


@onnx_op("SequenceInsert")
def insert(_b: Builder, node: OnnxNode) -> Items:
    """At the end, or before the element at a position; that of the last one is -1."""
    values = list(node.items(0))
    at_end = node.get(2) is None or int(node.number(2)) == len(values)
    values.insert(len(values) if at_end else _place(node, 2, len(values)), node[1])
    return Items(tuple(values))


@onnx_op("SequenceErase")
def erase(_b: Builder, node: OnnxNode) -> Items:
    values = list(node.items(0))
    del values[_place(node, 1, len(values))]
    return Items(tuple(values))


@onnx_op("SequenceAt")
def at(_b: Builder, node: OnnxNode) -> Value:
    values = node.items(0)
    return values[_place(node, 1, len(values))]


@onnx_op("SequenceLength")
def length(b: Builder, node: OnnxNode) -> Value:
    return b.constant(len(node.items(0)), "int64")


@onnx_op("ConcatFromSequence")
def joined(b: Builder, node: OnnxNode) -> Value:
    values, axis = node.items(0), node.attribute("axis", 0)
    if not values:
        raise ModelError("the sequence to be joined is empty")
    if node.attribute("new_axis", 0):
        return stacked(b, values, in_rank(axis, values[0].type.rank + 1))
    value: Value = b.add("concatenate", *values, axis=in_rank(axis, values[0].type.rank))
    return value


@onnx_op("SplitToSequence")
def split(b: Builder, node: OnnxNode) -> Items:
    """Into parts of given lengths, of one length but the last, or of one element."""
    x = node[0]
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    extent, given = x.shape[axis], node.known(1)
    if given is None and not node.attribute("keepdims", 1):
        return Items(tuple(row(b, x, axis, place) for place in range(extent)))
    if given is None or given.ndim == 0:
        size = 1 if given is None else int(given)
        lengths = [min(size, extent - start) for start in range(0, extent, size)]
    else:
        lengths = [int(n) for n in given]
    if sum(lengths) != extent:
        raise ModelError("parts of {0} do not make {1} of {2}", lengths, extent, x)
    parts: list[Value] = []
    start = 0
    for count in lengths:
        starts, shape = [0] * x.type.rank, list(x.shape)
        starts[axis], shape[axis] = start, count
        parts.append(b.add("slice", x, starts=starts, steps=(1,) * x.type.rank, shape=shape))
        start += count
    return Items(tuple(parts))


def _place(node: OnnxNode, operand: int, count: int) -> int:
    """A position among `count`; the last one where none is given."""
    if node.get(operand) is None:
        return count - 1
    place = int(node.number(operand))
    if not -count <= place < count:
        raise ModelError("position {0} of {1}", place, count)
    return place % count
