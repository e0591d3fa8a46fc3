"""Resizing: places and weights of the elements read are known, one dimension after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank, room, wide
from .pointwise import cast_to

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class _Along:
    """One dimension: its extents, the scale between them, and the part that is resized."""

    axis: int
    extent: int
    size: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    def coordinates(self, mode: str) -> Array:
        """Where in `x` each element of the result is."""
        room(self.size)
        y = np.arange(self.size, dtype=np.float64)
        length, last = self.scale * self.extent, self.extent - 1
        if mode == "asymmetric":
            return y / self.scale
        if mode == "align_corners":
            return y * (last / (length - 1)) if length != 1 else y * 0
        if mode == "half_pixel":
            return (y + 0.5) / self.scale - 0.5
        if mode == "pytorch_half_pixel":
            return (y + 0.5) / self.scale - 0.5 if length != 1 else y * 0 - 0.5
        if mode == "tf_half_pixel_for_nn":
            return (y + 0.5) / self.scale
        if mode == "half_pixel_symmetric":
            margin = self.extent / 2 * (1 - self.size / length)
            return margin + (y + 0.5) / self.scale - 0.5
        if mode == "tf_crop_and_resize":
            start, end = self.roi
            if length == 1:
                return y * 0 + (end - start) * last / 2 + start * last
            return y * ((end - start) * last / (length - 1)) + start * last
        raise Unsupported(Reason.ATTRIBUTE, f"coordinate_transformation_mode={mode!r}")


@onnx_op("Resize", since=11)
def resize(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    rank = x.type.rank
    axes = [in_rank(a, rank) for a in node.attribute("axes") or range(rank)]
    scales, sizes = node.known(2), node.integers(3)
    roi = node.known(1) if node.attribute("coordinate_transformation_mode") == _CROP else None
    along = list[_Along]()
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
        along.append(_Along(axis, x.shape[axis], size, ratio, part))
    return _resized(b, node, along, node.attribute("nearest_mode", "round_prefer_floor"))


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
        _Along(d, e, math.floor(e * s), float(s))
        for d, (e, s) in enumerate(zip(extents, scales, strict=True))
    ]
    node.attributes["coordinate_transformation_mode"] = "asymmetric"
    return _resized(b, node, along, "simple")


_CROP = "tf_crop_and_resize"


def _resized(b: Builder, node: OnnxNode, along: Sequence[_Along], rounding: str) -> Value:
    x, result = node[0], node[0]
    coordinates = node.attribute("coordinate_transformation_mode", "half_pixel")
    mode = node.attribute("mode", "nearest")
    changed = [a for a in along if (a.size, a.scale) != (a.extent, 1) or coordinates == _CROP]
    where = {a.axis: a.coordinates(coordinates) for a in changed}
    if mode == "nearest":
        places = {a.axis: _nearest(where[a.axis], a, rounding) for a in changed}
        result = _taken(b, x, places)
    else:
        result = cast_to(b, x, wide(x))
        for a in sorted(changed, key=lambda a: (a.size / a.extent, -a.axis)):
            found, weights = _weights(where[a.axis], a, mode.removesuffix("_"), node)
            result = b.add(
                "resample", result, b.constant(found, "int32"), b.constant(weights, wide(x)),
                axis=a.axis,
            )  # fmt: skip
        result = cast_to(b, result, x.dtype)
    if coordinates == _CROP:
        outside = np.zeros((1,) * x.type.rank, bool)
        for a in changed:
            own = (where[a.axis] < 0) | (where[a.axis] > a.extent - 1)
            outside = outside | own.reshape([-1 if d == a.axis else 1 for d in range(x.type.rank)])
        if outside.any():
            fill = b.constant(node.attribute("extrapolation_value", 0.0), x.dtype)
            result = b.add("where", b.constant(outside), fill, result)
    return result


def _nearest(where: Array, along: _Along, rounding: str) -> Array:
    """The places of the nearest elements."""
    if rounding == "simple":  # before there was an attribute
        rounding = "ceil" if along.scale < 1 else "floor"
    rounded = _ROUNDINGS.get(rounding)
    if rounded is None:
        raise Unsupported(Reason.ATTRIBUTE, f"nearest_mode={rounding!r}")
    return np.clip(rounded(where), 0, along.extent - 1).astype(np.int64)


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda w: np.asarray(np.ceil(w - 0.5)),
    "round_prefer_ceil": lambda w: np.asarray(np.floor(w + 0.5)),
}


def _taken(b: Builder, x: Value, places: dict[int, Array]) -> Value:
    """The elements at known places along some dimensions: by a formula where there is one."""
    scales, shape = [(1, 0, 1)] * x.type.rank, list(x.shape)
    rest = dict[int, Array]()
    for axis, own in places.items():
        scale = _formula(own, x.shape[axis])
        if scale is None:
            rest[axis] = own
        else:
            scales[axis], shape[axis] = scale, len(own)
    value = x
    if shape != list(x.shape) or any(s != (1, 0, 1) for s in scales):
        value = b.add("resize_nearest", x, scales=tuple(scales), shape=tuple(shape))
    for axis, own in rest.items():
        value = b.add("take", value, b.constant(own, "int32"), axis=axis)
    return value


def _formula(places: Array, extent: int) -> tuple[int, int, int] | None:
    """Numbers (m, s, d) such that place i is `(i * m + s) // d`, if there are small ones."""
    size = len(places)
    common = math.gcd(extent, size)
    i = np.arange(size)
    for times in (1, 2):
        m, d = times * extent // common, times * size // common
        if d > 64:
            return None
        for s in range(int(places[0]) * d, int(places[0] + 1) * d):
            if ((i * m + s) // d == places).all():
                return m, s, d
    return None


def _weights(where: Array, along: _Along, mode: str, node: OnnxNode) -> tuple[Array, Array]:
    """The places (size, taps) that each element reads, and their weights."""
    if mode not in ("linear", "cubic"):
        raise Unsupported(Reason.ATTRIBUTE, f"mode={mode!r}")
    smooth = bool(node.attribute("antialias", 0))
    stretch = min(along.scale, 1.0) if smooth else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / stretch)
    room(len(where), 2 * reach)
    places = np.floor(where)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(places - where[:, None]) * stretch
    if mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        a = node.attribute("cubic_coeff_a", -0.75)
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    inside = (places >= 0) & (places < along.extent)
    excluded = bool(node.attribute("exclude_outside", 0))
    if excluded:
        weights = weights * inside
    if excluded or smooth:
        weights = weights / weights.sum(1, keepdims=True)
    kept = weights.any(0)
    places = np.clip(places, 0, along.extent - 1).astype(np.int64)
    return places[:, kept], weights[:, kept]
