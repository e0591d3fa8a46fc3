"""Transforms of Fourier, by all the ways in which they are computed, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.building.build_model import build_graph
from tilewright.codegen.detect import resolve
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.compose.signal import dft
from tilewright.graph.operators.fourier import FORMS, radices, twiddles

WAYS = {
    "all": {},
    "inverse": {"inverse": True},
    "half": {"onesided": True},
    "of half": {"inverse": True, "onesided": True},
}


def transform(shape: tuple[int, ...], axis: int, dtype: str, **options: Any) -> Graph:
    b = Builder("transform")
    return b.graph({"y": dft(b, b.input("x", TensorType(dtype, shape)), axis, **options)})


def wanted(x: Any, axis: int, way: str, length: int) -> Any:
    x = x.astype(np.float64)
    own = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    match way:
        case "all":
            found = np.fft.fft(own, axis=axis)
        case "inverse":
            found = np.fft.ifft(own, axis=axis)
        case "half":
            found = np.fft.rfft(own.real, axis=axis)
        case _:
            return np.fft.irfft(own, length, axis)[..., None]
    return np.stack([found.real, found.imag], -1)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 13, 17, 34, 100, 131, 262, 300, 512])
@pytest.mark.parametrize(("lanes", "axis"), [((9,), 1), ((2, 5), 0), ((), 0)])
def test_transforms_of_any_length(length: int, lanes: tuple[int, ...], axis: int) -> None:
    """Of stages, of steps, of chirps and of products."""
    rng = np.random.default_rng(length)
    for way, options in WAYS.items():
        extents = [*lanes[:axis], length // 2 + 1 if way == "of half" else length, *lanes[axis:]]
        for parts in (1, 2)[way == "of half" :][: 1 if way == "half" else 2]:
            x = rng.standard_normal((*extents, parts))
            own = {**options, "length": length} if way == "of half" else options
            (y,) = transform(x.shape, axis, "float64", **own).reference(x)
            np.testing.assert_allclose(y, wanted(x, axis, way, length), rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("way", ["half", "of half"])
def test_kernels_are_as_exact_as_numpy(way: str) -> None:
    """For blocks of vectors, of which the last two have some transforms in common."""
    length, parts = 60, 1 if way == "half" else 2
    extent = length if way == "half" else length // 2 + 1
    x = np.random.default_rng(0).standard_normal((21, extent, parts)).astype(np.float32)
    graph = transform(x.shape, 1, "float32", **WAYS[way])
    y = np.asarray(build_graph(graph, resolve("cpu -threads=1"), jobs=1)(x))
    exact = wanted(x, 1, way, length)
    assert np.abs(y - exact).max() <= 2 * np.abs(exact.astype(np.float32) - exact).max()


def test_stages_have_few_radices() -> None:
    assert radices(400) == [5, 5, 4, 4]
    assert radices(512) == [8, 8, 8]
    assert radices(2 * 13 * 13) == [13, 13, 2]
    assert radices(17) is None
    for length in range(1, 200):
        assert np.prod(radices(length) or [length]) == length


@pytest.mark.parametrize(
    ("length", "form", "shape"),
    [
        (17, "complex", (17, 2, 3)),
        (9, "of_real", (9, 3)),
        (8, "to_real", (8, 2, 3)),
        (8, "x", (8,)),
    ],
)
def test_other_transforms_are_refused(length: int, form: str, shape: tuple[int, ...]) -> None:
    b = Builder("transform")
    x = b.input("x", TensorType("float32", shape))
    w = b.constant(twiddles(length, form if form in FORMS else "complex"), "float32")
    with pytest.raises(ModelError):
        b.add("fourier", x, w, length=length, form=form)
