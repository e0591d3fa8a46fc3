"""What is worked out of the blocks of programs, kept for programs that have blocks in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 1 << 13
"""Beyond it all is forgotten: the programs of a long session would fill the memory."""


class Memo:
    """Answers by their keys; whoever estimates similar programs owns one.

    Nodes of programs are part of keys, so that they live as long as their answers.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def kept(self, key: Hashable, find: Callable[[], T]) -> T:
        """The answer of a key, which `find` returns if it is not known yet."""
        known = self._known
        if key not in known:
            value = find()
            if len(known) >= self._most:
                known.clear()
            known[key] = value
        answer: T = known[key]
        return answer
