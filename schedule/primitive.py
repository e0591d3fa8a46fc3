"""The registry of primitives.

A primitive is a pure function `Func, handles, attributes -> (Func, result)` that knows nothing of
schedules, traces or search. Handles are the objects of the IR that keep their identity through
rewrites: the `Var` of a loop, the `Label` of a block. `@primitive` registers it; `Schedule` calls
it by name, records it in the trace and replays it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import ScheduleError
from ..tir.ir import Func

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Primitive:
    """A registered primitive. `parameters` are those after the function."""

    name: str
    function: Callable[..., tuple[Func, Any]]
    parameters: tuple[inspect.Parameter, ...]

    @property
    def samples(self) -> bool:
        """Whether it takes a decision: it has a parameter `choose`, given by the schedule."""
        return any(p.name == "choose" for p in self.parameters)


PRIMITIVES: dict[str, Primitive] = {}


def primitive(
    function: Callable[Concatenate[Func, P], tuple[Func, R]],
) -> Callable[Concatenate[Func, P], tuple[Func, R]]:
    """Register `function` under its name. Raises `ScheduleError` where the name is taken."""
    name = function.__name__
    if name in PRIMITIVES:
        raise ScheduleError("a primitive named {0} exists already", name)
    parameters = tuple(inspect.signature(function).parameters.values())[1:]
    PRIMITIVES[name] = Primitive(name, function, parameters)
    return function
