"""Tensors and axes of the expression builder.

They exist while a program is built. `Tensor` and `Axis` stand in expressions where a program has a
`Buffer` and a `Var`; `stages.program` replaces them by fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..errors import IRError
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


def _refused(tensor: Tensor, *_: object) -> NoReturn:
    axes = ", ".join("ijklmn"[: tensor.ndim]) if 0 < tensor.ndim <= 6 else "..."
    raise IRError(
        "{0} is a tensor, and operators work on elements", tensor.name,
        hint=f"te.compute({tensor.name}.extents, lambda {axes}: {tensor.name}[{axes}] + 1); "
        "tilewright.ops has functions of tensors",
    )  # fmt: skip


def _multiplied(tensor: Tensor, *_: object) -> NoReturn:
    raise IRError(
        "{0} is a tensor, and operators work on elements: `@` is no product of tensors",
        tensor.name,
        hint="tilewright.ops.matmul(A, B), or a sum: te.compute((n, m), "
        "lambda i, j: te.sum(A[i, r] * B[r, j], axis=r)) with r = te.reduce_axis(k)",
    )


def _called(tensor: Tensor, *indices: object) -> NoReturn:
    raise IRError(
        "{0} is a tensor, which is not called", tensor.name,
        hint=f"an element is {tensor.name}[{', '.join(map(str, indices)) or 'i, j'}]",
    )  # fmt: skip


_BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift"
_OTHERS = "lt le gt ge neg abs invert float int array_ufunc"
for _name in f"{_BINARY} {_OTHERS} {_BINARY.replace(' ', ' r')} radd".split():
    setattr(Tensor, f"__{_name}__", _refused)
for _name in ("__matmul__", "__rmatmul__"):
    setattr(Tensor, _name, _multiplied)
Tensor.__call__ = _called  # type: ignore[method-assign]


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
