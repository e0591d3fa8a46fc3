"""What several translations share."""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.ir import Value


def cast_to(b: Builder, x: Value, dtype: str) -> Value:
    """`x` as another dtype; itself if it has it."""
    value: Value = x if x.dtype == dtype else b.add("cast", x, dtype=dtype)
    return value


def wide(x: Value) -> str:
    """The float dtype that compositions of several steps compute in, so as to round once."""
    return "float64" if x.dtype == "float64" else "float32"
