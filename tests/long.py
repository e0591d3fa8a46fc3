"""What takes long: a part of it in `make test`, all of it in `make test-long`."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet

LONG = bool(os.environ.get("TILEWRIGHT_TEST_LONG"))


def first_of(values: Iterable[object], count: int = 1) -> list[ParameterSet]:
    """The values as parameters of a test; those after the first `count` are marked `long`."""
    return [
        pytest.param(value, marks=pytest.mark.long if n >= count else ())
        for n, value in enumerate(values)
    ]


def examples(count: int) -> int:
    """How many random examples a test has that takes long."""
    return count if LONG else -(-count // 8)


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark items of tests that are marked `part` or `grid` as `long`.

    Of `part(n)` stay n items, evenly spread. Of `grid` stays at least one item for each value of
    each `parametrize`: of two with 4 and 6 values, 6 of the 24 items.
    """
    tests: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and not item.get_closest_marker("long"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        part, grid = (cases[0].get_closest_marker(name) for name in ("part", "grid"))
        if part is None and grid is None:
            continue
        kept = covering(cases) if part is None else spread(cases, *part.args)
        for item in set(cases) - set(kept):
            item.add_marker(pytest.mark.long)


def spread(cases: list[pytest.Function], count: int) -> list[pytest.Function]:
    """So many of the items, one of each piece of the list, at another place in each."""
    piece = max(1, len(cases) // count)
    return [cases[k * piece + k % piece] for k in range(min(count, len(cases)))]


def covering(cases: list[pytest.Function]) -> list[pytest.Function]:
    """Items that have each value of each `parametrize`, chosen one by one for what is lacking."""
    has = {item: set(enumerate(item.callspec._idlist)) for item in cases}
    used = Counter[tuple[int, str]]()
    lacking = set().union(*has.values())
    found = []
    while lacking:
        best = max(cases, key=lambda i: (len(has[i] & lacking), -sum(used[v] for v in has[i])))
        found.append(best)
        used.update(has[best])
        lacking -= has[best]
    return found
