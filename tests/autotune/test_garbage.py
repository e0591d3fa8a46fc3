"""Putting off the collector of cyclic garbage."""

from __future__ import annotations

import gc

import pytest

from tilewright.autotune.garbage import collected_later


def test_nothing_is_collected_meanwhile_and_also_after_errors() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), collected_later():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    @collected_later()
    def inner() -> bool:
        return gc.isenabled()

    with collected_later():
        assert not inner()
        assert not gc.isenabled()
    assert not inner()
    assert gc.isenabled()
