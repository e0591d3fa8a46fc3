"""What translations of several modules share."""

from __future__ import annotations

import math

from ....base.errors import ModelError
from ....graph.ir import Value


def wide(x: Value) -> str:
    """The float dtype that compositions of several steps compute in, so as to round once."""
    return "float64" if x.dtype == "float64" else "float32"


MAX_KNOWN = 1 << 27
"""Elements of an array that is computed as a model is read."""


def room(*extents: float) -> None:
    """Raise `ModelError` for an array that would have extents below 0, or too many elements."""
    if not all(extent >= 0 for extent in extents) or math.prod(extents) > MAX_KNOWN:
        shape = " x ".join(f"{extent:,}" for extent in extents)
        raise ModelError("{0} elements would be computed; the most are {1:,}", shape, MAX_KNOWN)


def in_rank(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises `ModelError` if there is none of that number."""
    if not -rank <= axis < rank:
        raise ModelError("axis {0} of {1} dims", axis, rank)
    return axis % rank
