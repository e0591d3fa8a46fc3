"""Sketches: schedules whose decisions are open.

A sketch is scheduled once with symbolic extents. A candidate is a row of integers, one for each
variable of the sketch's space; the constraints that the primitives recorded say which rows are
legal, `prune` which of them are worth a measurement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from ...base.errors import ScheduleError, TuningError
from ...base.process import collected_later
from ...schedule import Schedule, Trace
from ...schedule.facts import keeping_facts
from ...schedule.primitive import find_primitive
from ...schedule.require import Space
from ...schedule.tensorizable import instruction_modules
from ...target import Target
from ...tir.ir import Expr, Func, Var, as_expr
from ..model.target_model import target_limits
from ..rules.draft import Draft, Drafts, RuleChoice, generator_of

if TYPE_CHECKING:
    from ..rules import SketchPlan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sketch:
    """A trace with open decisions, and the symbolically scheduled program.

    Rows of `space.bounds` (the variables in the order of the trace's decisions) are its candidates.
    `choices` identify it among the sketches of a program, and the same sketch among those of
    another size; `name` is for people.
    """

    name: str
    choices: tuple[RuleChoice, ...]
    trace: Trace
    func: Func
    space: Space
    prune: tuple[tuple[str, Expr], ...]

    @staticmethod
    def of(
        schedule: Schedule,
        name: str,
        choices: tuple[RuleChoice, ...] | None = None,
        prune: Iterable[tuple[str, Expr]] = (),
    ) -> Sketch:
        """A symbolic schedule as a sketch, whose only choice is its name if none are given.

        Raises `TuningError` for a schedule that is not symbolic.
        """
        if schedule.space is None:
            raise TuningError(
                "sketch {0} has no open decisions: its schedule is not symbolic",
                name,
                hint="start it with Schedule(func, symbolic=True)",
            )
        chosen = (RuleChoice(name),) if choices is None else choices
        func, space = schedule.func, schedule.space
        return Sketch(name, chosen, schedule.trace, func, space, tuple(prune))

    @staticmethod
    def of_concrete(schedule: Schedule, name: str) -> Sketch:
        """A schedule that is not symbolic as a sketch: its sampled decisions are open again.

        One without sampling steps is the only candidate. Raises `TuningError` where the steps are
        refused as long as the decisions are open.
        """
        if not schedule.trace.decisions:
            choices = (RuleChoice(name),)
            return Sketch(name, choices, schedule.trace, schedule.func, Space(), ())
        try:
            opened = schedule.trace.opened().apply(schedule.original, symbolic=True)
        except ScheduleError as error:
            raise TuningError(
                "{0}: its steps need the decisions that it sampled: {1}",
                name,
                error.condition,
                hint="give these steps numbers in place of what the sample_ steps return",
            ) from error
        return Sketch.of(opened, name)

    def within(self, target: Target) -> Sketch:
        """The sketch without the rows whose programs exceed a limit of a target.

        The limits of its own stay. A program without decisions has no other row: it is as it is.
        """
        if not self.variables:
            return self
        limits = target_limits(self.func, target, self.space)
        more = [(name, as_expr(condition)) for name, condition in limits]
        return replace(self, prune=(*self.prune, *more))

    @property
    def generator(self) -> str:
        """Its choices as text, which records of its schedules keep."""
        return generator_of(self.choices)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that register the primitives of its trace and the instructions of its blocks,
        those of this package left out."""
        homes = {find_primitive(step.op).home for step in self.trace}
        modules = {home for home in homes if home is not None}
        return tuple(sorted(modules | instruction_modules(self.func)))

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(self.space.bounds)


@collected_later()
@keeping_facts()
def sketches(
    func: Func,
    target: Target,
    only: Collection[str] | None = None,
    *,
    inexact: bool = False,
) -> tuple[Sketch, ...]:
    """The sketches of a concrete program, the most promising first; those alone whose generators
    are among `only`, if given.

    Sketches of the user's rules come last. With `inexact`, sketches with inexact steps are among
    them. If no rule applies, the only sketch is the program as written, and a warning says why.

    Raises `ScheduleError` if `only` leaves none.
    """
    return tuple(sketches_in_turn(func, target, only, inexact=inexact))


def sketches_in_turn(
    func: Func,
    target: Target,
    only: Collection[str] | None = None,
    *,
    inexact: bool = False,
    wanted: Callable[[tuple[RuleChoice, ...]], bool] = lambda _: True,
) -> Iterator[Sketch]:
    """Like `sketches`, each made when it is asked for; but for those whose choices are not `wanted`
    when it is their turn."""
    from ..rules import plans

    refused: list[str] = []
    drafts = Drafts()
    original = Draft(Schedule(func, symbolic=True), target)

    def accepted(plan: SketchPlan) -> Iterator[Sketch | None]:
        if not wanted(plan.choices):
            yield None  # in the place of one, so that the others stay the same
            return
        try:
            draft = drafts.after(plan.start, plan.steps)
        except ScheduleError as error:
            refused.append(f"{plan.name}: {error}")
            return
        if inexact or not draft.schedule.trace.inexact:
            yield Sketch.of(draft.schedule, plan.name, plan.choices, draft.prune)

    none = True
    for family in plans(original, drafts, only, inexact=inexact):
        for sketch in islice(chain.from_iterable(map(accepted, family.plans)), family.most):
            none = False
            if sketch is not None:
                yield sketch
    if none and only is not None:
        raise ScheduleError("no rule makes a schedule for {0}:\n{1}", func.name, "\n".join(refused))
    if none:
        _log.warning("no rule makes a schedule for %s: left as written", func.name)
        _log.info("%s", "\n".join(refused))
        yield written(func, target)


def written(func: Func, target: Target) -> Sketch:
    """The program as it is written, without decisions, but for what its target asks of all."""
    from ..rules import completing

    draft = Draft(Schedule(func, symbolic=True), target)
    draft = Drafts().after(draft, completing(draft))
    return Sketch.of(draft.schedule, "written")
