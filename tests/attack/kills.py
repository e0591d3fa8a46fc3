"""Kills at random moments: every finished measurement is there, nobody is left, resuming works."""

from __future__ import annotations

from pathlib import Path

from tilewright import TuningDatabase, build

from ..autotune.kernels import matmul
from ..autotune.kills import campaign
from .attempt import Attack, Attempt, require

MOST_KILLS = 6


def prepare(folder: Path) -> Attack:
    return attack


def attack(attempt: Attempt) -> str:
    kills, seed = 1 + attempt.pick(MOST_KILLS), attempt.pick(1 << 30)
    attempt.note(f"python -m tests.autotune.kills --rounds {kills} --seed {seed}")
    killed = campaign(attempt.folder, kills, seed)
    for place in attempt.folder.glob("*.db"):
        with TuningDatabase(place) as db:
            module = build(matmul(), "cpu -threads=1", database=db)
        require(module.origin.kind == "record", f"built from {module.origin}")
    return ", ".join(sorted(killed))
