"""Functions of JAX that are imported and compared; `jax_functions.py` is the judge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn, scipy

from benchmarks.jax_modules import (
    attention,
    block,
    conv,
    convnet,
    cross_entropy,
    dense,
    gru,
    lstm,
    mlp,
    norm,
    pooled,
    residual,
)


class Case(NamedTuple):
    """A function and its arguments; `refused` is a reason for which it may be."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    refused: str = ""
    tolerance: float = 1e-5


class Cases:
    """Functions by their names, and what makes arguments for them."""

    def __init__(self) -> None:
        self.all: dict[str, Case] = {}
        self.rng = np.random.default_rng(0)

    def array(self, *shape: int) -> Any:
        return self.rng.normal(size=shape).astype(np.float32)

    def layer(self, n: int, m: int) -> Any:
        """The weights of a dense layer."""
        return {"w": self.array(n, m) / np.float32(n**0.5), "b": self.array(m)}

    def ints(self, high: int, *shape: int) -> Any:
        return self.rng.integers(0, high, size=shape).astype(np.int32)

    def case(
        self, name: str, function: Any, *args: Any, refused: str = "", tolerance: float = 1e-5
    ) -> None:
        assert name not in self.all, name
        self.all[name] = Case(function, args, refused, tolerance)

    def gradient(self, name: str, function: Any, *args: Any) -> None:
        """The value and its gradient by the first argument."""
        self.case(f"grad_{name}", jax.value_and_grad(function), *args, tolerance=1e-4)


def cases() -> dict[str, Case]:
    """All functions; each is deterministic."""
    found = Cases()
    for group in (
        _models,
        _elements,
        _movement,
        _indices,
        _sums,
        _windows,
        _control,
        _matrices,
        _complex,
        _refused,
    ):
        group(found)
    return found.all


def floats(values: Any) -> Any:
    return np.array(values, np.float32)


def whole(values: Any) -> Any:
    return np.array(values, np.int32)


