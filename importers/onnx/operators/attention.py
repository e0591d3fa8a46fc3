"""Attention and rotary positions, as compositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, onnx_op
from .pointwise import cast_to, dtype_of


def heads_first(b: Builder, x: Value, heads: int) -> Value:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    batch, sequence, width = x.shape
    if not heads or width % heads:
        raise ModelError("a width of {0} does not divide into {1} heads", width, heads)
    split = b.add("reshape", x, shape=(batch, sequence, heads, width // heads))
    value: Value = b.add("transpose", split, axes=(0, 2, 1, 3))
    return value


def heads_last(b: Builder, x: Value) -> Value:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, sequence, size = x.shape
    moved = b.add("transpose", x, axes=(0, 2, 1, 3))
    value: Value = b.add("reshape", moved, shape=(batch, sequence, heads * size))
    return value


@dataclass
class _Bias:
    """What is added to the scores; `masks` says whether it may be -inf."""

    b: Builder
    dtype: str
    value: Value | None = None
    masks: bool = False

    def add(self, value: Value, *, masks: bool = True) -> None:
        self.value = value if self.value is None else self.b.add("add", self.value, value)
        self.masks = self.masks or masks

    def where(self, seen: Value) -> None:
        """Add -inf where a condition is false."""
        zero, least = self.b.constant(0, self.dtype), self.b.constant(-math.inf, self.dtype)
        self.add(self.b.add("where", seen, zero, least))


@onnx_op("Attention", since=23)
def attention(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """softmax(softcap(q @ k^T * scale) + bias) @ v; rows that see nothing are zeros."""
    q, k, v = node[0], node[1], node[2]
    flat = q.type.rank == 3
    if flat:
        q = heads_first(b, q, node.attribute("q_num_heads", 0))
        k, v = (heads_first(b, x, node.attribute("kv_num_heads", 0)) for x in (k, v))
    if node.get(4) is not None:
        k = b.add("concatenate", node[4], k, axis=2)
        v = b.add("concatenate", node[5], v, axis=2)
    batch, heads, rows, size = q.shape
    groups, columns = k.shape[1:3]
    if heads % groups:
        raise ModelError("{0} heads of queries for {1} of keys", heads, groups)
    scale = node.attribute("scale", 1 / math.sqrt(size))
    if not scale > 0:
        raise ModelError("scale is {0}, expected a number above 0", scale)
    factor = b.constant(math.sqrt(scale), q.dtype)
    # Heads that share keys are one more dimension, along which those broadcast.
    own = b.add("reshape", q, shape=(batch, groups, heads // groups, rows, size))
    keys = b.add("reshape", k, shape=(batch, groups, 1, columns, k.shape[3]))
    values = b.add("reshape", v, shape=(batch, groups, 1, columns, v.shape[3]))
    scores = b.add(
        "matmul", b.add("multiply", own, factor), b.add("multiply", keys, factor), transpose_b=True
    )
    scores = b.add("reshape", scores, shape=(batch, heads, rows, columns))
    seen = [scores]
    cap = node.attribute("softcap", 0.0)
    if cap > 0:
        bound = b.constant(cap, q.dtype)
        scores = b.add("multiply", b.add("tanh", b.add("divide", scores, bound)), bound)
    seen.append(scores)
    bias = _bias(b, node, rows, columns, q.dtype)
    scores = scores if bias.value is None else b.add("add", scores, bias.value)
    seen.append(scores)
    precision = node.attribute("softmax_precision")
    wanted = q.dtype if precision is None else dtype_of(precision)
    weights = b.add("softmax", cast_to(b, scores, wanted), axis=3)
    if bias.masks and bias.value is not None:
        largest = b.add("max", bias.value, axes=(bias.value.type.rank - 1,), keepdims=True)
        blind = b.add("equal", largest, b.constant(-math.inf, bias.dtype))
        if not isinstance(blind, Constant) or blind.data.any():
            weights = b.add("where", blind, b.constant(0, weights.dtype), weights)
    weights = cast_to(b, weights, q.dtype)
    seen.append(weights)
    split = b.add("reshape", weights, shape=(batch, groups, heads // groups, rows, columns))
    result = b.add("matmul", split, values)
    result = b.add("reshape", result, shape=(batch, heads, rows, v.shape[3]))
    mode = node.attribute("qk_matmul_output_mode", 0)
    return heads_last(b, result) if flat else result, k, v, seen[mode]


def _bias(b: Builder, node: OnnxNode, rows: int, columns: int, dtype: str) -> _Bias:
    bias = _Bias(b, dtype)
    mask, past, lengths = node.get(3), node.get(4), node.get(6)
    if mask is not None:
        short = columns - mask.shape[-1]
        if short > 0:
            after = (*(0,) * (mask.type.rank - 1), short)
            fill = False if mask.dtype == "bool" else -math.inf
            mask = b.add("pad", mask, before=(0,) * mask.type.rank, after=after, value=fill)
        if mask.dtype == "bool":
            bias.where(mask)
        else:
            bias.add(cast_to(b, mask, dtype))
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    if node.attribute("is_causal", 0):
        right = 0 if right < 0 else min(right, 0)
    if left >= 0 or right >= 0:
        # A query at row i is at i + offset among the keys.
        distance = np.arange(columns) - np.arange(rows)[:, None]
        if past is None and lengths is not None:
            offset = b.add("subtract", lengths, b.constant(rows, lengths.dtype))
            offset = b.add("reshape", offset, shape=(lengths.type.size, 1, 1, 1))
            moved = b.add("subtract", b.constant(distance, lengths.dtype), offset)
            if right >= 0:
                bias.where(b.add("less_equal", moved, b.constant(right, moved.dtype)))
            if left >= 0:
                bias.where(b.add("less_equal", b.constant(-left, moved.dtype), moved))
        else:
            distance = distance - (0 if past is None else past.shape[2])
            allowed = (distance <= right) | (right < 0)
            bias.where(b.constant(allowed & ((-distance <= left) | (left < 0))))
    if lengths is not None:
        ends = b.add("reshape", lengths, shape=(lengths.type.size, 1, 1, 1))
        bias.where(b.add("less", b.constant(np.arange(columns), lengths.dtype), ends))
    return bias


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(b: Builder, node: OnnxNode) -> Value:
    """Pairs of elements turned by the angles of their positions."""
    x, cos, sin = node[0], node[1], node[2]
    positions = node.get(3)
    if x.type.rank == 3:
        heads = node.attribute("num_heads", 0)
        return heads_last(b, rotated(b, node, heads_first(b, x, heads), cos, sin, positions))
    return rotated(b, node, x, cos, sin, positions)


@onnx_op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding_of_positions(b: Builder, node: OnnxNode) -> Value:
    """The same with its operands in another order; positions are of all, or the first one."""
    x, positions = node[0], node[1]
    node.require("scale", 1.0)
    sequence = x.shape[-2]
    if positions.type.size == 1 and positions.type.rank == 1:
        steps = b.constant(np.arange(sequence), positions.dtype)
        positions = b.add("reshape", b.add("add", steps, positions), shape=(1, sequence))
    if x.type.rank == 3:
        size = 2 * node[2].shape[-1]
        heads = node.attribute("num_heads", 0) or x.shape[2] // size
        turned = rotated(b, node, heads_first(b, x, heads), node[2], node[3], positions)
        return heads_last(b, turned)
    return rotated(b, node, x, node[2], node[3], positions)


def rotated(
    b: Builder, node: OnnxNode, x: Value, cos: Value, sin: Value, positions: Value | None
) -> Value:
    """Of (batch, heads, sequence, size); caches are (sequence, half) or (batch, sequence, half)."""
    size = x.shape[3]
    turned = node.attribute("rotary_embedding_dim", 0) or size
    half = turned // 2

    def cached(value: Value) -> Value:
        value = value if positions is None else b.add("take", value, positions, axis=0)
        if value.shape[-1] != half:
            raise ModelError("caches of {0} for {1} pairs", value.type, half)
        result: Value = b.add("reshape", value, shape=(value.shape[0], 1, *value.shape[1:]))
        return result

    def part(first: int, step: int, count: int) -> Value:
        value: Value = b.add(
            "slice", x, starts=(0, 0, 0, first), steps=(1, 1, 1, step), shape=(*x.shape[:3], count)
        )
        return value

    c, s = cached(cos), cached(sin)
    paired = bool(node.attribute("interleaved", 0))
    first, second = (part(0, 2, half), part(1, 2, half)) if paired else (
        part(0, 1, half), part(half, 1, half),
    )  # fmt: skip
    real = b.add("subtract", b.add("multiply", first, c), b.add("multiply", second, s))
    imaginary = b.add("add", b.add("multiply", first, s), b.add("multiply", second, c))
    if paired:
        parts = [b.add("reshape", v, shape=(*v.shape, 1)) for v in (real, imaginary)]
        value = b.add("concatenate", *parts, axis=4)
        value = b.add("reshape", value, shape=(*x.shape[:3], turned))
    else:
        value = b.add("concatenate", real, imaginary, axis=3)
    if turned < size:
        value = b.add("concatenate", value, part(turned, 1, size - turned), axis=3)
    result: Value = value
    return result
