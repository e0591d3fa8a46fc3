"""Scaled dot product attention as one operator, whose scores need no memory."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...tir.te import Tensor
from ..operator import Array, Kind, operator
from .rows import _softmax


def _attended(q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float) -> Array:
    wide = np.promote_types(q.dtype, np.float32)
    scores = np.matmul(q.astype(wide), np.swapaxes(k, -1, -2).astype(wide)) * wide.type(scale)
    if mask is not None:
        scores = scores + mask.astype(wide)
    return np.asarray(np.matmul(_softmax(scores, axis=-1), v.astype(wide)), q.dtype)


@operator(Kind.OPAQUE, reference=_attended)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float
) -> Tensor:
    """`softmax(q @ k^T * scale + mask) @ v`; q (.., s, d), k (.., t, d), v (.., t, e).

    The mask broadcasts to (.., s, t). Scores of narrow floats are in float32.
    """
    return ops.attention(q, k, v, mask=mask, scale=scale)
