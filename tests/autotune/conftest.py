"""Machines and choices for sessions on recorded times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.codegen.disk_cache import LOCATION
from tilewright.target import CpuTarget

from ..hosts import take_for


@pytest.fixture
def given_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is taken for a processor of the table: the test is the same on any."""
    take_for(monkeypatch, CpuTarget.named("haswell", threads=2))


@pytest.fixture(scope="session")
def choices_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choices")


@pytest.fixture
def remembered_choices(choices_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built without a record is chosen once for all of these tests."""
    monkeypatch.setenv(LOCATION, str(choices_folder))
