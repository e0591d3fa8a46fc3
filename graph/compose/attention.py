"""Attention of heads, and rotary positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Constant, Value
from .basics import cast_to, part, reshaped


def heads_first(b: Builder, x: Value, heads: int) -> Value:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    batch, sequence, width = x.shape
    if not heads or width % heads:
        raise ModelError("a width of {0} does not divide into {1} heads", width, heads)
    split = reshaped(b, x, (batch, sequence, heads, width // heads))
    return b.add("transpose", split, axes=(0, 2, 1, 3))


def heads_last(b: Builder, x: Value) -> Value:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, sequence, size = x.shape
    return reshaped(b, b.add("transpose", x, axes=(0, 2, 1, 3)), (batch, sequence, heads * size))


@dataclass(frozen=True)
class Seen:
    """Which keys a query sees, and what is added to its scores.

    `mask` broadcasts to the scores: false or -inf where nothing is seen; it may have fewer columns.
    Queries see at most `left` keys before their own place and `right` after it, where these are not
    negative. The first query is at place `past`, which is 0 for `None`. Keys of each of the batch
    end at `lengths`, the last of which are those of the queries if there is no `past`.
    """

    mask: Value | None = None
    left: int = -1
    right: int = -1
    past: int | None = None
    lengths: Value | None = None


EVERYTHING = Seen()


def attention(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    seen: Seen = EVERYTHING,
    *,
    scale: float | None = None,
    cap: float = 0.0,
    precision: str | None = None,
) -> tuple[Value, tuple[Value, ...]]:
    """softmax(softcap(q @ k^T * scale) + bias) @ v; rows that see nothing are zeros.

    Operands are (batch, heads, sequence, size); `k` and `v` may have fewer heads, which that many
    of the queries share. `scale` is one over the root of the size if it is `None`, `precision` the
    dtype of the softmax. Beside the result it returns the scores: as products, with their cap, with
    their bias, and as weights.
    """
    batch, heads, rows, size = q.shape
    groups, columns = k.shape[1:3]
    if heads % groups:
        raise ModelError("{0} heads of queries for {1} of keys", heads, groups)
    scale = 1 / math.sqrt(size) if scale is None else scale
    if not scale > 0:
        raise ModelError("scale is {0}, expected a number above 0", scale)
    factor = b.constant(math.sqrt(scale), q.dtype)
    # Heads that share keys are one more dimension, along which those broadcast.
    shared = heads // groups
    first = (batch, heads) if shared == 1 else (batch, groups, shared)
    own = reshaped(b, q, (*first, rows, size))
    keys, values = (
        x if shared == 1 else reshaped(b, x, (batch, groups, 1, columns, x.shape[3]))
        for x in (k, v)
    )
    scores = products = b.add(
        "matmul", b.add("multiply", own, factor), b.add("multiply", keys, factor), transpose_b=True
    )
    if cap > 0:
        bound = b.constant(cap, q.dtype)
        scores = b.add("multiply", b.add("tanh", b.add("divide", scores, bound)), bound)
    capped = scores
    bias, blind_rows = _bias(b, seen, rows, columns, q.dtype)
    if bias is not None:
        if bias.type.rank == 4 and shared > 1:
            each, by_head, *rest = bias.shape
            split = (1, 1) if by_head == 1 else (groups, shared)
            bias = reshaped(b, bias, (each, *split, *rest))
        scores = b.add("add", scores, bias)
    weights = b.add("softmax", cast_to(b, scores, precision or q.dtype), axis=len(first) + 1)
    if bias is not None and blind_rows:
        largest = b.add("max", bias, axes=(bias.type.rank - 1,), keepdims=True)
        blind = b.add("equal", largest, b.constant(-math.inf, bias.dtype))
        if not isinstance(blind, Constant) or blind.data.any():
            weights = b.add("where", blind, b.constant(0, weights.dtype), weights)
    weights = cast_to(b, weights, q.dtype)
    result = reshaped(b, b.add("matmul", weights, values), (batch, heads, rows, v.shape[3]))
    shape = (batch, heads, rows, columns)
    return result, tuple(reshaped(b, x, shape) for x in (products, capped, scores, weights))


def _bias(b: Builder, seen: Seen, rows: int, columns: int, dtype: str) -> tuple[Value | None, bool]:
    """What is added to the scores, -inf where a query does not see a key.

    Also says whether there may be queries that see none.
    """
    bias: Value | None = None
    blind = seen.mask is not None or seen.lengths is not None

    def add(value: Value) -> None:
        nonlocal bias
        bias = value if bias is None else b.add("add", bias, value)

    def where(condition: Value) -> None:
        zero, least = b.constant(0, dtype), b.constant(-math.inf, dtype)
        add(b.add("where", condition, zero, least))

    mask, lengths = seen.mask, seen.lengths
    if mask is not None:
        short = columns - mask.shape[-1]
        if short > 0:
            after = (*(0,) * (mask.type.rank - 1), short)
            fill = False if mask.dtype == "bool" else -math.inf
            mask = b.add("pad", mask, before=(0,) * mask.type.rank, after=after, value=fill)
        if mask.dtype == "bool":
            where(mask)
        else:
            add(cast_to(b, mask, dtype))
    counted = "int64" if lengths is None or seen.past is not None else lengths.dtype
    # Windows without an end are as long as a number may be: sums with them must not wrap around.
    left, right = (min(n, dtypes.int_limits(counted)[1] // 2) for n in (seen.left, seen.right))
    if left >= 0 or right >= 0:
        # A query at row i is at i + offset among the keys. The conditions are computed from ranges:
        # of long sequences they would be large constants.
        own, last = np.arange(rows).reshape(rows, 1), columns - 1
        if seen.past is None and lengths is not None:
            offset = b.add("subtract", lengths, b.constant(rows, lengths.dtype))
            offset = reshaped(b, offset, (lengths.type.size, 1, 1, 1))
            at = b.add("add", b.constant(own, counted), offset)
        else:
            own += seen.past or 0
            low = np.maximum(own - left, 0) if left >= 0 else 0
            high = np.minimum(own + right, last) if right >= 0 else last
            blind = blind or bool(np.any(low > high))
            at = b.constant(own, counted)
        keys = b.constant(np.arange(columns), at.dtype)
        conditions = list[Value]()
        if right >= 0:
            end = b.add("add", at, b.constant(right, at.dtype))
            conditions.append(b.add("less_equal", keys, end))
        if left >= 0:
            begin = b.add("subtract", at, b.constant(left, at.dtype))
            conditions.append(b.add("less_equal", begin, keys))
        where(reduce(partial(b.add, "logical_and"), conditions))
    if lengths is not None:
        ends = reshaped(b, lengths, (lengths.type.size, 1, 1, 1))
        where(b.add("less", b.constant(np.arange(columns), lengths.dtype), ends))
    return bias, blind


def rotated(
    b: Builder,
    x: Value,
    cos: Value,
    sin: Value,
    positions: Value | None = None,
    *,
    size: int = 0,
    paired: bool = False,
) -> Value:
    """Pairs of elements turned by the angles of their positions.

    Of (batch, heads, sequence, size); caches are (sequence, half) or (batch, sequence, half), of
    which `positions` chooses rows. `size` says how many elements are turned, 0 all. The elements of
    a pair are neighbours if `paired`, or those at one place of two halves.
    """
    turned = size or x.shape[3]
    half = turned // 2

    def cached(value: Value) -> Value:
        value = value if positions is None else b.add("take", value, positions, axis=0)
        if value.shape[-1] != half:
            raise ModelError("caches of {0} for {1} pairs", value.type, half)
        return reshaped(b, value, (value.shape[0], 1, *value.shape[1:]))

    def every(first: int, step: int) -> Value:
        shape = (*x.shape[:3], half)
        return b.add("slice", x, starts=(0, 0, 0, first), steps=(1, 1, 1, step), shape=shape)

    c, s = cached(cos), cached(sin)
    step, second_at = (2, 1) if paired else (1, half)
    first, second = every(0, step), every(second_at, step)
    real = b.add("subtract", b.add("multiply", first, c), b.add("multiply", second, s))
    imaginary = b.add("add", b.add("multiply", first, s), b.add("multiply", second, c))
    if paired:
        columns = [reshaped(b, v, (*v.shape, 1)) for v in (real, imaginary)]
        value = reshaped(b, b.add("concatenate", *columns, axis=4), (*x.shape[:3], turned))
    else:
        value = b.add("concatenate", real, imaginary, axis=3)
    if turned < x.shape[3]:
        rest = part(b, x, 3, turned, x.shape[3] - turned)
        value = b.add("concatenate", value, rest, axis=3)
    return value
