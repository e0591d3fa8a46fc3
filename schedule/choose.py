"""Decisions of a schedule: drawn at random, read from a record, or left symbolic.

A sampling primitive asks `choose(name, values, fits)` for one integer at a time. `fits` says which
values are compatible with earlier choices; for a symbolic choice it returns the condition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..base.errors import IRError, ScheduleError
from ..tir.ir import Dim, Expr
from .require import Space, require

Fits = Callable[[Dim], bool | Expr]


class Choose(Protocol):
    """Takes one decision: one of `values` (ascending) for which `fits` holds."""

    def __call__(
        self,
        name: str,
        values: Sequence[int],
        fits: Fits,
        weights: Sequence[float] | None = None,
    ) -> Dim: ...


def as_decision(given: object) -> tuple[int | None, ...]:
    """The choices `given` for one step, as a trace holds them. Raises `ScheduleError`."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ScheduleError("a decision is a list of choices, such as [8]; found {0!r}", given)
    try:
        return tuple(None if choice is None else operator.index(choice) for choice in given)
    except (TypeError, IRError):
        message = "the choices of a decision are integers, or None to draw one; found {0!r}"
        raise ScheduleError(message, given) from None


@dataclass
class Decide:
    """Uses given decisions, and draws open ones from `rng`."""

    given: Sequence[int | None]
    rng: Callable[[], np.random.Generator]
    taken: list[int] = field(default_factory=list)

    def __call__(
        self,
        name: str,
        values: Sequence[int],
        fits: Fits,
        weights: Sequence[float] | None = None,
    ) -> Dim:
        place = len(self.taken)
        value = self.given[place] if place < len(self.given) else None
        if value is None:
            value = self._draw(name, values, fits, weights)
        elif value not in values or not fits(value):
            raise ScheduleError(
                "the decision {0} = {1} is not possible here; possible: {2}",
                name,
                value,
                lambda: ", ".join([str(v) for v in values if fits(v)][:12]) or "none",
            )
        self.taken.append(value)
        return value

    def _draw(
        self, name: str, values: Sequence[int], fits: Fits, weights: Sequence[float] | None
    ) -> int:
        # The first that fits, in an order drawn before: what fits may take long to find out.
        if weights is None:
            order = self.rng().permutation(len(values))
        else:
            shares = np.array(weights, dtype=np.float64) / sum(weights)
            likely = np.count_nonzero(shares)
            order = self.rng().choice(len(values), likely, replace=False, p=shares)
        for k in map(int, order):
            if fits(values[k]):
                return values[k]
        raise ScheduleError("no value is possible for {0}", name)

    @property
    def decision(self) -> tuple[int | None, ...]:
        """The decisions taken. Raises `ScheduleError` if more were given than needed."""
        _require_no_more(self.given, len(self.taken))
        return tuple(self.taken)


@dataclass
class Declare:
    """Leaves each decision open, as a variable of the `space`; a given one is its initial value."""

    space: Space
    given: Sequence[int | None] = ()
    declared: int = 0

    def __call__(
        self,
        name: str,
        values: Sequence[int],
        fits: Fits,
        weights: Sequence[float] | None = None,
    ) -> Dim:
        if not values or (weights is not None and not any(weights)):
            raise ScheduleError("no value is possible for {0}", name)
        initial = self.given[self.declared] if self.declared < len(self.given) else None
        var = self.space.declare_among(name, values, initial)
        self.declared += 1
        require(fits(var), "the decision {0} does not go with those before it", name)
        return var

    @property
    def decision(self) -> tuple[int | None, ...]:
        """As many open decisions as were declared. Raises `ScheduleError` if more were given."""
        _require_no_more(self.given, self.declared)
        return (None,) * self.declared


def _require_no_more(given: Sequence[int | None], count: int) -> None:
    if len(given) > count:
        raise ScheduleError("{0} decisions given, the step takes {1}", len(given), count)
