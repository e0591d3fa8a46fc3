"""What `make test` leaves to `make test-long`."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from .long import covering, spread


class Case:
    """Stands for an item of a test with two parameters."""

    def __init__(self, *ids: str) -> None:
        self.callspec = SimpleNamespace(_idlist=ids)


def cases() -> list[Any]:
    return [Case(*ids) for ids in product("abcd", "uvwxyz")]


def values(found: list[Any]) -> list[set[str]]:
    return [set(ids) for ids in zip(*(case.callspec._idlist for case in found), strict=True)]


def test_a_grid_keeps_each_value_of_each_parameter() -> None:
    found = covering(cases())
    assert len(found) == 6
    assert values(found) == [set("abcd"), set("uvwxyz")]


@pytest.mark.parametrize("count", [1, 5, 8, 24, 30])
def test_a_part_is_of_the_whole_list(count: int) -> None:
    every = cases()
    found = spread(every, count)
    assert len(found) == len(set(found)) == min(count, 24)
    assert set(found) <= set(every)
    if count == 8:  # not of one value of the second parameter, which changes fastest
        assert values(found)[0] == set("abcd")
        assert len(values(found)[1]) >= 4