def _models(c: Cases) -> None:
    """Models, whose parameters are pytrees, and their gradients."""

    layers, cells = (
        [c.layer(8, 16), c.layer(16, 4)],
        {"x": c.array(3, 16), "h": c.array(4, 16), "b": c.array(16)},
    )
    heads = {s: c.layer(8, 8) for s in "qkvo"}
    decoder = {
        "attention": heads,
        "first": {"w": c.array(8), "b": c.array(8)},
        "second": {"w": c.array(8), "b": c.array(8)},
        "mlp": [c.layer(8, 16), c.layer(16, 8)],
    }
    vision = {
        "first": c.array(3, 3, 3, 8) / 5,
        "depthwise": c.array(3, 3, 1, 8) / 3,
        "head": c.layer(8, 5),
    }
    shortcut = {
        "first": c.array(3, 3, 4, 4) / 6,
        "second": c.array(3, 3, 4, 4) / 6,
        "scale": c.array(4),
        "shift": c.array(4),
    }
    gated = {"x": c.array(3, 8), "h": c.array(4, 8), "c": c.array(3, 4), "u": c.array(4, 4)}
    image, words, sequence = c.array(2, 9, 8, 3), c.array(2, 5, 8), c.array(6, 2, 3)
    labels, batch = c.ints(4, 3), c.array(3, 8)

    c.case("mlp", mlp, layers, batch)
    c.case("checkpoint", jax.checkpoint(mlp), layers, batch)
    c.case("layer_norm", norm, decoder["first"], words)
    c.case("attention", attention, heads, words)
    c.case("decoder_block", block, decoder, words)
    c.case(
        "softmax_cross_entropy", lambda p, x, y: cross_entropy(mlp(p, x), y), layers, batch, labels
    )
    c.case("convnet", convnet, vision, image)
    c.case("residual_block", residual, shortcut, c.array(2, 6, 5, 4))
    c.case("lstm_by_scan", lstm, cells, sequence)
    c.case("gru_backwards", gru, gated, sequence)
    c.case("embedding_bag", lambda w, i: w[i].sum(1), c.array(11, 4), c.ints(11, 3, 5))
    c.case(
        "rms_norm_bfloat16",
        lambda x: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6),
        jnp.asarray(words, jnp.bfloat16),
        tolerance=2e-2,
    )
    c.case(
        "mixed_precision",
        lambda p, x: dense(
            jax.tree.map(lambda a: a.astype(jnp.bfloat16), p[0]), x.astype(jnp.bfloat16)
        ).astype(jnp.float32),
        layers,
        batch,
        tolerance=2e-2,
    )
    c.case(
        "dot_product_attention",
        lambda q: nn.dot_product_attention(q, q, q, is_causal=True),
        c.array(2, 5, 2, 4),
    )
    c.case(
        "rotary",
        lambda x: jnp.concatenate(
            [
                x[..., ::2] * jnp.cos(jnp.arange(5.0)[:, None]) - x[..., 1::2],
                x[..., 1::2] + x[..., ::2] * jnp.sin(jnp.arange(5.0)[:, None]),
            ],
            -1,
        ),
        words,
    )
    c.case(
        "cache_update",
        lambda c, k, i: lax.dynamic_update_slice(c, k, (0, i, 0)),
        c.array(2, 7, 4),
        c.array(2, 1, 4),
        np.int32(3),
    )
    c.case("vmap_mlp", jax.vmap(mlp, (None, 0)), layers, c.array(4, 3, 8))
    c.case("vmap_conv", jax.vmap(conv, (0, 0)), c.array(2, 1, 5, 5, 3), c.array(2, 3, 3, 3, 4))
    c.case("vmap_gather", jax.vmap(lambda x, i: x[i]), c.array(4, 7, 3), c.ints(7, 4, 2))
    c.case(
        "vmap_scatter",
        jax.vmap(lambda x, i, v: x.at[i].add(v)),
        c.array(4, 7),
        c.ints(7, 4, 2),
        c.array(4, 2),
    )
    c.case(
        "vmap_slice",
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (3,))),
        c.array(4, 7),
        c.ints(7, 4),
    )
    c.case("vmap_cond", jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)), c.array(6))

    c.gradient("mlp", lambda p, x: jnp.square(mlp(p, x)).mean(), layers, batch)
    c.gradient("cross_entropy", lambda p, x, y: cross_entropy(mlp(p, x), y), layers, batch, labels)
    c.gradient("layer_norm", lambda p, x: jnp.sin(norm(p, x)).sum(), decoder["first"], words)
    c.gradient("attention", lambda p, x: jnp.square(attention(p, x)).mean(), heads, words)
    c.gradient("decoder_block", lambda p, x: jnp.square(block(p, x)).mean(), decoder, words)
    c.gradient("convnet", lambda p, x: jnp.square(convnet(p, x)).sum(), vision, image)
    c.gradient(
        "residual_block",
        lambda p, x: jnp.square(residual(p, x)).mean(),
        shortcut,
        c.array(2, 6, 5, 4),
    )
    c.gradient("lstm", lambda p, x: jnp.square(lstm(p, x)[1]).sum(), cells, sequence)
    c.gradient("embedding", lambda w, i: jnp.tanh(w[i]).sum(), c.array(11, 4), c.ints(11, 3, 5))
    c.gradient("max_pool", lambda x: jnp.sin(pooled(x)).sum(), image)
    c.gradient(
        "average_pool",
        lambda x: jnp.sin(
            lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        ).sum(),
        image,
    )
    c.gradient(
        "strided_conv", lambda w, x: jnp.sin(conv(x, w, 2)).sum(), c.array(3, 3, 3, 4) / 5, image
    )
    c.gradient(
        "image_of_conv", lambda x, w: jnp.sin(conv(x, w, 2)).sum(), image, c.array(3, 3, 3, 4) / 5
    )
    c.gradient(
        "conv_transpose",
        lambda w, x: jnp.sin(lax.conv_transpose(x, w, (2, 2), "SAME")).sum(),
        c.array(3, 3, 3, 4) / 5,
        c.array(1, 4, 4, 3),
    )
    c.gradient("sort", lambda x: (jnp.sort(x) * jnp.arange(8.0)).sum(), words)
    c.gradient(
        "cumulative", lambda x: (jnp.cumsum(x, 1) ** 2).sum() + jnp.cumprod(x, 2).sum(), words
    )
    c.gradient("logsumexp", lambda x: nn.logsumexp(x * 3), words)
    c.gradient("gather", lambda x, i: jnp.take_along_axis(x, i, 1).sum(), words, c.ints(5, 2, 3, 8))
    c.gradient(
        "scatter",
        lambda x, i, v: jnp.sin(x.at[i].set(v)).sum(),
        c.array(6, 3),
        whole([0, 4]),
        c.array(2, 3),
    )
    c.gradient(
        "hessian_vector",
        lambda x: jax.jvp(jax.grad(lambda v: jnp.sin(v).prod()), (x,), (x,))[1].sum(),
        c.array(4),
    )
    c.case(
        "sgd_step",
        lambda p, x, y: jax.tree.map(
            lambda a, g: a - 0.1 * g, p, jax.grad(lambda q: cross_entropy(mlp(q, x), y))(p)
        ),
        layers,
        batch,
        labels,
    )
    c.case("jacobian", jax.jacrev(lambda x: jnp.sin(x) * x.sum()), c.array(4))


