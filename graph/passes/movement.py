"""Movement: reshapes and transposes meet, cancel, and make way for what can then be fused.

Reshapes sink below pointwise nodes, so that these join what computes their operands, and rise above
slices; transposes sink where their number does not grow. A permutation that moves only dimensions
of one element is a reshape, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..builder import Builder, Rules
from ..ir import Constant, Node, Value
from ..operator import Kind
from .rules import reshaped, units


def reshape_of_reshape(b: Builder, node: Node) -> Value | None:
    """reshape(reshape(x))   ->   reshape(x), and x if that is its shape"""
    (x,) = node.inputs
    is_last = b.producer(x, "reshape") is None and x.shape != node.output.shape
    return None if is_last else reshaped(b, x, node.output.shape)


def transpose_as_view(b: Builder, node: Node) -> Value | None:
    """transpose(x) that keeps the order of all dimensions of several elements -> reshape(x)"""
    (x,) = node.inputs
    moved = [axis for axis in _axes(node) if x.shape[axis] != 1]
    return reshaped(b, x, node.output.shape) if moved == sorted(moved) else None


def transpose_of_transpose(b: Builder, node: Node) -> Value | None:
    """transpose(reshape(transpose(x)))   ->   reshape(transpose(x))

    The reshape, if there is one, only adds and removes dimensions of one element.
    """
    (x,) = node.inputs
    view = b.producer(x, "reshape")
    inner = b.producer(x if view is None else view.inputs[0], "transpose")
    if inner is None or units(x.shape) != units(inner.output.shape):
        return None
    (source,) = inner.inputs
    first = [axis for axis in _axes(inner) if source.shape[axis] != 1]
    wide = [d for d, e in enumerate(x.shape) if e != 1]
    moved = [first[wide.index(axis)] for axis in _axes(node) if x.shape[axis] != 1]
    unmoved = [axis for axis, e in enumerate(source.shape) if e == 1]
    once = b.add("transpose", source, axes=(*unmoved, *moved))
    return reshaped(b, once, node.output.shape)


def _axes(node: Node) -> tuple[int, ...]:
    axes = node.attributes["axes"]
    assert isinstance(axes, tuple)
    return axes  # type: ignore[return-value]


def reshape_sinks(b: Builder, node: Node) -> Value | None:
    """pointwise(reshape(x), c)   ->   reshape(pointwise(x, reshape(c)))

    All operands are reshapes from one shape, or constants that stay constants of few dimensions.
    """
    shape = node.output.shape
    views = [b.producer(v, "reshape") for v in node.inputs]
    whole = [view for view in views if view is not None and view.output.shape == shape]
    if not whole or not node.output.type.size:
        return None
    source = whole[0].inputs[0].shape
    operands = list[Value]()
    for value, view in zip(node.inputs, views, strict=True):
        if view in whole and view.inputs[0].shape == source:
            operands.append(view.inputs[0])
            continue
        smaller = _regrouped(value.shape, shape, source)
        if smaller is None or not isinstance(value, Constant):
            return None
        operands.append(reshaped(b, value, smaller))
    return reshaped(b, b.add(node.operator, *operands, **node.attributes), shape)


def _regrouped(shape: Sequence[int], whole: Sequence[int], to: Sequence[int]) -> list[int] | None:
    """The shape that broadcasts to `to` as `shape` does to `whole`, which is a reshape of it."""
    padded = [1] * (len(whole) - len(shape)) + list(shape)
    found = list[int]()
    for old_dims, new_dims in _runs(whole, to):
        own = [padded[d] for d in old_dims]
        if all(e == 1 for e in own):
            found += [1] * len(new_dims)
        elif own == [whole[d] for d in old_dims]:
            found += [to[d] for d in new_dims]
        else:
            return None
    return found


def _runs(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[range, range]]:
    """The shortest runs of dimensions of two shapes of one size that have as many elements."""
    i = j = 0
    while i < len(a) or j < len(b):
        first, second = i, j
        i, j = min(i + 1, len(a)), min(j + 1, len(b))
        while (left := math.prod(a[first:i])) != (right := math.prod(b[second:j])):
            i, j = (i + 1, j) if left < right else (i, j + 1)
        yield range(first, i), range(second, j)


VIEWS: Rules = {"reshape": [reshape_of_reshape]}
"""What all passes do: their rules leave reshapes of reshapes."""

RULES: Rules = {
    **VIEWS,
    "transpose": [transpose_as_view, transpose_of_transpose],
    Kind.POINTWISE: [reshape_sinks],
}
