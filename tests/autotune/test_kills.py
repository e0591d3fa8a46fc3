"""Random kills, a few of them: `python -m tests.autotune.kills` does as many as one likes."""

from __future__ import annotations

from pathlib import Path

from .kills import campaign


def test_random_kills_cost_no_measurement_no_candidate_and_no_session(tmp_path: Path) -> None:
    killed = campaign(tmp_path, rounds=10, seed=0)
    assert killed.total() == 10
    assert {name.partition(" ")[0] for name in killed} == {"tuner", "builder", "runner"}
