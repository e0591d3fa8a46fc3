"""`require`: the one way in which a primitive states a condition.

On a concrete program the condition is a truth value and is decided. On a symbolic one it may be an
expression over decision variables: it is dropped if the bounds of the decisions prove it, refused
if they refute it, and otherwise recorded as a constraint of the `Space`. The constraints collected
over a trace are the validity check of a row of decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..base.errors import ScheduleError, Text
from ..tir.bounds import prove
from ..tir.ir import Dim, Expr, Label, Var
from ..tir.structure import same
from .facts import Truths, keeping_facts, truths

T = TypeVar("T")


@dataclass(frozen=True)
class Constraint:
    """An undecided condition on decisions, with the message of its refusal.

    Where it is stronger than numbers need, `of_numbers` is what they need.
    """

    condition: Expr
    message: str
    arguments: tuple[Any, ...]
    of_numbers: Expr | None = None


class HandleName(str):
    """The name of a loop or block in an error, which tells it from others of the same name."""

    __slots__ = ("handle",)
    handle: Var | Label

    def __new__(cls, handle: Var | Label) -> HandleName:
        self = super().__new__(cls, handle.name)
        self.handle = handle
        return self


@dataclass
class Space:
    """The decisions of a symbolic schedule and the constraints on them.

    `bounds` has the inclusive bounds of each decision, in the order in which they are made, and
    `values` the values that it can take, ascending. A search tries the `initial` ones first: of
    some decisions, one of their values. `facts` follow from the constraints.
    `provisional` are blocks whose loops may have fewer iterations once the decisions are taken.
    """

    bounds: dict[Var, tuple[int, int]] = field(default_factory=dict)
    values: dict[Var, Sequence[int]] = field(default_factory=dict)
    initial: dict[Var, int] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)
    facts: list[Expr] = field(default_factory=list)
    provisional: list[Label] = field(default_factory=list)
    _truths: Truths | None = field(default=None, init=False, repr=False, compare=False)

    def declare_among(self, name: str, values: Sequence[int], initial: int | None = None) -> Var:
        """A new decision variable that takes one of `values`, which are ascending.

        An `initial` value that is none of them is ignored.
        """
        var = Var(name)
        self.bounds[var] = (values[0], values[-1])
        self.values[var] = values
        if initial is not None and initial in values:
            self.initial[var] = initial
        self._truths = None
        return var

    def decide(self, condition: Expr) -> bool | None:
        """Whether `condition` holds for all decisions, for none, or neither is known."""
        if self._truths is None:
            self._truths = truths(self.bounds)
        decided = self._truths(condition)
        if decided is None and (
            any(same(condition, c.condition) for c in self.constraints)
            or any(same(condition, fact) for fact in self.facts)
        ):
            return True
        return decided

    def copy(self) -> Space:
        """An independent copy of the space, with the same variables."""
        return Space(
            dict(self.bounds),
            dict(self.values),
            dict(self.initial),
            list(self.constraints),
            list(self.facts),
            list(self.provisional),
        )

    def mark(self) -> tuple[int, int, int, int]:
        """A state to which `rollback` can return."""
        return len(self.bounds), len(self.constraints), len(self.facts), len(self.provisional)

    def rollback(self, mark: tuple[int, int, int, int]) -> None:
        """Forget what was declared and recorded since `mark`."""
        for var in list(self.bounds)[mark[0] :]:
            del self.bounds[var], self.values[var]
            self.initial.pop(var, None)
            self._truths = None
        del self.constraints[mark[1] :], self.facts[mark[2] :], self.provisional[mark[3] :]


_space: ContextVar[Space | None] = ContextVar("tilewright_space", default=None)


def current_space() -> Space | None:
    """The space that open conditions are recorded in; `None` when a schedule is concrete."""
    return _space.get()


@contextmanager
def collecting(space: Space | None) -> Iterator[None]:
    """Record open conditions in `space` while the context lasts, and keep facts."""
    token = _space.set(space)
    try:
        with keeping_facts():
            yield
    finally:
        _space.reset(token)


def require(
    condition: object,
    message: str,
    *arguments: Any,
    at: Var | Label | None = None,
    hint: Text | None = None,
    example: Text | None = None,
    of_numbers: object = None,
    **data: Any,
) -> None:
    """Raise `ScheduleError` (formatted when read) unless `condition` holds.

    `at` is the loop or block that the error marks in the program: by default the first of the
    `arguments` that is one. They are shown by their names. `hint` says what to do, `example` shows
    where the condition fails. `data` is for programs that read the error: `found`, `expected` and
    legal `alternatives`, values or functions that return them. `of_numbers` is the condition that
    decisions have to fulfil once they are taken, where open ones have to fulfil more.
    """
    if condition is True:
        return
    if isinstance(condition, Expr):
        space = _space.get()
        decided = prove(condition) if space is None else space.decide(condition)
        if decided is True:
            return
        if decided is None and space is not None:
            weaker = of_numbers if isinstance(of_numbers, Expr) else None
            space.constraints.append(Constraint(condition, message, arguments, weaker))
            return
    elif condition:  # numpy's booleans
        return
    at = _marked(at, arguments)
    arguments = tuple([HandleName(a) if isinstance(a, (Var, Label)) else a for a in arguments])
    raise ScheduleError(message, *arguments, at=at, hint=hint, example=example, **data)


def _marked(at: Var | Label | None, arguments: tuple[Any, ...]) -> Var | Label | None:
    """The loop or block to mark."""
    handles = (a for a in arguments if isinstance(a, (Var, Label)))
    return next(handles, None) if at is None else at


def require_some(value: T | None, message: str, *arguments: Any, **options: Any) -> T:
    """`value`, required not to be `None`; the rest as for `require`."""
    require(value is not None, message, *arguments, **options)
    assert value is not None
    return value


def require_number(value: Dim, message: str, *arguments: Any, **options: Any) -> int:
    """`value`, required to be a number rather than an open size; the rest as for `require`."""
    require(isinstance(value, int), message, *arguments, **options)
    assert isinstance(value, int)
    return value


def certain(condition: bool | Expr) -> bool:
    """Whether `condition` is known to hold, for choosing between equivalent forms of a program."""
    if isinstance(condition, Expr):
        space = _space.get()
        return (prove(condition) if space is None else space.decide(condition)) is True
    return bool(condition)


def imply(condition: bool | Expr) -> None:
    """Record a consequence of the constraints that `prove` would not find by itself."""
    space = _space.get()
    if space is not None and isinstance(condition, Expr):
        space.facts.append(condition)


def note_provisional(block: Label, source: Label | None = None) -> None:
    """Note that the loops of `block` may have fewer iterations once the decisions are taken.

    With `source`, whose loops those of `block` are copies of, if that is so for it.
    """
    space = _space.get()
    if space is not None and (source is None or source in space.provisional):
        space.provisional.append(block)


def is_provisional(block: Label) -> bool:
    """Whether the loops of `block` may have fewer iterations once the decisions are taken."""
    space = _space.get()
    return space is not None and block in space.provisional
