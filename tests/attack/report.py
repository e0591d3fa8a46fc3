"""The outcomes of the tries of one kind."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """One try: `held` names what kept the promise, or `failure` says what broke it.

    `story` is what the try noted while it ran, and `kept` the folder with its files.
    """

    number: int
    held: str = ""
    failure: str | None = None
    story: str = ""
    kept: str = ""


@dataclass
class Report:
    """The tries of a kind, counted."""

    kind: str
    seed: int
    held: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        if outcome.failure is None:
            self.held[outcome.held] += 1
        else:
            self.failures.append(outcome)

    def failure_text(self, outcome: Outcome) -> str:
        """A failure with what makes it happen again."""
        lines = [
            f"{'-' * 72}\n{self.kind}, try {outcome.number}: {outcome.failure}",
            outcome.story.rstrip(),
            f"again: python -m tests.attack {self.kind} --seed {self.seed} --only {outcome.number}",
            f"files: {outcome.kept}" if outcome.kept else "",
        ]
        return "\n".join(line for line in lines if line)

    def summary(self) -> str:
        """One line: how many were tried, what held and how many failed."""
        tried = self.held.total() + len(self.failures)
        held = ", ".join(f"{n} {what}" for what, n in self.held.most_common())
        return (
            f"{self.kind}: {tried} tried in {time.monotonic() - self.began:.0f} s, "
            f"{self.held.total()} held ({held}), {len(self.failures)} failed"
        )
