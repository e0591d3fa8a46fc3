from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te


def reference(
    x: Any,
    kind: str,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int] = (0, 0),
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Window by window over an NCHW image, clipped to the image."""
    n, c, *extents = x.shape
    outputs = []
    for d in (0, 1):
        room = extents[d] + 2 * padding[d] - kernel[d]
        count = (math.ceil(room / stride[d]) if ceil_mode else room // stride[d]) + 1
        if ceil_mode and (count - 1) * stride[d] >= extents[d] + padding[d]:
            count -= 1
        outputs.append(count)
    out = np.zeros((n, c, *outputs))
    for i in range(outputs[0]):
        for j in range(outputs[1]):
            starts = i * stride[0] - padding[0], j * stride[1] - padding[1]
            ends = [
                min(s + k, e + p)
                for s, k, e, p in zip(starts, kernel, extents, padding, strict=True)
            ]
            area = math.prod(e - s for s, e in zip(starts, ends, strict=True))
            window = x[:, :, max(starts[0], 0) : ends[0], max(starts[1], 0) : ends[1]]
            window = window.astype(np.float64)
            if kind == "max":
                out[:, :, i, j] = window.max((2, 3))
            else:
                count = area if count_include_pad else math.prod(window.shape[2:])
                out[:, :, i, j] = window.sum((2, 3)) / count
    return out


CASES = [
    ((1, 2, 6, 5), (2, 2), (2, 2), (0, 0)),
    ((1, 2, 6, 5), (3, 3), (2, 2), (1, 1)),
    ((2, 1, 7, 4), (3, 2), (1, 2), (1, 0)),
    ((1, 1, 5, 7), (2, 3), (3, 2), (1, 1)),
    ((1, 1, 3, 3), (3, 3), (3, 3), (0, 0)),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
    ((0, 2, 3, 3), (2, 2), (1, 1), (0, 0)),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), CASES)
def test_max_and_average(
    run: Any,
    make: Any,
    close: Any,
    shape: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    layout: Any,
) -> None:
    x = make(shape)
    nhwc = layout == "NHWC"
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if nhwc else x
    options = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode, "layout": layout}

    def check(found: Any, wanted: Any) -> None:
        close(found.transpose(0, 3, 1, 2) if nhwc else found, wanted)

    largest = run(lambda t: ops.max_pool2d(t, kernel, **options), given)
    check(largest, reference(x, "max", kernel, stride, padding, ceil_mode=ceil_mode))
    for include in (True, False):
        mean = run(
            lambda t, include=include: ops.avg_pool2d(
                t, kernel, count_include_pad=include, **options
            ),
            given,
        )
        check(
            mean,
            reference(
                x, "avg", kernel, stride, padding, ceil_mode=ceil_mode, count_include_pad=include
            ),
        )


def test_asymmetric_padding_and_dilation(run: Any, make: Any) -> None:
    x = make((1, 1, 4, 4), "int32")
    out = run(lambda t: ops.max_pool2d(t, 2, stride=1, padding=((0, 1), (1, 0))), x)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 0)), constant_values=-1000)
    wanted = np.maximum.reduce([padded[..., r : r + 4, s : s + 4] for r in (0, 1) for s in (0, 1)])
    np.testing.assert_array_equal(out, wanted)
    dilated = run(lambda t: ops.max_pool2d(t, 2, stride=1, dilation=2), x)
    wanted = np.maximum.reduce([x[..., r : r + 2, s : s + 2] for r in (0, 2) for s in (0, 2)])
    np.testing.assert_array_equal(dilated, wanted)


def test_nan_wins_and_padding_never_does(run: Any) -> None:
    x = np.array([[-5, -6], [np.nan, -7]], np.float32).reshape(1, 1, 2, 2)
    out = run(lambda t: ops.max_pool2d(t, 2, stride=1, padding=1), x)
    wanted = [[-5, -5, -6], [np.nan, np.nan, -6], [np.nan, np.nan, -7]]
    np.testing.assert_array_equal(out[0, 0], wanted)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_global_average(run: Any, make: Any, close: Any, dtype: str, layout: Any) -> None:
    x = make((2, 3, 4, 5), dtype)
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    out = run(lambda t: ops.global_avg_pool2d(t, layout=layout), x)
    assert out.dtype == x.dtype
    close(out, x.astype(np.float64).mean(axes, keepdims=True))


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_funcs(run_func: Any, make: Any, close: Any, kind: Any) -> None:
    x = make((1, 2, 7, 6))
    out = run_func(ops.pool2d_func(kind, 1, 2, 7, 6), x)
    close(out, reference(x, kind, (3, 3), (2, 2), (1, 1)))
    y = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    nhwc = run_func(ops.pool2d_func(kind, 1, 2, 7, 6, layout="NHWC"), y)
    np.testing.assert_array_equal(nhwc.transpose(0, 3, 1, 2), out)


def test_refused() -> None:
    x = te.placeholder((1, 1, 4, 4), "int8", name="x")
    with pytest.raises(IRError):
        ops.avg_pool2d(x, 2)
    with pytest.raises(IRError):
        ops.max_pool2d(x, 2, padding=2)
    with pytest.raises(IRError):
        ops.max_pool2d(te.placeholder((4, 4), name="x"), 2)
