"""Kernels of random shapes: what a tuner meets that nobody wrote a benchmark for.

Sizes are drawn evenly on a logarithmic scale. Half of them are multiples of 16, the others are what
they are, so that primes and remainders are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .suite import Case, Params

Draw = Callable[[np.random.Generator], Params]
MOST_FLOPS = 4e9
MOST_BYTES = 64e6


def cases(seed: int) -> Iterator[Case]:
    """Cases without end, of each operator in turn; none takes longer than a few milliseconds."""
    rng = np.random.default_rng(seed)
    while True:
        for name in rng.permutation(sorted(_DRAWS)):
            yield _drawn(str(name), rng)


def _drawn(name: str, rng: np.random.Generator) -> Case:
    """A case that is small enough: drawn again until it is."""
    op, draw = _DRAWS[name]
    while True:
        params = draw(rng)
        text = " ".join(f"{k}={v}" for k, v in params.items())
        case = Case(f"{name} {text}", op, params)
        if case.flops <= MOST_FLOPS and case.bytes <= MOST_BYTES:
            return case


def size(rng: np.random.Generator, low: int, high: int) -> int:
    """A size from `low` to `high`, on a logarithmic scale; every other one of them is round."""
    value = round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
    if high >= 32 and rng.random() < 0.5:
        value = max(16, round(value / 16) * 16)
    return min(max(value, low), high)


def _matmul(rng: np.random.Generator) -> Params:
    params: Params = {"n": size(rng, 1, 1024), "m": size(rng, 16, 2048), "k": size(rng, 16, 2048)}
    if rng.random() < 0.2:
        params |= {"bias": True, "epilogue": "gelu"}
    return params


def _batched(rng: np.random.Generator) -> Params:
    sizes = {name: size(rng, 16, 512) for name in "nmk"}
    return {**sizes, "batch": size(rng, 2, 32)}


def _int8(rng: np.random.Generator) -> Params:
    return {"n": size(rng, 8, 1024), "m": size(rng, 16, 1024), "k": size(rng, 16, 1024)}


def _half(rng: np.random.Generator) -> Params:
    return {**_int8(rng), "dtype": str(rng.choice(["float16", "bfloat16"]))}


def _conv(rng: np.random.Generator) -> Params:
    kernel = int(rng.choice([1, 3, 3, 5, 7]))
    return {
        "c": size(rng, 3, 512),
        "size": size(rng, 7, 112),
        "o": size(rng, 16, 512),
        "kernel": kernel,
        "stride": int(rng.choice([1, 1, 2])),
        "padding": kernel // 2,
    }


def _depthwise(rng: np.random.Generator) -> Params:
    channels = size(rng, 16, 512)
    return {**_conv(rng), "c": channels, "o": channels, "groups": channels}


def _matrix(rng: np.random.Generator) -> Params:
    return {"n": size(rng, 8, 4096), "m": size(rng, 8, 4096)}


def _attention(rng: np.random.Generator) -> Params:
    return {
        "batch": 1,
        "heads": size(rng, 1, 16),
        "sequence": size(rng, 16, 384),
        "dim": int(rng.choice([32, 64, 80, 128])),
    }


_DRAWS: dict[str, tuple[str, Draw]] = {
    "matmul": ("matmul", _matmul),
    "batched matmul": ("matmul", _batched),
    "int8 matmul": ("int8_matmul", _int8),
    "half matmul": ("half_matmul", _half),
    "conv": ("conv2d", _conv),
    "depthwise": ("conv2d", _depthwise),
    "softmax": ("softmax", _matrix),
    "layer_norm": ("layer_norm", _matrix),
    "add_relu": ("add_relu", lambda rng: {"n": size(rng, 1000, 4_000_000)}),
    "sum": ("sum", lambda rng: {**_matrix(rng), "axis": int(rng.integers(2))}),
    "transpose": ("transpose", _matrix),
    "attention": ("attention", _attention),
}
