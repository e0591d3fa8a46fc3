"""The table of operations of StableHLO: for each name, how it is translated.

    @hlo("logistic", pointwise=True)
    def logistic(b: Builder, op: Op) -> Value:
        return b.add("sigmoid", op[0])

A function takes the builder and the operation, whose operands are values of the graph. It raises
`Unsupported` for what it does not translate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...graph.builder import Builder
from ...graph.compose.complex import Complex
from ...graph.ir import Constant, TensorType, Value
from ...graph.operator import Array
from ..translation import registering
from ..unsupported import Reason, Unsupported
from .module import elements, is_complex

Tensor: TypeAlias = "Value | Complex"
Translate: TypeAlias = "Callable[[Builder, Op], Tensor | Sequence[Tensor]]"


@dataclass(frozen=True)
class Entry:
    """A translation.

    `pointwise`: each element of the result is of those at its place. `lifts`: in the body of
    another operation, which is written for scalars, it takes tensors as well.
    """

    translate: Translate
    pointwise: bool
    lifts: bool


TABLE: dict[str, Entry] = {}
"""Translations by names of operations, without `stablehlo`: `add`, `chlo.erf`, `func.call`."""


def hlo(
    *names: str, pointwise: bool = False, lifts: bool = False
) -> Callable[[Translate], Translate]:
    """Register the translation of operations; those that are pointwise lift."""

    def decorate(function: Translate) -> Translate:
        for name in names:
            assert name not in TABLE, f"{name} is registered twice"
            TABLE[name] = Entry(function, pointwise, pointwise or lifts)
        return function

    return decorate


COMPLEX: dict[str, Translate] = {}
"""Translations of operations that read or return complex tensors."""


def hlo_complex(*names: str) -> Callable[[Translate], Translate]:
    """Register the translation of operations of complex tensors, which are `Complex`.

    The type of a result is that of its parts.
    """
    return registering(COMPLEX, *names)


class Bodies(Protocol):
    """What an operation asks of the program that it is in."""

    def block(self, block: Any, values: Sequence[Tensor], *, lifted: bool) -> list[Tensor]: ...

    def function(self, name: str, values: Sequence[Tensor], *, lifted: bool) -> list[Tensor]: ...

    def apart(self, builder: Builder) -> AbstractContextManager[None]: ...


@dataclass(frozen=True)
class Op:
    """An operation: the values given to it, the types of its results.

    `lifted` is one of a body for scalars that takes tensors: its types say the dtypes only.
    """

    name: str
    given: Sequence[Tensor]
    results: Sequence[TensorType]
    raw: Any
    program: Bodies
    lifted: bool = False

    @property
    def operands(self) -> Sequence[Value]:
        """What is given, if that is real."""
        return _real(self.given)

    def __getitem__(self, place: int) -> Value:
        return self.operands[place]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.results[0]

    def has(self, name: str) -> bool:
        return name in self.raw.attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as a value of Python; arrays are tuples, elements an array of numpy."""
        return python(self.raw.attributes[name]) if self.has(name) else default

    def integers(self, name: str, count: int = 0, default: int = 0) -> tuple[int, ...]:
        """An attribute that has an integer for each dimension."""
        given = self.attribute(name)
        return (default,) * count if given is None else tuple(map(int, given))

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        given = self.attribute(name)
        return (False,) * count if given is None else tuple(map(bool, given))

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """Widths before and after each dimension."""
        given = self.attribute(name)
        found = np.zeros((count, 2), int) if given is None else given
        return tuple((int(first), int(last)) for first, last in found)

    def known(self, place: int) -> Array | None:
        """The elements of an operand, if they are known."""
        value = self.operands[place]
        return value.data if isinstance(value, Constant) else None

    def block(self, place: int = 0) -> Any:
        """The block of a region."""
        return self.raw.regions[place].blocks[0]

    def body(self, values: Sequence[Tensor], place: int = 0) -> list[Tensor]:
        """What a region computes of values."""
        return self.program.block(self.block(place), values, lifted=self.lifted)

    def lifted_body(self, values: Sequence[Value]) -> list[Value]:
        """What the first region, whose body is for scalars, computes of tensors."""
        return _real(self.program.block(self.block(), values, lifted=True))

    def formulas(self, place: int = 0) -> list[str]:
        """What a region returns, as text: `add(a, b)` of its arguments in their order."""
        return formulas(self.block(place))


def _real(tensors: Sequence[Tensor]) -> list[Value]:
    real = [x for x in tensors if isinstance(x, Value)]
    if len(real) < len(tensors):
        raise Unsupported(Reason.DTYPE, "complex")
    return real


def python(attribute: Any) -> Any:
    """An attribute of MLIR as a value of Python; what has no other form as its text."""
    from jax.extend.mlir import ir

    if isinstance(attribute, ir.DenseElementsAttr):
        return elements(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(python(item) for item in attribute)
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseBoolArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.DictAttr):
        return {item.name: python(item.attr) for item in attribute}
    if hasattr(attribute, "value"):
        return attribute.value
    return str(attribute)


def enumerated(text: str) -> str:
    """The value of an attribute that names one of several: `#stablehlo<direction LT>`."""
    return text.rstrip(">").rsplit(" ", 1)[-1].rsplit("<", 1)[-1]


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def formulas(block: Any) -> list[str]:
    """The values that a block returns, as texts of the operations that compute them.

    Its arguments are `LETTERS`; what is from outside, and no number, is a question mark.
    """
    known: dict[Any, str] = dict(zip(block.arguments, LETTERS, strict=False))
    *body, end = (operation.operation for operation in block.operations)
    for raw in body:
        name = raw.name.removeprefix("stablehlo.")
        if name == "compare":
            name = enumerated(str(raw.attributes["comparison_direction"])).lower()
        own = f"{name}({', '.join(_text(value, known) for value in raw.operands)})"
        for result in raw.results:
            known[result] = _number(raw) if name == "constant" else own
    return [_text(value, known) for value in end.operands]


def _text(value: Any, known: dict[Any, str]) -> str:
    if value in known:
        return known[value]
    owner = getattr(value.owner, "operation", None)
    is_constant = owner is not None and owner.name == "stablehlo.constant"
    return _number(owner) if is_constant else "?"


def _number(constant: Any) -> str:
    if is_complex(constant.results[0].type):
        return "?"
    data = elements(constant.attributes["value"])
    return repr(data.reshape(-1)[0].item()) if data.size == 1 else "?"


def number(b: Builder, value: float, like: Value) -> Constant:
    """A constant of the dtype of a value."""
    return b.constant(value, like.dtype)


def empty(b: Builder, type: TensorType) -> Value:
    """A tensor without elements."""
    return b.constant(np.empty(type.shape), type.dtype)


def refuse_attribute(name: str, value: object) -> Unsupported:
    return Unsupported(Reason.ATTRIBUTE, f"{name}={value}")
