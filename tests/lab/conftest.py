"""Measurements of the lab on a machine that is busy with other tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.autotune.session import finals


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    """Finals are recorded, whatever else is running."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals, "slowdown", lambda *_: 1.0)
        yield
