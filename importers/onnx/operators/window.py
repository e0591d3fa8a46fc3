"""Windows of convolutions and pooling, resizing, grids and regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.compose.basics import in_rank
from ....graph.compose.contraction import Convolution, biased, same_padding
from ....graph.compose.deformable import deformable_conv
from ....graph.compose.sampling import (
    COORDINATES,
    CROP,
    ROUNDINGS,
    Along,
    Kernel,
    Window,
    affine_grid,
    average_pool,
    lp_pool,
    resized,
    unpooled,
)
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op

MAX_STEP = 2**31 - 1


def edges(
    node: OnnxNode,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each spatial dimension, by `pads` or `auto_pad`.

    Raises `ModelError` for windows of another rank, and for steps that none takes.
    """
    rank = len(extents)
    for name, steps in (("kernel", kernel), ("strides", strides), ("dilations", dilations)):
        if len(steps) != rank or not all(0 < step <= MAX_STEP for step in steps):
            raise ModelError(
                "expected {0} {1} from 1 to {2}, found {3}", rank, name, MAX_STEP, steps
            )
    auto = node.attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = node.attribute("pads") or (0,) * (2 * rank)
        return tuple(pads[:rank]), tuple(pads[rank:])
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(Reason.ATTRIBUTE, f"auto_pad={auto!r}")
    sides = same_padding(extents, kernel, strides, dilations)
    if auto == "SAME_LOWER":
        sides = [(large, small) for small, large in sides]
    return tuple(first for first, _ in sides), tuple(last for _, last in sides)


def convolution(node: OnnxNode, x: Value, w: Value) -> Convolution:
    """The attributes of the convolution of `x` with weights `w`."""
    rank = x.type.rank - 2
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    before, after = edges(node, x.shape[2:], w.shape[2:], strides, dilations)
    return Convolution(strides, before, after, dilations, node.attribute("group", 1))


def _window(node: OnnxNode) -> Window:
    """The window of pooling, with the padding that is declared."""
    kernel = tuple(node.attributes["kernel_shape"])
    strides = tuple(node.attribute("strides") or (1,) * len(kernel))
    dilations = tuple(node.attribute("dilations") or (1,) * len(kernel))
    before, after = edges(node, node[0].shape[2:], kernel, strides, dilations)
    return Window(kernel, strides, before, after, dilations)


def _whole(node: OnnxNode, window: Window) -> Window:
    return window.with_last(node[0].shape[2:]) if node.attribute("ceil_mode", 0) else window


@onnx_op("MaxPool")
def max_pool(b: Builder, node: OnnxNode) -> Value:
    if any(node.outputs[1:]):
        raise Unsupported(Reason.ATTRIBUTE, "the output Indices")
    return _whole(node, _window(node)).of(b, "max_pool", node[0])


@onnx_op("AveragePool")
def average(b: Builder, node: OnnxNode) -> Value:
    """Of the elements of a window, or with `count_include_pad` of the declared padding too."""
    ceil, padding = (bool(node.attribute(n, 0)) for n in ("ceil_mode", "count_include_pad"))
    return average_pool(b, node[0], _window(node), ceil=ceil, count_padding=padding)


@onnx_op("LpPool")
def lp(b: Builder, node: OnnxNode) -> Value:
    return lp_pool(b, node[0], node.attribute("p", 2), _whole(node, _window(node)))


@onnx_op("GlobalLpPool")
def global_lp(b: Builder, node: OnnxNode) -> Value:
    return lp_pool(b, node[0], node.attribute("p", 2), None)


