"""Layers of transformers that ONNX Runtime's tools write, by ONNX's own attention and norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .attention import attention, heads_first, heads_last, rotated
from .integers import Whole, matrix_product
from .pointwise import cast_to
from .quantised import reshaped

_MICROSOFT = "com.microsoft"


def _part(b: Builder, x: Value, axis: int, start: int, count: int) -> Value:
    """Some elements along an axis."""
    starts = [start if d == axis else 0 for d in range(x.type.rank)]
    shape = [count if d == axis else e for d, e in enumerate(x.shape)]
    value: Value = b.add("slice", x, starts=starts, steps=(1,) * x.type.rank, shape=shape)
    return value


def _parts(b: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """The elements along an axis, as so many each."""
    starts = np.cumsum([0, *sizes])
    if starts[-1] != x.shape[axis]:
        raise ModelError("{0} does not divide into {1}", x.type, list(sizes))
    return [_part(b, x, axis, int(s), n) for s, n in zip(starts, sizes, strict=False)]


def _seen(b: Builder, node: OnnxNode, mask: Value | None, keys: int, dtype: str) -> Value | None:
    """What is added to the scores of masked keys; a vector has the lengths of sequences."""
    if mask is None:
        return None
    if mask.type.rank == 1:
        lengths = b.add("reshape", mask, shape=(mask.type.size, 1, 1, 1))
        seen = b.add("less", b.constant(np.arange(keys), mask.dtype), lengths)
    elif mask.type.rank in (2, 3) and mask.shape[-1] == keys:
        wanted = (mask.shape[0], *(1,) * (4 - mask.type.rank), *mask.shape[1:])
        whole = b.add("reshape", mask, shape=wanted)
        seen = b.add("logical_not", b.add("equal", whole, b.constant(0, mask.dtype)))
    else:
        raise Unsupported(Reason.ATTRIBUTE, f"a mask of {mask.type}")
    low = node.attribute("mask_filter_value", -10000.0)
    value: Value = b.add("where", seen, b.constant(0.0, dtype), b.constant(low, dtype))
    return value


def _attended(
    b: Builder,
    node: OnnxNode,
    operands: Sequence[Value],
    past: tuple[Value, Value] | None,
    mask: Value | None,
    bias: Value | None,
    **options: Any,
) -> tuple[Value, Value, Value]:
    """Attention of heads (batch, heads, sequence, size), and its keys and values with past ones."""
    q, k, v = operands
    keys = k.shape[2] + (0 if past is None else past[0].shape[2])
    if mask is not None and mask.type.rank == 1 and mask.type.size != q.shape[0]:
        raise Unsupported(Reason.ATTRIBUTE, f"a mask of {mask.type}")
    added = _seen(b, node, mask, keys, q.dtype)
    if bias is not None:
        added = bias if added is None else b.add("add", added, bias)
    attributes = {"is_causal": node.attribute("unidirectional", 0), **options}
    if node.attribute("scale"):
        attributes["scale"] = node.attribute("scale")
    inner = replace(
        node, operator="Attention", domain="", version=25, attributes=attributes,
        inputs=(q, k, v, added, *(past or (None, None))),
    )  # fmt: skip
    found = attention(b, inner)
    return heads_last(b, found[0]), found[1], found[2]


def _of_inputs(
    b: Builder, node: OnnxNode, projected: Value, mask: Value | None, past: Value | None,
    bias: Value | None,
) -> Sequence[Value]:  # fmt: skip
    """Attention of one projection, which has the columns of queries, keys and values."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        raise Unsupported(Reason.ATTRIBUTE, "do_rotary or past_present_share_buffer")
    heads, width = node.attributes["num_heads"], projected.shape[2]
    sizes = node.attribute("qkv_hidden_sizes") or (width // 3,) * 3
    operands = [heads_first(b, part, heads) for part in _parts(b, projected, 2, sizes)]
    held = None
    if past is not None:
        keys, values = (reshaped(b, p, p.shape[1:]) for p in _parts(b, past, 0, (1, 1)))
        held = keys, values
    y, k, v = _attended(b, node, operands, held, mask, bias)
    if not any(node.outputs[1:]):
        return (y,)
    return y, b.add("concatenate", *(reshaped(b, p, (1, *p.shape)) for p in (k, v)), axis=0)


@onnx_op("Attention", domain=_MICROSOFT)
def attention_of_inputs(b: Builder, node: OnnxNode) -> Sequence[Value]:
    projected = b.add("matmul", node[0], node[1])
    bias = node.get(2)
    projected = projected if bias is None else b.add("add", projected, bias)
    return _of_inputs(b, node, projected, node.get(3), node.get(4), node.get(5))


@onnx_op("QAttention", domain=_MICROSOFT)
def quantised_attention(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """The same, whose projection is a product of integers."""
    x_zero, w_zero = node.get(6), node.get(7)
    x = Whole.of(b, node[0], None if x_zero is None else reshaped(b, x_zero, ()))
    w = Whole.of(b, node[1], w_zero)
    scale = b.add("multiply", reshaped(b, node[3], ()), node[4])
    projected = b.add("multiply", cast_to(b, matrix_product(b, x, w), scale.dtype), scale)
    projected = b.add("add", projected, node[2])
    return _of_inputs(b, node, projected, node.get(5), node.get(8), None)


@onnx_op("MultiHeadAttention", domain=_MICROSOFT)
def multi_head_attention(b: Builder, node: OnnxNode) -> Sequence[Value]:
    if any(node.get(n) is not None for n in (8, 9)) or any(node.outputs[3:]):
        raise Unsupported(Reason.ATTRIBUTE, "shared buffers of keys, or the scores as output")
    heads = node.attributes["num_heads"]
    parts = [node[0], node.get(1), node.get(2)]
    if node[0].type.rank == 5:
        parts = list(_packed(b, node[0], 3))
    elif parts[1] is not None and parts[1].type.rank == 5:
        parts[1:] = _packed(b, parts[1], 2)
    operands = [p for p in parts if p is not None]
    if len(operands) != 3:
        raise Unsupported(Reason.ATTRIBUTE, "no keys or no values")
    bias = node.get(3)
    if bias is not None:
        sizes = [p.shape[2] if p.type.rank == 3 else p.shape[1] * p.shape[3] for p in operands]
        pairs = zip(operands, _parts(b, bias, 0, sizes), strict=True)
        operands = [b.add("add", p, own) if p.type.rank == 3 else p for p, own in pairs]
    split = [heads_first(b, p, heads) if p.type.rank == 3 else p for p in operands]
    keys, values = node.get(6), node.get(7)
    held = None if keys is None or values is None else (keys, values)
    return _attended(b, node, split, held, node.get(4), node.get(5))


def _packed(b: Builder, x: Value, count: int) -> list[Value]:
    """(batch, sequence, heads, count, size) as so many of (batch, sequence, heads * size)."""
    batch, sequence, heads, _, size = x.shape
    parts = _parts(b, x, 3, (1,) * count)
    return [reshaped(b, p, (batch, sequence, heads * size)) for p in parts]


@onnx_op("GroupQueryAttention", domain=_MICROSOFT)
def group_query_attention(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """With known lengths, all of which are those of the past and of the queries."""
    heads, groups = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    if any(node.get(n) is not None for n in range(11, 17)) or any(node.outputs[3:]):
        raise Unsupported(Reason.ATTRIBUTE, "sinks, quantised caches, norms, or padded queries")
    for name, value in (("smooth_softmax", 0), ("sliding_window_cache", 0), ("causal", 1)):
        node.require(name, value)
    q, k, v = node[0], node.get(1), node.get(2)
    if k is None or v is None:
        size = q.shape[2] // (heads + 2 * groups)
        q, k, v = _parts(b, q, 2, (heads * size, groups * size, groups * size))
    keys, values = node.get(3), node.get(4)
    before = 0 if keys is None else keys.shape[2]
    total = before + q.shape[1]
    lengths = node.known(5)
    if lengths is None or (lengths + 1 != total).any() or node.number(6) != total:
        raise Unsupported(Reason.DATA_DEPENDENT, "sequences that are shorter than the cache")
    q, k, v = heads_first(b, q, heads), heads_first(b, k, groups), heads_first(b, v, groups)
    if node.attribute("do_rotary", 0):
        positions = b.constant(np.arange(before, total)[None], "int64")
        turn = {"interleaved": node.attribute("rotary_interleaved", 0)}
        inner = replace(node, attributes=turn)
        q, k = (rotated(b, inner, x, node[7], node[8], positions) for x in (q, k))
    window = node.attribute("local_window_size", -1)
    held = None if keys is None or values is None else (keys, values)
    options = {"is_causal": 1, "softcap": node.attribute("softcap", 0.0)}
    if window > 0:
        options["left_window_size"] = window - 1
    return _attended(b, node, (q, k, v), held, None, node.get(10), **options)


@onnx_op("EmbedLayerNormalization", domain=_MICROSOFT)
def embed_layer_normalization(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """The norm of the sum of embeddings; then the lengths that a mask says, and the sum."""
    ids, segments, positions = node[0], node.get(1), node.get(8)
    if positions is None:
        positions = b.constant(np.arange(ids.shape[1])[None], "int64")
    total = b.add("take", node[2], ids, axis=0)
    total = b.add("add", total, b.add("take", node[3], positions, axis=0))
    if segments is not None:
        total = b.add("add", total, b.add("take", node[4], segments, axis=0))
    normal = b.add("normalize", total, axis=2, epsilon=node.attribute("epsilon", 1e-12))
    y = b.add("add", b.add("multiply", normal, node[5]), node[6])
    mask = node.get(7)
    lengths: Value = b.constant(np.zeros(ids.shape[0]), "int32")
    if mask is not None:
        lengths = cast_to(b, b.add("sum", mask, axes=(1,)), "int32")
    return y, lengths, total
