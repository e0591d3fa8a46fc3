"""The features of a row of a sketch are those of the program that its trace produces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.model.cuda.estimate import FEATURES, Estimator
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.tir.ir import Func

from .cuda_candidates import TARGET, scheduled

ROWS = 4
"""Candidates of a sketch, at most."""
PROGRAMS: dict[str, Callable[[], Func]] = {
    "matmul": lambda: ops.matmul_func(512, 512, 512),
    "matmul of odd sizes": lambda: ops.matmul_func(129, 257, 65),
    "matmul of a long reduction": lambda: ops.matmul_func(64, 64, 4096),
    "matmul of bfloat16": lambda: ops.matmul_func(128, 128, 128, dtype="bfloat16"),
    "batched matmul": lambda: ops.matmul_func(64, 96, 64, batch=4),
    "short matmul of bytes": lambda: ops.int8_matmul_func(10, 20, 12),
    "conv2d": lambda: ops.conv2d_func(1, 16, 28, 28, 32),
    "conv2d of odd sizes": lambda: ops.conv2d_func(2, 5, 9, 19, 7),
    "conv2d NHWC": lambda: ops.conv2d_func(1, 16, 28, 28, 32, layout="NHWC"),
    "conv2d with a stride": lambda: ops.conv2d_func(1, 16, 28, 28, 32, stride=2, bias=True),
    "conv2d of groups": lambda: ops.conv2d_func(1, 16, 14, 14, 32, groups=2),
    "depthwise conv2d": lambda: ops.depthwise_conv2d_func(1, 16, 28, 28),
    "softmax": lambda: ops.softmax_func(256, 1024),
    "softmax of odd rows": lambda: ops.softmax_func(5, 1033),
    "softmax of long rows": lambda: ops.softmax_func(4, 1 << 15),
    "layer_norm of long rows": lambda: ops.layer_norm_func(4, 1 << 15),
    "layer_norm": lambda: ops.layer_norm_func(64, 768),
    "sums of rows": lambda: ops.reduction_func("sum", 128, 1024),
    "sums of columns": lambda: ops.reduction_func("sum", 1024, 128, axis=0),
    "sums of few rows": lambda: ops.reduction_func("sum", 4, 1 << 16),
    "transposition": lambda: ops.transpose_func(256, 512),
    "transposition of odd sizes": lambda: ops.transpose_func(257, 511),
    "element by element": lambda: ops.add_relu_func(1000),
}


@pytest.mark.part(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_have_the_features_of_their_programs(name: str) -> None:
    func, rng = PROGRAMS[name](), np.random.default_rng(0)
    for sketch in sketches(func, TARGET):
        rows = rng.permutation(Rowspace(sketch).sample(rng, 1024))[:ROWS]
        assert len(rows)
        of_rows = Estimator(profile(sketch.func, sketch.space.bounds), TARGET)(rows).features
        for row, found in zip(rows, of_rows, strict=True):
            program = scheduled(func, sketch, row)
            (wanted,) = Estimator(profile(program), TARGET)(np.zeros((1, 0), np.int64)).features
            for feature, a, b in zip(FEATURES, found, wanted, strict=True):
                assert abs(a - b) < 1e-6, f"{feature} of {sketch.name} {row.tolist()}"
