"""Sketches of every operator: random candidates compute what the program does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dtypes, ops
from tilewright.autotune.candidates import Rowspace
from tilewright.autotune.sketch import sketches
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import resolve
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func

CASES: list[tuple[str, dict[str, Any]]] = [
    ("matmul_func", {"n": 33, "m": 50, "k": 17}),
    ("matmul_func", {"n": 13, "m": 32, "k": 8, "bias": True, "epilogue": "relu"}),
    ("matmul_func", {"n": 9, "m": 19, "k": 8, "batch": 2, "transpose_b": True}),
    ("matmul_func", {"n": 1, "m": 40, "k": 30}),
    ("int8_matmul_func", {"n": 10, "m": 20, "k": 12}),
    ("conv2d_func", {"c": 5, "h": 9, "w": 19, "o": 7}),
    ("conv2d_func", {"c": 4, "h": 8, "w": 8, "o": 6, "stride": 2, "layout": "NHWC", "bias": True}),
    ("depthwise_conv2d_func", {"c": 5, "h": 8, "w": 17}),
    ("pool2d_func", {"c": 3, "h": 9, "w": 18}),
    ("softmax_func", {"n": 5, "m": 37}),
    ("layer_norm_func", {"n": 5, "m": 48}),
    ("add_relu_func", {"n": 131}),
    ("transpose_func", {"n": 21, "m": 35}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 0}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 1}),
    ("reduction_func", {"n": 21, "m": 35, "axis": 1, "kind": "argmax"}),
    ("attention_func", {"batch": 1, "heads": 2, "sequence": 9, "dim": 16}),
]
ROWS = 3


def arguments(func: Func, seed: int) -> list[np.ndarray[Any, Any]]:
    """Small random arrays for the parameters of a function."""
    rng = np.random.default_rng(seed)
    made = []
    for p in func.params:
        assert isinstance(p, Buffer)
        shape = tuple(int(n) for n in p.shape if isinstance(n, int))
        if dtypes.is_float(p.dtype):
            made.append(rng.standard_normal(shape).astype(dtypes.to_numpy(p.dtype)))
        else:
            made.append(rng.integers(0, 9, shape).astype(dtypes.to_numpy(p.dtype)))
    return made


@pytest.mark.parametrize(("name", "options"), CASES)
def test_candidates_compute_what_the_program_does(name: str, options: dict[str, Any]) -> None:
    func = getattr(ops, name)(**options)
    target = resolve("cpu -threads=2")
    rng = np.random.default_rng(0)
    wanted = arguments(func, 1)
    interpret(func, *wanted)
    for sketch in sketches(func, target):
        space = Rowspace(sketch)
        rows = space.sample(rng, ROWS)
        assert len(rows) > 0, f"{sketch.name} has no candidate"
        for row in rows:
            schedule = sketch.trace.with_row(row.tolist()).apply(func)
            found = arguments(func, 1)
            to_module(compile_func(schedule.func, target))(*found)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(
                    a.astype(np.float64), b.astype(np.float64), rtol=2e-4, atol=2e-5,
                    err_msg=f"{sketch.name} {row.tolist()}",
                )  # fmt: skip
