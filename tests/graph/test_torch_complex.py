"""Complex tensors of PyTorch on the way: spectra, and what is done to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import UnsupportedError

pytest.importorskip("torch")

import torch

from tilewright.importers.torch import operators  # noqa: F401  # registers all
from tilewright.importers.torch.operators.complex import _OF_BOTH, _OF_PARTS
from tilewright.importers.torch.table import COMPLEX, TABLE, aten_complex

from .test_torch import Module, check, exported

pytestmark = pytest.mark.filterwarnings("ignore")


def test_what_is_done_to_each_part_is_known_of_real_tensors() -> None:
    assert {*_OF_PARTS, *_OF_BOTH} <= TABLE.keys()


def test_an_overload_is_registered_once() -> None:
    with pytest.raises(AssertionError):
        aten_complex("abs")(COMPLEX["angle.default"])


def spectrogram(x: Any) -> Any:
    frames = torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)
    return frames.abs(), torch.view_as_real(frames), frames.angle().cos()


def mixed(x: Any) -> Any:
    """Of FNet: two transforms, of which the real part is kept."""
    return torch.fft.fft(torch.fft.fft(x, dim=-1, norm="ortho"), dim=-2).real


def arithmetic(x: Any) -> Any:
    y = torch.fft.fft(x)
    z = torch.fft.ifft(y * (1 + 2j) - x, norm="ortho")
    z = z + (z / 8).tan() + y.tanh()
    w = torch.cat([z, y.conj()], 0).sum(0) / 3
    chosen = torch.where(x > 0, torch.exp(z), y)
    outer = torch.complex(x, x[:1]) * torch.polar(x.abs(), x)
    return w.real, chosen.imag, torch.fft.hfft(z), outer.imag


def written(x: Any) -> Any:
    """Parts that are views of a conjugate, and elements at places that data choose."""
    z, at = torch.complex(x, x + 1), x[0, :3].argsort()
    added = z.index_add(0, at, z, alpha=1 - 2j).index_copy(1, at, z[:, :3])
    put = z.scatter_add(0, at[None], z[:1, :3]).index_put((at,), z[0])
    return z.conj().imag * 2, torch._neg_view(z) + x, torch.view_as_real(added), put.imag


@pytest.mark.parametrize(
    ("function", "shape"),
    [(spectrogram, (2, 64)), (mixed, (2, 4, 6)), (arithmetic, (3, 7)), (written, (3, 4))],
)
def test_spectra(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    check(Module(function), torch.randn(shape), tolerance=2e-5, compiled=function is arithmetic)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_quotients_of_ends(dtype: Any) -> None:
    ends = [complex(math.inf, 1), complex(-2, -math.inf), 1e-30j, 1e30 + 1e29j, 1 + 1j, 0j]
    given = torch.view_as_real(torch.tensor(ends, dtype=dtype))

    def quotients(pairs: Any) -> Any:
        x = torch.view_as_complex(pairs)
        return torch.view_as_real((1 + x[4]) / x), torch.view_as_real(x / x[3])

    check(Module(quotients), given, tolerance=1e-6, compiled=False)


class Spectral(torch.nn.Module):  # type: ignore[misc]
    """A layer of a Fourier neural operator: weights in the spectrum, by modes."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(3, 4, 4, dtype=torch.cfloat))

    def forward(self, x: Any) -> Any:
        spectrum = torch.fft.rfft2(x, norm="ortho")
        mixed = torch.einsum("bixy,ioy->boxy", spectrum, self.weights)
        return torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho")


def test_complex_weights() -> None:
    torch.manual_seed(0)
    check(Spectral(), torch.randn(2, 3, 5, 7), tolerance=1e-5)


def of_elements(x: Any, y: Any) -> Any:
    x = torch.complex(x.real, x.imag)
    chosen = torch.select_scatter(x / y, torch.zeros(4, dtype=x.dtype), 0, 1)
    roots = x.sqrt() + x.pow(3) - x.square().log()
    return chosen, roots, x.sgn(), y.reciprocal().t(), x == x.conj(), y.conj(), 2 / (y + 1)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_inputs_and_results_are_pairs(dtype: Any) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(3, 4, dtype=dtype) for _ in range(2))
    x[0, :2] = torch.tensor([0, -2])
    x.imag[1] = 0
    tolerance = 2e-6 if dtype is torch.complex64 else 1e-14
    check(Module(of_elements), x * x.real.sign().abs() + 1, y, tolerance=tolerance, compiled=False)
    check(Module(lambda x: (x.sgn(), x.sqrt())), x, tolerance=tolerance, compiled=False)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_quotients_of_numbers_whose_squares_are_out_of_range(size: float) -> None:
    x = torch.tensor([3 + 4j, 1 - 2j])
    check(Module(lambda x, y: x / y), x * size, x.flip(0) * size)
    wide = x.to(torch.complex128) * size**9
    check(Module(lambda x, y: x / y), wide, wide.flip(0), tolerance=1e-14, compiled=False)


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.fft.fft(x).sinh(), lambda x: torch.fft.fft(x) ** (1 + 1j)],
    ids=["an operator", "an exponent"],
)
def test_other_complex_tensors_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        exported(Module(function), torch.ones(4))
    ((_, _, reason, _),) = caught.value.data["reasons"]
    assert reason in ("DTYPE", "ATTRIBUTE")


def test_the_size_of_numbers_whose_squares_are_out_of_range() -> None:
    numbers = [[1e200, 1e200], [1e-200, 1e-200], [0, 0], [-5, 0], [3, 4]]
    parts = torch.tensor(numbers, dtype=torch.float64)
    check(lambda x: torch.view_as_complex(x).abs(), parts, tolerance=1e-15)


def given_dtypes(x: Any, z: Any) -> Any:
    made = x.sum(0, dtype=torch.complex64), x.cumsum(0, dtype=torch.cfloat), x.mean(dtype=z.dtype)
    return *made, z.sum(0, dtype=torch.float32), z.cumsum(1, dtype=torch.float64), z.to(torch.bool)


def test_reductions_to_complex_numbers_and_from_these() -> None:
    torch.manual_seed(0)
    z = torch.tensor([[1j, 0, 2], [1 + 1j, 3, -2j]])
    check(Module(given_dtypes), torch.randn(2, 3), z, compiled=False)
