"""The rules by kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...target import Target
from ...target.target import Registry

if TYPE_CHECKING:
    from .rule import RuleSet


def _cpu() -> RuleSet:
    from .cpu.rule_set import RULES

    return RULES


def _cuda() -> RuleSet:
    from .cuda.rule_set import RULES

    return RULES


_RULES = Registry("set of sketch rules", "register_rules", {"cpu": _cpu, "cuda": _cuda})


def register_rules(kind: str, load: Callable[[], RuleSet]) -> None:
    """Make sketches for targets of a kind by what `load` returns when it is first asked for.

    Raises `TargetError` where the kind has a set of rules already.
    """
    _RULES.register(kind, load)


def rules_for(target: Target) -> RuleSet:
    """The rules for its kind of target. Raises `TargetError` where there are none."""
    from .failures import guarded

    return guarded(_RULES.of(target))
