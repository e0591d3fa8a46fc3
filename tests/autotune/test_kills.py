"""Random kills, a few of them: `python -m tests.autotune.kills` does as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..long import first_of
from .kills import campaign


@pytest.mark.parametrize("rounds", first_of([4, 24]))
def test_random_kills_cost_no_measurement_no_candidate_and_no_session(
    tmp_path: Path, rounds: int
) -> None:
    killed = campaign(tmp_path, rounds=rounds, seed=0)
    assert killed.total() == rounds
    assert {name.partition(" ")[0] for name in killed} == {"tuner", "builder", "runner"}
