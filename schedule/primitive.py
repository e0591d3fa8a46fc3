"""The registry of primitives.

A primitive is a pure function `Func, handles, attributes -> (Func, result)` that is independent of
schedules, traces and search. Handles are the objects of the IR that keep their identity through
rewrites: the `Var` of a loop, the `Label` of a block. `@primitive` registers it; `Schedule` calls
it by name, records it in the trace and replays it.

A primitive that samples takes a `Choose` right after the function, which the schedule provides. The
other parameters are annotated with types that a trace can hold: `Var` (a loop), `Label` (a block),
`Dim` (an integer or a sampled one), `int`, `float`, `bool`, `str`, `None`, `IndexMap`, `Any` (a
JSON value), and unions and sequences of these.

A primitive keeps every result, but for the order of sums. One whose result is equal over the reals
alone is registered with `inexact`: how many times the error that reordering explains it may have.

Users may register more: once their module is imported, schedules have the primitive as a method and
traces can name it. A trace records the module.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from ..base.errors import ScheduleError, similar
from ..tir.ir import Func
from .buffer_choice import Numbered
from .step_arguments import Check, checker, describe, only_blocks
from .tensorizable import require_instructions

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", Func, Mapping[str, Func])
ErrorFactor: TypeAlias = float | Callable[[Mapping[str, Any]], float]
"""A factor of more than 1, or a function of a step's arguments by name that returns one."""


