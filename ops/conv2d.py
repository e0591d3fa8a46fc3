"""2D convolutions: grouped, dilated, padded, with a fused epilogue."""

from __future__ import annotations

from dataclasses import replace

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Operand, Tensor
from .elementwise import Activation, activate
from .operands import accumulator, result_dtype
from .window import Layout, Padding, Pair, pad, spatial_axes, windows


def conv2d(
    x: Tensor,
    w: Tensor,
    *,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    bias: Tensor | None = None,
    epilogue: Activation | None = None,
    dtype: str | None = None,
    name: str = "conv2d",
) -> Tensor:
    """`epilogue(conv(x, w) + bias)`, without flipping the kernel.

    NCHW: x (n, c, h, w), w (o, c / groups, kh, kw). NHWC: x (n, h, w, c), w (kh, kw, c / groups,
    o). bias (o,). Precision is that of `matmul`. Padding is a stage `<name>_pad`; the convolution
    is `<name>_sum` if an epilogue or bias follows. Groups of a single channel have no loop. Raises
    `IRError` for mismatched shapes.
    """
    for t in (x, w):
        if t.ndim != 4:
            raise IRError("{0}: {1} has shape {2}; expected four dimensions",
                          name, t.name, t.extents)  # fmt: skip
    spatial = spatial_axes(layout)
    nchw = layout == "NCHW"
    n, channels, height, width = (x.extents[d] for d in ((0, 1, 2, 3) if nchw else (0, 3, 1, 2)))
    outputs, group, kh, kw = (w.extents[d] for d in ((0, 1, 2, 3) if nchw else (3, 2, 0, 1)))
    if groups < 1 or channels != group * groups or outputs % groups:
        raise IRError(
            "{0}: {1} input channels, {2} outputs and {3} groups do not go with weights {4}",
            name, channels, outputs, groups, w.extents,
            hint="weights hold input channels / groups; groups divide the outputs",
        )  # fmt: skip
    if bias is not None and bias.extents != (outputs,):
        raise IRError("{0}: bias has shape {1}, expected ({2},)", name, bias.extents, outputs)
    pair = windows(name, (height, width), (kh, kw), stride, padding, dilation)
    padded = pad(x, 0, spatial, pair, f"{name}_pad")
    common = dtypes.promote(x.dtype, w.dtype)
    wide = accumulator(common)
    ry, rx = te.reduce_axis(kh, name="ry"), te.reduce_axis(kw, name="rx")
    rc = None if group == 1 and groups > 1 else te.reduce_axis(group, name="rc")
    axes = [a for a in ((rc, ry, rx) if nchw else (ry, rx, rc)) if a is not None]

    def element(b: Expr, o: Expr, y: Expr, z: Expr) -> Expr:
        within: Operand = 0 if rc is None else rc
        c = within if groups == 1 else o // (outputs // groups) * group + within
        row, column = pair[0].position(y, ry), pair[1].position(z, rx)
        value = padded[b, c, row, column] if nchw else padded[b, row, column, c]
        weight = w[o, within, ry, rx] if nchw else w[ry, rx, within, o]
        total = te.sum(te.cast(value, wide) * te.cast(weight, wide), axis=axes)
        if bias is not None:
            total = total + te.cast(bias[o], wide)
        return te.cast(activate(total, epilogue), dtype or result_dtype(common))

    size = pair[0].outputs, pair[1].outputs
    if nchw:
        return te.compute((n, outputs, *size), element, name=name, axes=["n", "o", "y", "x"])
    return te.compute((n, *size, outputs), lambda n, y, x, o: element(n, o, y, x), name=name)


def depthwise_conv2d(
    x: Tensor,
    w: Tensor,
    *,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: Layout = "NCHW",
    bias: Tensor | None = None,
    epilogue: Activation | None = None,
    dtype: str | None = None,
    name: str = "depthwise",
) -> Tensor:
    """`conv2d` with a group for each input channel.

    NCHW: w (c * m, 1, kh, kw); NHWC: w (kh, kw, 1, c * m), for m outputs of each channel.
    """
    channels = x.extents[-1 if layout == "NHWC" else 1] if x.ndim == 4 else 1
    return conv2d(
        x, w, stride=stride, padding=padding, dilation=dilation, groups=channels, layout=layout,
        bias=bias, epilogue=epilogue, dtype=dtype, name=name,
    )  # fmt: skip


def conv2d_func(
    n: int = 1,
    c: int = 64,
    h: int = 56,
    w: int = 56,
    o: int = 64,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 1,
    dilation: int = 1,
    groups: int = 1,
    dtype: str = "float32",
    *,
    layout: Layout = "NCHW",
    bias: bool = False,
    epilogue: Activation | None = None,
    constant_w: bool = False,
) -> Func:
    """A convolution of square kernels of X (`layout`) with W, and bias (o,) where asked for."""
    nchw = layout == "NCHW"
    group = c // groups
    image = (n, c, h, w) if nchw else (n, h, w, c)
    weights = (o, group, kernel, kernel) if nchw else (kernel, kernel, group, o)
    x = te.placeholder(image, dtype, name="X")
    k = te.placeholder(weights, dtype, name="W", constant=constant_w)
    b = te.placeholder((o,), dtype, name="bias") if bias else None
    y = conv2d(
        x, k, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
        bias=b, epilogue=epilogue, name="Y",
    )  # fmt: skip
    return te.func([x, k, *([] if b is None else [b]), y], name="conv2d")


def depthwise_conv2d_func(
    n: int = 1,
    c: int = 96,
    h: int = 56,
    w: int = 56,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 1,
    multiplier: int = 1,
    dtype: str = "float32",
    *,
    layout: Layout = "NCHW",
    constant_w: bool = False,
) -> Func:
    """A depthwise convolution of square kernels of X (`layout`) with W."""
    func = conv2d_func(
        n, c, h, w, c * multiplier, kernel, stride, padding, 1, c, dtype,
        layout=layout, constant_w=constant_w,
    )  # fmt: skip
    return replace(func, name="depthwise_conv2d")
