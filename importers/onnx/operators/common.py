"""What translations of several modules share."""

from __future__ import annotations

from ....graph.ir import Value


def wide(x: Value) -> str:
    """The float dtype that compositions of several steps compute in, so as to round once."""
    return "float64" if x.dtype == "float64" else "float32"
