"""Operations of JAX with random dimension numbers, strides, widths and places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import lax

Drawn = tuple[Callable[..., Any], tuple[Any, ...]]


class _Draw:
    """What is drawn: integers of a range, both ends inclusive, orders, tensors."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def many(self, count: int, low: int, high: int) -> list[int]:
        return [self.one(low, high) for _ in range(count)]

    def pairs(self, count: int, low: int, high: int) -> list[tuple[int, int]]:
        return list(zip(self.many(count, low, high), self.many(count, low, high), strict=True))

    def order(self, count: int) -> list[int]:
        return [int(k) for k in self.rng.permutation(count)]

    def tensor(self, shape: Any) -> Any:
        return self.rng.normal(size=shape).astype(np.float32)


def draws(rng: np.random.Generator) -> Iterator[tuple[str, Drawn]]:
    """Functions and their arguments, for ever; those that JAX refuses are among them."""
    draw = _Draw(rng)
    while True:
        for kind in (_conv, _window, _max_gradient, _gather, _scatter, _parts, _pad, _dot):
            yield kind.__name__.lstrip("_"), kind(draw)


def _placed(order: list[int], values: list[int]) -> list[int]:
    """Values at the places of an order."""
    return [values[order.index(d)] for d in range(len(order))]


def _conv(draw: _Draw) -> Drawn:
    rank, groups = draw.one(1, 3), draw.one(1, 3)
    features, batches = (groups, 1) if draw.one(0, 1) else (1, groups)
    n, inputs, outputs = draw.many(3, 1, 2)
    kernel, strides, dilations = (draw.many(rank, 1, high) for high in (3, 3, 2))
    between, padding = draw.many(rank, 1, 3), draw.pairs(rank, -1, 3)
    orders = [draw.order(rank + 2) for _ in range(3)]
    numbers = lax.ConvDimensionNumbers(*map(tuple, orders))
    x = _placed(orders[0], [n * batches, inputs * features, *draw.many(rank, 3, 6)])
    w = _placed(orders[1], [outputs * groups, inputs, *kernel])

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, padding, between, dilations, numbers, features, batches
        )

    return function, (draw.tensor(x), draw.tensor(w))


def _window(draw: _Draw) -> Drawn:
    rank = draw.one(1, 4)
    sizes, strides, dilations = (draw.many(rank, 1, high) for high in (3, 3, 2))
    between, padding = draw.many(rank, 1, 2), draw.pairs(rank, -1, 2)
    reductions = ((lax.add, 0), (lax.max, -np.inf), (lax.min, np.inf), (lax.mul, 1))
    reduction, unit = reductions[draw.one(0, 3)]

    def function(x: Any) -> Any:
        return lax.reduce_window(
            x, np.float32(unit), reduction, sizes, strides, padding, between, dilations
        )

    return function, (draw.tensor(draw.many(rank, 2, 6)),)


def _max_gradient(draw: _Draw) -> Drawn:
    """Of windows that overlap, over elements many of which are equal."""
    rank = draw.one(1, 3)
    sizes, strides = draw.many(rank, 1, 3), draw.many(rank, 1, 3)
    padding = [(draw.one(0, size - 1), draw.one(0, size - 1)) for size in sizes]

    def total(x: Any) -> Any:
        y = lax.reduce_window(x, -np.inf, lax.max, sizes, strides, padding)
        return (y * np.arange(1.0, y.size + 1, dtype=np.float32).reshape(y.shape)).sum()

    x = np.float32(draw.rng.integers(0, 3, draw.many(rank, 3, 6)))
    return jax.grad(total), (x,)


_MODES = (
    lax.GatherScatterMode.CLIP,
    lax.GatherScatterMode.FILL_OR_DROP,
    lax.GatherScatterMode.PROMISE_IN_BOUNDS,
)


