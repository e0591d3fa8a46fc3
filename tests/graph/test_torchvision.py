"""Operators of torchvision, by their schemas: neither it nor its kernels are needed."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, prod
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import UnsupportedError

torch: Any = pytest.importorskip("torch")

SCHEMAS = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
    "pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt "
    "stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
)


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    """Those that torchvision has not registered, with types and no kernels."""
    library = torch.library.Library("torchvision", "FRAGMENT")

    def pooled(x: Any, rois: Any, _scale: float, height: int, width: int, *_: Any) -> Any:
        return x.new_empty(rois.shape[0], x.shape[1], height, width)

    def convolved(x: Any, weight: Any, offset: Any, *_: Any) -> Any:
        return x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])

    for schema, fake in zip(SCHEMAS, (pooled, convolved), strict=True):
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
            library.impl(name, fake, "Meta")
    yield
    library._destroy()


def built(function: Any, *args: Any) -> Any:
    """What kernels make of an exported function."""

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *own: Any) -> Any:
            return function(*own)

    graph = tw.import_torch(torch.export.export(Module(), args))
    return tw.build(graph, "cpu -threads=1")(*(a.numpy() for a in args))


def linear(plane: Any, y: float, x: float) -> float:
    """The plane at a place, with zeros around it."""
    total = 0.0
    for i, j in ((floor(y) + k, floor(x) + m) for k in range(2) for m in range(2)):
        if 0 <= i < plane.shape[0] and 0 <= j < plane.shape[1]:
            total += float(plane[i, j]) * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


@pytest.mark.parametrize("has_mask", [True, False])
def test_taps_of_a_window_are_moved(has_mask: bool) -> None:
    torch.manual_seed(0)
    groups, parts, stride, pad, dilation, kernel = 2, 2, (2, 1), (1, 0), (1, 2), (3, 2)
    x, weight, bias = torch.randn(2, 4, 6, 7), torch.randn(6, 2, *kernel), torch.randn(6)
    outputs = (3, 5)
    offset = 2 * torch.randn(2, 2 * parts * prod(kernel), *outputs)
    mask = torch.rand(2, parts * prod(kernel), *outputs)

    def run(*tensors: Any) -> Any:
        geometry = (*stride, *pad, *dilation, groups, parts, has_mask)
        return torch.ops.torchvision.deform_conv2d(*tensors, *geometry)

    wanted = np.zeros((2, 6, *outputs))
    for n, o, u, v in np.ndindex(*wanted.shape):
        wanted[n, o, u, v] = bias[o]
        for c, i, j in np.ndindex(2, *kernel):
            channel = o // 3 * 2 + c
            tap = channel // 2 * prod(kernel) + i * kernel[1] + j
            down, right = (float(offset[n, 2 * tap + k, u, v]) for k in range(2))
            y = u * stride[0] - pad[0] + i * dilation[0] + down
            z = v * stride[1] - pad[1] + j * dilation[1] + right
            factor = float(mask[n, tap, u, v]) if has_mask else 1.0
            wanted[n, o, u, v] += float(weight[o, c, i, j]) * factor * linear(x[n, channel], y, z)
    found = built(run, x, weight, offset, mask, bias)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_regions_of_images_are_pooled() -> None:
    image = torch.arange(48.0).reshape(2, 1, 4, 6)  # linear along both dimensions
    rois = torch.tensor([[1.0, 1.0, 1.0, 3.0, 3.0], [0.0, 2.0, 0.0, 4.0, 2.0]])

    def run(x: Any, regions: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, regions, 1.0, 2, 2, 2, False)

    found = built(run, image, rois)
    centres = np.array([[[1.5, 2.5], [1.5, 2.5]], [[0.5, 1.5], [2.5, 3.5]]])
    wanted = [
        24 * n + 6 * down[:, None] + right for n, (down, right) in zip((1, 0), centres, strict=True)
    ]
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-6)


def test_samples_that_regions_decide_are_refused() -> None:
    def run(x: Any, regions: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, regions, 1.0, 2, 2, -1, True)

    with pytest.raises(UnsupportedError) as caught:
        built(run, torch.ones(1, 1, 4, 4), torch.ones(1, 5))
    assert [reason[2] for reason in caught.value.data["reasons"]] == ["DATA_DEPENDENT"]
