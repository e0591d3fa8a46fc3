"""JAX, compiled by XLA for the processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from ..suite import Array, Case, Params
from .call import Call, returning

VERSION = jax.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case, on arrays that are on the device already."""
    del threads  # XLA takes the processors that the process may use
    if case.params.get("constant_b"):
        return None
    operands = [jax.device_put(a) for a in arrays]
    fn = jax.jit(_FUNCTIONS[case.op](case.params))
    return returning(lambda: fn(*operands).block_until_ready(), np.asarray)


def _matmul(p: Params) -> Callable[..., Any]:
    if p.get("epilogue") == "gelu":
        return lambda a, b, bias: jax.nn.gelu(a @ b + bias, approximate=False)
    return jnp.matmul


def _conv(p: Params) -> Callable[..., Any]:
    def conv(x: Any, w: Any, bias: Any = None) -> Any:
        y = jax.lax.conv_general_dilated(
            x,
            w,
            (p["stride"], p["stride"]),
            [(p["padding"], p["padding"])] * 2,
            feature_group_count=p.get("groups", 1),
        )
        y = y if bias is None else y + bias[:, None, None]
        return jax.nn.relu(y) if p.get("epilogue") == "relu" else y

    return conv


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5)
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(scores, axis=-1), v)


def _int8(a: Any, b: Any) -> Any:
    return jax.lax.dot(a, b, preferred_element_type=jnp.int32)


_FUNCTIONS: dict[str, Callable[[Params], Callable[..., Any]]] = {
    "matmul": _matmul,
    "conv2d": _conv,
    "softmax": lambda _: lambda x: jax.nn.softmax(x, axis=-1),
    "layer_norm": lambda _: _layer_norm,
    "add_relu": lambda _: lambda a, b: jax.nn.relu(a + b),
    "sum": lambda p: lambda x: x.sum(p["axis"]),
    "transpose": lambda _: lambda x: x.T.copy(),
    "attention": lambda _: _attention,
    "int8_matmul": lambda _: _int8,
}
