"""Attention, rotary positions, and the layers of transformers that ONNX Runtime's tools write."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....graph.builder import Builder
from ....graph.compose.attention import Seen, attention, heads_first, heads_last, rotated
from ....graph.compose.basics import cast_to, parts, reshaped
from ....graph.compose.quantised import Whole, matrix_product
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op
from .pointwise import dtype_of

_MICROSOFT = "com.microsoft"


@onnx_op("Attention", since=23)
def attention_of_heads(b: Builder, node: OnnxNode) -> Sequence[Value]:
    q, k, v = node[0], node[1], node[2]
    flat = q.type.rank == 3
    if flat:
        q = heads_first(b, q, node.attribute("q_num_heads", 0))
        k, v = (heads_first(b, x, node.attribute("kv_num_heads", 0)) for x in (k, v))
    past = node.get(4)
    if past is not None:
        k = b.add("concatenate", past, k, axis=2)
        v = b.add("concatenate", node[5], v, axis=2)
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    if node.attribute("is_causal", 0):
        right = 0 if right < 0 else min(right, 0)
    seen = Seen(node.get(3), left, right, None if past is None else past.shape[2], node.get(6))
    precision = node.attribute("softmax_precision")
    result, scores = attention(
        b, q, k, v, seen,
        scale=node.attribute("scale"),
        cap=node.attribute("softcap", 0.0),
        precision=None if precision is None else dtype_of(precision),
    )  # fmt: skip
    mode = node.attribute("qk_matmul_output_mode", 0)
    return heads_last(b, result) if flat else result, k, v, scores[mode]


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(b: Builder, node: OnnxNode) -> Value:
    heads = node.attribute("num_heads", 0)
    return _rotary(b, node, heads, node[1], node[2], node.get(3))


@onnx_op("RotaryEmbedding", domain=_MICROSOFT)
def rotary_embedding_of_positions(b: Builder, node: OnnxNode) -> Value:
    """The same with its operands in another order; positions are of all, or the first one."""
    x, positions = node[0], node[1]
    node.require("scale", 1.0)
    sequence = x.shape[-2]
    if positions.type.size == 1 and positions.type.rank == 1:
        steps = b.constant(np.arange(sequence), positions.dtype)
        positions = reshaped(b, b.add("add", steps, positions), (1, sequence))
    heads = node.attribute("num_heads", 0) or x.shape[-1] // (2 * node[2].shape[-1])
    return _rotary(b, node, heads, node[2], node[3], positions)


def _rotary(
    b: Builder, node: OnnxNode, heads: int, cos: Value, sin: Value, positions: Value | None
) -> Value:
    flat = node[0].type.rank == 3
    x = heads_first(b, node[0], heads) if flat else node[0]
    size, paired = node.attribute("rotary_embedding_dim", 0), node.attribute("interleaved", 0)
    turned = rotated(b, x, cos, sin, positions, size=size, paired=bool(paired))
    return heads_last(b, turned) if flat else turned


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
    return b.add("where", seen, b.constant(0.0, dtype), b.constant(low, dtype))


def _attended(
    b: Builder,
    node: OnnxNode,
    operands: Sequence[Value],
    past: tuple[Value, Value] | None,
    mask: Value | None,
    bias: Value | None,
    *,
    causal: bool = False,
    left: int = -1,
) -> tuple[Value, Value, Value]:
    """Attention of heads (batch, heads, sequence, size), and its keys and values with past ones."""
    q, k, v = operands
    before = 0 if past is None else past[0].shape[2]
    keys = k.shape[2] + before
    if mask is not None and mask.type.rank == 1 and mask.type.size != q.shape[0]:
        raise Unsupported(Reason.ATTRIBUTE, f"a mask of {mask.type}")
    added = _seen(b, node, mask, keys, q.dtype)
    if bias is not None:
        added = bias if added is None else b.add("add", added, bias)
    if past is not None:
        k, v = (b.add("concatenate", *pair, axis=2) for pair in zip(past, (k, v), strict=True))
    causal = causal or bool(node.attribute("unidirectional", 0))
    seen = Seen(added, left, 0 if causal else -1, before)
    scale, cap = node.attribute("scale") or None, node.attribute("softcap", 0.0)
    result, _ = attention(b, q, k, v, seen, scale=scale, cap=cap)
    return heads_last(b, result), k, v


def _of_inputs(
    b: Builder, node: OnnxNode, projected: Value, mask: Value | None, past: Value | None,
    bias: Value | None,
) -> Sequence[Value]:  # fmt: skip
    """Attention of one projection, which has the columns of queries, keys and values."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        raise Unsupported(Reason.ATTRIBUTE, "do_rotary or past_present_share_buffer")
    heads, width = node.attributes["num_heads"], projected.shape[2]
    sizes = node.attribute("qkv_hidden_sizes") or (width // 3,) * 3
    operands = [heads_first(b, part, heads) for part in parts(b, projected, 2, sizes)]
    held = None
    if past is not None:
        keys, values = (reshaped(b, p, p.shape[1:]) for p in parts(b, past, 0, (1, 1)))
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
    given = [node[0], node.get(1), node.get(2)]
    if node[0].type.rank == 5:
        given = list(_packed(b, node[0], 3))
    elif given[1] is not None and given[1].type.rank == 5:
        given[1:] = _packed(b, given[1], 2)
    operands = [p for p in given if p is not None]
    if len(operands) != 3:
        raise Unsupported(Reason.ATTRIBUTE, "no keys or no values")
    bias = node.get(3)
    if bias is not None:
        sizes = [p.shape[2] if p.type.rank == 3 else p.shape[1] * p.shape[3] for p in operands]
        pairs = zip(operands, parts(b, bias, 0, sizes), strict=True)
        operands = [b.add("add", p, own) if p.type.rank == 3 else p for p, own in pairs]
    split = [heads_first(b, p, heads) if p.type.rank == 3 else p for p in operands]
    keys, values = node.get(6), node.get(7)
    held = None if keys is None or values is None else (keys, values)
    return _attended(b, node, split, held, node.get(4), node.get(5))


def _packed(b: Builder, x: Value, count: int) -> list[Value]:
    """(batch, sequence, heads, count, size) as so many of (batch, sequence, heads * size)."""
    batch, sequence, heads, _, size = x.shape
    columns = parts(b, x, 3, (1,) * count)
    return [reshaped(b, p, (batch, sequence, heads * size)) for p in columns]


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
        q, k, v = parts(b, q, 2, (heads * size, groups * size, groups * size))
    keys, values = node.get(3), node.get(4)
    before = 0 if keys is None else keys.shape[2]
    total = before + q.shape[1]
    lengths = node.known(5)
    if lengths is None or (lengths + 1 != total).any() or node.number(6) != total:
        raise Unsupported(Reason.DATA_DEPENDENT, "sequences that are shorter than the cache")
    q, k, v = heads_first(b, q, heads), heads_first(b, k, groups), heads_first(b, v, groups)
    if node.attribute("do_rotary", 0):
        positions = b.constant(np.arange(before, total)[None], "int64")
        paired = bool(node.attribute("rotary_interleaved", 0))
        q, k = (rotated(b, x, node[7], node[8], positions, paired=paired) for x in (q, k))
    window = node.attribute("local_window_size", -1)
    held = None if keys is None or values is None else (keys, values)
    left = window - 1 if window > 0 else -1
    return _attended(b, node, (q, k, v), held, None, node.get(10), causal=True, left=left)


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
