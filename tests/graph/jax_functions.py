"""Functions of JAX, built by our kernels: `python -m tests.graph.jax_functions`.

Each function is exported, imported and compared with what JAX computes: it is right, wrong, refused
with a reason of the closed list, or crashed. The counts are printed, and `--list wrong` prints the
functions. `--only REGEX` takes some; `--reference` compares the graph's reference only, which takes
seconds. It is an error if one is wrong, crashes, or is refused but not declared so.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.errors import UnsupportedError

VERDICTS = ("right", "wrong", "refused", "crashed")


class Case(NamedTuple):
    """A function and its arguments; `refused` is a reason for which it may be."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    refused: str = ""
    tolerance: float = 1e-5
    gradient: bool = False


def _pooled(jnp: Any, lax: Any, x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def cases() -> dict[str, Case]:
    """The functions by their names."""
    import jax
    import jax.numpy as jnp
    from jax import lax, nn

    rng = np.random.default_rng(0)
    found: dict[str, Case] = {}

    def array(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    def ints(high: int, *shape: int) -> Any:
        return rng.integers(0, high, size=shape).astype(np.int32)

    def case(
        name: str, function: Any, *args: Any, refused: str = "", tolerance: float = 1e-5
    ) -> None:
        assert name not in found, name
        found[name] = Case(function, args, refused, tolerance)

    def gradient(name: str, function: Any, *args: Any, tolerance: float = 1e-4) -> None:
        """Of the first argument, and the value."""
        case(f"grad_{name}", jax.value_and_grad(function), *args, tolerance=tolerance)
        found[f"grad_{name}"] = found[f"grad_{name}"]._replace(gradient=True)

    # Layers and models, whose parameters are pytrees.
    def dense(p: Any, x: Any) -> Any:
        return x @ p["w"] + p["b"]

    def layer(n: int, m: int) -> Any:
        return {"w": array(n, m) / np.float32(n**0.5), "b": array(m)}

    def mlp(p: Any, x: Any) -> Any:
        return dense(p[1], nn.relu(dense(p[0], x)))

    def norm(p: Any, x: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * p["w"] + p["b"]

    def attention(p: Any, x: Any, causal: bool = False) -> Any:
        n, t, d = x.shape
        q, k, v = (dense(p[s], x).reshape(n, t, 2, d // 2) for s in "qkv")
        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / np.sqrt(d // 2)
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        y = jnp.einsum("nhqk,nkhd->nqhd", nn.softmax(scores), v)
        return dense(p["o"], y.reshape(n, t, d))

    def block(p: Any, x: Any) -> Any:
        x = x + attention(p["attention"], norm(p["first"], x), causal=True)
        return x + mlp(p["mlp"], norm(p["second"], x))

    def cross_entropy(logits: Any, labels: Any) -> Any:
        chosen = jnp.take_along_axis(nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean()

    def conv(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip

    def convnet(p: Any, x: Any) -> Any:
        x = _pooled(jnp, lax, nn.relu(conv(x, p["first"], 2)))
        x = nn.gelu(conv(x, p["depthwise"], groups=x.shape[-1]))
        return dense(p["head"], x.mean((1, 2)))

    def residual(p: Any, x: Any) -> Any:
        y = nn.relu(conv(x, p["first"]) * p["scale"] + p["shift"])
        return nn.relu(x + conv(y, p["second"]))

    def lstm(p: Any, x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
            h = nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], p["h"].shape[0]))
        return lax.scan(step, (zeros, zeros), x)

    def gru(p: Any, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            z, r = jnp.split(nn.sigmoid(row @ p["x"] + h @ p["h"]), 2, -1)
            return (1 - z) * h + z * jnp.tanh(row @ p["c"] + (r * h) @ p["u"]), h.sum()

        return lax.scan(step, jnp.zeros((x.shape[1], p["u"].shape[0])), x, reverse=True)

    layers, cells = (
        [layer(8, 16), layer(16, 4)],
        {"x": array(3, 16), "h": array(4, 16), "b": array(16)},
    )
    heads = {s: layer(8, 8) for s in "qkvo"}
    decoder = {
        "attention": heads, "first": {"w": array(8), "b": array(8)},
        "second": {"w": array(8), "b": array(8)}, "mlp": [layer(8, 16), layer(16, 8)],
    }  # fmt: skip
    vision = {
        "first": array(3, 3, 3, 8) / 5,
        "depthwise": array(3, 3, 1, 8) / 3,
        "head": layer(8, 5),
    }
    shortcut = {
        "first": array(3, 3, 4, 4) / 6, "second": array(3, 3, 4, 4) / 6,
        "scale": array(4), "shift": array(4),
    }  # fmt: skip
    gated = {"x": array(3, 8), "h": array(4, 8), "c": array(3, 4), "u": array(4, 4)}
    image, words, sequence = array(2, 9, 8, 3), array(2, 5, 8), array(6, 2, 3)
    labels, batch = ints(4, 3), array(3, 8)

    case("mlp", mlp, layers, batch)
    case("layer_norm", norm, decoder["first"], words)
    case("attention", attention, heads, words)
    case("decoder_block", block, decoder, words)
    case(
        "softmax_cross_entropy", lambda p, x, y: cross_entropy(mlp(p, x), y), layers, batch, labels
    )
    case("convnet", convnet, vision, image)
    case("residual_block", residual, shortcut, array(2, 6, 5, 4))
    case("lstm_by_scan", lstm, cells, sequence)
    case("gru_backwards", gru, gated, sequence)
    case("embedding_bag", lambda w, i: w[i].sum(1), array(11, 4), ints(11, 3, 5))
    case("rms_norm_bfloat16", lambda x: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6),
         jnp.asarray(words, jnp.bfloat16), tolerance=2e-2)  # fmt: skip
    case("mixed_precision", lambda p, x: dense(jax.tree.map(lambda a: a.astype(jnp.bfloat16), p[0]),
         x.astype(jnp.bfloat16)).astype(jnp.float32), layers, batch, tolerance=2e-2)  # fmt: skip
    case("dot_product_attention", lambda q: nn.dot_product_attention(q, q, q, is_causal=True),
         array(2, 5, 2, 4))  # fmt: skip
    case("rotary", lambda x: jnp.concatenate([
        x[..., ::2] * jnp.cos(jnp.arange(5.0)[:, None]) - x[..., 1::2],
        x[..., 1::2] + x[..., ::2] * jnp.sin(jnp.arange(5.0)[:, None])], -1), words)  # fmt: skip
    case("cache_update", lambda c, k, i: lax.dynamic_update_slice(c, k, (0, i, 0)),
         array(2, 7, 4), array(2, 1, 4), np.int32(3))  # fmt: skip
    case("vmap_mlp", jax.vmap(mlp, (None, 0)), layers, array(4, 3, 8))
    case("vmap_conv", jax.vmap(conv, (0, 0)), array(2, 1, 5, 5, 3), array(2, 3, 3, 3, 4))
    case("vmap_gather", jax.vmap(lambda x, i: x[i]), array(4, 7, 3), ints(7, 4, 2))
    case("vmap_scatter", jax.vmap(lambda x, i, v: x.at[i].add(v)), array(4, 7), ints(7, 4, 2),
         array(4, 2))  # fmt: skip
    case(
        "vmap_slice",
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (3,))),
        array(4, 7),
        ints(7, 4),
    )
    case("vmap_cond", jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)), array(6))

    # Activations and functions of elements.
    for name in ("relu", "gelu", "silu", "softplus", "elu", "selu", "swish", "hard_swish", "mish",
                 "log_sigmoid", "glu", "softmax", "log_softmax", "standardize", "squareplus"):  # fmt: skip
        case(f"nn_{name}", getattr(nn, name), words)
    case("gelu_exact", partial(nn.gelu, approximate=False), words)
    case("logsumexp", lambda x: (nn.logsumexp(x, 1), nn.logsumexp(x, keepdims=True)), words)
    case("one_hot", lambda i: nn.one_hot(i, 5), ints(5, 3, 2))
    case("trigonometry", lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan(x),
         jnp.arcsin(x / 5), jnp.arccos(x / 5), jnp.arctan2(x, x[::-1])), words)  # fmt: skip
    case("hyperbolic", lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jnp.arcsinh(x),
         jnp.arccosh(2 + x * x), jnp.arctanh(x / 5)), words)  # fmt: skip
    case("exponentials", lambda x: (jnp.expm1(x * 1e-3), jnp.log1p(x * 1e-3), jnp.exp2(x),
         jnp.log2(1 + x * x), jnp.cbrt(x), jnp.sqrt(x * x), lax.rsqrt(1 + x * x)), words)  # fmt: skip
    case("special", lambda x: (lax.erf(x), lax.erfc(x), lax.erf_inv(x / 5), lax.lgamma(1 + x * x),
         lax.digamma(1 + x * x), jax.scipy.special.i1e(x)), words, tolerance=2e-5)  # fmt: skip
    case("rounding", lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x * 3), jnp.trunc(x),
         lax.round(x * 2, lax.RoundingMethod.AWAY_FROM_ZERO), jnp.sign(x), jnp.fmod(x, 0.7),
         jnp.mod(x, 0.7), x // 0.7), words)  # fmt: skip
    case("atan2_of_zeros", lambda y, x: jnp.arctan2(y, x), *np.float32(
        [[0, 0, -0.0, -0.0, 1, -1, np.inf, -np.inf, 0, 1], [0, -0.0, 0, -0.0, 0, -0.0, np.inf, 3, -2, -np.inf]]))  # fmt: skip
    case("integers", lambda i: (i // -2, i % 3, i**3, -i, abs(i), i / 3),
         np.int32([[-7, 3, 0], [100, -(2**31), 2**30]]))  # fmt: skip
    case("bits", lambda i: (i << 3, i >> 1, lax.shift_right_logical(i, 2), ~i, i ^ 5, i & 3, i | 8,
         lax.population_count(i), lax.clz(i)), np.int32([[-7, 3, 0], [100, -(2**31), 2**30]]))  # fmt: skip
    case("bitcasts", lambda i: (lax.bitcast_convert_type(i, jnp.float32),
         lax.bitcast_convert_type(i, jnp.uint8), lax.bitcast_convert_type(i, jnp.int16)),
         np.int32([1, 7, 2**30]))  # fmt: skip
    case("division_by_zero", lambda i, j: (lax.div(i, j), lax.rem(i, j)),
         np.int32([7, -7, 0]), np.int32([0, 0, 0]))  # fmt: skip
    case("casts", lambda x: (x.astype(jnp.int8), x.astype(bool), x.astype(jnp.float16),
         (x > 0).astype(jnp.float32), x.astype(jnp.uint32)), np.float32([0.5, 2.9, 100, 0]))  # fmt: skip
    case("nan_and_infinity", lambda x: (jnp.isnan(x), jnp.isinf(x), jnp.isfinite(x),
         jnp.nan_to_num(x), jnp.maximum(x, 0), jnp.nanmax(x), jnp.nansum(x), x.max()),
         np.float32([1, np.nan, np.inf, -np.inf]))  # fmt: skip
    case(
        "where_and_clip",
        lambda x: (jnp.where(x > 0, x, -1), jnp.clip(x, -0.5, 0.5), x == x[0]),
        words,
    )

    # Movement.
    case(
        "slices",
        lambda x: (x[1:, ::2], x[::-1], x[:, -1], jnp.flip(x, (0, 2)), x[..., None]),
        words,
    )
    case(
        "transpose",
        lambda x: (x.T, jnp.moveaxis(x, 0, 1), x.reshape(8, -1), x.swapaxes(1, 2)),
        words,
    )
    case("pads", lambda x: (lax.pad(x, 2.0, ((1, -1, 2), (0, 2, 0))), jnp.pad(x, 1, mode="reflect"),
         jnp.pad(x, ((0, 1), (2, 0)), mode="wrap"), jnp.pad(x, 2, mode="edge")), array(4, 5))  # fmt: skip
    case("stack_and_repeat", lambda x: (jnp.stack([x, x + 1], 1), jnp.repeat(x, 3, 1),
         jnp.tile(x, (2, 1, 1)), jnp.roll(x, 2, 1), jnp.concatenate([x, x], 2)), words)  # fmt: skip
    case("triangles", lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.eye(3) * 2, jnp.diag(x[0, :, 0]),
         jnp.diagonal(x[0])), words)  # fmt: skip
    case("ranges", lambda: (jnp.arange(5), jnp.linspace(0, 1, 7), jnp.ones((2, 3)), jnp.zeros(3)))
    case("meshgrid", lambda x, y: jnp.meshgrid(x, y), array(3), array(4))
    for method in ("nearest", "bilinear", "bicubic"):
        case(
            f"image_{method}", partial(jax.image.resize, shape=(2, 7, 13, 3), method=method), image
        )

    # Indices.
    case("take", lambda x, i: (jnp.take(x, i, 1), jnp.take(x, i), x[i]), words, ints(2, 3))
    case("take_out_of_bounds", lambda x, i: (x[i], jnp.take(x, i, 0, mode="clip")), words,
         np.int32([0, -1, 7, -9]))  # fmt: skip
    case("two_indices", lambda x, i, j: (x[i, j], x[i, :, j]), words, ints(2, 4, 1), ints(5, 3))
    case("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 1), words, ints(5, 2, 3, 8))
    case("set_rows", lambda x, i, v: x.at[i].set(v), array(6, 3), np.int32([0, 4, 2]), array(3, 3))
    case("add_rows", lambda x, i, v: x.at[i, 1].add(v), array(6, 3), ints(6, 8), array(8))
    case("scatter_extremes", lambda x, i, v: (x.at[i].max(v), x.at[i].min(v), x.at[i].mul(v)),
         array(6, 3), ints(6, 8), array(8, 3))  # fmt: skip
    case("drop_out_of_bounds", lambda x, i, v: x.at[i].set(v, mode="drop"), array(6, 3),
         np.int32([0, 7, -9]), array(3, 3))  # fmt: skip
    case("set_slice", lambda x, v: x.at[1:3, ::2].set(v), array(5, 4), array(2, 2))
    case(
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice(x, (i, -i), (2, 2)),
        array(5, 4),
        np.int32(9),
    )
    case("dynamic_update", lambda x, v, i: lax.dynamic_update_slice(x, v, (i, 0, i)),
         array(5, 4, 3), array(2, 4, 1), np.int32(3))  # fmt: skip
    case("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 4), array(9, 2), ints(4, 9))
    case("bincount", lambda i: jnp.bincount(i, length=6), ints(6, 20))
    case("searchsorted", lambda x, v: jnp.searchsorted(jnp.sort(x), v, method="compare_all"),
         array(9), array(4))  # fmt: skip
    case("nonzero", lambda x: jnp.nonzero(x > 0, size=5, fill_value=-1), array(9))

    # Sums, orders and products.
    case("reductions", lambda x: (x.sum(1), x.mean(), x.max(0), x.min(2), x.prod(2), x.std(0),
         (x > 0).any(1), (x > 0).all(), jnp.median(x, 1)), words)  # fmt: skip
    case("argmax", lambda x: (x.argmax(), x.argmax(1), x.argmin(0)), words)
    case("argmax_of_equal_ones", lambda i: (i.argmax(1), i.argmin(1)), ints(3, 4, 9))
    case(
        "bitwise_reduction",
        lambda i: lax.reduce(i, np.int32(0), lax.bitwise_xor, (1,)),
        ints(99, 3, 5),
    )
    case(
        "own_reduction",
        lambda x: lax.reduce(x, np.float32(0), lambda a, c: a + c + a * c, (0,)),
        array(7, 2),
    )
    case("cumulative", lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 2), lax.cummax(x, 1),
         lax.cumlogsumexp(x, 2), lax.cumsum(x, 1, reverse=True)), words)  # fmt: skip
    case("associative_scan", lambda x: lax.associative_scan(jnp.maximum, x), array(7, 2))
    case("sort", lambda x: (jnp.sort(x), jnp.sort(x, 0, descending=True), jnp.argsort(x, 1)), words)
    case("sort_by_keys", lambda i, x: lax.sort((i, x, -x), num_keys=2), ints(3, 4, 7), array(4, 7))
    case(
        "sort_of_nan",
        lambda x: (jnp.sort(x), jnp.argsort(x)),
        np.float32([2, np.nan, -np.inf, 0, np.nan, 1]),
    )
    case("lexsort", lambda i, x: jnp.lexsort((x, i)), ints(3, 4, 7), array(4, 7))
    case("top_k", lambda x: lax.top_k(x, 3), words)
    case("unique", lambda i: jnp.unique(i, size=4, fill_value=-1), ints(4, 9))
    case("matmuls", lambda x, y: (x @ y, jnp.dot(x[0], y[:, 0]), jnp.outer(x[0], y[0]), jnp.vdot(x, x)),
         array(3, 4), array(4, 5))  # fmt: skip
    case("einsum", lambda x, y: (jnp.einsum("nij,nkj->nik", x, y), jnp.einsum("nij,nkj->k", x, y)),
         array(2, 3, 4), array(2, 5, 4))  # fmt: skip
    case("dot_general", lambda x, y: lax.dot_general(x, y, (((1, 3), (2, 0)), ((2,), (1,)))),
         array(2, 3, 4, 5), array(5, 4, 3, 6))  # fmt: skip
    case("integer_dot", lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
         ints(9, 3, 4).astype(np.int8), ints(9, 4, 5).astype(np.int8))  # fmt: skip
    case("tensordot_and_kron", lambda x, y: (jnp.tensordot(x, y, 1), jnp.kron(x, y)),
         array(3, 2), array(2, 3))  # fmt: skip
    case("matrix_power", lambda x: jnp.linalg.matrix_power(x, 5), array(4, 4) / 2)
    case("norms", lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1), jnp.linalg.norm(x, 1, 1)),
         array(4, 5))  # fmt: skip

    # Windows.
    case("max_pool", partial(_pooled, jnp, lax), image)
    case("average_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 2, 1),
         "SAME") / 6, image)  # fmt: skip
    case("min_pool_dilated", lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 2, 1),
         (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)), image)  # fmt: skip
    case("conv_dilated", lambda x, w: lax.conv_general_dilated(x, w, (2, 1), ((1, 2), (0, 1)),
         rhs_dilation=(1, 2), feature_group_count=2), array(2, 4, 9, 8), array(6, 2, 3, 2))  # fmt: skip
    case("conv_cut", lambda x, w: lax.conv_general_dilated(x, w, (2, 1), ((-1, 2), (0, -1)),
         lhs_dilation=(2, 1)), array(2, 4, 8, 7), array(3, 4, 2, 2))  # fmt: skip
    case("conv_batch_groups", lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME",
         batch_group_count=2), array(4, 3, 5, 6), array(4, 3, 3, 3))  # fmt: skip
    case("conv_transpose", lambda x, w: lax.conv_transpose(x, w, (2, 3), "SAME"),
         array(2, 5, 4, 3), array(3, 4, 3, 6))  # fmt: skip
    case("conv_1d", lambda x, w: (jnp.convolve(x[0, 0], w[0, 0]), lax.conv(x, w, (2,), "VALID")),
         array(2, 3, 9), array(4, 3, 3))  # fmt: skip
    case(
        "conv_3d",
        lambda x, w: lax.conv(x, w, (1, 2, 1), "SAME"),
        array(1, 2, 4, 5, 3),
        array(3, 2, 2, 3, 2),
    )
    case(
        "patches",
        lambda x: lax.conv_general_dilated_patches(x, (2, 2), (2, 2), "VALID"),
        array(1, 3, 4, 6),
    )

    # Loops, branches, random numbers.
    case("fori_loop", lambda x: lax.fori_loop(0, 5, lambda k, c: c * 0.5 + k, x), array(3))
    case(
        "newton", lambda x: lax.fori_loop(0, 6, lambda _, r: (r + x / r) / 2, x), np.float32([2, 9])
    )
    case("power_iteration", lambda m, v: lax.scan(lambda v, _: (m @ v / jnp.linalg.norm(m @ v), None),
         v, None, 8)[0], array(4, 4), array(4))  # fmt: skip
    case("cond", lambda x, i: lax.cond(i > 0, jnp.sin, jnp.exp, x), array(3), np.int32(1))
    case(
        "switch",
        lambda x, i: lax.switch(i, [jnp.sin, jnp.exp, lambda v: v + 1], x),
        array(3),
        np.int32(7),
    )
    case("map", lambda x: lax.map(lambda v: jnp.tanh(v).sum(), x), words)
    case("checkpoint", jax.checkpoint(mlp), layers, batch)
    keys = np.uint32([3, 1 << 31])
    case("random_uniform", lambda k: jax.random.uniform(k, (3, 4)), keys)
    case("random_normal", lambda k: jax.random.normal(k, (3, 4)), keys)
    case("random_split", lambda k: (jax.random.split(k, 3), jax.random.fold_in(k, 7)), keys)
    case(
        "random_integers",
        lambda k: (jax.random.randint(k, (9,), 0, 17), jax.random.bits(k, (5,))),
        keys,
    )
    case("random_choice", lambda k: (jax.random.bernoulli(k, 0.3, (7,)), jax.random.permutation(k, 6),
         jax.random.categorical(k, jnp.ones((3, 4)))), keys)  # fmt: skip
    case(
        "dropout",
        lambda k, x: jnp.where(jax.random.bernoulli(k, 0.8, x.shape), x / 0.8, 0),
        keys,
        words,
    )

    # Gradients.
    gradient("mlp", lambda p, x: jnp.square(mlp(p, x)).mean(), layers, batch)
    gradient("cross_entropy", lambda p, x, y: cross_entropy(mlp(p, x), y), layers, batch, labels)
    gradient("layer_norm", lambda p, x: jnp.sin(norm(p, x)).sum(), decoder["first"], words)
    gradient("attention", lambda p, x: jnp.square(attention(p, x)).mean(), heads, words)
    gradient("decoder_block", lambda p, x: jnp.square(block(p, x)).mean(), decoder, words)
    gradient("convnet", lambda p, x: jnp.square(convnet(p, x)).sum(), vision, image)
    gradient(
        "residual_block",
        lambda p, x: jnp.square(residual(p, x)).mean(),
        shortcut,
        array(2, 6, 5, 4),
    )
    gradient("lstm", lambda p, x: jnp.square(lstm(p, x)[1]).sum(), cells, sequence)
    gradient("embedding", lambda w, i: jnp.tanh(w[i]).sum(), array(11, 4), ints(11, 3, 5))
    gradient("max_pool", lambda x: jnp.sin(_pooled(jnp, lax, x)).sum(), image)
    gradient("average_pool", lambda x: jnp.sin(lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1),
             (1, 2, 2, 1), "VALID")).sum(), image)  # fmt: skip
    gradient(
        "strided_conv", lambda w, x: jnp.sin(conv(x, w, 2)).sum(), array(3, 3, 3, 4) / 5, image
    )
    gradient(
        "image_of_conv", lambda x, w: jnp.sin(conv(x, w, 2)).sum(), image, array(3, 3, 3, 4) / 5
    )
    gradient("conv_transpose", lambda w, x: jnp.sin(lax.conv_transpose(x, w, (2, 2), "SAME")).sum(),
             array(3, 3, 3, 4) / 5, array(1, 4, 4, 3))  # fmt: skip
    gradient("sort", lambda x: (jnp.sort(x) * jnp.arange(8.0)).sum(), words)
    gradient("cumulative", lambda x: (jnp.cumsum(x, 1) ** 2).sum() + jnp.cumprod(x, 2).sum(), words)
    gradient("logsumexp", lambda x: nn.logsumexp(x * 3), words)
    gradient("gather", lambda x, i: jnp.take_along_axis(x, i, 1).sum(), words, ints(5, 2, 3, 8))
    gradient(
        "scatter",
        lambda x, i, v: jnp.sin(x.at[i].set(v)).sum(),
        array(6, 3),
        np.int32([0, 4]),
        array(2, 3),
    )
    gradient(
        "hessian_vector",
        lambda x: jax.jvp(jax.grad(lambda v: jnp.sin(v).prod()), (x,), (x,))[1].sum(),
        array(4),
    )
    case("sgd_step", lambda p, x, y: jax.tree.map(lambda a, g: a - 0.1 * g, p,
         jax.grad(lambda q: cross_entropy(mlp(q, x), y))(p)), layers, batch, labels)  # fmt: skip
    case("jacobian", jax.jacrev(lambda x: jnp.sin(x) * x.sum()), array(4))

    # What is refused, by name.
    case("fft", lambda x: jnp.abs(jnp.fft.fft(x)), array(8), refused="DTYPE")
    case("complex", lambda x: (x * 1j).imag, array(3), refused="DTYPE")
    case("int4", lambda x: x.astype(jnp.int4).astype(jnp.int32), ints(5, 3), refused="DTYPE")
    case("solve", jnp.linalg.solve, array(4, 4), array(4), refused="OPERATOR")
    case(
        "cholesky",
        lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)),
        array(4, 4),
        refused="OPERATOR",
    )
    case("eigenvalues", jnp.linalg.eigvalsh, array(4, 4), refused="OPERATOR")
    case("while_of_data", lambda x: lax.while_loop(lambda v: v < 10, lambda v: v * 2, x), np.float32(1),
         refused="DATA_DEPENDENT")  # fmt: skip
    case("random_bits_of_hardware", lambda: jax.random.normal(jax.random.key(0, impl="rbg"), (3,)),
         refused="OPERATOR")  # fmt: skip
    return found


