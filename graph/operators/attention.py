"""Scaled dot product attention as one operator, whose scores need no memory."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...base import dtypes
from ...base.errors import IRError
from ...tir.te import Tensor
from ..operator import Array, Kind, one_float, operator
from .rows import _softmax


def _attended(
    q: Array, k: Array, v: Array, *masks: Array, scale: float, dtype: str | None
) -> Array:
    wide = np.promote_types(q.dtype, np.float32)
    scores = np.matmul(q.astype(wide), np.swapaxes(k, -1, -2).astype(wide)) * wide.type(scale)
    for mask in masks:
        scores = scores + mask.astype(wide)
    return np.asarray(
        np.matmul(_softmax(scores, axis=-1), v.astype(wide)),
        dtypes.to_numpy(dtype) if dtype else q.dtype,
    )


@operator(Kind.OPAQUE, reference=_attended)
def attention(
    q: Tensor, k: Tensor, v: Tensor, *masks: Tensor, scale: float, dtype: str | None = None
) -> Tensor:
    """`softmax(q @ k^T * scale + mask) @ v`; q (.., s, d), k (.., t, d), v (.., t, e).

    The mask, if there is one, broadcasts to (.., s, t). Scores of narrow floats are in float32. The
    result is of `dtype`, by default that of `q`.
    """
    one_float("attention", q, k, v, *masks)
    if len(masks) > 1:
        raise IRError("attention: {0} masks, expected one or none", len(masks))
    mask = masks[0] if masks else None
    return ops.attention(q, k, v, mask=mask, scale=scale, dtype=dtype)
