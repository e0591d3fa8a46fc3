"""Movement: reshapes and transposes meet, cancel, and make way for what can then be fused.

Reshapes sink below pointwise nodes, so that these join what computes their operands, and broadcasts
that these imply are left out. Slices rise
above transposes, and above reshapes that stand between them and a transpose. A permutation that
moves only dimensions of one element is a reshape, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ...base import dtypes
from ..builder import Builder, Rules
from ..groups import MAX_NODES
from ..ir import Constant, Node, Value
from ..operator import Kind
from .rules import is_number, reshaped, units


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


def concatenate_of_many(b: Builder, node: Node) -> Value | None:
    """concatenate(x0, ..., x99)   ->   concatenate(concatenate(x0, ..., x31), ...)

    Each part is a kernel of its own: in one of all, each vector is selected among all operands.
    """
    xs = node.inputs
    if len(xs) <= MAX_NODES:
        return None
    parts = [xs[n : n + MAX_NODES] for n in range(0, len(xs), MAX_NODES)]
    joined = [p[0] if len(p) == 1 else b.add(node.operator, *p, **node.attributes) for p in parts]
    return b.add(node.operator, *joined, **node.attributes)


def concatenate_of_slices(b: Builder, node: Node) -> Value | None:
    """concatenate(slice(x), slice(x)) of all places of a dimension, in order   ->   transpose(x)

    Each slice may be transposed, and its dimensions of one element be elsewhere.
    """
    axis = int(node.attributes["axis"])  # type: ignore[arg-type]
    found = {_at_place(b, value, n) for n, value in enumerate(node.inputs)}
    if len(found) > 1 or None in found or any(v.shape[axis] != 1 for v in node.inputs):
        return None
    ((x, dim, wide),) = filter(None, found)
    if x.shape[dim] != len(node.inputs):
        return None
    before = len(units(node.output.shape[:axis]))
    unmoved = (d for d in range(x.type.rank) if x.shape[d] == 1)
    axes = (*unmoved, *wide[:before], dim, *wide[before:])
    return reshaped(b, b.add("transpose", x, axes=axes), node.output.shape)


def _at_place(b: Builder, value: Value, place: int) -> tuple[Value, int, tuple[int, ...]] | None:
    """The tensor of which a value is the part at one place of a dimension, this dimension, and the
    order of the others of several elements; `None` if it is something else.
    """
    moves = list[Node]()
    while (node := b.producers.get(value)) is not None and node.operator != "slice":
        (value, *others) = node.inputs
        alike = node.operator == "reshape" and units(value.shape) == units(node.output.shape)
        if others or not (alike or node.operator == "transpose"):
            return None
        moves.append(node)
    cut = [] if node is None else [d for d, e in enumerate(value.shape) if not _is_whole(node, d)]
    if node is None or len(cut) != 1 or value.shape[cut[0]] != 1:
        return None
    if _numbers(node, "starts")[cut[0]] != place:
        return None
    wide = [d for d, extent in enumerate(value.shape) if extent != 1]
    for move in reversed(moves):
        if move.operator == "transpose":
            own = [axis for axis, e in enumerate(move.inputs[0].shape) if e != 1]
            wide = [wide[own.index(axis)] for axis in _axes(move) if axis in own]
    return node.inputs[0], cut[0], tuple(wide)


def slice_of_all(_: Builder, node: Node) -> Value | None:
    """slice(x) that has all elements in their order   ->   x"""
    (x,) = node.inputs
    return x if all(_is_whole(node, dim) for dim in range(x.type.rank)) else None


def broadcast_of_all(_: Builder, node: Node) -> Value | None:
    """broadcast_to(x) of the shape of x   ->   x"""
    (x,) = node.inputs
    return x if x.shape == node.output.shape else None


def slice_of_transpose(b: Builder, node: Node) -> Value | None:
    """slice(transpose(x))   ->   transpose(slice(x)), which moves no more than the part"""
    inner = b.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    axes = _axes(inner)
    back = [axes.index(d) for d in range(len(axes))]
    attributes = {name: [_numbers(node, name)[d] for d in back] for name in node.attributes}
    return b.add("transpose", b.add("slice", inner.inputs[0], **attributes), axes=axes)


def transpose_of_split_slice(b: Builder, node: Node) -> Value | None:
    """transpose(reshape(slice(x)))   ->   transpose(slice(reshape(x))), which is one kernel

    The reshape splits sliced dimensions where the start and end of the slice are multiples.
    """
    view = b.producer(node.inputs[0], "reshape")
    part = None if view is None else b.producer(view.inputs[0], "slice")
    if view is None or part is None or not node.output.type.size:
        return None
    (x,) = part.inputs
    starts, steps = _numbers(part, "starts"), _numbers(part, "steps")
    whole, begin = list[int](), list[int]()
    for old_dims, new_dims in _runs(part.output.shape, view.output.shape):
        sliced = [d for d in old_dims if not _is_whole(part, d)]
        extents = [view.output.shape[d] for d in new_dims]
        first = [0] * len(extents)
        if sliced:
            axis = next((k for k, e in enumerate(extents) if e != 1), None)
            inner = math.prod(extents[axis + 1 :]) if axis is not None else 0
            (dim, *others) = sliced
            alone = units(part.output.shape[d] for d in old_dims) == (part.output.shape[dim],)
            if axis is None or others or not alone or steps[dim] != 1:
                return None
            if x.shape[dim] % inner or starts[dim] % inner:
                return None
            extents[axis] = x.shape[dim] // inner
            first[axis] = starts[dim] // inner
        whole += extents
        begin += first
    parts = b.add("slice", reshaped(b, x, whole), starts=begin, steps=[1] * len(begin),
        shape=view.output.shape,
    )  # fmt: skip
    return b.add("transpose", parts, axes=_axes(node))


def _is_whole(part: Node, dim: int) -> bool:
    """Whether a slice has all elements of a dimension, in their order."""
    extent = part.output.shape[dim]
    kept = extent == part.inputs[0].shape[dim] and _numbers(part, "starts")[dim] == 0
    return kept and (extent == 1 or _numbers(part, "steps")[dim] == 1)


def _axes(node: Node) -> tuple[int, ...]:
    return _numbers(node, "axes")


def _numbers(node: Node, name: str) -> tuple[int, ...]:
    numbers = node.attributes[name]
    assert isinstance(numbers, tuple)
    return numbers  # type: ignore[return-value]


def reshape_sinks(b: Builder, node: Node) -> Value | None:
    """pointwise(reshape(x), c)   ->   reshape(pointwise(x, reshape(c)))

    All operands are reshapes from one shape, or of fewer elements or constant, which then have to
    broadcast to that shape.
    """
    if len(node.outputs) > 1:
        return None
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
        is_few = isinstance(value, Constant) or value.type.size < node.output.type.size
        if smaller is None or not is_few:
            return None
        operands.append(reshaped(b, value, smaller))
    return reshaped(b, b.add(node.operator, *operands, **node.attributes), shape)


def broadcast_is_implied(b: Builder, node: Node) -> Value | None:
    """pointwise(x, broadcast_to(c))   ->   pointwise(x, c)

    Where all operands are constants, the result is one, which is broadcast. What is broadcast and
    read by several kernels would else be written to memory.
    """
    if len(node.outputs) > 1:
        return None
    operands = [_before_broadcasts(b, value) for value in node.inputs]
    if operands == [*node.inputs] or not node.output.type.size:
        return None
    if np.broadcast_shapes(*(value.shape for value in operands)) == node.output.shape:
        return b.add(node.operator, *operands, **node.attributes)
    if all(isinstance(value, Constant) for value in operands):
        made = b.add(node.operator, *operands, **node.attributes)
        return b.add("broadcast_to", made, shape=node.output.shape)
    return None


def _before_broadcasts(b: Builder, value: Value) -> Value:
    while (made := b.producer(value, "broadcast_to")) is not None:
        value = made.inputs[0]
    return value


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


def product_of_transposed(b: Builder, node: Node) -> Value | None:
    """matmul(x, transpose(y))   ->   matmul(x, y, transpose_b=True), also of x, and back"""
    operands, attributes = list(node.inputs), dict(node.attributes)
    for n, name in enumerate(("transpose_a", "transpose_b")):
        moved = b.producer(operands[n], "transpose")
        rank = operands[n].type.rank
        if moved is not None and _axes(moved) == (*range(rank - 2), rank - 1, rank - 2):
            operands[n] = moved.inputs[0]
            attributes[name] = not attributes[name]
    if attributes == node.attributes or not dtypes.is_float(node.output.dtype):
        return None
    return b.add("matmul", *operands, **attributes)


def transpose_of_product(b: Builder, node: Node) -> Value | None:
    """transpose(matmul(x, y)) with columns in the place of rows   ->   transpose(matmul(y', x'))

    Where only it reads the product, whose rows would end as the last dimension.
    """
    (product,) = node.inputs
    inner, axes = b.producer(product, "matmul"), list(_axes(node))
    rows, columns = len(axes) - 2, len(axes) - 1
    if inner is None or axes[-1] != rows or not b.read_once(product):
        return None
    if not dtypes.is_float(product.dtype):
        return None
    first, second = inner.inputs
    sides = {f"transpose_{s}": not inner.attributes[f"transpose_{o}"] for s, o in ("ab", "ba")}
    swapped = b.add("matmul", second, first, **{**inner.attributes, **sides})
    axes[axes.index(columns)], axes[-1] = rows, columns
    return b.add("transpose", swapped, axes=axes)


VIEWS: Rules = {"reshape": [reshape_of_reshape]}
"""What all passes do: their rules leave reshapes of reshapes."""

RULES: Rules = {
    **VIEWS,
    "broadcast_to": [broadcast_of_all],
    "concatenate": [concatenate_of_slices, concatenate_of_many],
    "matmul": [product_of_transposed],
    "slice": [slice_of_all, slice_of_transpose],
    "transpose": [
        transpose_as_view,
        transpose_of_transpose,
        transpose_of_split_slice,
        transpose_of_product,
    ],
    Kind.POINTWISE: [broadcast_is_implied, reshape_sinks],
}


def without_neutral(_: Builder, node: Node) -> Value | None:
    """x + -0.0, x - 0.0, x * 1, x / 1, maximum(x, -inf), minimum(x, inf)   ->   x

    x + 0.0 is not x for -0.0.
    """
    sides = ((0, 1),) if node.operator in ("subtract", "divide") else ((0, 1), (1, 0))
    wanted = _neutral(node.operator, node.output.dtype)
    for kept, other in sides:
        if is_number(node.inputs[other], wanted) and node.inputs[kept].type == node.output.type:
            return node.inputs[kept]
    return None


def _neutral(operator: str, dtype: str) -> float:
    if operator in ("multiply", "divide"):
        return 1
    if operator in ("add", "subtract"):
        return -0.0 if operator == "add" and dtypes.is_float(dtype) else 0
    low, high = dtypes.extremes(dtype)
    return low if operator == "maximum" else high


_NEUTRAL = ("add", "subtract", "multiply", "divide", "maximum", "minimum")

ALGEBRA: Rules = {
    **{operator: [without_neutral] for operator in _NEUTRAL},
    Kind.POINTWISE: [broadcast_is_implied],  # it shows numbers that are neutral
}
