"""The registry of primitives.

A primitive is a pure function `Func, handles, attributes -> (Func, result)` that knows nothing of
schedules, traces or search. Handles are the objects of the IR that keep their identity through
rewrites: the `Var` of a loop, the `Label` of a block. `@primitive` registers it; `Schedule` calls
it by name, records it in the trace and replays it.

A primitive that samples takes a `Choose` right after the function, which the schedule provides.
The other parameters are typed with what a trace can hold: `Var` (a loop), `Label` (a block), `Dim`
(an integer or a sampled one), `int`, `float`, `bool`, `str`, `None`, `IndexMap`, `Any` (a JSON
value), unions and sequences of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from ..errors import ScheduleError
from ..tir.ir import Func
from .arguments import Check, checker, describe

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Primitive:
    """A registered primitive. `names` are its parameters after the function and the chooser."""

    name: str
    function: Callable[..., tuple[Func, Any]]
    names: tuple[str, ...]
    required: frozenset[str]
    keyword_only: frozenset[str]
    variadic: str | None
    samples: bool

    @cached_property
    def types(self) -> dict[str, Any]:
        """The type of each parameter; of one element for the variadic one."""
        return get_type_hints(self.function)

    @cached_property
    def checks(self) -> dict[str, Check]:
        """For each parameter, whether an argument as a trace holds it is of its type."""
        checks = {name: checker(self.types[name]) for name in self.names}
        if self.variadic is not None:
            one = checks[self.variadic]
            checks[self.variadic] = lambda v: type(v) is tuple and all(one(x) for x in v)
        return checks

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name. Raises `ScheduleError` where they do not fit the signature."""
        if self.variadic is not None:
            bound = {self.variadic: args}
        else:
            if len(args) > len(self.names) - len(self.keyword_only):
                raise ScheduleError(
                    "{0} takes {1}, found {2} arguments", self.name, self.signature, len(args)
                )
            bound = dict(zip(self.names, args, strict=False))
        for name, value in kwargs.items():
            if name in bound or name not in self.names:
                raise ScheduleError(
                    "{0} takes {1}, found {2}={3!r}", self.name, self.signature, name, value
                )
            bound[name] = value
        self.check_names(bound)
        return bound

    def check_names(self, bound: dict[str, Any]) -> None:
        """Raise `ScheduleError` where a parameter is missing or unknown."""
        missing = self.required.difference(bound)
        if missing or not bound.keys() <= set(self.names):
            raise ScheduleError(
                "{0} takes {1}, found {2}", self.name, self.signature, ", ".join(bound)
            )

    def check_types(self, bound: dict[str, Any]) -> None:
        """Raise `ScheduleError` where an argument, as a trace holds it, is of a wrong type."""
        checks = self.checks
        for name, value in bound.items():
            if not checks[name](value):
                raise ScheduleError(
                    "{0}: {1} must be {2}, found {3!r}",
                    self.name,
                    name,
                    describe(self.types[name]),
                    value,
                )

    def call(self, func: Func, choose: Any, bound: dict[str, Any]) -> tuple[Func, Any]:
        """Run the primitive on arguments by name."""
        first = (func, choose) if self.samples else (func,)
        if self.variadic is None:
            return self.function(*first, **bound)
        others = {k: v for k, v in bound.items() if k != self.variadic}
        return self.function(*first, *bound[self.variadic], **others)

    def signature(self) -> str:
        """The parameters as text, for errors."""
        parameters = list(inspect.signature(self.function).parameters.values())
        return f"({', '.join(_plain(p) for p in parameters[2 if self.samples else 1 :])})"


def _plain(parameter: inspect.Parameter) -> str:
    """A parameter as it is written: its annotation is a text, which would be shown in quotes."""
    quoted, plain = f": {parameter.annotation!r}", f": {parameter.annotation}"
    return str(parameter).replace(quoted, plain)


PRIMITIVES: dict[str, Primitive] = {}


def primitive(
    function: Callable[Concatenate[Func, P], tuple[Func, R]],
) -> Callable[Concatenate[Func, P], tuple[Func, R]]:
    """Register `function` under its name. Raises `ScheduleError` where the name is taken."""
    name = function.__name__
    if name in PRIMITIVES:
        raise ScheduleError("a primitive named {0} exists already", name)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    samples = bool(parameters) and parameters[0].name == "choose"
    parameters = parameters[samples:]
    variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    PRIMITIVES[name] = Primitive(
        name=name,
        function=function,
        names=tuple(p.name for p in parameters),
        required=frozenset(
            p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        ),
        keyword_only=frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        variadic=variadic[0] if variadic else None,
        samples=samples,
    )
    return function


def find_primitive(name: str) -> Primitive:
    """The primitive of that name. Raises `ScheduleError` where there is none."""
    found = PRIMITIVES.get(name)
    if found is None:
        raise ScheduleError(
            "unknown primitive {0!r}; there are {1}", name, lambda: ", ".join(sorted(PRIMITIVES))
        )
    return found
