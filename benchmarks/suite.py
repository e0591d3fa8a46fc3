"""The kernels that are compared: shapes, data, and what the right result is. Needs only numpy and
ml_dtypes, which makes numpy know the names of narrow floats.

Convolutions are layers of ResNet-50 and MobileNetV2 at batch 1, in NCHW. Their weights, and B where
it is called constant, are known ahead of time: who can pack them beforehand may. The pipelines of
stencils are written in `pipelines.py`.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes  # noqa: F401  (importing it is what does so)
import numpy as np

from . import pipelines

Array = np.ndarray[Any, Any]
Params = dict[str, Any]
LINE = 64
OWN_PAGES = 64 << 10
"""Bytes from which an array has pages that nothing else had before."""
HUGE_PAGE = 2 << 20


@dataclass(frozen=True)
class Case:
    """A kernel of given shapes.

    `flops` and `bytes` are of one call; the rate is told in the unit that limits the kernel.
    `small` has other parameters, for trying things out.
    """

    name: str
    op: str
    params: Params
    small: Params = field(default_factory=dict)

    @property
    def flops(self) -> float:
        return _FLOPS[self.op](self.params) if self.op in _FLOPS else 0.0

    @property
    def bytes(self) -> float:
        """Of the arguments and the result, each counted once."""
        return float(sum(math.prod(shape) * np.dtype(name).itemsize for shape, name in self.arrays))

    def rate(self, seconds: float) -> str:
        """How fast a call of so many seconds is."""
        if self.op == "int8_matmul":
            return f"{self.flops / seconds / 1e9:.0f} Gop/s"
        if self.flops > 8 * self.bytes:
            return f"{self.flops / seconds / 1e9:.1f} GFLOP/s"
        return f"{self.bytes / seconds / 1e9:.1f} GB/s"

    @property
    def arrays(self) -> list[tuple[tuple[int, ...], str]]:
        """Shapes and dtypes of the arguments, and of the result."""
        return [*_SHAPES[self.op](self.params), _RESULT[self.op](self.params)]

    def shrunk(self) -> Case:
        """The case with its small parameters."""
        return replace(self, name=f"small {self.name}", params={**self.params, **self.small})


def _matmul(name: str, n: int, m: int, k: int, **more: Any) -> Case:
    small = {"n": min(n, 32), "m": min(m, 48), "k": min(k, 64)}
    return Case(name, "matmul", {"n": n, "m": m, "k": k, **more}, small)


def _conv(name: str, c: int, size: int, o: int, kernel: int, **more: Any) -> Case:
    params = {"c": c, "size": size, "o": o, "kernel": kernel, "stride": 1, "padding": kernel // 2}
    groups = {"c": 8, "o": 8, "groups": 8} if more.get("groups", 1) > 1 else {}
    small = {"c": min(c, 8), "o": min(o, 16), "size": min(size, 14), **groups}
    return Case(name, "conv2d", {**params, **more}, small)


_SMALL_MATRIX = {"n": 64, "m": 96}

SUITE: tuple[Case, ...] = (
    _matmul("matmul 128^3", 128, 128, 128),
    _matmul("matmul 512^3", 512, 512, 512),
    _matmul("matmul 1024^3", 1024, 1024, 1024),
    _matmul("matmul 2048^3", 2048, 2048, 2048),
    _matmul("gemv 1x4096x4096", 1, 4096, 4096),
    _matmul("matmul 16x4096x1024", 16, 4096, 1024),
    _matmul("matmul 16x4096x1024, constant B", 16, 4096, 1024, constant_b=True),
    _matmul("matmul 12 x 128x64x128", 128, 128, 64, batch=12),
    _conv("conv 7x7 stride 2, 3x224 -> 64", 3, 224, 64, 7, stride=2),
    _conv("conv 3x3, 64x56x56 -> 64", 64, 56, 64, 3),
    _conv("conv 3x3, 256x14x14 -> 256", 256, 14, 256, 3),
    _conv("conv 3x3, 512x7x7 -> 512", 512, 7, 512, 3),
    _conv("conv 1x1, 64x56x56 -> 256", 64, 56, 256, 1),
    _conv("depthwise 3x3, 96x56x56", 96, 56, 96, 3, groups=96),
    _conv("conv 3x3, 64x56x56 -> 64, bias, relu", 64, 56, 64, 3, bias=True, epilogue="relu"),
    _matmul("matmul 512x3072x768, bias, gelu", 512, 3072, 768, bias=True, epilogue="gelu"),
    Case("softmax 1024x1024", "softmax", {"n": 1024, "m": 1024}, _SMALL_MATRIX),
    Case("layer_norm 512x768", "layer_norm", {"n": 512, "m": 768}, _SMALL_MATRIX),
    Case("relu(a + b), 16M", "add_relu", {"n": 1 << 24}, {"n": 1 << 12}),
    Case("sum over axis 0, 4096^2", "sum", {"n": 4096, "m": 4096, "axis": 0}, _SMALL_MATRIX),
    Case("sum over axis 1, 4096^2", "sum", {"n": 4096, "m": 4096, "axis": 1}, _SMALL_MATRIX),
    Case("transpose 4096^2", "transpose", {"n": 4096, "m": 4096}, _SMALL_MATRIX),
    Case(
        "attention 1x12x128x64",
        "attention",
        {"batch": 1, "heads": 12, "sequence": 128, "dim": 64},
        {"heads": 2, "sequence": 24, "dim": 16},
    ),
    Case(
        "int8 matmul 1024^3",
        "int8_matmul",
        {"n": 1024, "m": 1024, "k": 1024},
        {"n": 32, "m": 48, "k": 64},
    ),
)

PIPELINES: tuple[Case, ...] = tuple(
    Case(name, "pipeline", {"pipeline": name, "shape": p.shape}, {"shape": p.small})
    for name, p in pipelines.PIPELINES.items()
)


def find(name: str) -> Case:
    """The case of a name, `small` ones too."""
    for case in (*SUITE, *PIPELINES):
        for candidate in (case, case.shrunk()):
            if candidate.name == name:
                return candidate
    raise KeyError(name)


def inputs(case: Case) -> list[Array]:
    """The arguments, the same in every process."""
    rng = np.random.default_rng(0)
    arrays: list[Array] = []
    for shape, dtype in _SHAPES[case.op](case.params):
        array = empty(shape, dtype)
        if dtype == "uint8":
            array[...] = rng.integers(0, 128, shape, np.uint8)
        elif dtype == "int8":
            array[...] = rng.integers(-127, 128, shape, np.int8)
        else:
            array[...] = rng.uniform(-1, 1, shape)
        arrays.append(array)
    return arrays


def output(case: Case) -> Array:
    """An array for the result."""
    return empty(*_RESULT[case.op](case.params))


def empty(shape: tuple[int, ...], dtype: str) -> Array:
    """An array that starts a line of the cache, a page, or a huge page, if it fills one.

    Which pages and which offset the memory of a process happens to have makes the same code up to
    1.3 times as fast, so it must be no matter of luck which library has better ones.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < OWN_PAGES:
        memory, unit = np.empty(size + LINE, np.uint8), LINE
    else:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        unit = HUGE_PAGE if size >= HUGE_PAGE else mmap.PAGESIZE
        pages = mmap.mmap(-1, size + unit, flags=private)
        if unit == HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        memory = np.frombuffer(pages, np.uint8)
    start = -memory.ctypes.data % unit
    return memory[start : start + size].view(dtype).reshape(shape)


