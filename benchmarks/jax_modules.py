"""Models of JAX, whose parameters are pytrees, and the ones of `MODULES` with weights of a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def dense(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


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
        x,
        w,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def convnet(p: Any, x: Any) -> Any:
    x = pooled(nn.relu(conv(x, p["first"], 2)))
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


MODULES: dict[str, Callable[[int], tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
"""Each returns a function and its arguments; channels and features are multiples of its own."""


def _module(make: Callable[[int, Any], Any]) -> Any:
    def seeded(width: int) -> Any:
        rng = np.random.default_rng(0)

        def array(*shape: int) -> Any:
            fan_in = np.prod(shape[:-1]) if len(shape) > 1 else 1
            return (rng.normal(size=shape) / fan_in**0.5).astype(np.float32)

        return make(width, array)

    MODULES[make.__name__] = seeded
    return make


def _dense(array: Any, n: int, m: int) -> Any:
    return {"w": array(n, m), "b": array(m)}


def _decoder(array: Any, d: int) -> Any:
    return {
        "attention": {s: _dense(array, d, d) for s in "qkvo"},
        "first": {"w": array(d), "b": array(d)},
        "second": {"w": array(d), "b": array(d)},
        "mlp": [_dense(array, d, 2 * d), _dense(array, 2 * d, d)],
    }


@_module
def dense_layers(k: int, array: Any) -> Any:
    return mlp, ([_dense(array, 8 * k, 16 * k), _dense(array, 16 * k, 4 * k)], array(16, 8 * k))


@_module
def layer_norm(k: int, array: Any) -> Any:
    return norm, ({"w": array(8 * k), "b": array(8 * k)}, array(2, 8 * k, 8 * k))


@_module
def self_attention(k: int, array: Any) -> Any:
    return attention, (_decoder(array, 8 * k)["attention"], array(2, 8 * k, 8 * k))


@_module
def decoder_block(k: int, array: Any) -> Any:
    return block, (_decoder(array, 8 * k), array(2, 8 * k, 8 * k))


def _vision(k: int, array: Any) -> Any:
    c = 4 * k
    weights = {
        "first": array(3, 3, 3, c),
        "depthwise": array(3, 3, 1, c),
        "head": _dense(array, c, 5),
    }
    return weights, array(1, 61, 49, 3)


@_module
def convolutions(k: int, array: Any) -> Any:
    return convnet, _vision(k, array)


@_module
def residual_block(k: int, array: Any) -> Any:
    c = 4 * k
    weights = {"first": array(3, 3, c, c), "second": array(3, 3, c, c)}
    return residual, ({**weights, "scale": array(c), "shift": array(c)}, array(1, 31, 25, c))


@_module
def long_short_term(k: int, array: Any) -> Any:
    h = 4 * k
    weights = {"x": array(h, 4 * h), "h": array(h, 4 * h), "b": array(4 * h)}
    return lstm, (weights, array(12, 2, h))


@_module
def gated(k: int, array: Any) -> Any:
    h = 4 * k
    weights = {"x": array(h, 2 * h), "h": array(h, 2 * h), "c": array(h, h), "u": array(h, h)}
    return gru, (weights, array(12, 2, h))


@_module
def gradient_of_decoder_block(k: int, array: Any) -> Any:
    def loss(p: Any, x: Any) -> Any:
        return jnp.square(block(p, x)).mean()

    return jax.value_and_grad(loss), (_decoder(array, 8 * k), array(2, 8 * k, 8 * k))


@_module
def gradient_of_convolutions(k: int, array: Any) -> Any:
    def loss(p: Any, x: Any) -> Any:
        return jnp.square(convnet(p, x)).sum()

    return jax.value_and_grad(loss), _vision(k, array)
