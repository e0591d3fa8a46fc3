"""Wrong results of candidates and rivals of a session, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from ...tuning_db.values import Baseline
from .rivals import Rival


class WrongResults:
    """How the results of rivals, and those of the last candidate, were wrong."""

    def __init__(self, rivals: Sequence[Rival]) -> None:
        self._rivals = rivals
        self._baselines: dict[Baseline, str] = {}
        self._last = ""

    def note(self, schedule: str, difference: str) -> None:
        """Keep how the results of a schedule (id) differ from those of the program."""
        self._last = difference
        wrong = (r.baseline for r in self._rivals if r.schedule.id == schedule)
        self._baselines.update(dict.fromkeys(wrong, difference))

    def text(self, wrong: int, trials: int) -> str | None:
        """Plain words where most of the trials, or a baseline, computed wrong results."""
        texts = [
            f"{baseline.phrase} computes wrong results, and is no baseline: {difference}"
            for baseline, difference in self._baselines.items()
        ]
        if 2 * wrong > trials:
            texts.append(
                f"{wrong} of {trials} candidates computed wrong results; the last: {self._last}"
            )
        return "\n".join(texts) or None
