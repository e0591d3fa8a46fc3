from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te

from ..refusals import refused


def reference(q: Any, k: Any, v: Any, scale: float, mask: Any = 0.0) -> Any:
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * scale + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_attention(run: Any, make: Any, close: Any, lead: tuple[int, ...], dtype: str) -> None:
    q, k, v = make((*lead, 3, 4), dtype), make((*lead, 5, 4), dtype), make((*lead, 5, 2), dtype)
    out = run(ops.attention, q, k, v)
    assert out.dtype == q.dtype
    close(out, reference(q, k, v, 0.5), ulps=64 if dtype == "float32" else 1)


def test_causal(run: Any, make: Any, close: Any) -> None:
    q, k, v = make((2, 4, 3)), make((2, 4, 3)), make((2, 4, 3))
    out = run(lambda *t: ops.attention(*t, causal=True, scale=2.0), q, k, v)
    mask = np.where(np.tril(np.ones((4, 4), bool)), 0, -np.inf)
    close(out, reference(q, k, v, 2.0, mask), ulps=64)


@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 5), (1, 3, 1)])
def test_masks(run: Any, make: Any, close: Any, shape: tuple[int, ...]) -> None:
    q, k, v = make((2, 3, 4)), make((2, 5, 4)), make((2, 5, 4))
    bias = make(shape)
    out = run(lambda a, b, c, m: ops.attention(a, b, c, mask=m), q, k, v, bias)
    close(out, reference(q, k, v, 0.5, bias), ulps=64)
    keep = bias > -1
    keep[..., 0] = True
    out = run(lambda a, b, c, m: ops.attention(a, b, c, mask=m), q, k, v, keep)
    close(out, reference(q, k, v, 0.5, np.where(keep, 0, -np.inf)), ulps=64)


def test_a_row_that_sees_nothing_is_nan(run: Any, make: Any) -> None:
    q = make((2, 3))
    keep = np.array([[True, True], [False, False]])
    out = run(lambda a, m: ops.attention(a, a, a, mask=m), q, keep)
    assert np.isfinite(out[0]).all()
    assert np.isnan(out[1]).all()


def test_func(run_func: Any, make: Any, close: Any) -> None:
    q, k, v = make((1, 2, 3, 4)), make((1, 2, 3, 4)), make((1, 2, 3, 4))
    close(run_func(ops.attention_func(1, 2, 3, 4), q, k, v), reference(q, k, v, 0.5), ulps=64)


def test_refused() -> None:
    q = te.placeholder((2, 3, 4), name="q")
    with refused(IRError, "q", "int8"):
        t = te.placeholder((3, 4), "int8", name="q")
        ops.attention(t, t, t)
    with pytest.raises(IRError):
        ops.attention(q, q, q, mask=te.placeholder((7, 2, 3, 3), name="m"))