def _indexed(draw: _Draw) -> tuple[Any, Any, Any, list[int], list[int]]:
    """Dimension numbers, the operand, its indices, the sizes of slices, and what they make."""
    rank = draw.one(1, 4)
    extents, order = draw.many(rank, 2, 5), draw.order(rank)
    count = draw.one(0, min(1, rank - 1))
    batched, rest = order[:count], order[count:]
    mapped = rest[: draw.one(1, len(rest))]
    collapsed = sorted(d for d in rest if draw.one(0, 1))
    sizes = [1 if d in batched or d in collapsed else draw.one(1, e) for d, e in enumerate(extents)]
    shape, along = draw.many(draw.one(0, 2), 1, 3), list[int]()
    for d in batched:
        along = [draw.one(0, len(shape))]
        shape.insert(along[0], extents[d])
    windows = [sizes[d] for d in range(rank) if d not in batched and d not in collapsed]
    offsets = sorted(draw.order(len(shape) + len(windows))[: len(windows)])
    made = [
        windows[offsets.index(d)] if d in offsets else shape[d - sum(o < d for o in offsets)]
        for d in range(len(shape) + len(windows))
    ]
    indices = draw.rng.integers(-2, 6, [*shape, len(mapped)]).astype(np.int32)
    numbers = tuple(map(tuple, (offsets, collapsed, mapped, batched, along)))
    return numbers, draw.tensor(extents), indices, sizes, made


def _gather(draw: _Draw) -> Drawn:
    given, x, indices, sizes, _ = _indexed(draw)
    numbers, mode = lax.GatherDimensionNumbers(*given), _MODES[draw.one(0, 2)]
    return lambda x, i: lax.gather(x, i, numbers, sizes, mode=mode), (x, indices)


def _scatter(draw: _Draw) -> Drawn:
    given, x, indices, _, made = _indexed(draw)
    numbers, mode = lax.ScatterDimensionNumbers(*given), _MODES[draw.one(0, 2)]
    kinds = (lax.scatter_add, lax.scatter_max, lax.scatter_min, lax.scatter_mul)
    kind = kinds[draw.one(0, 3)]
    arguments = x, indices, draw.tensor(made)
    return lambda x, i, v: kind(x, i, v, numbers, mode=mode), arguments


def _parts(draw: _Draw) -> Drawn:
    rank = draw.one(1, 3)
    extents = draw.many(rank, 2, 5)
    sizes = [draw.one(1, extent) for extent in extents]

    def function(x: Any, own: Any, starts: Any) -> Any:
        at = [starts[d] for d in range(rank)]
        return lax.dynamic_update_slice(x, own, at), lax.dynamic_slice(x, at, sizes)

    starts = np.int32(draw.rng.integers(-3, 6, rank))
    return function, (draw.tensor(extents), draw.tensor(sizes), starts)


def _pad(draw: _Draw) -> Drawn:
    rank = draw.one(1, 3)
    ends, between = draw.pairs(rank, -1, 2), draw.many(rank, 0, 2)
    widths = [(*pair, inside) for pair, inside in zip(ends, between, strict=True)]
    arguments = draw.tensor(draw.many(rank, 1, 4)), draw.tensor(())
    return lambda x, fill: lax.pad(x, fill, widths), arguments


def _dot(draw: _Draw) -> Drawn:
    labels = "bcdeijkl"
    extents = dict(zip(labels, draw.many(8, 1, 4), strict=True))
    batch, inner = (side[: draw.one(0, 2)] for side in ("bc", "de"))
    terms = [batch + inner + side[: draw.one(0, 2)] for side in ("ij", "kl")]
    left, right = ("".join(term[k] for k in draw.order(len(term))) for term in terms)

    def places(labels: str) -> tuple[list[int], list[int]]:
        return [left.index(c) for c in labels], [right.index(c) for c in labels]

    numbers = places(inner), places(batch)
    arguments = (draw.tensor([extents[c] for c in term]) for term in (left, right))
    return lambda x, y: lax.dot_general(x, y, numbers), tuple(arguments)
