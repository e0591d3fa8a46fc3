"""Operands of operators: the dtype that these compute in, broadcasting of shapes, negative axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Tensor


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


Shape = tuple[int, ...]


def shape(name: str, *shapes: Shape) -> Shape:
    """The common shape by numpy's rules. Raises `IRError` if there is none."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result: list[int] = []
    for extents in zip(*padded, strict=True):
        wide = {e for e in extents if e != 1}
        if len(wide) > 1:
            raise IRError(
                "{0}: shapes {1} do not broadcast", name, " and ".join(map(str, shapes)),
                hint="align them from the last dimension; each is equal or 1",
            )  # fmt: skip
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def element(tensor: Tensor, indices: Sequence[Expr]) -> Expr:
    """The element of `tensor` at `indices` of a shape that it broadcasts to."""
    own = indices[len(indices) - tensor.ndim :]
    return tensor[tuple(0 if e == 1 else i for e, i in zip(tensor.extents, own, strict=True))]


def axis(name: str, value: int, rank: int) -> int:
    """`value` counted from the front. Raises `IRError` if it is not in [-rank, rank)."""
    if not -rank <= value < rank:
        raise IRError("{0}: axis {1} is out of range of {2} dimensions", name, value, rank)
    return value % rank


def axes(name: str, value: int | Sequence[int] | None, rank: int) -> Shape:
    """Distinct axes in ascending order; `None` is all of them."""
    if value is None:
        return tuple(range(rank))
    given = (value,) if isinstance(value, int) else tuple(value)
    result = sorted({axis(name, a, rank) for a in given})
    if len(result) != len(given):
        raise IRError("{0}: axes {1} name an axis twice", name, given)
    return tuple(result)