def verdict(case: Case, *, reference: bool) -> tuple[str, str]:
    """How a case ends, and why."""
    import jax

    from tilewright.building.build_model import build_graph
    from tilewright.codegen.detect import resolve
    from tilewright.importers.stablehlo import import_stablehlo

    try:
        compiled = jax.jit(case.function)
        graph = import_stablehlo(jax.export.export(compiled)(*case.arguments))
        given = [np.asarray(leaf) for leaf in jax.tree.leaves(case.arguments)]
        wanted = jax.tree.leaves(compiled(*case.arguments))
        if reference:
            results: Any = graph.reference(*given)
        else:
            # Starting processes takes longer than compiling these kernels.
            results = build_graph(graph, resolve("cpu -threads=1"), jobs=1)(*given)
        results = results if isinstance(results, tuple) else (results,)
        for name, value, expected in zip(graph.outputs, results, wanted, strict=True):
            problem = difference(np.asarray(value), np.asarray(expected), case.tolerance)
            if problem:
                return "wrong", f"{name}: {problem}"
    except UnsupportedError as error:
        reasons = error.data.get("reasons") or [("", "", "?", str(error))]
        return "refused", "; ".join(f"{reason} {detail}" for _, _, reason, detail in reasons)
    except Exception as error:  # noqa: BLE001
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return "crashed", f"{type(error).__name__} {where} {error}".replace("\n", " ")[:300]
    return "right", ""


