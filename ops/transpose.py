"""Transposition: the axes of a tensor in another order."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Tensor
from . import broadcast


def transpose(x: Tensor, axes: Sequence[int] | None = None, *, name: str = "transpose") -> Tensor:
    """Dimension d of the result is dimension `axes[d]` of `x`; reversed by default."""
    order = range(x.ndim)[::-1] if axes is None else [broadcast.axis(name, a, x.ndim) for a in axes]
    if sorted(order) != list(range(x.ndim)):
        raise IRError(
            "{0}: axes {1} are not a permutation of {2} dimensions", name, tuple(axes or ()), x.ndim
        )
    place = {source: d for d, source in enumerate(order)}

    def element(*indices: Expr) -> Expr:
        return x[tuple(indices[place[d]] for d in range(x.ndim))]

    return te.compute([x.extents[d] for d in order], element, name=name)


def transpose_func(n: int = 4096, m: int = 4096, dtype: str = "float32") -> Func:
    """The transpose of a matrix."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, transpose(x, name="Y")], name="transpose")
