"""What every test relies on: run-time checks are on, and the code under test is this checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["TILEWRIGHT_CHECK"] = "1"  # read when tilewright is imported

import tilewright

ROOT = Path(__file__).resolve().parent.parent

if Path(tilewright.__file__).resolve().parent != ROOT:
    pytest.exit(
        f"tilewright is imported from {tilewright.__file__}, not from {ROOT}; "
        "install this checkout: make clean test",
        returncode=3,
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository, which is the folder of the package."""
    return ROOT
