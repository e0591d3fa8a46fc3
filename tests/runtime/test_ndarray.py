"""The layout of numpy's array object is checked before it is relied on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.runtime import host_memory


@pytest.fixture
def fresh() -> Iterator[None]:
    host_memory.layout_is_known.cache_clear()
    yield
    host_memory.layout_is_known.cache_clear()


def test_the_layout_is_known(fresh: None) -> None:
    assert host_memory.layout_is_known()


@pytest.mark.parametrize(
    "field", ["DATA", "NDIM", "DIMENSIONS", "STRIDES", "DESCR", "FLAGS", "TYPE"]
)
def test_another_layout_is_noticed_and_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh: None, field: str
) -> None:
    other = host_memory.TYPE if field != "TYPE" else host_memory.DESCR
    monkeypatch.setattr(
        host_memory, field, other if field not in ("DIMENSIONS", "STRIDES") else host_memory.DATA
    )
    assert not host_memory.layout_is_known()
    assert "unknown layout" in caplog.text


@pytest.mark.parametrize("known", [True, False])
def test_addresses_are_those_that_numpy_tells(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    monkeypatch.setattr(host_memory, "layout_is_known", lambda: known)
    read = host_memory.address_reader()
    for array in (np.zeros((3, 4))[1:, ::2], np.zeros(0), np.zeros(())):
        assert read(array) == array.ctypes.data