def reference(case: Case, arrays: list[Array]) -> Array:
    """The result, by numpy."""
    return np.asarray(_REFERENCE[case.op](case.params, *arrays))


def error(found: Array, expected: Array) -> float:
    """The largest deviation, relative to the largest value."""
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(found.astype(np.float64) - expected).max()) / scale


def conv_output(p: Params) -> int:
    return int((p["size"] + 2 * p["padding"] - p["kernel"]) // p["stride"] + 1)


_Shapes = list[tuple[tuple[int, ...], str]]


def dtype_of(p: Params) -> str:
    """The dtype of the arrays of a case that has one for all."""
    return str(p.get("dtype", "float32"))


def _matmul_shapes(p: Params) -> _Shapes:
    lead = (p["batch"],) if "batch" in p else ()
    shapes: _Shapes = [((*lead, p["n"], p["k"]), "f4"), ((*lead, p["k"], p["m"]), "f4")]
    return [*shapes, ((p["m"],), "f4")] if p.get("bias") else shapes


def _conv_shapes(p: Params) -> _Shapes:
    weights = (p["o"], p["c"] // p.get("groups", 1), p["kernel"], p["kernel"])
    shapes: _Shapes = [((1, p["c"], p["size"], p["size"]), "f4"), (weights, "f4")]
    return [*shapes, ((p["o"],), "f4")] if p.get("bias") else shapes


def _pipeline_shapes(p: Params) -> _Shapes:
    return [(p["shape"], dtype) for dtype in pipelines.PIPELINES[p["pipeline"]].dtypes]


_SHAPES: dict[str, Callable[[Params], _Shapes]] = {
    "matmul": _matmul_shapes,
    "conv2d": _conv_shapes,
    "softmax": lambda p: [((p["n"], p["m"]), dtype_of(p))],
    "layer_norm": lambda p: [((p["n"], p["m"]), dtype_of(p)), *[((p["m"],), dtype_of(p))] * 2],
    "add_relu": lambda p: [((p["n"],), dtype_of(p))] * 2,
    "sum": lambda p: [((p["n"], p["m"]), dtype_of(p))],
    "transpose": lambda p: [((p["n"], p["m"]), dtype_of(p))],
    "attention": lambda p: [((p["batch"], p["heads"], p["sequence"], p["dim"]), "f4")] * 3,
    "int8_matmul": lambda p: [((p["n"], p["k"]), "uint8"), ((p["k"], p["m"]), "int8")],
    "half_matmul": lambda p: [((p["n"], p["k"]), p["dtype"]), ((p["k"], p["m"]), p["dtype"])],
    "pipeline": _pipeline_shapes,
}

_RESULT: dict[str, Callable[[Params], tuple[tuple[int, ...], str]]] = {
    "matmul": lambda p: ((*((p["batch"],) if "batch" in p else ()), p["n"], p["m"]), "f4"),
    "conv2d": lambda p: ((1, p["o"], conv_output(p), conv_output(p)), "f4"),
    "softmax": lambda p: ((p["n"], p["m"]), dtype_of(p)),
    "layer_norm": lambda p: ((p["n"], p["m"]), dtype_of(p)),
    "add_relu": lambda p: ((p["n"],), dtype_of(p)),
    "sum": lambda p: ((p["m"] if p["axis"] == 0 else p["n"],), "f4"),
    "transpose": lambda p: ((p["m"], p["n"]), dtype_of(p)),
    "attention": lambda p: ((p["batch"], p["heads"], p["sequence"], p["dim"]), "f4"),
    "int8_matmul": lambda p: ((p["n"], p["m"]), "int32"),
    "half_matmul": lambda p: ((p["n"], p["m"]), p["dtype"]),
    "pipeline": lambda p: (p["shape"], "f4"),
}

_FLOPS: dict[str, Callable[[Params], float]] = {
    "matmul": lambda p: 2.0 * p.get("batch", 1) * p["n"] * p["m"] * p["k"],
    "int8_matmul": lambda p: 2.0 * p["n"] * p["m"] * p["k"],
    "half_matmul": lambda p: 2.0 * p["n"] * p["m"] * p["k"],
    "conv2d": lambda p: (
        2.0 * p["o"] * conv_output(p) ** 2 * p["c"] // p.get("groups", 1) * p["kernel"] ** 2
    ),
    "attention": lambda p: 4.0 * p["batch"] * p["heads"] * p["sequence"] ** 2 * p["dim"],
}


def _reference_matmul(p: Params, a: Array, b: Array, bias: Array | None = None) -> Array:
    c = a @ b
    if bias is not None:
        c += bias
    return gelu(c) if p.get("epilogue") == "gelu" else c


def _reference_conv(p: Params, x: Array, w: Array, bias: Array | None = None) -> Array:
    pad, stride, kernel, groups = p["padding"], p["stride"], p["kernel"], p.get("groups", 1)
    padded = np.pad(x[0], [(0, 0), (pad, pad), (pad, pad)])
    size = conv_output(p)
    y = np.zeros((p["o"], size, size), np.float32)
    for i in range(kernel):
        for j in range(kernel):
            rows = slice(i, i + stride * (size - 1) + 1, stride)
            columns = slice(j, j + stride * (size - 1) + 1, stride)
            part = padded[:, rows, columns]
            if groups > 1:
                y += part * w[:, 0, i, j, None, None]
            else:
                y += np.tensordot(w[:, :, i, j], part, axes=1)
    if bias is not None:
        y += bias[:, None, None]
    return (np.maximum(y, 0) if p.get("epilogue") == "relu" else y)[None]


def softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + 1e-5) * gamma + beta)


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    scores *= 1 / math.sqrt(q.shape[-1])
    return np.asarray(softmax(scores) @ v)