def _elements(c: Cases) -> None:
    """Activations, and other functions of elements."""
    words = c.array(2, 5, 8)
    for name in (
        "relu",
        "gelu",
        "silu",
        "softplus",
        "elu",
        "selu",
        "swish",
        "hard_swish",
        "mish",
        "log_sigmoid",
        "glu",
        "softmax",
        "log_softmax",
        "standardize",
        "squareplus",
    ):
        c.case(f"nn_{name}", getattr(nn, name), words)
    c.case("gelu_exact", partial(nn.gelu, approximate=False), words)
    c.case("logsumexp", lambda x: (nn.logsumexp(x, 1), nn.logsumexp(x, keepdims=True)), words)
    c.case("one_hot", lambda i: nn.one_hot(i, 5), c.ints(5, 3, 2))
    c.case(
        "trigonometry",
        lambda x: (
            jnp.sin(x),
            jnp.cos(x),
            jnp.tan(x),
            jnp.arctan(x),
            jnp.arcsin(x / 5),
            jnp.arccos(x / 5),
            jnp.arctan2(x, x[::-1]),
        ),
        words,
    )
    c.case(
        "hyperbolic",
        lambda x: (
            jnp.sinh(x),
            jnp.cosh(x),
            jnp.tanh(x),
            jnp.arcsinh(x),
            jnp.arccosh(2 + x * x),
            jnp.arctanh(x / 5),
        ),
        words,
    )
    c.case(
        "exponentials",
        lambda x: (
            jnp.expm1(x * 1e-3),
            jnp.log1p(x * 1e-3),
            jnp.exp2(x),
            jnp.log2(1 + x * x),
            jnp.cbrt(x),
            jnp.sqrt(x * x),
            lax.rsqrt(1 + x * x),
        ),
        words,
    )
    c.case(
        "special",
        lambda x: (
            lax.erf(x),
            lax.erfc(x),
            lax.erf_inv(x / 5),
            lax.lgamma(1 + x * x),
            lax.digamma(1 + x * x),
            jax.scipy.special.i1e(x),
        ),
        words,
        tolerance=2e-5,
    )
    c.case(
        "rounding",
        lambda x: (
            jnp.floor(x),
            jnp.ceil(x),
            jnp.round(x * 3),
            jnp.trunc(x),
            lax.round(x * 2, lax.RoundingMethod.AWAY_FROM_ZERO),
            jnp.sign(x),
            jnp.fmod(x, 0.7),
            jnp.mod(x, 0.7),
            x // 0.7,
        ),
        words,
    )
    c.case(
        "atan2_of_zeros",
        jnp.arctan2,
        *floats(
            [
                [0, 0, -0.0, -0.0, 1, -1, np.inf, -np.inf, 0, 1],
                [0, -0.0, 0, -0.0, 0, -0.0, np.inf, 3, -2, -np.inf],
            ]
        ),
    )
    c.case(
        "integers",
        lambda i: (i // -2, i % 3, i**3, -i, abs(i), i / 3),
        whole([[-7, 3, 0], [100, -(2**31), 2**30]]),
    )
    c.case(
        "bits",
        lambda i: (
            i << 3,
            i >> 1,
            lax.shift_right_logical(i, 2),
            ~i,
            i ^ 5,
            i & 3,
            i | 8,
            lax.population_count(i),
            lax.clz(i),
        ),
        whole([[-7, 3, 0], [100, -(2**31), 2**30]]),
    )
    c.case(
        "bitcasts",
        lambda i: (
            lax.bitcast_convert_type(i, jnp.float32),
            lax.bitcast_convert_type(i, jnp.uint8),
            lax.bitcast_convert_type(i, jnp.int16),
        ),
        whole([1, 7, 2**30]),
    )
    c.case(
        "division_by_zero",
        lambda i, j: (lax.div(i, j), lax.rem(i, j)),
        whole([7, -7, 0]),
        whole([0, 0, 0]),
    )
    c.case(
        "casts",
        lambda x: (
            x.astype(jnp.int8),
            x.astype(bool),
            x.astype(jnp.float16),
            (x > 0).astype(jnp.float32),
            x.astype(jnp.uint32),
        ),
        floats([0.5, 2.9, 100, 0]),
    )
    c.case(
        "nan_and_infinity",
        lambda x: (
            jnp.isnan(x),
            jnp.isinf(x),
            jnp.isfinite(x),
            jnp.nan_to_num(x),
            jnp.maximum(x, 0),
            jnp.nanmax(x),
            jnp.nansum(x),
            x.max(),
        ),
        floats([1, np.nan, np.inf, -np.inf]),
    )
    c.case(
        "where_and_clip",
        lambda x: (jnp.where(x > 0, x, -1), jnp.clip(x, -0.5, 0.5), x == x[0]),
        words,
    )


def _movement(c: Cases) -> None:
    """What moves elements."""
    words = c.array(2, 5, 8)
    image = c.array(2, 9, 8, 3)
    c.case(
        "slices",
        lambda x: (x[1:, ::2], x[::-1], x[:, -1], jnp.flip(x, (0, 2)), x[..., None]),
        words,
    )
    c.case(
        "transpose",
        lambda x: (x.T, jnp.moveaxis(x, 0, 1), x.reshape(8, -1), x.swapaxes(1, 2)),
        words,
    )
    c.case(
        "pads",
        lambda x: (
            lax.pad(x, 2.0, ((1, -1, 2), (0, 2, 0))),
            jnp.pad(x, 1, mode="reflect"),
            jnp.pad(x, ((0, 1), (2, 0)), mode="wrap"),
            jnp.pad(x, 2, mode="edge"),
        ),
        c.array(4, 5),
    )
    c.case(
        "stack_and_repeat",
        lambda x: (
            jnp.stack([x, x + 1], 1),
            jnp.repeat(x, 3, 1),
            jnp.tile(x, (2, 1, 1)),
            jnp.roll(x, 2, 1),
            jnp.concatenate([x, x], 2),
        ),
        words,
    )
    c.case(
        "triangles",
        lambda x: (
            jnp.tril(x),
            jnp.triu(x, 1),
            jnp.eye(3) * 2,
            jnp.diag(x[0, :, 0]),
            jnp.diagonal(x[0]),
        ),
        words,
    )
    c.case("ranges", lambda: (jnp.arange(5), jnp.linspace(0, 1, 7), jnp.ones((2, 3)), jnp.zeros(3)))
    c.case("meshgrid", jnp.meshgrid, c.array(3), c.array(4))
    for method in ("nearest", "bilinear", "bicubic"):
        c.case(
            f"image_{method}", partial(jax.image.resize, shape=(2, 7, 13, 3), method=method), image
        )


def _indices(c: Cases) -> None:
    """What reads or writes at places that data decide."""
    words = c.array(2, 5, 8)
    c.case("take", lambda x, i: (jnp.take(x, i, 1), jnp.take(x, i), x[i]), words, c.ints(2, 3))
    c.case(
        "take_out_of_bounds",
        lambda x, i: (x[i], jnp.take(x, i, 0, mode="clip")),
        words,
        whole([0, -1, 7, -9]),
    )
    c.case(
        "two_indices", lambda x, i, j: (x[i, j], x[i, :, j]), words, c.ints(2, 4, 1), c.ints(5, 3)
    )
    c.case("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 1), words, c.ints(5, 2, 3, 8))
    c.case(
        "set_rows", lambda x, i, v: x.at[i].set(v), c.array(6, 3), whole([0, 4, 2]), c.array(3, 3)
    )
    c.case("add_rows", lambda x, i, v: x.at[i, 1].add(v), c.array(6, 3), c.ints(6, 8), c.array(8))
    c.case(
        "scatter_extremes",
        lambda x, i, v: (x.at[i].max(v), x.at[i].min(v), x.at[i].mul(v)),
        c.array(6, 3),
        c.ints(6, 8),
        c.array(8, 3),
    )
    c.case(
        "drop_out_of_bounds",
        lambda x, i, v: x.at[i].set(v, mode="drop"),
        c.array(6, 3),
        whole([0, 7, -9]),
        c.array(3, 3),
    )
    c.case("set_slice", lambda x, v: x.at[1:3, ::2].set(v), c.array(5, 4), c.array(2, 2))
    c.case(
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice(x, (i, -i), (2, 2)),
        c.array(5, 4),
        np.int32(9),
    )
    c.case(
        "dynamic_update",
        lambda x, v, i: lax.dynamic_update_slice(x, v, (i, 0, i)),
        c.array(5, 4, 3),
        c.array(2, 4, 1),
        np.int32(3),
    )
    c.case("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 4), c.array(9, 2), c.ints(4, 9))
    c.case("bincount", lambda i: jnp.bincount(i, length=6), c.ints(6, 20))
    c.case(
        "searchsorted",
        lambda x, v: jnp.searchsorted(jnp.sort(x), v, method="compare_all"),
        c.array(9),
        c.array(4),
    )
    c.case("nonzero", lambda x: jnp.nonzero(x > 0, size=5, fill_value=-1), c.array(9))


def _sums(c: Cases) -> None:
    """Sums, orders and products."""
    words = c.array(2, 5, 8)
    c.case(
        "reductions",
        lambda x: (
            x.sum(1),
            x.mean(),
            x.max(0),
            x.min(2),
            x.prod(2),
            x.std(0),
            (x > 0).any(1),
            (x > 0).all(),
            jnp.median(x, 1),
        ),
        words,
    )
    c.case("argmax", lambda x: (x.argmax(), x.argmax(1), x.argmin(0)), words)
    c.case(
        "argmax_of_nan",
        lambda x: (x.argmax(1), x.argmin(1), (x > 2).argmax(1)),
        floats([[1, np.nan, 3, np.nan], [2, 5, 5, -1], [np.nan] * 4, [-np.inf] * 4]),
    )
    c.case("argmax_of_equal_ones", lambda i: (i.argmax(1), i.argmin(1)), c.ints(3, 4, 9))
    c.case(
        "bitwise_reduction",
        lambda i: lax.reduce(i, np.int32(0), lax.bitwise_xor, (1,)),
        c.ints(99, 3, 5),
    )
    c.case(
        "own_reduction",
        lambda x: lax.reduce(x, np.float32(0), lambda a, c: a + c + a * c, (0,)),
        c.array(7, 2),
    )
    c.case(
        "cumulative",
        lambda x: (
            jnp.cumsum(x, 1),
            jnp.cumprod(x, 2),
            lax.cummax(x, 1),
            lax.cumlogsumexp(x, 2),
            lax.cumsum(x, 1, reverse=True),
        ),
        words,
    )
    c.case("associative_scan", lambda x: lax.associative_scan(jnp.maximum, x), c.array(7, 2))
    c.case(
        "sort", lambda x: (jnp.sort(x), jnp.sort(x, 0, descending=True), jnp.argsort(x, 1)), words
    )
    c.case(
        "sort_by_keys",
        lambda i, x: lax.sort((i, x, -x), num_keys=2),
        c.ints(3, 4, 7),
        c.array(4, 7),
    )
    c.case(
        "sort_of_nan",
        lambda x: (jnp.sort(x), jnp.argsort(x)),
        floats([2, np.nan, -np.inf, 0, np.nan, 1]),
    )
    c.case("lexsort", lambda i, x: jnp.lexsort((x, i)), c.ints(3, 4, 7), c.array(4, 7))
    c.case("top_k", lambda x: lax.top_k(x, 3), words)
    c.case("unique", lambda i: jnp.unique(i, size=4, fill_value=-1), c.ints(4, 9))
    c.case(
        "matmuls",
        lambda x, y: (x @ y, jnp.dot(x[0], y[:, 0]), jnp.outer(x[0], y[0]), jnp.vdot(x, x)),
        c.array(3, 4),
        c.array(4, 5),
    )
    c.case(
        "einsum",
        lambda x, y: (jnp.einsum("nij,nkj->nik", x, y), jnp.einsum("nij,nkj->k", x, y)),
        c.array(2, 3, 4),
        c.array(2, 5, 4),
    )
    c.case(
        "dot_general",
        lambda x, y: lax.dot_general(x, y, (((1, 3), (2, 0)), ((2,), (1,)))),
        c.array(2, 3, 4, 5),
        c.array(5, 4, 3, 6),
    )
    c.case(
        "dot_to_bfloat16",
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.bfloat16),
        c.array(33, 40),
        c.array(40, 21),
    )
    c.case(
        "integer_dot",
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        c.ints(9, 3, 4).astype(np.int8),
        c.ints(9, 4, 5).astype(np.int8),
    )
    c.case(
        "tensordot_and_kron",
        lambda x, y: (jnp.tensordot(x, y, 1), jnp.kron(x, y)),
        c.array(3, 2),
        c.array(2, 3),
    )
    c.case("matrix_power", lambda x: jnp.linalg.matrix_power(x, 5), c.array(4, 4) / 2)
    c.case(
        "norms",
        lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1), jnp.linalg.norm(x, 1, 1)),
        c.array(4, 5),
    )


