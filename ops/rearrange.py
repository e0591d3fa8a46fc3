"""Operators that move elements: reshape, concatenate, stack, pad, take and one_hot.

Transposition: the axes of a tensor in another order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Operand, Tensor
from . import operands


def reshape(x: Tensor, shape: Sequence[int], *, name: str = "reshape") -> Tensor:
    """The elements of `x` in row-major order in another shape; one extent may be -1: the rest."""
    known = math.prod(e for e in shape if e != -1)
    rest = math.prod(x.extents) // known if known else 0
    extents = [rest if e == -1 else e for e in shape]
    if list(shape).count(-1) > 1 or math.prod(extents) != math.prod(x.extents):
        raise IRError("{0}: shape {1} does not hold {2}", name, tuple(shape), x.extents)

    def element(*indices: Expr) -> Expr:
        place: Operand = 0
        for index, extent in zip(indices, extents, strict=True):
            place = place * extent + index
        source: list[Operand] = []
        for extent in x.extents[::-1]:
            source.append(place % max(extent, 1))  # there is no element where an extent is 0
            place = place // max(extent, 1)
        return x[tuple(source[::-1])]

    return te.compute(extents, element, name=name)


_IN_TURN = 8
"""Tensors that are asked for one after the other whose element it is."""


def concatenate(tensors: Sequence[Tensor], axis: int = 0, *, name: str = "concatenate") -> Tensor:
    """The tensors one after the other along `axis`, in their common dtype."""
    if not tensors:
        raise IRError("{0}: expected tensors, found none", name)
    place = operands.axis(name, axis, tensors[0].ndim)
    rests = {t.extents[:place] + t.extents[place + 1 :] for t in tensors}
    if len(rests) > 1 or len({t.ndim for t in tensors}) > 1:
        shapes = " and ".join(str(t.extents) for t in tensors)
        raise IRError("{0}: shapes {1} differ in more than axis {2}", name, shapes, place)
    extents = list(tensors[0].extents)
    extents[place] = sum(t.extents[place] for t in tensors)

    ends = list(accumulate(t.extents[place] for t in tensors))

    def element(*indices: Expr) -> Expr:
        at = indices[place]

        def among(first: int, last: int) -> Expr:
            """The element of one of these: of few one after the other, of more by halves."""
            if first == last:
                start = ends[first] - tensors[first].extents[place]
                return tensors[first][(*indices[:place], at - start, *indices[place + 1 :])]
            middle = first if last - first < _IN_TURN else (first + last) // 2
            return te.select(at < ends[middle], among(first, middle), among(middle + 1, last))

        return among(0, len(tensors) - 1)

    return te.compute(extents, element, name=name)


def stack(tensors: Sequence[Tensor], axis: int = 0, *, name: str = "stack") -> Tensor:
    """Tensors of one shape along a new `axis`, in their common dtype."""
    if len({t.extents for t in tensors}) != 1:
        shapes = " and ".join(str(t.extents) for t in tensors) or "none"
        raise IRError("{0}: expected tensors of one shape, found {1}", name, shapes)
    place = operands.axis(name, axis, tensors[0].ndim + 1)
    extents = list(tensors[0].extents)
    extents.insert(place, len(tensors))

    def element(*indices: Expr) -> Expr:
        own = indices[:place] + indices[place + 1 :]
        value: Expr = tensors[-1][own]
        for k, tensor in reversed(list(enumerate(tensors[:-1]))):
            value = te.select(indices[place] == k, tensor[own], value)
        return value

    return te.compute(extents, element, name=name)


def pad(
    x: Tensor, widths: Sequence[tuple[int, int]], value: Operand = 0, *, name: str = "pad"
) -> Tensor:
    """`x` with `value` around it: as many elements before and after as `widths` has for each
    dimension."""
    if len(widths) != x.ndim or any(w < 0 for pair in widths for w in pair):
        raise IRError(
            "{0}: widths are {1}; expected (before, after) for {2} dimensions, none negative",
            name, tuple(widths), x.ndim,
        )  # fmt: skip
    shape = [before + e + after for e, (before, after) in zip(x.extents, widths, strict=True)]

    def element(*indices: Expr) -> Expr:
        inside: Expr | None = None
        source = list(indices)
        for d, (before, after) in enumerate(widths):
            tests = [indices[d] >= before] if before else []
            tests += [indices[d] < before + x.extents[d]] if after else []
            source[d] = indices[d] - before
            for test in tests:
                inside = test if inside is None else inside & test
        read = x[tuple(source)]
        return read if inside is None else te.select(inside, read, value)

    return te.compute(shape, element, name=name)


def take(x: Tensor, indices: Tensor, axis: int = 0, *, name: str = "take") -> Tensor:
    """The slices of `x` at `indices` along `axis`, which the shape of `indices` takes the place of.

    `indices` are integers in the axis: a placeholder of them has `value_range=(0, extent)`.
    """
    place = operands.axis(name, axis, x.ndim)
    last = place + indices.ndim

    def element(*i: Expr) -> Expr:
        return x[(*i[:place], indices[i[place:last]], *i[last:])]

    extents = x.extents[:place] + indices.extents + x.extents[place + 1 :]
    return te.compute(extents, element, name=name)


def one_hot(
    indices: Tensor,
    depth: int,
    *,
    axis: int = -1,
    dtype: str = "float32",
    name: str = "one_hot",
) -> Tensor:
    """1 where the place along a new `axis` of `depth` elements is that of `indices`, else 0.

    An index that is not in [0, depth) has no 1.
    """
    place = operands.axis(name, axis, indices.ndim + 1)
    extents = list(indices.extents)
    extents.insert(place, depth)

    def element(*i: Expr) -> Expr:
        hit = i[place] == indices[i[:place] + i[place + 1 :]]
        return te.select(hit, te.const(1, dtype), te.const(0, dtype))

    return te.compute(extents, element, name=name)


def concatenate_func(n: int = 1024, m: int = 1024, k: int = 1024, dtype: str = "float32") -> Func:
    """Matrices of `m` and of `k` columns side by side."""
    a = te.placeholder((n, m), dtype, name="A")
    b = te.placeholder((n, k), dtype, name="B")
    return te.func([a, b, concatenate([a, b], 1, name="C")], name="concatenate")


def take_func(n: int = 4096, m: int = 1024, k: int = 30000, dtype: str = "float32") -> Func:
    """`n` of the `k` rows of a matrix, by their numbers in int32."""
    x = te.placeholder((k, m), dtype, name="X")
    rows = te.placeholder((n,), "int32", name="rows", value_range=(0, k))
    return te.func([x, rows, take(x, rows, name="Y")], name="take")


def one_hot_func(n: int = 4096, m: int = 1024, dtype: str = "float32") -> Func:
    """`n` rows of `m` elements, of which each has a 1, by numbers in int32."""
    indices = te.placeholder((n,), "int32", name="indices")
    return te.func([indices, one_hot(indices, m, dtype=dtype, name="Y")], name="one_hot")


def transpose(x: Tensor, axes: Sequence[int] | None = None, *, name: str = "transpose") -> Tensor:
    """Dimension d of the result is dimension `axes[d]` of `x`; reversed by default."""
    order = range(x.ndim)[::-1] if axes is None else [operands.axis(name, a, x.ndim) for a in axes]
    if sorted(order) != list(range(x.ndim)):
        raise IRError(
            "{0}: axes {1} are not a permutation of {2} dimensions", name, tuple(axes or ()), x.ndim
        )
    place = {source: d for d, source in enumerate(order)}

    def element(*indices: Expr) -> Expr:
        return x[tuple(indices[place[d]] for d in range(x.ndim))]

    return te.compute([x.extents[d] for d in order], element, name=name)


def transpose_func(n: int = 4096, m: int = 4096, dtype: str = "float32") -> Func:
    """The transpose of a matrix."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, transpose(x, name="Y")], name="transpose")
