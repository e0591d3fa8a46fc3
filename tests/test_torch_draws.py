"""Random numbers in `torch.compile(..., backend="tilewright")`: those of eager execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright as tw

from .torch_compiled import alone, compiled

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


def seeded(function: Callable[..., Any], *args: Any, calls: int = 1) -> Any:
    """Results of the last of several calls after a seed, gradients, and the generator's state."""
    torch.manual_seed(7)
    given = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    for _ in range(calls):
        y = function(*given)
    if any(a.requires_grad for a in given):
        weights = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
        (y * weights.to(y.dtype)).sum().backward()
    return y, [a.grad for a in given], torch.get_rng_state()


def agrees(function: Callable[..., Any], *args: Any) -> None:
    expected = seeded(function, *args, calls=2)
    torch.testing.assert_close(seeded(compiled(function), *args, calls=2), expected)
    assert not tw.torch_report().on("torch")


def test_a_dropout_draws_what_eager_execution_draws() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    agrees(lambda x: F.dropout(torch.tanh(F.dropout(x, 0.3)), 0.5), x)
    forward, backward = tw.torch_report().graphs
    assert (forward.drawn, backward.drawn) == (2, 0)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: torch.multinomial(x, 2), "aten.multinomial.default"),
        (torch.poisson, "aten.poisson.default"),
        (lambda x: torch.rrelu(x, training=True), "aten.rrelu_with_noise_functional.default"),
    ],
)
def test_draws_that_depend_on_elements_are_refused_by_name(
    function: Callable[..., Any], operator: str
) -> None:
    with pytest.raises(tw.UnsupportedError) as caught:
        compiled(function)(torch.ones(3))
    assert [r[1] for r in caught.value.data["reasons"]] == [operator]