def _windows(c: Cases) -> None:
    """Windows and convolutions."""
    image = c.array(2, 9, 8, 3)
    c.case("max_pool", pooled, image)
    c.case(
        "average_pool",
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 2, 1), "SAME") / 6,
        image,
    )
    c.case(
        "min_pool_dilated",
        lambda x: lax.reduce_window(
            x, jnp.inf, lax.min, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)
        ),
        image,
    )
    c.case(
        "conv_dilated",
        lambda x, w: lax.conv_general_dilated(
            x, w, (2, 1), ((1, 2), (0, 1)), rhs_dilation=(1, 2), feature_group_count=2
        ),
        c.array(2, 4, 9, 8),
        c.array(6, 2, 3, 2),
    )
    c.case(
        "conv_cut",
        lambda x, w: lax.conv_general_dilated(
            x, w, (2, 1), ((-1, 2), (0, -1)), lhs_dilation=(2, 1)
        ),
        c.array(2, 4, 8, 7),
        c.array(3, 4, 2, 2),
    )
    c.case(
        "conv_batch_groups",
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", batch_group_count=2),
        c.array(4, 3, 5, 6),
        c.array(4, 3, 3, 3),
    )
    c.case(
        "conv_transpose",
        lambda x, w: lax.conv_transpose(x, w, (2, 3), "SAME"),
        c.array(2, 5, 4, 3),
        c.array(3, 4, 3, 6),
    )
    c.case(
        "conv_1d",
        lambda x, w: (jnp.convolve(x[0, 0], w[0, 0]), lax.conv(x, w, (2,), "VALID")),
        c.array(2, 3, 9),
        c.array(4, 3, 3),
    )
    c.case(
        "conv_3d",
        lambda x, w: lax.conv(x, w, (1, 2, 1), "SAME"),
        c.array(1, 2, 4, 5, 3),
        c.array(3, 2, 2, 3, 2),
    )
    c.case(
        "patches",
        lambda x: lax.conv_general_dilated_patches(x, (2, 2), (2, 2), "VALID"),
        c.array(1, 3, 4, 6),
    )


