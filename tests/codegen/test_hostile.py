"""Objects that lie, raise and return nonsense: refused, or computed with as what they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("hostile.py")


@pytest.mark.parametrize("seed", [0, 1])
def test_hostile_objects_are_refused_or_computed_with(seed: int) -> None:
    """In a process of its own: a crash is a failure."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(seed), "1500"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-2000:]}"
    assert int(done.stdout) > 100, "many are honest enough to be computed with"
