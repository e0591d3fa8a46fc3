"""Reductions of windows that slide over any dimensions, and what their gradients are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ....graph.builder import Builder
from ....graph.compose import movement, sampling
from ....graph.compose.basics import reshaped
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import Op, hlo
from .reduction import is_unit, reduction_of

_MOST = 256
"""Elements of a window whose reduction is written out."""

Ints = tuple[int, ...]


@dataclass(frozen=True)
class _Window:
    """Of each dimension of an operand; `between` are the places from one element to the next."""

    sizes: Ints
    strides: Ints
    dilations: Ints
    between: Ints
    padding: tuple[tuple[int, int], ...]

    @staticmethod
    def of(op: Op) -> _Window:
        rank = op[0].type.rank
        return _Window(
            op.integers("window_dimensions", rank, 1),
            op.integers("window_strides", rank, 1),
            op.integers("window_dilations", rank, 1),
            op.integers("base_dilations", rank, 1),
            op.pairs("padding", rank),
        )

    def around(self, b: Builder, x: Value, fill: Value) -> Value:
        """`x` with its padding."""
        low, high = zip(*self.padding, strict=True) if self.padding else ((), ())
        x = movement.dilated(b, x, self.between, fill)
        return movement.padded_with(b, x, (*low, *high), None, fill)

    def taps(self) -> list[Ints]:
        """The places in a window, in their order."""
        if math.prod(self.sizes) > _MOST:
            raise Unsupported(Reason.ATTRIBUTE, f"a window of {list(self.sizes)}")
        return list(product(*map(range, self.sizes)))

    def seen(self, b: Builder, x: Value, tap: Ints, shape: Ints) -> Value:
        """The elements of all windows at one place."""
        starts = tuple(t * d for t, d in zip(tap, self.dilations, strict=True))
        return b.add("slice", x, starts=starts, steps=self.strides, shape=shape)


@hlo("reduce_window")
def reduce_window(b: Builder, op: Op) -> Sequence[Value]:
    window = _Window.of(op)
    count = len(op.results)
    values, units = op.operands[:count], op.operands[count:]
    operator = reduction_of(op) if count == 1 else None
    if operator is not None and is_unit(operator, units[0]) and values[0].dtype != "bool":
        found = _accumulated(b, op, window, operator) or _pooled(b, op, window, operator)
        if found is not None:
            return (found,)
    around = [window.around(b, v, u) for v, u in zip(values, units, strict=True)]
    total = [b.add("broadcast_to", u, shape=op.type.shape) for u in units]
    for tap in window.taps():
        own = [window.seen(b, v, tap, op.type.shape) for v in around]
        total = op.lifted_body([*total, *own])
    return total


def _accumulated(b: Builder, op: Op, window: _Window, operator: str) -> Value | None:
    """A sum or product of all elements up to each along one dimension, or from it on."""
    x = op[0]
    along = [d for d, size in enumerate(window.sizes) if size > 1]
    if operator not in ("sum", "prod") or len(along) != 1 or x.shape != op.type.shape:
        return None
    (axis,) = along
    rest = x.shape[axis] - 1
    plain = {*window.strides, *window.dilations, *window.between} == {1}
    widths = window.padding[axis]
    if not plain or window.sizes[axis] != rest + 1 or widths not in ((rest, 0), (0, rest)):
        return None
    if any(pair != (0, 0) for d, pair in enumerate(window.padding) if d != axis):
        return None
    reverse = widths == (0, rest)
    return b.add("accumulate", x, axis=axis, product=operator == "prod", reverse=reverse)


def _pooled(b: Builder, op: Op, window: _Window, operator: str) -> Value | None:
    """By the operators of pooling, for which the first dimensions without a window are a batch."""
    x = op[0]
    if operator not in ("sum", "max") or not x.type.rank:
        return None
    low, high = (tuple(p[k] for p in window.padding) for k in (0, 1))
    x = movement.dilated(b, x, window.between, op[1])
    x = movement.padded(b, x, [min(n, 0) for n in (*low, *high)])
    before, after = (tuple(max(n, 0) for n in widths) for widths in (low, high))
    facts = zip(window.sizes, window.strides, before, after, strict=True)
    moved = [fact != (1, 1, 0, 0) for fact in facts]
    first = moved.index(True) if any(moved) else x.type.rank
    first = min(first, x.type.rank - 1)
    own = reshaped(b, x, (math.prod(x.shape[:first]), 1, *x.shape[first:]))
    parts = (window.sizes, window.strides, before, after, window.dilations)
    pool = sampling.Window(*(values[first:] for values in parts))
    return reshaped(b, pool.of(b, f"{operator}_pool", own), op.type.shape)


@hlo("select_and_scatter")
def select_and_scatter(b: Builder, op: Op) -> Value:
    """Adds each source to the element of its window that the first body selects.

    Places in windows are gone through in their order: where each source goes is known from the
    place that is selected, so that the sources of one place are moved together.
    """
    x, source, unit = op.operands
    rank = x.type.rank
    strides = op.integers("window_strides", rank, 1)
    sizes = op.integers("window_dimensions", rank, 1)
    padding = op.pairs("padding", rank)
    window = _Window(sizes, strides, (1,) * rank, (1,) * rank, padding)
    taps = window.taps()
    shape = source.shape
    whole = b.add("broadcast_to", b.constant(True), shape=x.shape)
    around = window.around(b, x, b.constant(0, x.dtype))
    inside = window.around(b, whole, b.constant(False))
    best = window.seen(b, around, taps[0], shape)
    known = window.seen(b, inside, taps[0], shape)
    chosen: Value = b.add("broadcast_to", b.constant(0, "int32"), shape=shape)
    for k, tap in enumerate(taps[1:], 1):
        own, there = (window.seen(b, v, tap, shape) for v in (around, inside))
        (keeps,) = op.lifted_body([best, own])
        taken = b.add("logical_not", b.add("logical_and", known, keeps))
        taken = b.add("logical_and", there, taken)
        best = b.add("where", taken, own, best)
        chosen = b.add("where", taken, b.constant(k, "int32"), chosen)
        known = b.add("logical_or", known, there)
    total: Value = b.add("broadcast_to", unit, shape=around.shape)
    fill = b.constant(0, source.dtype)
    (formula,) = op.formulas(1)
    if formula.replace("(b, a)", "(a, b)") != "add(a, b)":
        raise Unsupported(Reason.ATTRIBUTE, f"the body {formula}")
    for k, tap in enumerate(taps):
        own = b.add("where", b.add("equal", chosen, b.constant(k, "int32")), source, fill)
        own = movement.dilated(b, own, strides, fill)
        after = [e - n - t for e, n, t in zip(around.shape, own.shape, tap, strict=True)]
        total = b.add("add", total, movement.padded(b, own, (*tap, *after)))
    widths = [-n for side in zip(*padding, strict=True) for n in side]
    return movement.padded(b, total, widths)
