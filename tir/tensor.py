"""Tensors and axes of the expression builder.

They exist while a program is built. `Tensor` and `Axis` stand in expressions where a program has a
`Buffer` and a `Var`; `stages.program` replaces them by fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Buffer, Dim, Expr, Iter, IterKind, Var
from .node import node
from .visit import CHILDREN


@node
class Axis(Var):
    """An index variable of a compute, or a reduce axis, over [0, extent)."""

    extent: int = 0
    reduce: bool = False


@node
class Tensor(Buffer):
    """A placeholder (no stage), or result `position` of a stage. `A[i, j]` is an element of it."""

    stage: Stage | None = None
    position: int = 0

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as Python integers."""
        return tuple(integer(d) for d in self.shape)


@dataclass(frozen=True, eq=False)
class Stage:
    """One computation: all `results` at each point of `axes`.

    Either no result holds a `Reduce`, or each one *is* a `Reduce` over the same `reduce_axes`.
    `names` are those of the results; `inputs` and `scalars` are what they are computed from.
    """

    name: str
    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    results: tuple[Expr, ...]
    inputs: tuple[Tensor, ...]
    scalars: tuple[Var, ...]


def key(tensor: Tensor) -> object:
    """The identity of a tensor: the record of a placeholder, else its stage and position."""
    return tensor if tensor.stage is None else (tensor.stage, tensor.position)


def integer(dim: Dim) -> int:
    """A dimension of a tensor, which is never symbolic."""
    assert isinstance(dim, int)
    return dim


def iteration(axis: Axis) -> Iter:
    """The axis as an axis of a `Reduce` node."""
    return Iter(axis, axis.extent, IterKind.REDUCE, axis)


CHILDREN[Axis] = CHILDREN[Var]
CHILDREN[Tensor] = CHILDREN[Buffer]
