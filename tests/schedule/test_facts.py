"""Facts that are kept while steps are taken."""

from __future__ import annotations

import threading

from tilewright.schedule.facts import MOST_FACTS, fact, keeping_facts, last, truths
from tilewright.tir.ir import Var


def test_a_fact_is_found_once_while_facts_are_kept() -> None:
    found: list[int] = []

    def find() -> int:
        found.append(len(found))
        return found[-1]

    with keeping_facts():
        assert fact("a", find) == 0
        with keeping_facts():
            assert fact("a", find) == 0
        assert fact("a", find) == 0
    assert fact("a", find) == 1
    with keeping_facts():
        assert fact("a", find) == 2


def test_facts_do_not_fill_the_memory() -> None:
    with keeping_facts():
        assert fact("a", lambda: 1) == 1
        for n in range(MOST_FACTS):
            fact(n, lambda: n)  # noqa: B023  (called at once)
        assert fact("a", lambda: 2) == 2


def test_another_thread_keeps_facts_of_its_own() -> None:
    with keeping_facts():
        fact("a", lambda: "here")
        found: list[str] = []
        other = threading.Thread(target=lambda: found.append(fact("a", lambda: "there")))
        other.start()
        other.join()
    assert found == ["there"]


def test_truths_are_those_of_their_ranges() -> None:
    n, i = Var("n"), Var("i")
    extent = n + 1
    with keeping_facts():
        assert last(extent) is last(extent)
        ranges = {n: (0, 7), i: (0, last(extent))}
        assert truths(ranges) is truths(dict(ranges))
        assert truths(ranges)(i <= n) is True
        assert truths({**ranges, n: (0, 9)})(i < 9) is None
        ranges[n] = (0, 3)
        assert truths(ranges)(i < 9) is True
        assert truths({n: (0, 3)}) is not truths({n: (0, 4)})