@dataclass(frozen=True)
class Primitive:
    """A registered primitive. `names` are its parameters after the function and the chooser.

    `inexact` is `None` for a primitive that keeps every result, but for the order of sums.
    `version` is raised when the same step makes another program: what was measured of the older one
    says nothing of it.
    """

    name: str
    function: Callable[..., tuple[Func, Any]]
    names: tuple[str, ...]
    required: frozenset[str]
    keyword_only: frozenset[str]
    variadic: str | None
    samples: bool
    inexact: ErrorFactor | None = None
    version: int = 1

    def error_factor(self, arguments: Mapping[str, Any]) -> float:
        """How many times the error that reordering explains a step may have; 1 if it is exact.

        Raises `ScheduleError` if `inexact` gives no factor of more than 1.
        """
        if self.inexact is None:
            return 1.0
        factor = self.inexact(arguments) if callable(self.inexact) else self.inexact
        _check_factor(self.name, factor)
        return float(factor)

    @property
    def home(self) -> str | None:
        """The module that registers it; `None` for those of this package."""
        module = self.function.__module__ or "__main__"  # what a bare `exec` runs has none
        return None if module.startswith(f"{_PACKAGE}.") else module

    @cached_property
    def types(self) -> dict[str, Any]:
        """The type of each parameter; of one element for the variadic one."""
        try:
            return get_type_hints(self.function)
        except NameError as error:
            raise ScheduleError(
                "the types of primitive {0} cannot be looked up: {1}",
                self.name,
                error,
                hint="import what they name in its module, outside of any function",
            ) from error

    @cached_property
    def checks(self) -> dict[str, Check]:
        """For each parameter, whether an argument as a trace holds it is of its type."""
        for name in self.names:
            if name not in self.types:
                raise ScheduleError(
                    "parameter {0} of primitive {1} has no type; traces check arguments by it",
                    name,
                    self.name,
                    hint="a loop is a Var, a block a Label, a size a Dim: "
                    f"def {self.name}(fn: Func, {name}: Var) -> tuple[Func, None]",
                )
        checks = {name: checker(self.types[name]) for name in self.names}
        if self.variadic is not None:
            one = checks[self.variadic]
            checks[self.variadic] = lambda v: type(v) is tuple and all(one(x) for x in v)
        return checks

    @cached_property
    def of_blocks(self) -> tuple[str, ...]:
        """The parameters that take blocks alone: there, a text is the name of one."""
        return tuple([name for name in self.names if only_blocks(self.types.get(name))])

    @cached_property
    def of_buffers(self) -> dict[str, Numbered]:
        """The parameters that number buffers of a block: there, a buffer stands for its number."""
        hints = get_type_hints(self.function, include_extras=True)
        notes = {name: getattr(hints[name], "__metadata__", ()) for name in self.names}
        return {name: note[0] for name, note in notes.items() if note}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name. Raises `ScheduleError` if they do not fit the signature.

        Names that parameters have in TVM are taken too.
        """
        if self.variadic is not None:
            bound = {self.variadic: args}
        else:
            if len(args) > len(self.names) - len(self.keyword_only):
                raise ScheduleError(
                    "{0} takes ({1}), found {2} arguments",
                    self.name,
                    ", ".join(self.names),
                    len(args),
                )
            bound = dict(zip(self.names, args, strict=False))
        for given, value in kwargs.items():
            name = given if given in self.names else TVM_NAMES.get(given, given)
            if name in bound or name not in self.names:
                raise ScheduleError(
                    "{0} takes ({1}), found {2}={3!r}",
                    self.name,
                    ", ".join(self.names),
                    given,
                    value,
                    hint=partial(similar, given, [n for n in self.names if n not in bound]),
                )
            bound[name] = value
        self.check_names(bound)
        return bound

    def check_names(self, bound: dict[str, Any]) -> None:
        """Raise `ScheduleError` if a parameter is missing or unknown."""
        needed = self.required | {self.variadic}
        missing = [name for name in self.names if name in needed and name not in bound]
        if missing:
            raise ScheduleError(
                "{0} takes ({1}); {2} is missing",
                self.name,
                ", ".join(self.names),
                ", ".join(missing),
            )
        if not bound.keys() <= set(self.names):
            raise ScheduleError(
                "{0} takes ({1}), found {2}", self.name, ", ".join(self.names), ", ".join(bound)
            )

    def check_types(self, bound: dict[str, Any]) -> None:
        """Raise `ScheduleError` if an argument, as a trace holds it, has the wrong type."""
        checks = self.checks
        for name, value in bound.items():
            if not checks[name](value):
                wanted = describe(self.types[name])
                what, wrong = self._wrong(name, value)
                raise ScheduleError(
                    "{0}: {1} must be {2}, found {3!r}",
                    self.name,
                    what,
                    wanted,
                    wrong,
                    hint=_BY_NAME if isinstance(wrong, str) else None,
                    found=wrong,
                    expected=wanted,
                )

    def call(self, func: Func, choose: Any, bound: dict[str, Any]) -> tuple[Func, Any]:
        """Run the primitive on arguments by name."""
        first = (func, choose) if self.samples else (func,)
        positional: tuple[Any, ...] = () if self.variadic is None else bound[self.variadic]
        others = {k: v for k, v in bound.items() if k != self.variadic}
        after, result = self.function(*first, *positional, **others)
        if after is not func:
            require_instructions(after)
        return after, result

    def _wrong(self, name: str, value: Any) -> tuple[str, Any]:
        """The parameter and the value of the wrong type; of several arguments, the first one."""
        if name != self.variadic or type(value) is not tuple:
            return name, value
        one = checker(self.types[name])
        return next((f"{name}[{k}]", v) for k, v in enumerate(value) if not one(v))

    @cached_property
    def call_signature(self) -> inspect.Signature:
        """How the method of a schedule is called, for help and completion."""
        whole = inspect.signature(self.function)
        parameters = list(whole.parameters.values())[2 if self.samples else 1 :]
        return inspect.Signature(parameters)


TVM_NAMES = {
    "ann_key": "key",
    "ann_val": "value",
    "block_or_loop": "target",
    "buffer_index": "write_buffer_index",
    "consumer_blocks": "consumers",
    "epilogue_block": "epilogue",
    "func_name": "function",
    "name": "block",
    "reduction_block": "reduction",
    "target": "loop",
    "tensor_intrin": "intrin",
}
"""What parameters are called in TVM, where they have another name here."""

PRIMITIVES: dict[str, Primitive] = {}
_BY_NAME = "sch.get_block(name) is a block, sch.get_loop(name) a loop"
_PACKAGE = __package__.rpartition(".")[0]
_taken: set[str] = set()


def reserve(names: Iterable[str]) -> None:
    """Forbid primitives with these `names`, which mean something else on a schedule."""
    _taken.update(names)


@overload
def primitive(
    function: Callable[Concatenate[S, P], tuple[Func, R]],
) -> Callable[Concatenate[S, P], tuple[Func, R]]: ...
@overload
def primitive(
    *, inexact: ErrorFactor | None = None, version: int = 1
) -> Callable[
    [Callable[Concatenate[S, P], tuple[Func, R]]], Callable[Concatenate[S, P], tuple[Func, R]]
]: ...
def primitive(
    function: Callable[..., tuple[Func, Any]] | None = None,
    *,
    inexact: ErrorFactor | None = None,
    version: int = 1,
) -> Any:
    """Register `function` under its name, as a method of schedules.

    `@primitive(inexact=8.0)` registers one whose result equals the program's over the reals only:
    its errors may be 8 times those that the order of sums explains. A function of the step's
    arguments may return that factor. Schedules with such a step are searched and built only if the
    user gives a `tolerance`.

    `@primitive(version=2)` says that the same steps make other programs than those of version 1
    (the default). Traces record it. Those of another version are refused until what they made is
    measured again (`refresh`).

    Defining a function again, as by running a notebook cell twice, replaces the earlier one. Raises
    `ScheduleError` if the name is taken otherwise, if a parameter has no type or one that no trace
    can hold, if the result is not `tuple[Func, ...]`, for a factor of 1 or less, and for a version
    that is no integer from 1 on.
    """
    if function is None:
        return partial(_register, inexact=inexact, version=version)
    return _register(function, inexact, version)


def _register(
    function: Callable[..., tuple[Func, Any]], inexact: ErrorFactor | None, version: int
) -> Callable[..., tuple[Func, Any]]:
    if not inspect.isfunction(function):
        raise ScheduleError(
            "expected a function to register as a primitive, found {0!r}",
            function,
            hint="write @tw.primitive above its definition",
        )
    name = function.__name__
    if inexact is not None and not callable(inexact):
        _check_factor(name, inexact)
    if type(version) is not int or version < 1:
        raise ScheduleError(
            "primitive {0} is of version {1!r}; expected an integer from 1 on", name, version
        )
    former = PRIMITIVES.get(name)
    again = (
        former is not None
        and former.home is not None
        and former.function.__module__ == function.__module__
        and former.function.__qualname__ == function.__qualname__
    )
    if name in _taken or name.startswith("_") or not (former is None or again):
        raise ScheduleError(
            "a primitive named {0} exists already" if former else "no primitive may be named {0}",
            name,
            hint="choose another name",
        )
    parameters = list(inspect.signature(function).parameters.values())[1:]
    samples = bool(parameters) and parameters[0].name == "choose"
    parameters = parameters[samples:]
    variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    registered = Primitive(
        name=name,
        function=function,
        names=tuple(p.name for p in parameters),
        required=frozenset(
            p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        ),
        keyword_only=frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        variadic=variadic[0] if variadic else None,
        samples=samples,
        inexact=inexact,
        version=version,
    )
    if registered.home is not None:
        _check_outsider(registered)
    PRIMITIVES[name] = registered
    return function


def _check_factor(name: str, factor: object) -> None:
    number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    if not (number and 1 < cast(float, factor) < math.inf):
        raise ScheduleError(
            "primitive {0} is inexact={1!r}; expected a finite factor of more than 1", name, factor
        )


def _check_outsider(registered: Primitive) -> None:
    """Read the types at registration, so that the author sees errors in them."""
    _ = registered.checks
    result = registered.types.get("return")
    if get_origin(result) is not tuple or len(get_args(result)) != 2 or get_args(result)[0] != Func:
        raise ScheduleError(
            "primitive {0} returns {1}; expected tuple[Func, ...]: a program, and handles or None",
            registered.name,
            "nothing that is declared" if result is None else inspect.formatannotation(result),
        )


def find_primitive(name: str, home: str | None = None) -> Primitive:
    """The primitive of that name. Raises `ScheduleError` if there is none.

    `home` is the module that registered it, if known.
    """
    found = PRIMITIVES.get(name)
    if found is not None:
        return found
    if home is not None:
        raise ScheduleError(
            "primitive {0!r} is not registered; module {1!r} did that where the trace was made",
            name,
            home,
            hint=f"import {home} before the trace is read"
            if home != "__main__"
            else "run the script or notebook that defines it before the trace is read",
        )
    raise ScheduleError(
        "unknown primitive {0!r:.80}; there are {1}",
        name,
        lambda: ", ".join(sorted(PRIMITIVES)),
        hint=lambda: misspelt(name),
    )


def misspelt(name: str) -> str:
    """The hint for the name of an unknown primitive."""
    return similar(name, PRIMITIVES) or (
        "primitives of another package are known once that is imported"
    )
