"""Max and average pooling of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Axis, Expr, Func, Operand, Tensor
from .window import Layout, Padding, Pair, Window, pad, spatial_axes, windows

Pairs: TypeAlias = tuple[Window, Window]


def max_pool2d(
    x: Tensor,
    kernel: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    layout: Layout = "NCHW",
    name: str = "max_pool",
) -> Tensor:
    """The largest element of each window; NaN if there is one. `stride` is `kernel` by default.

    Padding never wins. With `ceil_mode`, a last window that only starts inside counts too.
    """
    declared = _windows(name, x, kernel, stride, padding, dilation, layout)
    pair = _ceil(declared) if ceil_mode else declared

    def element(value: Expr, axes: list[Axis], *_: Expr) -> Expr:
        return te.max(value, axis=axes)

    return pooled(x, te.lowest(x.dtype), pair, spatial_axes(layout), element, name)


def avg_pool2d(
    x: Tensor,
    kernel: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: Layout = "NCHW",
    name: str = "avg_pool",
) -> Tensor:
    """The mean of each window of floats. `stride` is `kernel` by default.

    With `count_include_pad` zeros of the padding count as elements. Elements beyond the padding,
    which `ceil_mode` can reach, never count.
    """
    if not dtypes.is_float(x.dtype):
        raise IRError("{0} takes floats, found {1}", name, x.dtype, hint="cast the input")
    declared = _windows(name, x, kernel, stride, padding, 1, layout)
    pair = _ceil(declared) if ceil_mode else declared

    def element(value: Expr, axes: list[Axis], y: Expr, z: Expr) -> Expr:
        total = te.sum(value, axis=axes)
        down, across = (
            _count(reached, given, count_include_pad, i)
            for reached, given, i in zip(pair, declared, (y, z), strict=True)
        )
        count = te.cast(te.const(1) * down * across, total.dtype)
        return te.cast(total / count, x.dtype)

    return pooled(x, 0.0, pair, spatial_axes(layout), element, name)


def global_avg_pool2d(x: Tensor, *, layout: Layout = "NCHW", name: str = "global_avg") -> Tensor:
    """The mean over height and width of floats; both stay as dimensions of 1."""
    height, width = (x.extents[d] for d in spatial_axes(layout))
    return avg_pool2d(x, (height, width), layout=layout, name=name)


def pooled(
    x: Tensor,
    fill: Operand,
    along: Sequence[Window],
    spatial: Sequence[int],
    element: Callable[..., Expr],
    name: str,
) -> Tensor:
    """Windows `along` each of the dimensions `spatial` of `x`, with `fill` around it.

    An element is `element` of the value at an offset of its window, the axes that the offset runs
    over, and its place along each dimension.
    """
    padded = pad(x, fill, spatial, along, f"{name}_pad")
    places = ["y", "x"] if len(spatial) == 2 else [f"y{d}" for d in range(len(spatial))]
    offsets = [te.reduce_axis(w.kernel, f"r{y}") for w, y in zip(along, places, strict=True)]
    own = dict(zip(spatial, places, strict=True))
    extents, axes = list(x.extents), [own.get(d, "nc"[min(d, 1)]) for d in range(x.ndim)]
    for d, w in zip(spatial, along, strict=True):
        extents[d] = w.outputs

    def at(*indices: Expr) -> Expr:
        outputs, read = [indices[d] for d in spatial], list(indices)
        for d, w, offset in zip(spatial, along, offsets, strict=True):
            read[d] = w.position(indices[d], offset)
        return element(padded[tuple(read)], offsets, *outputs)

    return te.compute(extents, at, name=name, axes=axes)


def _windows(
    name: str,
    x: Tensor,
    kernel: Pair,
    stride: Pair | None,
    padding: Padding,
    dilation: Pair,
    layout: Layout,
) -> Pairs:
    if x.ndim != 4:
        raise IRError("{0}: {1} has shape {2}; expected four dimensions", name, x.name, x.extents)
    down, across = spatial_axes(layout)
    extents = x.extents[down], x.extents[across]
    pair = windows(name, extents, kernel, kernel if stride is None else stride, padding, dilation)
    for w in pair:
        if max(w.before, w.after) >= w.span:
            raise IRError(
                "{0}: padding {1} contains a whole window of {2}; expected less",
                name, (w.before, w.after), w.span,
            )  # fmt: skip
    return pair


def _ceil(pair: Pairs) -> Pairs:
    """The windows, with one more at the end where it starts before the padding there."""

    def extended(w: Window) -> Window:
        start = w.outputs * w.stride
        after = start + w.span - w.extent - w.before
        inside = start < w.extent + w.before
        return replace(w, after=after) if inside and after < w.after + w.stride else w

    return extended(pair[0]), extended(pair[1])


def _count(reached: Window, given: Window, include_pad: bool, output: Expr) -> Operand:
    """How many elements of a window count: those of the input, or also those of its padding."""
    low = 0 if include_pad else given.before
    high = given.before + given.extent + (given.after if include_pad else 0)
    start = output * given.stride
    last = (reached.outputs - 1) * given.stride + given.kernel
    if low == 0 and last <= high:
        return given.kernel
    end = start + given.kernel
    return (te.minimum(end, high) if last > high else end) - (
        te.maximum(start, low) if low > 0 else start
    )


def pool2d_func(
    kind: Literal["max", "avg"] = "max",
    n: int = 1,
    c: int = 64,
    h: int = 112,
    w: int = 112,
    kernel: int = 3,
    stride: int = 2,
    padding: int = 1,
    dtype: str = "float32",
    *,
    layout: Layout = "NCHW",
) -> Func:
    """Pooling of X (`layout`) over square windows."""
    x = te.placeholder((n, c, h, w) if layout == "NCHW" else (n, h, w, c), dtype, name="X")
    pool = max_pool2d if kind == "max" else avg_pool2d
    y = pool(x, kernel, stride=stride, padding=padding, layout=layout, name="Y")
    return te.func([x, y], name=f"{kind}_pool2d")
