"""Sketches: schedules whose decisions are open.

A sketch is scheduled once with symbolic extents. A candidate is a row of integers, one for each
variable of the sketch's space; the constraints that the primitives recorded say which rows are
legal, `prune` which of them are worth a measurement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ScheduleError, TuningError
from ..schedule import Schedule, Trace
from ..schedule.find import blocks_in
from ..schedule.primitive import find_primitive
from ..schedule.require import Space
from ..target import Target
from ..tir.ir import Expr, Func, Label, Var
from .garbage import collected_later
from .own_rules import schedules_by_own_rules

_log = logging.getLogger(__name__)


@dataclass
class Draft:
    """A schedule that rules are at work on, and the limits that they put on its decisions.

    `told` is what a rule says of a block, by its number, to those that go on with it. `views` are
    the copies that a block reads, by its number, which are computed inline in the end.
    """

    schedule: Schedule
    target: Target
    prune: list[tuple[str, Expr]] = field(default_factory=list)
    made: list[Label] = field(default_factory=list)
    told: dict[int, Any] = field(default_factory=dict)
    views: dict[int, tuple[Label, ...]] = field(default_factory=dict)

    def block(self, number: int) -> Label:
        """A block by its position in the original program; those in `made` are numbered on."""
        first = len(list(blocks_in(self.schedule.original.body)))
        return self.schedule.get_block(number) if number < first else self.made[number - first]

    def copy(self) -> Draft:
        """An independent draft in the same state, with the same decision variables."""
        made, told, views = list(self.made), dict(self.told), dict(self.views)
        return Draft(self.schedule.copy(), self.target, list(self.prune), made, told, views)

    def limit(self, name: str, condition: bool | Expr) -> None:
        """Call rows hopeless for which `condition` does not hold.

        Raises `ScheduleError` where it holds for none.
        """
        if isinstance(condition, Expr):
            self.prune.append((name, condition))
        elif not condition:
            raise ScheduleError("no candidate is worth measuring: {0}", name)


@dataclass(frozen=True)
class Sketch:
    """A trace with open decisions, and the symbolically scheduled program.

    Rows of `space.bounds` (the variables in the order of the trace's decisions) are its candidates.
    """

    name: str
    trace: Trace
    func: Func
    space: Space
    prune: tuple[tuple[str, Expr], ...]

    @staticmethod
    def of(schedule: Schedule, name: str) -> Sketch:
        """A symbolic schedule as a sketch. Raises `TuningError` where it is none."""
        if schedule.space is None:
            raise TuningError(
                "sketch {0} has no open decisions: its schedule is not symbolic",
                name,
                hint="start it with Schedule(func, symbolic=True)",
            )
        return Sketch(name, schedule.trace, schedule.func, schedule.space, ())

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that register the primitives of its trace, those of this package left out."""
        homes = {find_primitive(step.op).home for step in self.trace}
        return tuple(sorted(home for home in homes if home is not None))

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(self.space.bounds)


Rule = Callable[[Draft], None]


@collected_later()
def sketches(
    func: Func,
    target: Target,
    only: Callable[[str], bool] | None = None,
    *,
    algebra: bool = False,
) -> tuple[Sketch, ...]:
    """The sketches of a concrete program, the most promising first; `only` says which, by name.

    Those of rules of the user's own come last. With `algebra`, also of programs that are the same
    over the reals alone. A program for which no rule makes one is left as it is written, and a
    warning says why.

    Raises `ScheduleError` where `only` leaves none.
    """
    from .rules import plans

    made = []
    refused: list[str] = []
    drafts = _Drafts(Draft(Schedule(func, symbolic=True), target))
    for name, rules in plans(func, target, algebra=algebra):
        if only is not None and not only(name):
            continue
        try:
            draft = drafts.after(rules)
        except ScheduleError as error:
            refused.append(f"{name}: {error}")
            continue
        made.append(replace(Sketch.of(draft.schedule, name), prune=tuple(draft.prune)))
    for name, schedule in schedules_by_own_rules(func, target):
        if only is None or only(name):
            made.append(Sketch.of(schedule, name))
    if not made and only is None:
        _log.warning("no rule makes a schedule for %s: left as written", func.name)
        _log.info("%s", "\n".join(refused))
        made.append(Sketch.of(Schedule(func, symbolic=True), "written"))
    if not made:
        raise ScheduleError("no rule makes a schedule for {0}:\n{1}", func.name, "\n".join(refused))
    return tuple(made)


class _Drafts:
    """Drafts by the rules that were applied to them: what several begin with is done once."""

    def __init__(self, start: Draft) -> None:
        self._found: dict[tuple[Rule, ...], Draft | ScheduleError] = {(): start}

    def after(self, rules: tuple[Rule, ...]) -> Draft:
        """The draft after `rules`, not to be changed. Raises the `ScheduleError` of one of them."""
        found = self._found.get(rules)
        if found is None:
            found = self._found[rules] = self._applied(rules)
        if isinstance(found, ScheduleError):
            raise found
        return found

    def _applied(self, rules: tuple[Rule, ...]) -> Draft | ScheduleError:
        try:
            draft = self.after(rules[:-1]).copy()
            rules[-1](draft)
        except ScheduleError as error:
            return error
        return draft
