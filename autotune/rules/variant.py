"""One way to schedule a group of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from ..sketch import Step


@dataclass(frozen=True)
class Variant:
    """One way to schedule a group, by steps in turn. Variants that begin alike share the first."""

    name: str
    steps: tuple[Step, ...]
