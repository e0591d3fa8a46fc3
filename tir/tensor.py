"""Tensors and axes of the expression builder.

They exist while a program is built. `Tensor` and `Axis` stand in expressions where a program has a
`Buffer` and a `Var`; `stages.program` replaces them by fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from ..base.errors import IRError
from ..base.hints import Hinted
from .ir import NUMPY_OPERATORS, Buffer, Dim, Expr, Iter, IterKind, Var
from .node import node
from .visit import CHILDREN


@node
class Axis(Var):
    """An index variable of a compute, or a reduce axis, over [0, extent)."""

    extent: int = 0
    reduce: bool = False


@node
class Tensor(Buffer, Hinted):
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


def _words(tensor: Tensor) -> tuple[str, str]:
    """The name of a tensor, and index variables for it."""
    return tensor.name, ", ".join("ijklmn"[: tensor.ndim]) if 0 < tensor.ndim <= 6 else "..."


def no_element(tensor: Tensor, function: str, more: str = "") -> IRError:
    """The error for a tensor as an argument of a function of elements; `more` follows it."""
    name, axes = _words(tensor)
    return IRError(
        "{0} is a tensor, and {1} works on elements", name, function,
        hint=f"te.compute({name}.extents, lambda {axes}: {function}({name}[{axes}]{more})); "
        "tilewright.ops has functions of tensors",
    )  # fmt: skip


def _refused(tensor: Tensor, *_: object) -> NoReturn:
    name, axes = _words(tensor)
    raise IRError(
        "{0} is a tensor, and operators work on elements", name,
        hint=f"te.compute({name}.extents, lambda {axes}: {name}[{axes}] + 1); "
        "tilewright.ops has functions of tensors",
    )  # fmt: skip


def _refused_ufunc(tensor: Tensor, function: Any, method: object = None, *_: object) -> NoReturn:
    from .numpy_protocol import operands, reduction

    name = reduction(function.__name__) if method == "reduce" else function.__name__
    count = 0 if method == "reduce" else operands(name)
    if count:
        raise no_element(tensor, f"np.{name}", ", .." if count > 1 else "")
    if name in NUMPY_OPERATORS:
        _refused(tensor)
    raise IRError(
        "{0} is a tensor of a program, and np.{1} computes numbers", tensor.name, name,
        hint="tilewright.ops has functions of tensors",
    )  # fmt: skip


def _stored(tensor: Tensor, *_: object) -> NoReturn:
    name, axes = _words(tensor)
    raise IRError(
        "{0} is a tensor, whose elements are not assigned", name,
        hint=f"te.compute makes another one: te.compute({name}.extents, lambda {axes}: ...); "
        "tw.script has loops that store",
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


def _asked(tensor: Tensor) -> NoReturn:
    raise IRError(
        "{0} is a tensor, whose truth is not known while a program is built", tensor.name,
        hint="elements are compared: te.select(X[i] > 0, a, b); "
        f"`{tensor.name} is None` asks whether there is a tensor",
    )  # fmt: skip


def _counted(tensor: Tensor) -> NoReturn:
    raise IRError(
        "{0} is a tensor, which is no sequence", tensor.name,
        hint=f"its shape is {tensor.name}.extents; a loop over its elements is a reduction: "
        "te.sum(X[r], axis=r) with r = te.reduce_axis(n)",
    )  # fmt: skip


_BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift"
_UNARY = "neg abs invert float int complex index round floor ceil trunc"
_OTHERS = f"lt le gt ge {_UNARY}"
_OPERATORS: dict[str, Callable[..., NoReturn]] = {
    f"{_BINARY} {_OTHERS} {_BINARY.replace(' ', ' r')} radd": _refused,
    "array_ufunc array_function": _refused_ufunc,
    "matmul rmatmul": _multiplied,
    "bool": _asked,
    "len iter": _counted,
    "call": _called,
    "setitem delitem": _stored,
}
for _names, _refusal in _OPERATORS.items():
    for _name in _names.split():
        setattr(Tensor, f"__{_name}__", _refusal)


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
