"""`torch.compile(..., backend="tilewright")`: what Dynamo captures, built and called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    tw.torch_report(clear=True)
    with torch.random.fork_rng():
        yield


def compiled(module: Any, **options: Any) -> Any:
    given = {"threads": 1, **options}
    return torch.compile(module, backend="tilewright", options=given)


def check(module: Any, *args: Any, tolerance: float = 1e-5) -> Any:
    """Compare with PyTorch, without gradients; returns what was compiled."""
    fast = compiled(module)
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), module(*args), rtol=tolerance, atol=tolerance)
    return fast


def mlp() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    ).eval()


def test_a_module_runs_as_one_graph() -> None:
    check(mlp(), torch.randn(3, 8))
    (graph,) = tw.torch_report().graphs
    assert (graph.kind, graph.ran_on, graph.programs, graph.frozen) == (
        "inference", "tilewright", 1, 4,
    )  # fmt: skip
    assert not tw.torch_report().breaks


@pytest.mark.parametrize("write", ["in place", "through data", "another tensor", "set"])
def test_weights_that_change_are_seen(write: str) -> None:
    module, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    fast = check(module, x)
    with torch.no_grad():
        match write:
            case "in place":
                module.weight[1, 2] += 1
            case "through data":
                module.weight.data.mul_(2)
            case "another tensor":
                module.weight = torch.nn.Parameter(torch.randn(4, 8))
            case _:
                module.weight.data = torch.randn(4, 8)
        torch.testing.assert_close(fast(x), module(x))
    (graph,) = tw.torch_report().graphs
    assert graph.programs == 2
