"""Windows, resizing and transposed convolutions: types, references and kernels agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.graph import Builder, TensorType

TARGET = "cpu -threads=1"
SQUARE: dict[str, Any] = {
    "kernel": (3, 2),
    "strides": (2, 1),
    "before": (1, 0),
    "after": (2, 1),
    "dilations": (1, 2),
}


def check(
    operator: str, arrays: list[Any], held: int = 0, /, **attributes: Any
) -> np.ndarray[Any, Any]:
    """Compare a kernel with the reference; the last `held` operands are constants."""
    b = Builder("one")
    inputs = [
        b.constant(a)
        if k >= len(arrays) - held
        else b.input(f"x{k}", TensorType(str(a.dtype), a.shape))
        for k, a in enumerate(arrays)
    ]
    graph = b.graph({"y": b.add(operator, *inputs, **attributes)})
    given = arrays[: len(arrays) - held]
    (wanted,) = graph.reference(*given)
    found = tw.build(graph, TARGET)(*given)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    tolerance = 1e-2 if found.dtype.itemsize < 4 else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    return np.asarray(found)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("operator", ["max_pool", "sum_pool"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8"])
def test_pooling(operator: str, dtype: str) -> None:
    check(operator, [(4 * floats(2, 3, 6, 5)).astype(dtype)], **SQUARE)


def test_pooling_along_one_and_three_dimensions() -> None:
    one: dict[str, Any] = {
        "kernel": (3,),
        "strides": (2,),
        "before": (1,),
        "after": (0,),
        "dilations": (1,),
    }
    found = check("max_pool", [-abs(floats(1, 2, 7))], **one)
    assert found.max() < 0  # nothing around the input wins
    three: dict[str, Any] = {name: value * 3 for name, value in one.items()}
    check("sum_pool", [floats(1, 2, 5, 6, 7)], **three)


def test_a_window_that_does_not_fit_is_refused() -> None:
    b = Builder("one")
    x = b.input("x", TensorType("float32", (1, 1, 2, 2)))
    with pytest.raises(ModelError):
        b.add("max_pool", x, **{**SQUARE, "dilations": (9, 9)})


@pytest.mark.parametrize("taps", [2, 6])
@pytest.mark.parametrize("axis", [0, 2])
def test_resampling_keeps_within_the_input(taps: int, axis: int) -> None:
    rng = np.random.default_rng(1)
    places = rng.integers(0, 5, (7, taps)).astype(np.int32)
    check("resample", [floats(5, 2, 5), places, floats(7, taps)], 2, axis=axis)


def test_nearest_elements() -> None:
    x = floats(2, 3, 4)
    found = check("resize_nearest", [x], scales=((1, 0, 1), (1, 0, 2), (4, 1, 3)), shape=(2, 6, 3))
    np.testing.assert_array_equal(found, x[:, [0, 0, 1, 1, 2, 2]][:, :, [0, 1, 3]])
    b = Builder("one")
    with pytest.raises(ModelError):
        b.add("resize_nearest", b.constant(x), scales=((1, 0, 1),) * 3, shape=(2, 3, 5))


def test_interleaving_channels() -> None:
    x = floats(1, 12, 2, 3)
    check("interleave", [x], factors=(3, 2), starts=(1, 0), shape=(4, 6))
    b = Builder("one")
    with pytest.raises(ModelError):
        b.add("interleave", b.constant(x), factors=(3, 2), starts=(1, 0), shape=(6, 6))


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_normalizing_rows(centered: bool, dtype: str) -> None:
    x = floats(2, 3, 4, dtype=dtype) + 3
    found = check("normalize", [x], axis=1, epsilon=1e-5, centered=centered)
    if centered:
        np.testing.assert_allclose(found.mean((1, 2), np.float64), 0, atol=1e-2)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "align"), [("nearest", False), ("linear", True), ("linear", False), ("cubic", True)]
)
def test_sampling_on_a_grid(mode: str, padding: str, align: bool) -> None:
    grid = 2 * floats(2, 4, 3, 2)
    grid[0, 0, 0], grid[0, 0, 1] = np.nan, np.inf
    check("grid_sample", [floats(2, 3, 5, 6), grid], mode=mode, padding=padding, align=align)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_regions_of_interest(largest: bool, half: bool) -> None:
    rois = np.array([[0, 0, 7, 7], [-3, 2, 30, 4], [5, 5, 1, 1]], np.float32)
    batches = np.array([0, 1, 1], np.int64)
    check(
        "roi_align", [floats(2, 3, 8, 9), rois, batches],
        size=(3, 2), samples=2, scale=0.9, half=half, largest=largest,
    )  # fmt: skip