def _control(c: Cases) -> None:
    """Loops, branches and random numbers."""
    words = c.array(2, 5, 8)
    c.case("fori_loop", lambda x: lax.fori_loop(0, 5, lambda k, c: c * 0.5 + k, x), c.array(3))
    c.case("newton", lambda x: lax.fori_loop(0, 6, lambda _, r: (r + x / r) / 2, x), floats([2, 9]))
    c.case(
        "power_iteration",
        lambda m, v: lax.scan(lambda v, _: (m @ v / jnp.linalg.norm(m @ v), None), v, None, 8)[0],
        c.array(4, 4),
        c.array(4),
    )
    c.case("cond", lambda x, i: lax.cond(i > 0, jnp.sin, jnp.exp, x), c.array(3), np.int32(1))
    c.case(
        "switch",
        lambda x, i: lax.switch(i, [jnp.sin, jnp.exp, lambda v: v + 1], x),
        c.array(3),
        np.int32(7),
    )
    c.case("map", lambda x: lax.map(lambda v: jnp.tanh(v).sum(), x), words)
    keys = np.array([3, 1 << 31], np.uint32)
    c.case("random_uniform", lambda k: jax.random.uniform(k, (3, 4)), keys)
    c.case("random_normal", lambda k: jax.random.normal(k, (3, 4)), keys)
    c.case("random_split", lambda k: (jax.random.split(k, 3), jax.random.fold_in(k, 7)), keys)
    c.case(
        "random_integers",
        lambda k: (jax.random.randint(k, (9,), 0, 17), jax.random.bits(k, (5,))),
        keys,
    )
    c.case(
        "random_choice",
        lambda k: (
            jax.random.bernoulli(k, 0.3, (7,)),
            jax.random.permutation(k, 6),
            jax.random.categorical(k, jnp.ones((3, 4))),
        ),
        keys,
    )
    c.case(
        "random_bits_of_hardware",
        lambda k: jax.random.normal(jax.random.wrap_key_data(k, impl="rbg"), (3, 5)),
        np.array([3, 1 << 31, 5, 7], np.uint32),
    )
    c.case(
        "random_bits_of_threefry",
        lambda k: lax.rng_bit_generator(k, (3, 5), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
        np.array([3, 1 << 31, 5, 7], np.uint32),
    )
    c.case(
        "step_with_dropout",
        _step_with_dropout,
        {"in": c.array(6, 16), "out": c.array(16, 3)},
        c.array(5, 6),
        c.array(5, 3),
        keys,
    )
    c.case(
        "dropout",
        lambda k, x: jnp.where(jax.random.bernoulli(k, 0.8, x.shape), x / 0.8, 0),
        keys,
        words,
    )


def _step_with_dropout(params: Any, x: Any, y: Any, key: Any) -> Any:
    """A step of training: its loss, the new parameters, and the key for the next step."""
    key, own = jax.random.split(key)

    def loss(params: Any) -> Any:
        hidden = nn.relu(x @ params["in"])
        kept = jax.random.bernoulli(own, 0.8, hidden.shape)
        return jnp.mean((jnp.where(kept, hidden / 0.8, 0) @ params["out"] - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), key


def _matrices(c: Cases) -> None:
    """Factors of matrices, and what they solve."""
    many, one = c.array(2, 5, 5) + 3 * np.eye(5, dtype=np.float32), c.array(4, 4)
    right = c.array(2, 5, 3)
    c.case("cholesky", lambda x: jnp.linalg.cholesky(x @ x.swapaxes(1, 2)), many)
    c.case("cholesky_upper", lambda x: jnp.linalg.cholesky(x @ x.T, upper=True), one)
    c.case("cholesky_of_none", lambda x: jnp.linalg.cholesky(-x), many)
    c.case("solve", jnp.linalg.solve, many, right)
    c.case("inverse", jnp.linalg.inv, many)
    c.case("determinant", lambda x: (jnp.linalg.det(x), jnp.linalg.slogdet(x)), many)
    for k in range(8):
        options = {"trans": k & 1, "lower": bool(k & 2), "unit_diagonal": bool(k & 4)}
        c.case(f"triangle_{k}", partial(scipy.linalg.solve_triangular, **options), many, right)
    c.gradient("solve", lambda x, y: jnp.linalg.solve(x, y).sum(), many, right)
    c.gradient("slogdet", lambda x: jnp.linalg.slogdet(x)[1].sum(), many)
    c.gradient("cholesky", lambda x: jnp.linalg.cholesky(x @ x.swapaxes(1, 2)).sum(), many)


def _complex(c: Cases) -> None:
    """Complex numbers, at the border of a graph as pairs of floats."""
    x, y = c.array(4, 6), c.array(4, 6)
    z = x + 1j * y
    fft = jnp.fft
    c.case("fft", fft.fft, x)
    c.case("fft_of_complex", lambda z: (fft.fft(z), fft.ifft(z), fft.fft2(z, norm="ortho")), z)
    c.case("rfft", lambda x: (fft.rfft(x), fft.rfft2(x), fft.irfft(fft.rfft(x), 5)), x)
    c.case("fft_of_three", lambda x: fft.fftn(x.reshape(2, 2, 6)), x)
    c.case("convolved", lambda x, y: fft.irfft(fft.rfft(x) * fft.rfft(y)), x, y)
    c.case("stft", lambda x: jnp.abs(scipy.signal.stft(x.reshape(-1), nperseg=8)[2]), x)
    c.gradient("spectrum", lambda x: (jnp.abs(fft.rfft(x * x)) ** 2).sum(), x)
    c.case(
        "complex_arithmetic",
        lambda z, x: (z + 2, z - x, z * z, z / (z + 1), -z, 1 / z, z.conj(), z * 1j),
        z,
        x,
    )
    c.case(
        "complex_functions",
        lambda z: (jnp.abs(z), jnp.angle(z), jnp.exp(z), jnp.log(z), jnp.sqrt(z), jnp.sign(z)),
        z,
    )
    c.case("complex_powers", lambda z: (z**2, z**1.5, z**z), z)
    c.case("complex_powers_of_zero", lambda z: ((z * 0) ** (z * 0), (z * 0) ** abs(z)), z)
    ends = np.array([complex(np.inf, 1), complex(-2, -np.inf), 0, 1 + 1j, 1], np.complex64)
    c.case(
        "complex_quotients_of_ends", lambda z: ((1 + 2j) / z, z[:2] / z[3], z / z[:2, None]), ends
    )
    c.case("complex_sigmoid_of_ends", jax.nn.sigmoid, ends * (100 + 1j))
    c.case("complex_quotient_by_infinities", lambda z: 1 / (z * (1 + 1j)), ends[:1])
    c.case("complex_powers_of_ends", lambda z: (z ** (0 * z.real[2:3]), z[2] ** z[2:]), ends)
    c.case("complex_tanh_of_ends", lambda z: jnp.tanh(z * jnp.array([[1 + 1j], [-1]])), ends)
    c.case(
        "complex_trigonometry", lambda z: (jnp.sin(z), jnp.tan(z), jnp.tanh(z), jnp.tanh(40 * z)), z
    )
    c.case("complex_hyperbolic", lambda z: (jnp.sinh(z), jnp.cosh(z), jnp.arcsinh(z)), z / 2)
    c.case("complex_arcs", lambda z: (jnp.arccos(z), jnp.arctan(z), jnp.arctanh(z)), z / 2)
    c.case(
        "complex_sums",
        lambda z: (z.sum(), z.mean(1), jnp.cumsum(z, 0), z.prod(1), z[:0].prod(0)),
        z,
    )
    c.case("complex_sum_from", lambda z: lax.reduce(z, np.complex64(2j), lax.add, (0,)), z)
    c.case("complex_products", lambda z, x: (z @ z.T, jnp.einsum("ij,kj->ik", z, x)), z, x)
    c.case(
        "complex_places",
        lambda z: (z.T, z[::-1, 1:], jnp.concatenate([z, z]), z[np.array([0, 2])], fft.fftshift(z)),
        z,
    )
    c.case("complex_written", lambda z: z.at[1].set(3j).at[2].add(1), z)
    c.case("complex_choices", lambda z: (jnp.where(z == 0, 1, z), z != z[0], z.real > 0), z)
    c.case("complex_casts", lambda z: (z.real, z.imag, z.astype(np.float32), jnp.isnan(z)), z)
    c.case("complex_scan", lambda z: lax.scan(lambda s, v: (s * v, s), z[0], z), z)
    c.case(
        "complex_branch", lambda z: lax.cond(z.real.sum() > 0, lambda z: z * 1j, lambda z: z, z), z
    )
    c.case("complex_unused", lambda z, x: x + 1, z, x)
    c.case(
        "complex_constants", lambda x: x * np.exp(1j * np.arange(600, dtype=np.float32)), x[:, :1]
    )


def _summed_together(z: Any, x: Any) -> Any:
    zeros = np.complex64(0), np.float32(0)
    return lax.reduce((z, x), zeros, lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,))


def _refused(c: Cases) -> None:
    """What is refused, by name."""
    z = c.array(3, 4) + 1j * c.array(3, 4)
    c.case(
        "complex_constant_in_a_body",
        lambda z: lax.reduce(z, np.complex64(0), lambda a, b: a + b * np.complex64(1j), (0,)),
        z,
        refused="DTYPE",
    )
    c.case("complex_and_real", _summed_together, z, z.real, refused="DTYPE")
    c.case(
        "complex_factors",
        lambda x: jnp.linalg.solve(x + 1j, x).real,
        c.array(3, 3),
        refused="DTYPE",
    )
    c.case("int4", lambda x: x.astype(jnp.int4).astype(jnp.int32), c.ints(5, 3), refused="DTYPE")
    c.case("eigenvalues", jnp.linalg.eigvalsh, c.array(4, 4), refused="OPERATOR")
    c.case(
        "while_of_data",
        lambda x: lax.while_loop(lambda v: v < 10, lambda v: v * 2, x),
        np.float32(1),
        refused="DATA_DEPENDENT",
    )
    c.case(
        "random_poisson",
        lambda k: jax.random.poisson(k, 2.0, (5,)),
        np.array([1, 2], np.uint32),
        refused="DATA_DEPENDENT",
    )
