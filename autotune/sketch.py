"""Sketches: schedules whose decisions are open.

A sketch is scheduled once with symbolic extents. A candidate is a row of integers, one for each
variable of the sketch's space; the constraints that the primitives recorded say which rows are
legal, `prune` which of them are worth a measurement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ScheduleError, TuningError
from ..schedule import Schedule, Trace
from ..schedule.find import blocks_in, find_block
from ..schedule.primitive import find_primitive
from ..schedule.require import Space
from ..target import Target
from ..tir.ir import Block, Expr, Func, Label, Var
from .garbage import collected_later
from .own_rules import schedules_by_own_rules

_log = logging.getLogger(__name__)


MAP_OUTER: dict[str, Callable[[Schedule, Var], None]] = {"cpu": Schedule.parallel}
"""How a kind of target runs the iterations of an outermost loop."""


@dataclass(eq=False)
class Draft:
    """A symbolic schedule that rules work on, and the limits that they put on its decisions.

    Labels of blocks and variables of loops stay valid in copies: a rule looks at the program as it
    is scheduled so far, decides, and goes on. `handoff` is what one step of a rule leaves for a
    later one, by block.
    """

    schedule: Schedule
    target: Target
    prune: list[tuple[str, Expr]] = field(default_factory=list)
    handoff: dict[Label, Any] = field(default_factory=dict)

    @property
    def func(self) -> Func:
        """The program as it is scheduled so far."""
        return self.schedule.func

    def block(self, label: Label) -> Block:
        """A block of the program as it is scheduled so far."""
        return find_block(self.func, label)

    def handle(self, label: Label) -> Label:
        """A block as the schedule's steps take it: one of the original program is asked for."""
        for position, block in enumerate(blocks_in(self.schedule.original.body)):
            if block.label is label:
                return self.schedule.get_block(position)
        return label

    def copy(self) -> Draft:
        """An independent draft in the same state, with the same decision variables."""
        return Draft(self.schedule.copy(), self.target, list(self.prune), dict(self.handoff))

    def map_outer(self, *loops: Var) -> Var:
        """Spread the iterations of the outermost loops over what the target runs at once.

        The loops follow each other inwards; the one loop made of them is returned.
        """
        loop = self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]
        MAP_OUTER[self.target.kind](self.schedule, loop)
        return loop

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
    def of(schedule: Schedule, name: str) -> Sketch:
        """A symbolic schedule as a sketch. Raises `TuningError` where it is none."""
        if schedule.space is None:
            raise TuningError(
                "sketch {0} has no open decisions: its schedule is not symbolic",
                name,
                hint="start it with Schedule(func, symbolic=True)",
            )
        return Sketch(name, (RuleChoice(name),), schedule.trace, schedule.func, schedule.space, ())

    @property
    def generator(self) -> str:
        """Its choices as text, which records of its schedules keep."""
        return generator_of(self.choices)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that register the primitives of its trace, those of this package left out."""
        homes = {find_primitive(step.op).home for step in self.trace}
        return tuple(sorted(home for home in homes if home is not None))

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(self.space.bounds)


Option = bool | int | str | tuple["Option", ...]


@dataclass(frozen=True)
class RuleChoice:
    """A rule and the options that it decided on, by name.

    Options count variables and inputs by their positions in a block, never by the names of tensors:
    the same choice for another size of a program, or under other names, is equal.
    """

    rule: str
    options: tuple[tuple[str, Option], ...] = ()

    @staticmethod
    def of(rule: str, **options: Option) -> RuleChoice:
        return RuleChoice(rule, tuple(sorted(options.items())))

    def __str__(self) -> str:
        values = ", ".join(f"{name}={_option_text(value)}" for name, value in self.options)
        return f"{self.rule}({values})" if values else self.rule


def _option_text(value: Option) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_option_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def generator_of(choices: Iterable[RuleChoice]) -> str:
    """The choices that make a sketch, as text."""
    return "+".join(map(str, choices))


Step = Callable[[Draft], None]
"""A part of a rule that changes a draft. Raises `ScheduleError` where it cannot."""


@collected_later()
def sketches(
    func: Func,
    target: Target,
    only: Callable[[str], bool] | None = None,
    *,
    algebra: bool = False,
) -> tuple[Sketch, ...]:
    """The sketches of a concrete program, the most promising first; `only` says which,
    by their generators.

    Those of rules of the user's own come last. With `algebra`, also of programs that are the same
    over the reals alone. A program for which no rule makes one is left as it is written, and a
    warning says why.

    Raises `ScheduleError` where `only` leaves none.
    """
    from .rules import plans

    made = []
    refused: list[str] = []
    drafts = _Drafts()
    for plan in plans(Draft(Schedule(func, symbolic=True), target), algebra=algebra):
        if only is not None and not only(generator_of(plan.choices)):
            continue
        try:
            draft = drafts.after(plan.start, plan.steps)
        except ScheduleError as error:
            refused.append(f"{plan.name}: {error}")
            continue
        sketch = Sketch.of(draft.schedule, plan.name)
        made.append(replace(sketch, choices=plan.choices, prune=tuple(draft.prune)))
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
    """Drafts by the steps that were applied to them. A shared beginning is made once."""

    def __init__(self) -> None:
        self._drafts: dict[tuple[Draft, tuple[Step, ...]], Draft | ScheduleError] = {}

    def after(self, start: Draft, steps: tuple[Step, ...]) -> Draft:
        """The draft after `steps`, not to be changed. Raises the `ScheduleError` of one of them."""
        if not steps:
            return start
        key = (start, steps)
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = self._applied(start, steps)
        if isinstance(draft, ScheduleError):
            raise draft
        return draft

    def _applied(self, start: Draft, steps: tuple[Step, ...]) -> Draft | ScheduleError:
        try:
            draft = self.after(start, steps[:-1]).copy()
            steps[-1](draft)
        except ScheduleError as error:
            return error
        return draft
