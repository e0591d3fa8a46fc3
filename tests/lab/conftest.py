"""Measurements of the lab on a machine that is busy with other tests."""

from __future__ import annotations

import pytest

from tilewright.autotune.session import finals


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finals are recorded, whatever else is running."""
    monkeypatch.setattr(finals, "slowdown", lambda *_: 1.0)
