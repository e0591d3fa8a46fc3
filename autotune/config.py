"""The options of a tuning session."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ..base.errors import TuningError
from .measure.measure_result import MeasureConfig
from .search.search import SearchConfig

MIN_FINALISTS = 5


@dataclass(frozen=True)
class TuneConfig:
    """The options of a session.

    `batch` candidates are built and then timed before the model learns from them. The fastest
    within `margin` of the best are timed interleaved at the end (the finals): `rounds` samples each
    at first, and more in about `final_seconds` while it is not known which are slower. There are no
    finals of less than two. There are at most `finalists` of them, and fewer of slow kernels, so
    that the first samples take a quarter of the time, but at least `MIN_FINALISTS`. After every
    `calm` trials one kernel is timed again; the margin is widened by as much as its time changes.
    Where it takes several times as long as at best, the session waits for `pause` seconds, then
    for twice and four times as long.

    The program as written and the untuned build take part in the finals too. If they are slow, they
    get a quarter of `final_seconds` of their own.
    """

    batch: int = 8
    finalists: int = 24
    margin: float = 1.1
    rounds: int = 9
    final_seconds: float = 2.0
    calm: int = 16
    pause: float = 1.0
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        if self.batch < 1 or self.rounds < 1 or self.calm < 1:
            raise TuningError(
                "TuneConfig: expected batch, rounds and calm of at least 1, found {0}, {1}, {2}",
                self.batch,
                self.rounds,
                self.calm,
            )

    def to_json(self) -> dict[str, Any]:
        """The options as a JSON object."""
        return asdict(self)
