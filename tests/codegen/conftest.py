"""Conditions of the tests of code generation."""

from __future__ import annotations

import pytest

from ..wellformed import keep_structure


@pytest.fixture(autouse=True)
def lowering_keeps_the_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_structure(monkeypatch)