@onnx_op("MaxUnpool", since=9)
def max_unpool(b: Builder, node: OnnxNode) -> Value:
    x, kernel, wanted = node[0], node.attributes["kernel_shape"], node.integers(2)
    rank = len(kernel)
    strides = node.attribute("strides") or (1,) * rank
    pads = node.attribute("pads") or (0,) * (2 * rank)
    extents = [
        (e - 1) * s - pads[n] - pads[n + rank] + k
        for n, (e, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    inner = (*x.shape[:2], *extents)
    value = unpooled(b, x, node[1], inner)
    if wanted is not None and tuple(wanted) != inner:
        after = tuple(w - e for w, e in zip(wanted, inner, strict=True))
        value = b.add("pad", value, before=(0,) * len(inner), after=after)
    return value


@onnx_op("DeformConv", since=19)
def deform_conv(b: Builder, node: OnnxNode) -> Value:
    x, w = node[0], node[1]
    y = deformable_conv(b, x, w, node[2], node.get(4), convolution(node, x, w))
    return biased(b, y, node.get(3))


@onnx_op("Resize", since=11)
def resize(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    rank = x.type.rank
    axes = [in_rank(a, rank) for a in node.attribute("axes") or range(rank)]
    scales, sizes = node.known(2), node.integers(3)
    roi = node.known(1) if node.attribute("coordinate_transformation_mode") == CROP else None
    along = list[Along]()
    if sizes:
        ratios = [s / x.shape[a] for a, s in zip(axes, sizes, strict=True)]
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [(max if policy == "not_smaller" else min)(ratios)] * len(axes)
            sizes = tuple(
                math.floor(r * x.shape[a] + 0.5) for a, r in zip(axes, ratios, strict=True)
            )
    elif scales is not None and scales.size:
        ratios = [float(s) for s in scales.reshape(-1)]
        sizes = tuple(math.floor(r * x.shape[a]) for a, r in zip(axes, ratios, strict=True))
    else:
        raise ModelError("Resize has neither scales nor sizes")
    for n, (axis, size, ratio) in enumerate(zip(axes, sizes, ratios, strict=True)):
        part = (0.0, 1.0)
        if roi is not None and roi.size:
            part = float(roi[n]), float(roi[n + len(axes)])
        if size < 1 or not ratio > 0:
            raise Unsupported(Reason.ATTRIBUTE, f"a size of {size}")
        along.append(Along(axis, x.shape[axis], size, ratio, part))
    coordinates = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    return _resized(b, node, along, rounding, coordinates)


@onnx_op("Resize", since=10)
@onnx_op("Upsample", since=9)
def resize_by_scales(b: Builder, node: OnnxNode) -> Value:
    scales = node.known(1)
    assert scales is not None
    return _scaled(b, node, [float(s) for s in scales])


@onnx_op("Upsample", since=7)
def upsample_by_attribute(b: Builder, node: OnnxNode) -> Value:
    return _scaled(b, node, node.attributes["scales"])


def _scaled(b: Builder, node: OnnxNode, scales: Sequence[float]) -> Value:
    extents = node[0].shape
    along = [
        Along(d, e, math.floor(e * s), float(s))
        for d, (e, s) in enumerate(zip(extents, scales, strict=True))
    ]
    return _resized(b, node, along, "simple", "asymmetric")


def _resized(
    b: Builder, node: OnnxNode, along: Sequence[Along], rounding: str, coordinates: str
) -> Value:
    mode = node.attribute("mode", "nearest").removesuffix("_")
    if coordinates not in COORDINATES:
        raise Unsupported(Reason.ATTRIBUTE, f"coordinate_transformation_mode={coordinates!r}")
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(Reason.ATTRIBUTE, f"mode={mode!r}")
    if mode == "nearest" and rounding not in (*ROUNDINGS, "simple"):
        raise Unsupported(Reason.ATTRIBUTE, f"nearest_mode={rounding!r}")
    kernel = Kernel(
        cubic=node.attribute("cubic_coeff_a", -0.75) if mode == "cubic" else None,
        antialias=bool(node.attribute("antialias", 0)),
        exclude_outside=bool(node.attribute("exclude_outside", 0)),
    )
    return resized(
        b,
        node[0],
        along,
        coordinates=coordinates,
        kernel=None if mode == "nearest" else kernel,
        rounding=lambda a: _simple(a) if rounding == "simple" else rounding,
        outside=node.attribute("extrapolation_value", 0.0),
    )


def _simple(along: Along) -> str:
    """How was rounded before there was an attribute."""
    return "ceil" if along.scale < 1 else "floor"


_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@onnx_op("GridSample", since=16)
def grid_sample(b: Builder, node: OnnxNode) -> Value:
    mode = node.attribute("mode", "linear")
    return b.add(
        "grid_sample",
        node[0],
        node[1],
        mode=_MODES.get(mode, mode),
        padding=node.attribute("padding_mode", "zeros"),
        align=bool(node.attribute("align_corners", 0)),
    )


@onnx_op("AffineGrid", since=20)
def grid(b: Builder, node: OnnxNode) -> Value:
    align = bool(node.attribute("align_corners", 0))
    return affine_grid(b, node[0], node.integers(1) or (), align=align)


@onnx_op("RoiAlign", since=10)
def roi_align_without_offset(b: Builder, node: OnnxNode) -> Value:
    return _roi_align(b, node, half=False)


@onnx_op("RoiAlign", since=16)
def roi_align(b: Builder, node: OnnxNode) -> Value:
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    return _roi_align(b, node, half=mode == "half_pixel")


def _roi_align(b: Builder, node: OnnxNode, *, half: bool) -> Value:
    samples = node.attribute("sampling_ratio", 0)
    if samples < 1:
        raise Unsupported(Reason.DATA_DEPENDENT, "sampling_ratio=0: regions decide the samples")
    return b.add(
        "roi_align",
        node[0],
        node[1],
        node[2],
        size=(node.attribute("output_height", 1), node.attribute("output_width", 1)),
        samples=samples,
        scale=node.attribute("spatial_scale", 1.0),
        half=half,
        largest=node.attribute("mode", "avg") == "max",
    )
