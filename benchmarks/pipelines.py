"""Pipelines of stencils, each written once for three languages: `te`, Halide and numpy.

A pipeline is a function of a `Language`, the shape of the result, and inputs of the same shape.
Every stage is a formula over the indices of an element. Borders are clamped, wrapped or masked in
the formula itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Shape = tuple[int, ...]
Builder = Callable[..., Any]


class Language(Protocol):
    """The operations that formulas use besides arithmetic; `%` and `//` are of integers >= 0."""

    def stage(self, shape: Shape, formula: Callable[..., Any], name: str) -> Any:
        """The array with `formula(*indices)` as its elements."""

    def number(self, value: float) -> Any:
        """A float32 constant."""

    def clamp(self, index: Any, extent: int) -> Any:
        """The nearest index from 0 to `extent` - 1."""

    def maximum(self, a: Any, b: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def abs(self, x: Any) -> Any: ...
    def select(self, condition: Any, a: Any, b: Any) -> Any: ...


@dataclass(frozen=True)
class Pipeline:
    """A pipeline: `build(language, shape, *inputs)` is its result.

    The inputs have the shape of the result and one of `dtypes` each. `small` is a shape for trying
    things out.
    """

    build: Builder
    shape: Shape
    small: Shape
    dtypes: tuple[str, ...]


PIPELINES: dict[str, Pipeline] = {}


def _pipeline(
    name: str, shape: Shape, small: Shape, dtypes: tuple[str, ...] = ("float32",)
) -> Callable[[Builder], Builder]:
    """Register a pipeline."""

    def register(build: Builder) -> Builder:
        PIPELINES[name] = Pipeline(build, shape, small, dtypes)
        return build

    return register


def _sum(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _taps(t: Language, x: Any, shape: Shape, axis: int, weights: Sequence[float], name: str) -> Any:
    """A window of odd length along one axis, clamped at the borders."""
    reach = len(weights) // 2

    def formula(*at: Any) -> Any:
        terms = []
        for k, weight in enumerate(weights):
            index = list(at)
            index[axis] = t.clamp(at[axis] + (k - reach), shape[axis])
            terms.append(x[tuple(index)] * t.number(weight))
        return _sum(terms)

    return t.stage(shape, formula, name)


_THREE = (0.25, 0.5, 0.25)
_FIVE = (0.0625, 0.25, 0.375, 0.25, 0.0625)
_MEAN = (0.2,) * 5


@_pipeline("blur 3x3", (1021, 770), small=(13, 18))
def _blur(t: Language, shape: Shape, x: Any) -> Any:
    rows = _taps(t, x, shape, 0, _THREE, "rows")
    return _taps(t, rows, shape, 1, _THREE, "blurred")


@_pipeline("unsharp mask", (512, 640), small=(16, 24))
def _unsharp(t: Language, shape: Shape, x: Any) -> Any:
    rows = _taps(t, x, shape, 0, _FIVE, "rows")
    soft = _taps(t, rows, shape, 1, _FIVE, "soft")
    return t.stage(
        shape, lambda i, j: x[i, j] * t.number(2.5) - soft[i, j] * t.number(1.5), "sharp"
    )


@_pipeline("9 points, three times", (511, 700), small=(11, 20))
def _nine_points(t: Language, shape: Shape, x: Any) -> Any:
    n, m = shape

    def step(a: Any, name: str) -> Any:
        def formula(i: Any, j: Any) -> Any:
            terms = []
            for di in (-1, 0, 1):
                for dj in (-1, 0, 1):
                    weight = t.number(0.2 if di == dj == 0 else 0.1)
                    terms.append(a[t.clamp(i + di, n), t.clamp(j + dj, m)] * weight)
            return _sum(terms)

        return t.stage(shape, formula, name)

    return step(step(step(x, "first"), "second"), "third")


@_pipeline("sobel", (601, 777), small=(13, 17))
def _sobel(t: Language, shape: Shape, x: Any) -> Any:
    dx, dy = _gradients(t, shape, x)
    return t.stage(
        shape, lambda i, j: t.sqrt(dx[i, j] * dx[i, j] + dy[i, j] * dy[i, j]), "magnitude"
    )


def _gradients(t: Language, shape: Shape, x: Any) -> tuple[Any, Any]:
    """Sobel's derivatives along the columns and along the rows."""
    n, m = shape

    def along(i: Any, j: Any, *, rows: bool) -> Any:
        terms = []
        for side, sign in ((1, 1.0), (-1, -1.0)):
            for k, weight in ((-1, 1.0), (0, 2.0), (1, 1.0)):
                di, dj = (side, k) if rows else (k, side)
                value = x[t.clamp(i + di, n), t.clamp(j + dj, m)]
                terms.append(value * t.number(sign * weight))
        return _sum(terms)

    return (
        t.stage(shape, lambda i, j: along(i, j, rows=False), "dx"),
        t.stage(shape, lambda i, j: along(i, j, rows=True), "dy"),
    )


@_pipeline("harris corners", (480, 600), small=(12, 20))
def _harris(t: Language, shape: Shape, x: Any) -> Any:
    n, m = shape
    dx, dy = _gradients(t, shape, x)

    def window(a: Any, b: Any, name: str) -> Any:
        def formula(i: Any, j: Any) -> Any:
            terms = []
            for di in (-1, 0, 1):
                for dj in (-1, 0, 1):
                    p, q = t.clamp(i + di, n), t.clamp(j + dj, m)
                    terms.append(a[p, q] * b[p, q])
            return _sum(terms)

        return t.stage(shape, formula, name)

    xx, xy, yy = window(dx, dx, "xx"), window(dx, dy, "xy"), window(dy, dy, "yy")

    def response(i: Any, j: Any) -> Any:
        trace = xx[i, j] + yy[i, j]
        determinant = xx[i, j] * yy[i, j] - xy[i, j] * xy[i, j]
        return determinant - trace * trace * t.number(0.04)

    return t.stage(shape, response, "response")


