"""Indices below 0, which PyTorch counts from the end in some functions, and refuses in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import GuardError, ModelError

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")

X = torch.arange(12.0).reshape(3, 4) / 8
IDS = torch.tensor([2, 0, 1, 1])
ROW = IDS.reshape(1, 4)
APART = torch.tensor([2, 0, 3, 1])
"""Which of several writes to one place is the last is not said."""
PLACES = torch.arange(0, 12, 4).reshape(3, 1)
LABELS = torch.tensor([3, 0, 1])

COUNTED: dict[str, tuple[Callable[..., Any], Any]] = {
    "x[i]": (lambda x, i: x[i], IDS),
    "x[i, i]": (lambda x, i: x[i, i], IDS),
    "index_put": (lambda x, i: x.index_put((i,), x[0]), IDS),
    "index_fill": (lambda x, i: x.index_fill(1, i, 3), IDS),
    "index_fill of a tensor": (lambda x, i: x.index_fill(1, i, x[1, 1]), IDS),
    "take": (torch.take, IDS),
    "put": (lambda x, i: torch.Tensor.put(x, i, x[0]), IDS),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 0), ROW),
    "multilabel_margin_loss": (lambda x, i: F.multilabel_margin_loss(x, i.repeat(3, 1)), IDS),
    "nll_loss that ignores it": (lambda x, i: F.nll_loss(x, i, ignore_index=-1), LABELS),
}
REFUSED: dict[str, tuple[Callable[..., Any], Any]] = {
    "gather": (lambda x, i: x.gather(0, i), ROW),
    "gather of a number": (lambda x, i: x.sum().gather(0, i), torch.tensor(0)),
    "index_select": (lambda x, i: x.index_select(1, i), IDS),
    "embedding": (lambda x, i: F.embedding(i, x), ROW),
    "embedding with padding": (lambda x, i: F.embedding(i, x, padding_idx=-1), ROW),
    "embedding_bag": (lambda x, i: F.embedding_bag(i.reshape(2, 2), x, mode="sum"), IDS),
    "embedding_bag of offsets": (
        lambda x, i: F.embedding_bag(i, x, torch.tensor([0, 1, 1]), padding_idx=1),
        IDS,
    ),
    "embedding_bag of the largest": (
        lambda x, i: F.embedding_bag(i, x, torch.tensor([0, 3, 3]), mode="max"),
        IDS,
    ),
    "scatter": (lambda x, i: x.scatter(0, i, x), ROW),
    "scatter of a number": (lambda x, i: x.scatter(0, i, 2), ROW),
    "scatter with a reduction": (lambda x, i: x.scatter(0, i, 2, reduce="multiply"), ROW),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x), ROW),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(0, i, x, "mean", include_self=False), ROW),
    "index_add": (lambda x, i: x.index_add(1, i, x, alpha=2), IDS),
    "index_add of bool": (lambda x, i: (x > 1).index_add(1, i, x < 1), IDS),
    "index_copy": (lambda x, i: x.index_copy(1, i, x), APART),
    "index_reduce": (lambda x, i: x.index_reduce(1, i, x, "amax"), IDS),
    "max_unpool1d": (lambda x, i: F.max_unpool1d(x[None], i.expand(1, 3, 4), 2), APART),
    "max_unpool2d": (lambda x, i: F.max_unpool2d(x[None], (i + PLACES)[None], 2), APART),
    "searchsorted": (lambda x, i: torch.searchsorted(x[0], x[1], sorter=i), torch.arange(4)),
    "nll_loss": (F.nll_loss, LABELS),
    "nll_loss with weights": (lambda x, i: F.nll_loss(x, i, x[0], reduction="sum"), LABELS),
    "nll_loss of images": (lambda x, i: F.nll_loss(x[None], i), ROW),
    "cross_entropy": (F.cross_entropy, LABELS),
    "smoothed cross_entropy": (lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1), LABELS),
    "cross_entropy that ignores": (lambda x, i: F.cross_entropy(x, i, ignore_index=0), LABELS),
    "multi_margin_loss": (F.multi_margin_loss, LABELS),
}


@pytest.mark.parametrize("name", [*COUNTED, *REFUSED])
def test_an_index_below_0_is_refused_where_torch_refuses_it(name: str) -> None:
    function, indices = {**COUNTED, **REFUSED}[name]

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, i: Any) -> Any:
            return function(x, i)

    graph = tw.import_torch(torch.export.export(Call(), (X, indices)))

    def agree(i: Any) -> None:
        np.testing.assert_allclose(graph.reference(X, i)[0], function(X, i), rtol=1e-6)

    agree(indices)
    below = indices.clone()
    below[(-1,) * indices.ndim] = -1
    if name in COUNTED:
        agree(below)
        return
    with pytest.raises((IndexError, RuntimeError)):
        function(X, below)
    with pytest.raises(GuardError):
        graph.reference(X, below)


@pytest.mark.parametrize("offsets", [[1, 2], [0, 5]])
def test_bags_begin_in_their_order(offsets: list[int]) -> None:
    class Bags(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, i: Any, at: Any, factors: Any) -> Any:
            return F.embedding_bag(i, x, at, mode="sum", per_sample_weights=factors)

    module, at, factors = Bags(), torch.arange(len(offsets)), torch.tensor([1.0, -2, 3, 0.5])
    graph = tw.import_torch(torch.export.export(module, (X, IDS, at, factors)))
    (found,) = graph.reference(X, IDS, at, factors)
    np.testing.assert_allclose(found, module(X, IDS, at, factors), rtol=1e-6)
    with pytest.raises(RuntimeError):
        F.embedding_bag(IDS, X, torch.tensor(offsets), mode="sum")
    with pytest.raises(GuardError):
        graph.reference(X, IDS, torch.tensor(offsets), factors)


def test_the_last_bag_ends_with_the_indices() -> None:
    """PyTorch sums up to the last offset, and takes the mean, or the largest, of all indices."""
    bags = torch.nn.EmbeddingBag(3, 4, mode="sum", include_last_offset=True)
    at = torch.tensor([0, 2, 4])
    graph = tw.import_torch(torch.export.export(bags, (IDS, at)))
    np.testing.assert_allclose(graph.reference(IDS, at)[0], bags(IDS, at).detach(), rtol=1e-6)
    model = tw.build(graph, "cpu -threads=1")
    for offsets in ([0, 2, 3], [0, 2, 9], [0, 2, 0], [1, 2, 4], [0, 3, 2]):
        with pytest.raises(GuardError) as caught:
            model(IDS.numpy(), np.array(offsets))
        assert "embedding_bag" in caught.value.data["node"]
    with pytest.raises(GuardError) as caught:
        model(np.array([0, 3, 1, 1]), at.numpy())
    assert "embedding_bag" in caught.value.data["node"]
    assert (caught.value.data["index"], caught.value.data["place"]) == (3, (1,))


def test_many_bags_of_many_indices() -> None:
    bags = torch.nn.EmbeddingBag(3, 2, mode="mean")
    ids, at = torch.arange(40_000) % 3, torch.arange(0, 40_000, 4)
    graph = tw.import_torch(torch.export.export(bags, (ids, at)))
    np.testing.assert_allclose(graph.reference(ids, at)[0], bags(ids, at).detach(), rtol=1e-6)


def test_no_indices_are_no_bags() -> None:
    bags = torch.nn.EmbeddingBag(3, 4, mode="mean", include_last_offset=True)
    none, at = torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0, 0])
    graph = tw.import_torch(torch.export.export(bags, (none, at)))
    assert not graph.reference(none, at)[0].any()
    with pytest.raises(GuardError):
        graph.reference(none, torch.tensor([0, 0, 2]))


@pytest.mark.parametrize("ignored", [-100, -7, 2])
def test_labels_that_are_ignored_are_no_indices(ignored: int) -> None:
    class Loss(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, i: Any) -> Any:
            return F.cross_entropy(x, i, ignore_index=ignored)

    graph = tw.import_torch(torch.export.export(Loss(), (X, LABELS)))
    labels = torch.tensor([ignored, 0, ignored])
    np.testing.assert_allclose(
        graph.reference(X, labels)[0], F.cross_entropy(X, labels, ignore_index=ignored), rtol=1e-6
    )


def test_no_index_is_one_of_no_elements() -> None:
    def write(x: Any, i: Any) -> Any:
        return x.index_put((i,), torch.tensor(1.0))

    compiled = torch.compile(write, backend="tilewright")
    none, at = torch.zeros(0, 3), torch.zeros(2, dtype=torch.long)
    assert compiled(none, at[:0]).shape == (0, 3)
    with pytest.raises(ModelError):
        compiled(none, at)
