"""Models of JAX, whose parameters are pytrees."""

from __future__ import annotations

from typing import Any

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