@_pipeline("heat, wrapped, four times", (640, 512), small=(20, 16))
def _heat(t: Language, shape: Shape, x: Any) -> Any:
    n, m = shape

    def step(a: Any, name: str) -> Any:
        def formula(i: Any, j: Any) -> Any:
            rows = a[(i + 1) % n, j] + a[(i + (n - 1)) % n, j]
            columns = a[i, (j + 1) % m] + a[i, (j + (m - 1)) % m]
            return a[i, j] * t.number(0.6) + (rows + columns) * t.number(0.1)

        return t.stage(shape, formula, name)

    return step(step(step(step(x, "first"), "second"), "third"), "fourth")


@_pipeline("masked mean", (450, 611), small=(10, 19), dtypes=("float32", "uint8"))
def _masked(t: Language, shape: Shape, x: Any, mask: Any) -> Any:
    """The mean of the neighbours whose mask is at least 64, which is half of the random ones."""
    n, m = shape
    zero, one = t.number(0.0), t.number(1.0)

    def window(a: Any, name: str) -> Any:
        def formula(i: Any, j: Any) -> Any:
            near = [(i + di, j + dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)]
            return _sum([a[t.clamp(p, n), t.clamp(q, m)] for p, q in near])

        return t.stage(shape, formula, name)

    kept = t.stage(shape, lambda i, j: t.select(mask[i, j] >= 64, x[i, j], zero), "kept")
    ones = t.stage(shape, lambda i, j: t.select(mask[i, j] >= 64, one, zero), "ones")
    total, count = window(kept, "total"), window(ones, "count")
    return t.stage(shape, lambda i, j: total[i, j] / t.maximum(count[i, j], one), "mean")


@_pipeline("pyramid level", (512, 768), small=(16, 24))
def _pyramid(t: Language, shape: Shape, x: Any) -> Any:
    """The difference to the half-size image scaled up again; both sizes are even."""
    n, m = shape
    half, quarter = t.number(0.5), t.number(0.25)

    def down(middle: Any, before: Any, after: Any) -> Any:
        return (middle * t.number(2.0) + before + after) * quarter

    rows = t.stage(
        (n // 2, m),
        lambda i, j: down(x[i * 2, j], x[t.clamp(i * 2 - 1, n), j], x[i * 2 + 1, j]),
        "rows",
    )
    small = t.stage(
        (n // 2, m // 2),
        lambda i, j: down(rows[i, j * 2], rows[i, t.clamp(j * 2 - 1, m)], rows[i, j * 2 + 1]),
        "small",
    )
    tall = t.stage(
        (n, m // 2),
        lambda i, j: (small[i // 2, j] + small[t.clamp((i + 1) // 2, n // 2), j]) * half,
        "tall",
    )
    large = t.stage(
        (n, m),
        lambda i, j: (tall[i, j // 2] + tall[i, t.clamp((j + 1) // 2, m // 2)]) * half,
        "large",
    )
    return t.stage((n, m), lambda i, j: x[i, j] - large[i, j], "detail")


@_pipeline("7 points of 3-D, twice", (64, 80, 96), small=(6, 8, 18))
def _seven_points(t: Language, shape: Shape, x: Any) -> Any:
    def step(a: Any, name: str) -> Any:
        def formula(*at: Any) -> Any:
            terms = []
            for axis in range(3):
                for d in (-1, 1):
                    index = list(at)
                    index[axis] = t.clamp(at[axis] + d, shape[axis])
                    terms.append(a[tuple(index)])
            return a[at] * t.number(0.4) + _sum(terms) * t.number(0.1)

        return t.stage(shape, formula, name)

    return step(step(x, "first"), "second")


@_pipeline("local contrast", (3, 300, 400), small=(3, 12, 20))
def _contrast(t: Language, shape: Shape, x: Any) -> Any:
    """Three channels, by the grey image's distance from its mean; `spread` is along rows only."""
    plane = shape[1:]
    weights = [t.number(weight) for weight in (0.299, 0.587, 0.114)]
    grey = t.stage(
        plane, lambda i, j: _sum([x[c, i, j] * w for c, w in enumerate(weights)]), "grey"
    )
    rows = _taps(t, grey, plane, 0, _MEAN, "rows")
    mean = _taps(t, rows, plane, 1, _MEAN, "mean")
    away = t.stage(plane, lambda i, j: t.abs(grey[i, j] - mean[i, j]), "away")
    spread = _taps(t, away, plane, 1, _MEAN, "spread")

    def contrast(c: Any, i: Any, j: Any) -> Any:
        return (x[c, i, j] - mean[i, j]) / (spread[i, j] + t.number(0.01))

    return t.stage(shape, contrast, "contrast")


class Numpy:
    """The language of the reference: whole arrays, indexed by open grids."""

    def stage(self, shape: Shape, formula: Callable[..., Any], name: str) -> Any:
        del name
        values = formula(*np.ogrid[tuple(map(slice, shape))])
        return np.ascontiguousarray(np.broadcast_to(values, shape))

    def number(self, value: float) -> Any:
        return np.float32(value)

    def clamp(self, index: Any, extent: int) -> Any:
        return np.clip(index, 0, extent - 1)

    def maximum(self, a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def abs(self, x: Any) -> Any:
        return np.abs(x)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)
