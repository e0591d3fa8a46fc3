"""Whole models of PyTorch: by the reference of the graph, and by kernels."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.building.build_model import build_graph
from tilewright.codegen.detect import resolve
from tilewright.graph.ir import Graph

torch: Any = pytest.importorskip("torch")

from benchmarks.torch_modules import MODULES  # noqa: E402  # it imports torch

pytestmark = pytest.mark.filterwarnings("ignore")


def kernels(graph: Graph) -> Callable[..., Any]:
    return build_graph(graph, resolve("cpu -threads=1"), jobs=1)


def compare(name: str, runner: Callable[[Graph], Callable[..., Any]]) -> None:
    """The results are as near to those in float64 as PyTorch's own, but for a factor."""
    sample = MODULES[name]
    if find_spec(sample.needs) is None:
        pytest.skip(f"{sample.needs} is not installed")
    module, args = sample.seeded()
    run = runner(tw.import_torch(torch.export.export(module, args)))
    found = run(*(a.numpy() for a in args))
    found = found if isinstance(found, tuple) else (found,)
    with torch.no_grad():
        own = torch.utils._pytree.tree_leaves(module(*args))
        wide = [a.double() if a.is_floating_point() else a for a in args]
        exact = torch.utils._pytree.tree_leaves(module.double()(*wide))
    for result, torchs, truth in zip(found, own, exact, strict=True):
        value, wanted, right = (np.asarray(t) for t in (result, torchs, truth))
        assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind != "f":
            assert (value == right).mean() > 0.99  # of equal ones either is the largest
            continue
        error = np.abs(wanted - right).max()
        scale = np.abs(right).max() * np.finfo(wanted.dtype).eps
        assert np.isfinite(right).all()
        assert np.abs(value - right).max() <= 4 * (error + scale)


@pytest.mark.part(12)
@pytest.mark.parametrize("name", MODULES)
def test_the_reference_of_a_module(name: str) -> None:
    compare(name, lambda graph: graph.reference)


@pytest.mark.part(4)
@pytest.mark.parametrize("name", MODULES)
def test_the_kernels_of_a_module(name: str) -> None:
    compare(name, kernels)
