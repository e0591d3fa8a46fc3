"""Arrays with strides that are declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def laid_out(values: Array, strides: Sequence[int] | None) -> Array:
    """`values` as a view with these strides, in elements; as they are for `None`."""
    if strides is None:
        return values
    span = 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True))
    memory = np.zeros(max(span, 1), values.dtype)
    steps = [s * memory.itemsize for s in strides]
    view = np.lib.stride_tricks.as_strided(memory, values.shape, steps)
    view[...] = values
    return view
