"""The dtype that an operator computes in, and the cast to the dtype of its result."""

from __future__ import annotations

from ..base import dtypes
from ..tir import te
from ..tir.te import Expr


def accumulator(dtype: str) -> str:
    """float32 for narrower floats, int32 for narrower integers and bool, else `dtype`."""
    facts = dtypes.info(dtype)
    if facts.bits >= 32:
        return dtype
    return "float32" if facts.kind == "float" else "int32"


def result_dtype(dtype: str) -> str:
    """The result dtype of a contraction of `dtype`: floats their own, integers the sum's."""
    return dtype if dtypes.is_float(dtype) else accumulator(dtype)


def widened(value: Expr) -> Expr:
    """`value` cast to the dtype that it is computed in."""
    return te.cast(value, accumulator(value.dtype))
