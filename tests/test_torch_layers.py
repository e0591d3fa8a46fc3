"""Layers that PyTorch runs as one operator where no gradient is needed, and Dynamo captures so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw

from .torch_compiled import alone, compiled

torch: Any = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore")

CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
PADDING = torch.arange(5)[None] >= torch.tensor([[5], [3]])
X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone(), torch._dynamo.config.patch(allow_rnn=True):
        yield


def check(operator: str, module: Any, *args: Any, **options: Any) -> None:
    """Compare with PyTorch; that operator is what is captured."""
    module = module.eval()
    with torch.no_grad():
        found = compiled(module)(*args, **options)
        wanted = module(*args, **options)
    torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)
    (graph,) = tw.torch_report().graphs
    assert f"aten.{operator}.default" in graph.operators


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_layer_of_an_encoder(norm_first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, activation=activation, batch_first=True, norm_first=norm_first
    )
    check("_transformer_encoder_layer_fwd", layer, X)


@pytest.mark.parametrize(
    "masks",
    [
        {"src_mask": CAUSAL},
        {"src_key_padding_mask": PADDING},
        {"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
    ],
)
def test_masks_of_a_layer(masks: dict[str, Any]) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    check("_transformer_encoder_layer_fwd", layer, X, **masks)


class Attention(torch.nn.Module):  # type: ignore[misc]
    """The operator that `nn.MultiheadAttention` calls, also where Dynamo would not capture it."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)
        self.options = options

    def forward(self, query: Any, key: Any, mask: Any = None) -> Any:
        m = self.layer
        found, weights = torch._native_multi_head_attention(
            query, key, key, 8, 2, m.in_proj_weight, m.in_proj_bias, m.out_proj.weight,
            m.out_proj.bias, mask, **self.options,
        )  # fmt: skip
        return (found, weights) if self.options.get("need_weights", True) else found


@pytest.mark.parametrize(
    ("options", "mask", "itself"),
    [
        ({}, None, True),
        ({"need_weights": False}, None, False),
        ({"average_attn_weights": False}, None, False),
        ({"mask_type": 0}, CAUSAL, True),
        ({"mask_type": 1}, PADDING, True),
    ],
)
def test_attention(options: dict[str, Any], mask: Any, itself: bool) -> None:
    key = X if itself else X.flip(1)
    check("_native_multi_head_attention", Attention(**options), X, key, mask)


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "batch_first": True}]
)
def test_layers_of_lstm(options: dict[str, Any]) -> None:
    check("mkldnn_rnn_layer", nn.LSTM(8, 6, **options), X)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resizings(mode: str) -> None:
    """PyTorch's own kernels in Python, which would make lookups of them, are there again."""
    operator = getattr(torch.ops.aten, f"upsample_{mode}2d")
    kernels = {name: dict(getattr(operator, name).py_kernels) for name in ("vec", "default")}
    assert all(kernels.values())
    check(f"upsample_{mode}2d", nn.Upsample((9, 7), mode=mode), torch.randn(1, 2, 5, 4))
    assert all(getattr(operator, n).py_kernels == held for n, held in kernels.items())
