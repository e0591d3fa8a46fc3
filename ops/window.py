"""Sliding windows over two spatial dimensions: their geometry and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..base.errors import IRError
from ..tir.te import Expr, Operand, Tensor
from . import rearrange

Layout: TypeAlias = Literal["NCHW", "NHWC"]
Pair: TypeAlias = int | tuple[int, int]
Padding: TypeAlias = int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]]
"""Of both dimensions; of each; or of each at its begin and end."""


@dataclass(frozen=True)
class Window:
    """A window along one dimension of `extent` elements: output o reads element
    `o * stride + r * dilation - before` at offset r < `kernel`."""

    extent: int
    kernel: int
    stride: int
    before: int
    after: int
    dilation: int = 1

    @property
    def span(self) -> int:
        """Elements from the first to the last that one output reads, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def outputs(self) -> int:
        return (self.extent + self.before + self.after - self.span) // self.stride + 1

    def position(self, output: Expr, offset: Expr) -> Expr:
        """The element that `output` reads at `offset`, counted in the padded dimension."""
        return output * self.stride + offset * self.dilation


def windows(
    name: str,
    extents: tuple[int, int],
    kernel: Pair,
    stride: Pair,
    padding: Padding,
    dilation: Pair = 1,
) -> tuple[Window, Window]:
    """The windows along height and width. Raises `IRError` if a window does not fit."""
    kernels, strides, dilations = _pair(kernel), _pair(stride), _pair(dilation)
    made: list[Window] = []
    for d in (0, 1):
        before, after = _edges(padding, d)
        w = Window(extents[d], kernels[d], strides[d], before, after, dilations[d])
        if min(w.kernel, w.stride, w.dilation) < 1 or min(before, after) < 0:
            raise IRError(
                "{0}: kernel {1}, stride {2}, dilation {3} must be positive, padding {4} not "
                "negative", name, w.kernel, w.stride, w.dilation, (before, after),
            )  # fmt: skip
        if w.span > w.extent + before + after:
            raise IRError(
                "{0}: a window of {1} does not fit in {2} elements with padding {3}",
                name, w.span, w.extent, (before, after), hint="add padding",
            )  # fmt: skip
        made.append(w)
    return made[0], made[1]


def spatial_axes(layout: Layout) -> tuple[int, int]:
    """The dimensions of an image that are height and width."""
    if layout not in ("NCHW", "NHWC"):
        raise IRError("unknown layout {0!r}; expected NCHW or NHWC", layout)
    return (2, 3) if layout == "NCHW" else (1, 2)


def pad(
    x: Tensor, value: Operand, spatial: Sequence[int], along: Sequence[Window], name: str
) -> Tensor:
    """`x` with `value` around it: a stage of its own, which schedules can inline.

    Without padding it is `x` itself, and there is no stage.
    """
    if not any(w.before or w.after for w in along):
        return x
    edges = {d: (w.before, w.after) for d, w in zip(spatial, along, strict=True)}
    return rearrange.pad(x, [edges.get(d, (0, 0)) for d in range(x.ndim)], value, name=name)


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _edges(padding: Padding, dimension: int) -> tuple[int, int]:
    edge = padding if isinstance(padding, int) else padding[dimension]
    return (edge, edge) if isinstance(edge, int) else edge
