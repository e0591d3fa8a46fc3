"""Trials as a data frame of pandas, which the extra `plot` installs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ...base.errors import TuningError
from ...tuning_db.frames import required_pandas
from ..session.events import Trial

if TYPE_CHECKING:
    import pandas

_COLUMNS = (
    "number", "outcome", "seconds", "predicted", "best_seconds", "record", "error", "schedule",
    "elapsed",
)  # fmt: skip


def trials_frame(trials: Sequence[Trial]) -> pandas.DataFrame:
    """A row for each trial, by its number. Raises `TuningError` where pandas is not installed."""
    module = required_pandas(TuningError)
    rows = [{**asdict(trial), "outcome": trial.outcome.value} for trial in trials]
    frame: pandas.DataFrame = module.DataFrame(rows, columns=list(_COLUMNS))
    return frame.set_index("number")
