"""Operations that move elements, and those that make them from nothing."""

from __future__ import annotations

import numpy as np

from ....graph.builder import Builder
from ....graph.compose import movement
from ....graph.compose.basics import reshaped, room
from ....graph.ir import Value
from ..table import Op, hlo


@hlo("constant", "chlo.constant", lifts=True)
def constant(b: Builder, op: Op) -> Value:
    return b.constant(op.attribute("value"))


@hlo("iota")
def iota(b: Builder, op: Op) -> Value:
    axis = op.attribute("iota_dimension")
    shape = [e if d == axis else 1 for d, e in enumerate(op.type.shape)]
    room(op.type.shape[axis])
    places = b.constant(np.arange(op.type.shape[axis]).reshape(shape), op.type.dtype)
    return places if op.type.size == places.type.size else _spread(b, places, op.type.shape)


def _spread(b: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    return x if x.shape == shape else b.add("broadcast_to", x, shape=shape)


@hlo("reshape")
def reshape(b: Builder, op: Op) -> Value:
    return reshaped(b, op[0], op.type.shape)


@hlo("broadcast_in_dim")
def broadcast_in_dim(b: Builder, op: Op) -> Value:
    """Dimension d of the operand is `dims[d]` of the result, or 1."""
    x, dims = op[0], op.integers("broadcast_dimensions")
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if order != list(range(len(dims))):
        x = b.add("transpose", x, axes=tuple(order))
    shape = [1] * op.type.rank
    for d, own in enumerate(order):
        shape[dims[own]] = x.shape[d]
    return _spread(b, reshaped(b, x, shape), op.type.shape)


@hlo("transpose")
def transpose(b: Builder, op: Op) -> Value:
    return b.add("transpose", op[0], axes=op.integers("permutation"))


@hlo("slice")
def slice_(b: Builder, op: Op) -> Value:
    starts = op.integers("start_indices")
    steps = op.integers("strides")
    return b.add("slice", op[0], starts=starts, steps=steps, shape=op.type.shape)


@hlo("concatenate")
def concatenate(b: Builder, op: Op) -> Value:
    axis = op.attribute("dimension")
    given = [x for x in op.operands if x.type.size]
    return given[0] if len(given) == 1 else b.add("concatenate", *given, axis=axis)


@hlo("reverse")
def reverse(b: Builder, op: Op) -> Value:
    return movement.reversed_(b, op[0], op.integers("dimensions"))


@hlo("pad")
def pad(b: Builder, op: Op) -> Value:
    """First elements between, then around, of which negative widths cut."""
    x, rank = op[0], op[0].type.rank
    inside = op.integers("interior_padding", rank, 0)
    before, after = (op.integers(f"edge_padding_{side}", rank, 0) for side in ("low", "high"))
    x = movement.dilated(b, x, [n + 1 for n in inside], op[1])
    return movement.padded_with(b, x, (*before, *after), None, op[1])