def difference(found: Any, expected: Any, tolerance: float) -> str:
    """What tells two arrays apart; nothing if they agree: integers exactly."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "biu":
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} differ" if wrong else ""
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    if np.allclose(wide, right, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"error {np.nanmax(np.abs(wide - right)):.3g}"


def _one(job: tuple[str, bool]) -> tuple[str, str, str]:
    """The verdict on a case; cases do not travel, as functions have no names of their own."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    name, reference = job
    global _KNOWN  # noqa: PLW0603
    _KNOWN = _KNOWN or cases()
    return name, *verdict(_KNOWN[name], reference=reference)


_KNOWN: dict[str, Case] = {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--list", choices=VERDICTS, action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    known = {n: c for n, c in cases().items() if re.search(given.only, n)}
    verdicts: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    problems: list[str] = []
    with get_context("spawn").Pool(given.jobs) as pool:
        jobs = [(name, given.reference) for name in known]
        for name, kind, why in pool.imap_unordered(_one, jobs, chunksize=4):
            verdicts[name] = kind
            if kind in given.list:
                print(f"{kind}: {name}: {why}", flush=True)
            if kind == "refused":
                reasons.setdefault(why, []).append(name)
            if kind in ("wrong", "crashed") or (kind == "refused" and not known[name].refused):
                problems.append(f"{kind}: {name}: {why}")
    counts = Counter(verdicts.values())
    gradients = sum(known[name].gradient and kind == "right" for name, kind in verdicts.items())
    print(", ".join(f"{kind} {counts[kind]:,}" for kind in VERDICTS), f"({gradients} gradients)")
    for why, names in sorted(reasons.items()):
        print(f"refused {len(names)}: {why}: {', '.join(names)}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
