"""Tensors of PyTorch as inputs and outputs of models: of any layout, and those that are none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ArgumentError
from tilewright.graph import Builder, Graph, TensorType

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
X = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4
Z = torch.complex(X, X + 1)
PROVIDERS = {"kernels": ["tilewright"], "parts": ["reference"]}


def exp(shape: tuple[int, ...] = (2, 3)) -> Graph:
    b = Builder("exp")
    return b.graph({"y": b.add("exp", b.input("x", TensorType("float32", shape)))})


@pytest.fixture(scope="module", params=PROVIDERS)
def model(request: pytest.FixtureRequest) -> Any:
    return tw.build(exp(), "cpu -threads=1", providers=PROVIDERS[request.param])


TAKEN: dict[str, Callable[[], Any]] = {
    "transposed": lambda: X.reshape(3, 2).t(),
    "expanded": lambda: X[:, :1].expand(2, 3),
    "overlapping": lambda: torch.as_strided(X, (2, 3), (1, 1)),
    "channels last": lambda: X.reshape(1, 2, 3, 1).to(memory_format=torch.channels_last)[0, ..., 0],
    "part": lambda: Z.imag,
    "negative": Z.conj().imag.resolve_neg,
}
REFUSED: dict[str, Callable[[], Any]] = {
    "meta": partial(X.to, "meta"),
    "sparse": X.to_sparse,
    "compressed": X.to_sparse_csr,
    "quantised": lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
    "complex": lambda: Z,
    "conjugate": Z.conj,
    "negative": lambda: Z.conj().imag,
    "with gradients": lambda: X.clone().requires_grad_(),
    "nested": lambda: torch.nested.nested_tensor([X[0], X[1, :2]]),
    "empty": lambda: X[:0],
    "double": X.double,
}


@pytest.mark.parametrize("kind", TAKEN)
def test_tensors_of_any_layout_are_taken(model: Any, kind: str) -> None:
    x = TAKEN[kind]()
    np.testing.assert_allclose(model(x), x.exp().numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", REFUSED)
def test_tensors_that_are_none_are_refused(model: Any, kind: str) -> None:
    with pytest.raises(ArgumentError):
        model(REFUSED[kind]())
    with pytest.raises(ArgumentError):
        model.into(X, out=REFUSED[kind]())


@pytest.mark.parametrize("kind", ["transposed", "expanded", "overlapping"])
def test_results_are_written_to_compact_tensors_alone(model: Any, kind: str) -> None:
    with pytest.raises(ArgumentError):
        model.into(X.clone(), out=TAKEN[kind]())
    given = X.clone()
    with pytest.raises(ArgumentError):
        model.into(given, out=given)


@pytest.mark.parametrize("provider", ["tilewright", "reference", "onnxruntime", "openvino"])
def test_tensors_without_elements(provider: str) -> None:
    if provider in ("onnxruntime", "openvino"):
        pytest.importorskip(provider)
    model = tw.build(exp((2, 0)), "cpu -threads=1", providers=[provider])
    assert model(torch.zeros(2, 0)).shape == (2, 0)


WORKERS = """
import os
import torch
from torch.utils.data import DataLoader
import tilewright as tw

graph = tw.parse_graph('''
graph two(x: float32[3]) -> (y):
  %0: float32[3] = exp(x)
  %1: float32[3] = tanh(%0)
  return y=%1
''')
model = tw.build(graph, "cpu -threads=2", providers=["tilewright", "onnxruntime"],
    placement={"tanh": "onnxruntime"})
x = torch.ones(3)
wanted = torch.from_numpy(model(x))

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, n):
        return torch.from_numpy(model(x))

pid = os.fork()
if not pid:
    os._exit(0 if torch.equal(torch.from_numpy(model(x)), wanted) else 1)
assert os.waitpid(pid, 0)[1] == 0
(rows,) = DataLoader(Rows(), batch_size=4, num_workers=2)
assert torch.equal(rows, wanted.expand(4, 3)), rows
print("done", model.counts["runs"])
"""


def test_a_fork_and_workers_of_a_loader_call_a_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "workers.py"
    file.write_text(WORKERS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(file)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout == "done 1\n", done.stderr
