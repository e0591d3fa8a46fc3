"""One way to schedule a group of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from ..sketch import RuleChoice, Step


@dataclass(frozen=True)
class Variant:
    """What a rule decided for a group, and the steps that carry it out, in turn.

    `name` is for people. Variants that begin alike share their first steps.
    """

    choice: RuleChoice
    name: str
    steps: tuple[Step, ...]
