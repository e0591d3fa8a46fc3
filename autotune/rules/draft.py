"""Drafts, the symbolic schedules that sketch rules work on, and the choices of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...base.errors import ScheduleError, TuningError
from ...base.text import in_lines
from ...schedule import Schedule
from ...schedule.find import find_block
from ...target import Target
from ...tir.expr_printer import shortened
from ...tir.ir import Block, Expr, Func, Label, Var
from .rule_sets import rules_for

if TYPE_CHECKING:
    from .rule import RuleSet


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

    def __repr__(self) -> str:
        return in_lines(f"<Draft of {shortened(self.func.name)} for {self.target}>".split())

    @property
    def func(self) -> Func:
        """The program as it is scheduled so far."""
        return self.schedule.func

    @property
    def rules(self) -> RuleSet:
        """The rules for the target. Raises `TargetError` for a kind of target that has none."""
        return rules_for(self.target)

    def block(self, label: Label) -> Block:
        """A block of the program as it is scheduled so far."""
        return find_block(self.func, label)

    def copy(self) -> Draft:
        """An independent draft in the same state, with the same decision variables."""
        return Draft(self.schedule.copy(), self.target, list(self.prune), dict(self.handoff))

    def map_outer(self, *loops: Var) -> Var:
        """Spread the iterations of the outermost loops over what the target runs at once.

        The loops follow each other inwards. Returns the loop that they are fused to. Raises
        `TargetError` for a kind of target that has no rules.
        """
        loop = self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]
        self.rules.map_outer(self.schedule, loop)
        return loop

    def limit(self, name: str, condition: bool | Expr) -> None:
        """Exclude the candidates that violate `condition`, a limit called `name`.

        Raises `ScheduleError` if all of them do, and `TuningError` for what is no limit.
        """
        require_limit(name, condition)
        if isinstance(condition, Expr):
            self.prune.append((name, condition))
        elif not condition:
            raise ScheduleError("every candidate violates: {0}", name)


def require_limit(name: object, condition: object) -> None:
    """Raise `TuningError` unless these are the name of a limit and its condition."""
    if not (isinstance(name, str) and name):
        raise TuningError("limit: expected a name, found {0!r:.80}", name, hint=_LIMIT)
    kind = condition.dtype if isinstance(condition, Expr) else type(condition).__name__
    if kind not in ("bool", "bool_"):
        raise TuningError(
            "limit {0!r:.80}: expected a condition, found {1!r:.80} ({2})",
            name,
            condition,
            kind,
            hint=_LIMIT,
        )


_LIMIT = 'draft.limit("at most eight lanes", lanes <= 8)'
Step = Callable[[Draft], None]
"""A part of a rule that changes a draft. Raises `ScheduleError` where it cannot."""


class Drafts:
    """Drafts by the steps that were applied to them. Common first steps are applied once."""

    def __init__(self) -> None:
        self._drafts: dict[tuple[Draft, tuple[Step, ...]], Draft | ScheduleError] = {}

    def after(self, start: Draft, steps: tuple[Step, ...]) -> Draft:
        """The draft after `steps`, not to be changed. Raises the `ScheduleError` of one of them."""
        if not steps:
            return start
        key = (start, steps)
        if key not in self._drafts:
            try:
                draft = self.after(start, steps[:-1]).copy()
                steps[-1](draft)
                self._drafts[key] = draft
            except ScheduleError as error:
                self._drafts[key] = error
        known = self._drafts[key]
        if isinstance(known, ScheduleError):
            raise known
        return known

    def refused(self, start: Draft, steps: tuple[Step, ...]) -> bool:
        """Whether these steps were tried, and one of them was refused."""
        return isinstance(self._drafts.get((start, steps)), ScheduleError)


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
