"""Golden tests of schedules: before, script and after in one file, and that the meaning is kept.

    def test_split_with_tail(golden):
        golden("split/tail", elementwise(10), lambda sch: sch.split(..., factors=[None, 4]))

writes and compares `goldens/split/tail.txt`. `pytest --update` writes the files anew. A file that
no test names any more fails `test_goldens.py`, which reads the names from the calls: they must be
literals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tilewright.schedule import Schedule

from ..wellformed import keep_structure
from .machinery import check

Script: TypeAlias = Callable[[Schedule], Any]
Golden: TypeAlias = Callable[..., Schedule]

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(autouse=True)
def lowering_keeps_the_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_structure(monkeypatch)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Run a script on a schedule, and check it against a golden file and in every other way."""
    update = bool(request.config.getoption("--update"))

    def run(name: str, func: Any, script: Script) -> Schedule:
        return check(GOLDENS / f"{name}.txt", func, script, update=update)

    return run
