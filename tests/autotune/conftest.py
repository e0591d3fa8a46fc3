"""Machines and choices for sessions on recorded times."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tilewright import TuningDatabase
from tilewright.autotune.measure.measure_result import MeasureResult
from tilewright.autotune.search import search
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.autotune.session import tuning_job as tuning
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.target import CpuTarget

from ..hosts import take_for
from .kernels import matmul
from .recorded import Play, Recorded


@pytest.fixture
def given_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is taken for a processor of the table: the test is the same on any."""
    take_for(monkeypatch, CpuTarget.named("haswell", threads=2))


@pytest.fixture(scope="session")
def choices_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choices")


@pytest.fixture
def remembered_choices(
    choices_folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is built without a record is chosen once, of few sketches or of all."""
    sketches = "few" if "sketched" in request.fixturenames else "all"
    monkeypatch.setenv(LOCATION, str(choices_folder / sketches))


@pytest.fixture
def db() -> TuningDatabase:
    return TuningDatabase("sqlite://")


@cache
def prepared() -> tuple[Sketch, ...]:
    return sketches(matmul(), resolve("cpu -threads=1"))[:3]


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """`matmul` has few sketches, which are made once for all tests."""
    monkeypatch.setattr(search, "sketches", lambda *_, **__: prepared())


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Make `tune` measure by what was recorded."""

    def start(*measured: MeasureResult, **options: Any) -> Recorded:
        recorded = Recorded(measured, **options)
        monkeypatch.setattr(tuning, "Measurer", recorded)
        return recorded

    return start
