"""Tensors and axes of the expression builder.

They exist while a program is built. `Tensor` and `Axis` stand in expressions where a program has a
`Buffer` and a `Var`; `stages.program` replaces them by fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Binary, Buffer, Call, Const, Dim, Expr, Iter, IterKind, Reduce, Var
from .node import node
from .visit import CHILDREN, walk


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


def fingerprint(expr: Expr) -> tuple[object, ...]:
    """Plain data that is equal for expressions that are equal over the same variables."""
    return tuple(_facts(n) for n in walk(expr))


def _facts(n: Expr | Buffer) -> object:
    if isinstance(n, Tensor):
        return key(n)
    if isinstance(n, (Var, Buffer)):
        return n
    if isinstance(n, Const):
        return n.dtype, repr(n.value)
    if isinstance(n, Reduce):
        return n.combiner, n.index, len(n.values), tuple(i.var for i in n.axes)
    if isinstance(n, Binary):
        return n.op, n.dtype
    return (n.fn, n.dtype) if isinstance(n, Call) else (type(n), n.dtype)


def integer(dim: Dim) -> int:
    """A dimension of a tensor, which is never symbolic."""
    assert isinstance(dim, int)
    return dim


def iteration(axis: Axis) -> Iter:
    """The axis as an axis of a `Reduce` node."""
    return Iter(axis, axis.extent, IterKind.REDUCE, axis)


CHILDREN[Axis] = CHILDREN[Var]
CHILDREN[Tensor] = CHILDREN[Buffer]
