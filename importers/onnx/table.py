"""The table of ONNX operators: for each, by the versions of its definition, how it is translated.

    @onnx_op("Relu")
    def relu(b: Builder, node: OnnxNode) -> Value:
        return b.add("relu", node[0])

A function serves from the version `since` on, until one with a later version takes over. It raises
`Unsupported` for what it does not translate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ...base.errors import ModelError
from ...graph.builder import Builder
from ...graph.ir import Constant, Value
from ...graph.operator import Array
from ..unsupported import Reason, Unsupported

NEWEST = 28
"""The newest opset of ONNX whose definitions have been read."""


@dataclass(frozen=True)
class Items:
    """A sequence of tensors, whose length is known."""

    values: tuple[Value, ...]


Operand: TypeAlias = "Value | Items"


@dataclass(frozen=True)
class OnnxNode:
    """A node as its translation sees it: operands that are values of the graph, and attributes.

    `outputs` says which outputs somebody reads. An input that is not given is `None`.
    """

    operator: str
    domain: str
    version: int
    name: str
    inputs: tuple[Operand | None, ...]
    attributes: dict[str, Any]
    outputs: tuple[bool, ...]
    body: Callable[..., Any] | None = None
    """Translates a graph among the attributes, given its name and the values of its inputs."""
    apart: Callable[[Builder], AbstractContextManager[None]] | None = None
    """Within, nodes are added to that builder; see `Translation.apart`."""

    def __getitem__(self, place: int) -> Value:
        """A required input, a tensor. Raises `ModelError` if it is not given."""
        value = self.any(place)
        if isinstance(value, Items):
            raise Unsupported(Reason.TYPE, f"{self.operator} of a sequence")
        return value

    def any(self, place: int) -> Operand:
        """A required input. Raises `ModelError` if it is not given."""
        value = self.inputs[place] if place < len(self.inputs) else None
        if value is None:
            raise ModelError("{0} has no input {1}", self.operator, place)
        return value

    def items(self, place: int) -> tuple[Value, ...]:
        """A required input, a sequence that nodes have made."""
        value = self.any(place)
        if not isinstance(value, Items):
            raise Unsupported(Reason.TYPE, f"{self.operator} of an input")
        return value.values

    def get(self, place: int) -> Value | None:
        """An optional input, a tensor."""
        given = place < len(self.inputs) and self.inputs[place] is not None
        return self[place] if given else None

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def require(self, name: str, *allowed: Any) -> None:
        """Raise `Unsupported` if the attribute is given and none of the allowed values."""
        value = self.attributes.get(name, allowed[0])
        if value not in allowed:
            raise Unsupported(Reason.ATTRIBUTE, f"{name}={value!r}")

    def known(self, place: int) -> Array | None:
        """The elements of an optional input, which have to be known when the model is built.

        Raises `Unsupported` if data decide them.
        """
        value = self.get(place)
        if value is None:
            return None
        if not isinstance(value, Constant):
            raise Unsupported(Reason.DATA_DEPENDENT, f"input {place} of {self.operator}")
        return value.data

    def number(self, place: int) -> Any:
        """A known number."""
        data = self.known(place)
        if data is None or data.size != 1:
            raise ModelError("input {0} of {1} is no number", place, self.operator)
        return data.reshape(-1)[0].item()

    def integers(self, place: int) -> tuple[int, ...] | None:
        """The known integers of an optional input."""
        data = self.known(place)
        return None if data is None else tuple(int(i) for i in data.reshape(-1))


Translate: TypeAlias = "Callable[[Builder, OnnxNode], Operand | Sequence[Operand]]"

_Function = TypeVar("_Function", bound=Translate)

TABLE: dict[tuple[str, str], dict[int, Translate]] = {}
"""Translations by domain and operator, and by the version since which each serves."""


class OfUser(NamedTuple):
    """The translation of an operator of a user. A model may have a function of its name, which then
    is not asked for."""

    translate: Translate

    def __call__(self, b: Builder, node: OnnxNode) -> Operand | Sequence[Operand]:
        return self.translate(b, node)


def is_of_user(domain: str, operator: str) -> bool:
    """Whether a user has registered an operator."""
    return isinstance(TABLE.get((domain, operator), {}).get(1), OfUser)


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[_Function], _Function]:
    """Register the translation of operators."""

    def decorate(function: _Function) -> _Function:
        for name in names:
            versions = TABLE.setdefault((domain, name), {})
            assert since not in versions, f"{name} {since} is registered twice"
            versions[since] = function
        return function

    return decorate


def find(domain: str, operator: str, version: int) -> Translate:
    """The translation of an operator in a version of its domain. Raises `Unsupported`."""
    versions = TABLE.get((domain, operator))
    if versions is None:
        known = not domain or any(d == domain for d, _ in TABLE)
        raise Unsupported(Reason.OPERATOR if known else Reason.DOMAIN, f"{domain}:{operator}")
    serving = [since for since in versions if since <= version]
    if not serving:
        raise Unsupported(Reason.VERSION, f"{operator} of opset {version}")
    return versions[max(serving)]
