"""The rules that users registered, in a session: what became of each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .rules.rule import GroupKind, SketchRule
from .rules.user_rules import SKETCH_RULES
from .search.sketch import Sketch

_log = logging.getLogger(__name__)


class RuleUse(NamedTuple):
    """The number of trials of candidates by a rule; or the reason why no sketch has it."""

    trials: int
    refusal: str | None


@dataclass(frozen=True)
class OwnRules:
    """The rules by name: the positions of their sketches, or the reason why they have none."""

    sketches: Mapping[str, Sequence[int]] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    _trials: Counter[int] = field(default_factory=Counter)

    @staticmethod
    def of(sketches: Sequence[Sketch], refusals: Mapping[str, str]) -> OwnRules:
        """Those that are registered, for a program with `sketches`.

        `refusals` are the first reasons of rules that did not apply to it, or to a part of it.
        """
        by_rule = {
            name: [n for n, s in enumerate(sketches) if any(c.rule == rule.name for c in s.choices)]
            for name, rule in SKETCH_RULES.items()
        }
        used = {name: places for name, places in by_rule.items() if places}
        reasons = {
            name: refusals.get(name, _no_sketch(rule))
            for name, rule in SKETCH_RULES.items()
            if name not in used
        }
        return OwnRules(used, reasons)

    def count(self, sketch: int) -> None:
        """Count a trial of a candidate of a sketch (its position)."""
        self._trials[sketch] += 1

    @property
    def uses(self) -> dict[str, RuleUse]:
        """What became of each rule so far."""
        used = {
            name: RuleUse(sum(self._trials[s] for s in places), None)
            for name, places in self.sketches.items()
        }
        return used | {name: RuleUse(0, reason) for name, reason in self.refusals.items()}


def warn_of_unused(programs: Sequence[tuple[str, OwnRules]]) -> None:
    """Warn of each rule that applies to no program (name), with the reasons."""
    used = {name for _, rules in programs for name in rules.sketches}
    for rule in dict.fromkeys(name for _, rules in programs for name in rules.refusals):
        if rule not in used:
            reasons = "; ".join(
                f"{program}: {rules.refusals[rule]}"
                for program, rules in programs
                if rule in rules.refusals
            )
            _log.warning("the sketch rule %s applies to nothing in this session: %s", rule, reasons)


def rules_text(uses: Mapping[str, RuleUse], trials: int) -> str | None:
    """What became of each rule in a session of `trials`, as a phrase."""
    phrases = (
        f"{name}: {use.trials} of {trials} trials"
        if use.refusal is None
        else f"{name}: not for this program: {use.refusal}"
        for name, use in uses.items()
    )
    return "; ".join(phrases) or None


def _no_sketch(rule: SketchRule) -> str:
    if rule.kind is GroupKind.PROGRAM:
        return "no sketch has it"
    return f"no sketch has it; it is for groups of kind {rule.kind.name}"
