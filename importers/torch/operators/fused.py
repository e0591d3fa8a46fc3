"""Layers that PyTorch runs as one operator where no gradient is needed: attention and encoders."""

from __future__ import annotations

from collections.abc import Sequence

from ....graph.builder import Builder
from ....graph.compose.attention import EVERYTHING, Seen, attention, heads_first, heads_last
from ....graph.compose.basics import cast_to, parts, reshaped
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import TABLE, aten

_OF_SCORES, _OF_KEYS, _OF_EACH = range(3)
"""What a mask is for, by PyTorch's `mask_type`: (rows, columns), (batch, columns), or of each."""


def _plain(b: Builder, operator: str, out: TensorType, *given: object) -> Value:
    found = TABLE[f"{operator}.default"](b, out, *given)
    assert isinstance(found, Value), operator
    return found


def _seen(b: Builder, mask: Value | None, kind: int | None) -> Seen:
    """What queries see: not where the mask is true, or another number than zero."""
    if mask is None:
        return EVERYTHING
    if kind == _OF_KEYS:
        mask = reshaped(b, mask, (mask.shape[0], 1, 1, mask.shape[1]))
    elif kind == _OF_SCORES:
        mask = reshaped(b, mask, (1, 1, *mask.shape))
    elif kind != _OF_EACH or mask.type.rank != 4:
        raise Unsupported(Reason.ATTRIBUTE, f"mask_type={kind} of {mask.type}")
    return Seen(b.add("logical_not", cast_to(b, mask, "bool")))


@aten("_native_multi_head_attention")
def multi_head_attention(
    b: Builder,
    _out: TensorType,
    query: Value,
    key: Value,
    value: Value,
    width: int,
    heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Sequence[Value]:
    """The result, and the weights, or their mean over the heads, where these are needed."""
    if query.type.rank != 3 or qkv_weight.shape != (3 * width, width):
        raise Unsupported(Reason.ATTRIBUTE, f"attention of {query.type} by {qkv_weight.type}")

    def linear(x: Value, weight: Value, bias: Value) -> Value:
        return _plain(b, "linear", x.type, x, weight, bias)

    if query is key is value:
        projected = parts(b, linear(query, qkv_weight, qkv_bias), 2, [width] * 3)
    else:
        by = zip(*(parts(b, p, 0, [width] * 3) for p in (qkv_weight, qkv_bias)), strict=True)
        projected = [linear(x, *p) for x, p in zip((query, key, value), by, strict=True)]
    q, k, v = (heads_first(b, x, heads) for x in projected)
    found, (*_, weights) = attention(b, q, k, v, _seen(b, mask, mask_type))
    result = linear(heads_last(b, found), proj_weight, proj_bias)
    if not need_weights:
        return (result,)
    if average_attn_weights:
        weights = b.add("mean", weights, axes=(1,), keepdims=False)
    return result, weights


@aten("_transformer_encoder_layer_fwd")
def encoder_layer(
    b: Builder,
    out: TensorType,
    x: Value,
    width: int,
    heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:
    """Attention and two dense layers, each added to what it is of, normed before or after."""

    def attended(x: Value) -> Value:
        by = qkv_weight, qkv_bias, proj_weight, proj_bias
        return multi_head_attention(
            b, out, x, x, x, width, heads, *by, mask, need_weights=False, mask_type=mask_type
        )[0]

    def dense(x: Value) -> Value:
        x = _plain(b, "linear", out, x, ffn_weight_1, ffn_bias_1)
        x = _plain(b, "gelu" if use_gelu else "relu", x.type, x)
        return _plain(b, "linear", out, x, ffn_weight_2, ffn_bias_2)

    def norm(x: Value, weight: Value, bias: Value) -> Value:
        return _plain(b, "layer_norm", out, x, (width,), weight, bias, eps)

    norms = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    for layer, by in zip((attended, dense), norms, strict=True):
        if norm_first:
            x = b.add("add", x, layer(norm(x, *by)))
        else:
            x = norm(b.add("add", x, layer(x)), *by)
    return x
