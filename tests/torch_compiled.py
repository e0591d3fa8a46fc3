"""PyTorch's compiler in tests: alone in the process, and compiling for one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tilewright as tw


@contextmanager
def alone() -> Iterator[None]:
    """Nothing is compiled yet or reported, and random numbers are those of a seed."""
    import torch

    torch._dynamo.reset()
    tw.torch_report(clear=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def compiled(module: Any, **options: Any) -> Any:
    import torch

    return torch.compile(module, backend="tilewright", options={"threads": 1, **options})


def mlp() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
