"""Rules of a target that fail: they are left out, and end neither a session nor a build.

The steps of a rule refuse a program by `ScheduleError`. Any other exception is a defect of the
rule. With `TILEWRIGHT_CHECK=1`, as in the tests of this package, it is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from ...base.errors import ScheduleError
from ...tir.node import CHECK
from .draft import Draft, Step
from .rule import Alternative, Group, RuleSet, SketchRule, Variant

T = TypeVar("T")

_log = logging.getLogger(__name__)


@cache
def guarded(rules: RuleSet) -> RuleSet:
    """The same rules; a warning says which of them fails for which program, and why."""
    return replace(
        rules,
        rules=tuple(map(_rule, rules.rules)),
        instructions=tuple(map(_rule, rules.instructions)),
        rewrites=tuple(map(_Rewrite, rules.rewrites)),
        alternatives=tuple(replace(r, make=_Alternatives(r.make)) for r in rules.alternatives),
    )


def _note(error: Exception, rule: str, draft: Draft) -> None:
    if CHECK:
        raise error
    _warn(rule, draft.func.name, f"{type(error).__name__}: {error}")


@cache
def _warn(rule: str, program: str, error: str) -> None:
    _log.warning("%s: the sketch rule %s fails, and is left out: %s", program, rule, error)


def _attempt(rule: object, draft: Draft, make: Callable[[], T], otherwise: T) -> T:
    """What a rule (a function, or its name) makes; `otherwise` where it fails."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001
        _note(error, str(getattr(rule, "__name__", rule)), draft)
        return otherwise


def _rule(rule: SketchRule) -> SketchRule:
    return replace(rule, variants=_Variants(rule))


@dataclass(frozen=True)
class _Variants:
    rule: SketchRule

    def __call__(self, draft: Draft, group: Group) -> Iterator[Variant]:
        name = self.rule.name
        empty: list[Variant] = []
        for variant in _attempt(name, draft, lambda: list(self.rule.variants(draft, group)), empty):
            yield replace(variant, steps=_steps(name, variant.steps))


@dataclass(frozen=True)
class _Alternatives:
    function: Callable[[Draft], Iterator[Alternative]]

    def __call__(self, draft: Draft) -> Iterator[Alternative]:
        empty: list[Alternative] = []
        for other in _attempt(self.function, draft, lambda: list(self.function(draft)), empty):
            before, after = _steps(other.name, other.before), _steps(other.name, other.after)
            yield replace(other, before=before, after=after)


@dataclass(frozen=True)
class _Rewrite:
    function: Callable[[Draft], Draft]

    def __call__(self, draft: Draft) -> Draft:
        return _attempt(self.function, draft, lambda: self.function(draft), draft)


def _steps(rule: str, steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple([_Step(step, rule) for step in steps])


@dataclass(frozen=True)
class _Step:
    """A step of a rule. Equal ones of several rules are taken once."""

    function: Step
    rule: str = field(compare=False)

    def __call__(self, draft: Draft) -> None:
        try:
            self.function(draft)
        except ScheduleError:
            raise
        except Exception as error:
            _note(error, self.rule, draft)
            raise ScheduleError("the sketch rule {0} fails: {1}", self.rule, error) from error
