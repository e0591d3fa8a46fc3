"""What importers share: a graph in the making, what is refused, and where its values are from.

An importer is a reader of its format, a table of operators by which it translates nodes one by one,
and a `Translation` that these end in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ..base.errors import ModelError, UnsupportedError
from ..graph.builder import Builder, Rules
from ..graph.ir import Constant, Graph, Source, TensorType, Value
from .unsupported import Reason, Unsupported, unsupported_error

Function = TypeVar("Function", bound=Callable[..., object])


def registering(table: dict[str, Any], *names: str) -> Callable[[Function], Function]:
    """A decorator that puts a function into a table, under names that are not yet in it."""

    def decorate(function: Function) -> Function:
        for name in names:
            assert name not in table, f"{name} is registered twice"
            table[name] = function
        return function

    return decorate


class UntranslatedError(Exception):
    """An operand is a result of what is not supported, which has been noted."""


class Translation:
    """A graph that is made of a program, node by node."""

    def __init__(self, name: str, rules: Rules | None = None) -> None:
        self.builder = Builder(name, rules)
        self.refused: dict[tuple[str, str, Reason, str], None] = {}
        self.sources: list[Source] = []
        self._demanding: list[tuple[str, str]] = []
        """The nodes of the demands of the builder."""

    def refuse(self, name: str, operator: str, problem: Unsupported) -> None:
        """Note that a node is not supported."""
        self.refused[name, operator, problem.reason, problem.detail] = None

    @contextmanager
    def node(
        self, name: str, operator: str, refuse: Callable[[Unsupported], None] | None = None
    ) -> Iterator[None]:
        """A node is translated within: what is raised is noted, or told with its name.

        What is not supported goes to `refuse`, or else is an error of the whole model, at its end.
        Raises `ModelError` for all other errors.
        """
        try:
            try:
                yield
                new = len(self.builder.demands) - len(self._demanding)
                self._demanding += [(name, operator)] * new
            except UnsupportedError as problem:  # of compositions, which refuse dtypes
                raise Unsupported(Reason.DTYPE, str(problem)) from problem
        except UntranslatedError:
            pass
        except Unsupported as problem:
            if refuse is None:
                self.refuse(name, operator, problem)
            else:
                refuse(problem)
        except ModelError as error:
            raise ModelError(
                "node {0} ({1}): {2}", name or "without a name", operator, error
            ) from error
        except Exception as error:  # values that no translation expects, such as steps of 0
            raise ModelError(
                "node {0} ({1}) is not understood: {2!r}",
                name or "without a name", operator, error,
            ) from error  # fmt: skip

    @contextmanager
    def apart(self, builder: Builder) -> Iterator[None]:
        """Nodes are added to another builder within, and neither noted nor refused by name.

        Raises `UntranslatedError` at the end if one is not supported.
        """
        before = self.builder, self.sources, self.refused, self._demanding
        self.builder, self.sources, self.refused, self._demanding = builder, [], {}, []
        try:
            yield
            if self.refused:
                raise UntranslatedError
        finally:
            self.builder, self.sources, self.refused, self._demanding = before

    def source(
        self, name: str, operator: str, operands: Iterable[object], results: Sequence[Value]
    ) -> None:
        """Note which values stand for the results of a node."""
        stand = tuple(None if isinstance(value, Constant) else value for value in results)
        passes = {value for value in operands if isinstance(value, Value)}.issuperset(results)
        self.sources.append(Source(name, operator, stand, passes))

    def graph(self, outputs: Mapping[str, Value]) -> Graph:
        """The graph of these outputs; the smallest is what is there if all demands are met.

        Raises `UnsupportedError` with all that is refused.
        """
        self.check()
        if self.builder.demands and outputs:
            name, value = min(outputs.items(), key=lambda o: (not o[1].type.size, o[1].type.bytes))
            for node, demand in zip(self._demanding, self.builder.demands, strict=True):
                violations, by, broken = demand
                met = self.builder.add("asserted", value, violations, by=by, broken=broken)
                self.source(*node, [value, violations], [met])
                value = met
            outputs = {**outputs, name: value}
        return replace(self.builder.graph(outputs), sources=tuple(self.sources))

    def check(self) -> None:
        """Raise `UnsupportedError` if something is refused."""
        if self.refused:
            raise unsupported_error(list(self.refused))


def checked(
    made: Value | Sequence[Value], declared: Sequence[TensorType | None], by: str
) -> tuple[Value, ...]:
    """The results of a node, of which there may be fewer than are declared.

    Raises `ModelError` if one is not of the type that a framework declares; `None` is any.
    """
    results = (made,) if isinstance(made, Value) else tuple(made)
    for result, wanted in zip(results, declared[: len(results)], strict=True):
        if wanted is not None and result.type != wanted:
            raise ModelError("it is {0}, by {1} {2}", result.type, by, wanted)
    return results
