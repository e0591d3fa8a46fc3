from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te


def reference(
    x: Any,
    w: Any,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: Any = ((0, 0), (0, 0)),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Any:
    """NCHW convolution as a sum over kernel offsets of shifted images, in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    n, c, height, width = x.shape
    o, _, kh, kw = w.shape
    spans = (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1
    out_h = (height - spans[0]) // stride[0] + 1
    out_w = (width - spans[1]) // stride[1] + 1
    x = x.reshape(n, groups, c // groups, height, width)
    w = w.reshape(groups, o // groups, c // groups, kh, kw)
    total = np.zeros((n, groups, o // groups, out_h, out_w))
    for r in range(kh):
        for s in range(kw):
            top, left = r * dilation[0], s * dilation[1]
            shifted = x[:, :, :, top :: stride[0], left :: stride[1]][..., :out_h, :out_w]
            total += np.einsum("ngchw,goc->ngohw", shifted, w[..., r, s])
    return total.reshape(n, o, out_h, out_w)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 3, 5, 6), (4, 3, 3, 3), {}),
    "one by one": ((2, 3, 4, 4), (5, 3, 1, 1), {}),
    "padding": ((1, 2, 4, 5), (3, 2, 3, 3), {"padding": ((1, 1), (1, 1))}),
    "asymmetric padding": ((1, 1, 4, 5), (1, 1, 3, 3), {"padding": ((0, 2), (1, 0))}),
    "stride": ((1, 2, 7, 8), (2, 2, 3, 2), {"stride": (2, 3)}),
    "dilation": ((1, 2, 7, 9), (2, 2, 3, 2), {"dilation": (2, 3)}),
    "groups": ((1, 4, 4, 4), (6, 2, 2, 2), {"groups": 2}),
    "depthwise": ((1, 3, 4, 4), (6, 1, 2, 2), {"groups": 3}),
    "everything": (
        (2, 4, 7, 6),
        (4, 2, 3, 2),
        {"stride": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (1, 2), "groups": 2},
    ),
    "kernel as large as the image": ((1, 1, 3, 3), (1, 1, 3, 3), {}),
    "no image": ((0, 2, 3, 3), (2, 2, 3, 3), {}),
    "no channel": ((1, 0, 3, 3), (2, 0, 3, 3), {}),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES)
def test_conv2d(run: Any, make: Any, close: Any, case: str, layout: Any) -> None:
    image, weights, options = CASES[case]
    x, w = make(image), make(weights)
    wanted = reference(x, w, **options)
    if layout == "NHWC":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        w = np.ascontiguousarray(w.transpose(2, 3, 1, 0))
        wanted = wanted.transpose(0, 2, 3, 1)
    out = run(lambda a, b: ops.conv2d(a, b, layout=layout, **options), x, w)
    close(out, wanted, ulps=64)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(run: Any, make: Any, close: Any, dtype: str) -> None:
    x, w = make((1, 2, 4, 4), dtype), make((3, 2, 3, 3), dtype)
    out = run(lambda a, b: ops.conv2d(a, b, padding=1), x, w)
    assert out.dtype == x.dtype
    close(out, reference(x, w, padding=((1, 1), (1, 1))), ulps=2 if dtype != "float64" else 64)


def test_integers(run: Any, make: Any) -> None:
    x, w = make((1, 3, 4, 4), "uint8"), make((2, 3, 3, 3), "int8")
    out = run(lambda a, b: ops.conv2d(a, b, padding=1), x, w)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, reference(x, w, padding=((1, 1), (1, 1))))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_bias_and_epilogue(run: Any, make: Any, close: Any, activations: Any, layout: Any) -> None:
    x, w, bias = make((1, 2, 4, 3)), make((3, 2, 2, 2)), make((3,))
    wanted = activations["gelu"](reference(x, w) + bias[:, None, None])
    if layout == "NHWC":
        x, w = x.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy()
        wanted = wanted.transpose(0, 2, 3, 1)
    out = run(lambda a, b, c: ops.conv2d(a, b, bias=c, epilogue="gelu", layout=layout), x, w, bias)
    close(out, wanted, ulps=64)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise(run: Any, make: Any, close: Any, layout: Any, multiplier: int) -> None:
    x, w = make((2, 3, 5, 4)), make((3 * multiplier, 1, 3, 2))
    wanted = reference(x, w, stride=(2, 2), padding=((1, 1), (1, 1)), groups=3)
    if layout == "NHWC":
        x, w = x.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy()
        wanted = wanted.transpose(0, 2, 3, 1)
    out = run(lambda a, b: ops.depthwise_conv2d(a, b, stride=2, padding=1, layout=layout), x, w)
    close(out, wanted, ulps=64)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_funcs(run_func: Any, make: Any, close: Any, layout: Any) -> None:
    func = ops.conv2d_func(1, 2, 5, 4, 3, 3, layout=layout, bias=True, epilogue="relu")
    x, w, bias = make((1, 2, 5, 4)), make((3, 2, 3, 3)), make((3,))
    wanted = np.maximum(reference(x, w, padding=((1, 1), (1, 1))) + bias[:, None, None], 0)
    own = ops.depthwise_conv2d_func(1, 2, 5, 4, 3, layout=layout)
    v = make((2, 1, 3, 3))
    depthwise = reference(x, v, padding=((1, 1), (1, 1)), groups=2)
    if layout == "NHWC":
        x = x.transpose(0, 2, 3, 1).copy()
        w, v = w.transpose(2, 3, 1, 0).copy(), v.transpose(2, 3, 1, 0).copy()
        wanted, depthwise = wanted.transpose(0, 2, 3, 1), depthwise.transpose(0, 2, 3, 1)
    close(run_func(func, x, w, bias), wanted, ulps=64)
    close(run_func(own, x, v), depthwise, ulps=64)


def test_stages() -> None:
    assert ops.conv2d_func(1, 2, 4, 4, 2, padding=0).allocs == ()
    assert [b.name for b in ops.conv2d_func(1, 2, 4, 4, 2, padding=1).allocs] == ["Y_pad"]


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((1, 3, 4, 4), (2, 2, 3, 3), {}, "3 input channels, 2 outputs and 1 groups"),
        ((1, 4, 4, 4), (3, 2, 3, 3), {"groups": 2}, "groups divide the outputs"),
        ((1, 4, 4, 4), (3, 2, 3, 3), {"groups": 0}, "0 groups"),
        ((4, 4, 4), (3, 2, 3, 3), {}, "expected four dimensions"),
        ((1, 1, 2, 4), (1, 1, 3, 3), {}, "a window of 3 does not fit in 2 elements"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"stride": 0}, "must be positive"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"padding": -1}, "not negative"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"layout": "CHWN"}, "expected NCHW or NHWC"),
    ],
)
def test_refused(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(IRError, match=message):
        ops.conv2d(te.placeholder(x, name="x"), te.placeholder(w, name="w"), **options)
