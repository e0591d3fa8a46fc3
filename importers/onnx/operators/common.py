"""What translations of several modules share."""

from __future__ import annotations

from ....base.errors import ModelError
from ....graph.ir import Value


def wide(x: Value) -> str:
    """The float dtype that compositions of several steps compute in, so as to round once."""
    return "float64" if x.dtype == "float64" else "float32"


def in_rank(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises `ModelError` if there is none of that number."""
    if not -rank <= axis < rank:
        raise ModelError("axis {0} of {1} dims", axis, rank)
    return axis % rank