def gelu(x: Array) -> Array:
    """x * Phi(x); the error function by formula 7.1.26 of Abramowitz and Stegun, to 1.5e-7."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    coefficients = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    sum_ = np.zeros_like(x)
    for c in coefficients:
        sum_ = (sum_ + np.float32(c)) * t
    erf = np.sign(x) * (1 - sum_ * np.exp(-z * z))
    return np.asarray(x * np.float32(0.5) * (1 + erf))


def _reference_pipeline(p: Params, *arrays: Array) -> Array:
    build = pipelines.PIPELINES[p["pipeline"]].build
    return np.asarray(build(pipelines.Numpy(), p["shape"], *arrays))


_REFERENCE: dict[str, Callable[..., Array]] = {
    "matmul": _reference_matmul,
    "conv2d": _reference_conv,
    "softmax": lambda _, x: softmax(x),
    "layer_norm": lambda _, *arrays: layer_norm(*arrays),
    "add_relu": lambda _, a, b: np.maximum(a + b, 0),
    "sum": lambda p, x: x.sum(axis=p["axis"]),
    "transpose": lambda _, x: x.T,
    "attention": lambda _, *arrays: attention(*arrays),
    "int8_matmul": lambda _, a, b: (a.astype("f8") @ b.astype("f8")).astype("i4"),
    "half_matmul": lambda _, a, b: (a.astype("f4") @ b.astype("f4")).astype(a.dtype),
    "pipeline": _reference_pipeline,
}
